"""Our method for sensors on the agent: along the agent's axes, a resting point moves by the inverse of the action.

    L = L_int + L_cont + L_reach + L_contact + L_-

phi_ext outputs where the object is along the agent's axes, and the action moves it into the common frame of o and o'.
L_cont is InfoNCE on these positions: no W is needed, since positions already are what W would have to learn. How far
they move identifies the contacts.

If a scanner turns with the agent, the same place has a different scan for each heading. So phi_ext gets each scan
turned back by the learned heading, in whole rays.
Legend: b batch, k objects, n ambient dimension, r rays.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.contacts.split import Split
from palpate.data.transitions import Batch
from palpate.geometry import rotated, unit
from palpate.methods.base import Loss
from palpate.methods.contact import AGENT_TEMPERATURE, VECTORS_FLOOR
from palpate.methods.geometric import DOUBT, Geometric
from palpate.objectives.contact import Wrong
from palpate.objectives.contrastive import beyond_reach, infonce
from palpate.objects import Objects
from palpate.scans import direction_of_turns, turned_back

NEAR = 0.005  # quantile of unrelated scenes' distances; objects nearer than this count as in one place
# The temperature of squared distances falls from the first to the second until SHARP_FROM of the run: positions are
# rough at first.
TEMPERATURES, SHARP_FROM = (0.3, 0.02), 0.6
KNOWN_FROM, RESTS_FROM = 0.15, 0.3  # shares of the run from which contacts and L_- count
# InfoNCE pushes positions apart, a little farther than they are. So it fades out once contacts separate.
FADES = (0.5, 0.7)


class Carried(Geometric):
    """phi_int and phi_ext. A fixed point, such as one of a wall, fits all triples, but does not lower InfoNCE."""

    # InfoNCE does not measure positions; in L_- one missed contact outweighs the rest.
    not_judged = frozenset({"contrast", "reach", "stay"})
    carried = True
    scenes: Scenes

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.scenes = Scenes([Split(floor=NEAR)], dimension=None)
        self.direction = nn.Buffer(torch.zeros(()))  # of the rays; 0: scans do not turn with the agent

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        super().measure(sample, actions)
        if self.group.turn_width == 1 and not self.config.picture:
            turn = self.group.turn(sample.a)
            self.direction.fill_(direction_of_turns(sample.o, turn, sample.o_next))

    def located(self, x: Tensor) -> tuple[Tensor, Objects]:
        z_int = self.group.flawless(self.group.pose(self.phi_int(x)))
        return z_int, self.head(self.sighted(x, z_int), z_int)

    def sighted(self, x: Tensor, z_int: Tensor) -> Tensor:
        """phi_ext's output [b, k * ...] for scaled observations; along the axes of agents with poses `z_int`."""
        heading = self.group.heading(z_int.detach())
        if heading is None or x.dim() != 2:
            return self.phi_ext(x)
        a_ray = 2 * math.pi / x.shape[1]
        rays = self.direction.abs() * torch.round(heading / a_ray)
        out = self.phi_ext(turned_back(x, self.direction * rays))
        return torch.cat((rotated(out[:, :2], unit(-a_ray * rays)), out[:, 2:]), 1)

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        x = self.inputs(torch.cat((batch.o, batch.o_next)), generator)
        raw = self.phi_int(x)
        ext = self.sighted(x, self.group.pose(raw))
        both = [part for output in (raw, ext) for part in output.chunk(2)]
        return (*both, self.inputs.scaled(batch.a), *batch.journey)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """The losses. One estimate and the action give both poses of the agent. So an error of the estimate moves the
        object in o and in o' alike, and does not look like a motion."""
        raw, raw_next, ext, ext_next, a, *journey = outputs
        z_int, z_int_next = self.group.pose(raw), self.group.pose(raw_next)
        start = self.start(z_int, a, z_int_next)
        end = self.group.act(start, a)
        before, after = self.head(ext, start), self.head(ext_next, end)
        path = self.group.path(start, a)
        touching = self.head.clearance(before, path).detach() < 0
        moved = self.scenes.observe(before.position, after.position, touching)  # [b, k]
        contact, share = moved.float(), self.scenes.share
        first, last = TEMPERATURES
        temperature = first * (last / first) ** (progress / SHARP_FROM).clamp(max=1.0)
        # In units of the batch's spread, if that exceeds a step: with short steps hardly any two agents would be near.
        unit2 = self.group.spread2(end).clamp(min=1.0) * AGENT_TEMPERATURE
        agents = self.group.distance2(end[:, None], end[None]) / unit2
        contrast = infonce(before.position, after.position, agents, temperature=temperature, floor=VECTORS_FLOOR)
        valley = self.scenes.has_valley.float().mean()
        begin, end_of_fade = FADES
        contrasted = 1 - valley * ((progress - begin) / (end_of_fade - begin)).clamp(0, 1)
        places = torch.cat((before.position, after.position))
        terms = {
            "contrast": contrasted * contrast.mean(),
            "reach": beyond_reach(places, self.group.position(end)[:, None]).mean(),
            "contact": (progress >= KNOWN_FROM)
            * self.contact_term(before, after, path, contact, share, Wrong.evenly(DOUBT, share)),
            "stay": (progress >= RESTS_FROM) * valley * self.stay_term(before, after, contact, progress),
        }
        if self.training and self.group.turns:  # without headings there is no common frame
            follows = self.follows(z_int, a, z_int_next)
            terms = {name: follows * term for name, term in terms.items()}
        terms = {"agent": self.agent_term(raw, a, raw_next, journey), **terms}
        return Loss(terms, {"contact_share": contact.mean()}, self.scenes.reliable(moved))

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        (_, before), (_, after) = self.located(self.inputs(o)), self.located(self.inputs(o_next))
        return self.scenes.distance(before.position, after.position)

    def recall(self, blocks: Sequence[Batch]) -> None:
        if blocks:
            distances = torch.cat([self.scene_distance(batch.o, batch.o_next) for batch in blocks])
            touching = torch.cat([self.predicted(batch.o, batch.a[:, None])[:, 0] > 0 for batch in blocks])
            self.scenes.recall(distances, touching)
