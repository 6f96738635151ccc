"""Our method: agent, scenes, and objects whose bodies explain the contacts (paper, Sec. 4; departures: docs/method.md).

    L = L_int + L_cont + L_contact + L_-

Three networks see every observation: phi_int outputs the agent's pose, phi_cont the scene's point in W, phi_ext the
objects. The distance that a scene moves in W splits the triples into changes and others; later the distance that the
object moves does so, if it agrees better with geometry. Of several objects, each one's odds decide which has changed.
A change is a contact, or the object is hidden in one of the observations. Paths and bodies must explain the contacts,
and otherwise objects stay.
Legend: b batch, k objects, n ambient dimension, m dimension of W.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.contacts.hiding import agent_hides
from palpate.contacts.joint import JointOdds
from palpate.contacts.mistakes import Mistakes
from palpate.contacts.recent import Recent
from palpate.contacts.relocation import better_place, due
from palpate.contacts.scenes import Scenes
from palpate.contacts.slots import Slots
from palpate.contacts.split import Split
from palpate.contacts.witnesses import PLACES_FROM, Witnesses
from palpate.data.transitions import Batch
from palpate.methods.base import Anew, Loss, Model
from palpate.methods.geometric import FIRST_REST_SCALE, Geometric
from palpate.methods.refinement import refine_model
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objectives.contact import Wrong
from palpate.objectives.contrastive import infonce
from palpate.objectives.paper import stay
from palpate.objects import Objects

TEMPERATURE, AGENT_TEMPERATURE = 0.1, 0.03  # of d_W, and of the agents' distance
# Added to exp(-d_W / tau). Vectors change smoothly; they need a higher floor if most triples are contacts.
PICTURES_FLOOR, VECTORS_FLOOR = 0.001, 0.1
AGAIN_RAW_SOFTNESS = 0.0  # of the boundary, at most, once labels are joint odds
SHARPENS_FROM = 0.4  # share of the run after which the softness is compared with others; before, positions are rough
INSEPARABLE_UNTIL = 0.6  # share of the run after which labels stay what they are
PLACED_FROM = 0.08  # share of the run after which an object may count as placed


class Contact(Geometric):
    """phi_int, phi_ext and phi_cont with their losses."""

    # InfoNCE does not measure positions; in L_- one missed contact outweighs the rest.
    not_judged = frozenset({"contrast", "stay"})
    scaffold = ("recent", "joint")
    temperature, agent_temperature = TEMPERATURE, AGENT_TEMPERATURE
    scenes: Witnesses

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.objects)
        count = len(self.head)
        w = Scenes([self.make_split() for _ in range(count)])
        places = Scenes([Split() for _ in range(count)], dimension=None)
        self.scenes = Witnesses(w, places)
        self.phi_cont = Branch(make_encoder(config), self.scenes.width)
        self.mistakes = Mistakes(count)
        self.slots = Slots(count)
        self.recent: Recent | None = Recent(count, self.group)
        # Of several objects, responsibility weighs the changes.
        self.joint: JointOdds | None = JointOdds(2) if count == 1 else None
        # Of the weights of slots that start anew. It is the run's own; drawing one would change the run.
        self.seed = nn.Buffer(torch.tensor(torch.initial_seed() % 2**31))
        self.floor = PICTURES_FLOOR if config.picture else VECTORS_FLOOR

    def make_split(self) -> Split:
        """A split of distances in W."""
        return Split()

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        raw = self.networks(self.inputs(torch.cat((batch.o, batch.o_next)), generator))
        both = [part for output in raw for part in output.chunk(2)]
        return (*both, self.learns_from(batch), self.inputs.scaled(batch.a), *batch.journey)

    def networks(self, x: Tensor) -> list[Tensor]:
        """Outputs of phi_int, phi_ext and phi_cont for scaled observations."""
        return side_by_side((self.phi_int, self.phi_ext, self.phi_cont), x)

    def learns_from(self, batch: Batch) -> Tensor:
        """From which triples `[b]` W learns, 1 or 0."""
        return batch.a.new_ones(len(batch.a))

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        int_, int_next, ext, ext_next, cont, cont_next, used, a, *journey = outputs
        z_int, z_int_next = self.group.pose(int_), self.group.pose(int_next)
        before, after = self.head(ext, z_int.detach()), self.head(ext_next, z_int_next.detach())
        w, w_next = self.scenes(cont), self.scenes(cont_next)  # [b, k, m]
        start = self.start(z_int, a, z_int_next)
        path = self.group.path(start, a)
        clearance = self.head.clearance(before, path).detach()
        touching = clearance < 0
        odds = self.odds(before, after, path, progress)
        changes = self.changes(before, after, path)
        changed = self.scenes.observe(
            w, w_next, before.position, after.position, touching, odds, self.slots.surer, progress
        )  # [b, k]
        if self.training:
            self.head.placed.logical_or_((progress >= PLACED_FROM) & self.scenes.agrees)
            moved = stay(before.position, after.position) > self.head.sizes(before).square()
            self.slots.observe(touching, moved)
            self.mistakes.observe(changed, changes, self.head.placed & self.scenes.own_labels)
        wrong, share = self.wrong(), self.scenes.share
        if self.training and self.joint is not None:
            distances = (
                self.scenes.scenes.distance(w, w_next),
                self.scenes.places.distance(before.position, after.position),
            )
            joint, likely = self.joint.observe(torch.cat(distances, 1).detach(), clearance[:, 0])
            changed, wrong, share = self.weighed(changed, wrong, share, joint[:, None], likely)
        missed = (1 - changed) * torch.sigmoid(changes + wrong.missed.log() - torch.log1p(-wrong.false))
        if self.training and self.recent is not None:
            apart, apart_next = self.from_agent(z_int, before), self.from_agent(z_int_next, after)
            self.recent.store(start, a, before.position, clearance, apart, apart_next, changed > 0.5)
        terms = {
            "agent": self.agent_term(int_, a, int_next, journey),
            "contrast": self.contrast(w, w_next, z_int_next, used),
            "contact": self.contact_term(before, after, path, changed, share, wrong),
            "stay": self.stay_term(before, after, changed + missed, progress),
        }
        if self.training and self.group.turns:
            terms["stay"] = self.follows(z_int, a, z_int_next) * terms["stay"]
        contacts = self.scenes.reliable(changed > 0.5)
        return Loss(terms, {"contact_share": changed.mean()}, contacts, self.wanted(contacts, used))

    def wanted(self, contacts: Tensor, used: Tensor) -> Tensor:
        """Triples `[b]` bool of a data set that may be drawn more often."""
        return contacts

    def contrast(self, w: Tensor, w_next: Tensor, z_int_next: Tensor, used: Tensor) -> Tensor:
        """L_cont (Eq. 5) of the triples that W learns from."""
        return self.contrasts(w, w_next, z_int_next).mean()

    def contrasts(self, w: Tensor, w_next: Tensor, z_int_next: Tensor) -> Tensor:
        """L_cont of each triple, without a gradient for the agent: its repulsion would stretch the agent's frame."""
        z = z_int_next.detach()
        # In units of the batch's spread, if that exceeds a step: with short steps hardly any two agents would be near.
        unit2 = self.group.spread2(z).clamp(min=1.0) * self.agent_temperature
        agents = self.group.distance2(z[:, None], z[None]) / unit2
        return infonce(w, w_next, agents, temperature=self.temperature, floor=self.floor)

    # Which object

    def rest_scale(self, progress: Tensor) -> Tensor:
        """Loose while a slot may hold no object: otherwise L_- would hold it where it is."""
        return torch.where(self.slots.valid, super().rest_scale(progress), FIRST_REST_SCALE)

    # Contacts

    def wrong(self) -> Wrong:
        """Shares [k] of wrong labels; none until an object is placed and has labels of its own."""
        known = self.head.placed & self.scenes.own_labels
        return Wrong(*(torch.where(known, rate, 0.0) for rate in self.mistakes.rates()))

    def weighed(
        self, changed: Tensor, wrong: Wrong, share: Tensor, joint: Tensor, likely: Tensor
    ) -> tuple[Tensor, Wrong, Tensor]:
        """Labels [b, 1], how probably each is wrong, and the share of changes. Once joint log-odds [b, 1] decide, all
        follow from these, with their share of changes; until then they are as given."""
        assert self.joint is not None
        decide, doubt = self.joint.decide, torch.sigmoid(-joint.abs())
        changed = torch.where(decide, (joint > 0).to(changed.dtype), changed)
        return changed, Wrong(*(torch.where(decide, doubt, x) for x in wrong)), torch.where(decide, likely, share)

    def weigh(self, share: float) -> list[Anew]:
        """Let the joint odds decide for the rest of the run, if contacts do not separate when they should.

        Wrong labels have made the boundary as soft as possible by then; from there it would learn too slowly.
        """
        if self.joint is None or self.joint.decide or not PLACES_FROM <= share <= INSEPARABLE_UNTIL:
            return []
        if bool(self.scenes.separate.any()) or not bool(self.joint.agree.any()):
            return []
        self.joint.decide.fill_(True)
        self.raw_softness.clamp_(max=AGAIN_RAW_SOFTNESS)
        return [Anew(self.raw_softness)]

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        return self.scenes.deciding(*self._distances(o, o_next))

    def _distances(self, o: Tensor, o_next: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances in W `[b, s]` and between positions `[b, k]`."""
        both = self.inputs(torch.cat((o, o_next)))
        w, w_next = self.scenes(self.phi_cont(both)).chunk(2)
        z, z_next = self.located(both)[1].position.chunk(2)
        return self.scenes.scenes.distance(w, w_next), self.scenes.places.distance(z, z_next)

    def scene(self, o: Tensor) -> Tensor:
        """Points of W `[b, k, m]` for observations."""
        return self.scenes(self.phi_cont(self.inputs(o)))

    def held_out(self, blocks: Sequence[Batch]) -> float | None:
        """With the contact threshold of these triples; see `Split.recall`."""
        if not self.separable():
            return None
        before = deepcopy(self.scenes.state_dict())
        self.recall(blocks)
        try:
            return Model.held_out(self, blocks)
        finally:
            self.scenes.load_state_dict(before)

    def recall(self, blocks: Sequence[Batch]) -> None:
        if blocks:
            pairs = [self._distances(batch.o, batch.o_next) for batch in blocks]
            touching = torch.cat([self.predicted(batch.o, batch.a[:, None])[:, 0] > 0 for batch in blocks])
            scenes, places = map(torch.cat, zip(*pairs, strict=True))
            self.scenes.recall(scenes, places, touching)

    # Places

    def from_agent(self, z_int: Tensor, objects: Objects) -> Tensor:
        """Positions of the objects relative to the agent, `[b, k, n]`."""
        return self.group.difference(objects.position, self.group.position(z_int)[:, None])

    @torch.no_grad()
    def adapt(self, share: float) -> list[Anew]:
        """Let spare slots start anew, let joint odds decide, and look for a better place of each object; a few times
        each.

        An object may be hidden as soon as this explains more than contacts alone do. A boundary that is far too soft is
        sharpened.
        """
        renewed, anew = self.slots.renew(share), self.weigh(share)
        generator = torch.Generator().manual_seed(int(self.seed) + int(self.slots.rounds))
        for i in renewed:
            anew += self.restart(i, generator)
            self.scenes.restart(i)
            self.mistakes.restart(i)
            if self.recent is not None:
                self.recent.restart(i)
        if self.recent is None:  # a trained model that is trained further
            return anew
        searching = due(self.recent, share)
        for i in self.head.placed.nonzero()[:, 0].tolist():
            body = self.head[i]
            radius = body.size(self.recent.start.new_zeros(body.pose_width))
            if not self.head.may_hide[i]:
                self.head.may_hide[i] = agent_hides(self.recent, i, radius)
            if share >= SHARPENS_FROM:
                anew += self.sharpen(i, self.recent, self.wrong())
            place = better_place(self.recent, i, radius, resize=body.resizable) if searching else None
            if place is not None:
                self.head.relocate(i, place.offset, place.radius)
                self.recent.shift(i, place.offset)
                if self.joint is not None:
                    self.joint.forget()
        return anew

    # Refinement

    def refine(self, draw: Callable[[], Batch], steps: int) -> None:
        refine_model(self, draw, steps)
