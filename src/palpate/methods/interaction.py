"""The method: three networks trained from (o, a, o') alone (paper, Sec. 4), with the paper's objective or ours.

Inside, lengths are in units of the actions' root mean square; `encode` gives them back in the action's own unit.
Legend: b batch, n ambient dimension, m dimension of W.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.bodies.body import Body, Form
from palpate.config import ModelConfig
from palpate.contacts.scout import Scout, place_split
from palpate.contacts.split import SEPARABLE, Split
from palpate.data.transitions import Batch
from palpate.geometry import Segment, around, axis_angle, border, long_axis
from palpate.inputs import Inputs
from palpate.methods.base import Encoding, Loss, Model
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objectives.contact import (
    balanced_nll,
    gaussian_stay,
    gaussian_touch,
    levelled,
    spread_nearby,
    stay,
    touch,
    unshrinkable,
)
from palpate.objectives.contrastive import infonce, squared_distance
from palpate.objectives.equivariance import equivariance
from palpate.refine import Bend, keep_the_best

SHARE_RANGE = (0.02, 0.98)
SHAPE_FROM = 0.4  # of the run: the body's form is learned when angles are known
# L_- gains weight when the object has been found, while the learning rate falls: what the contacts of a few batches say
# is noise by then, and L_- is not.
RISES_FROM, RISES_UNTIL = 0.4, 0.8
# Where a scout goes ahead, z_ext follows it for half of the run; then its own losses come in soon, until FREE_FROM, and
# the scout is left slowly, until LEFT_AT: left at once, it may settle elsewhere. Contacts count from KNOWN_FROM on.
FOLLOW, FOLLOWS_UNTIL, FREE_FROM, LEFT_AT, KNOWN_FROM = 10.0, 0.5, 0.55, 0.8, 0.3
# The last fit: batches that are drawn for it, of as many as the run had; those of them that only judge it; the share
# of contacts told wrong that it allows for: there are fewer, but beside a sharp border one would outweigh all others.
SETTLES, JUDGES, SETTLING_DOUBT = 0.12, 0.2, 0.005
MOST_SETTLING = 100_000  # triples: all of them are looked at together
# Some of the contacts that a scout tells are none. So are some of those held out, and sharp borders would make of each
# of them more than of all the others.
DOUBT = 0.05
BORDER_POINTS, BORDER_DIRECTIONS = 120, 720


class Told(NamedTuple):
    """What the networks, as they are, say of triples."""

    ext: Tensor  # [b, n + ...]
    ext_next: Tensor
    start: Tensor  # [b, n] of the path
    move: Tensor  # [b, n]
    touched: Tensor  # [b] bool


class Interaction(Model):
    """phi_int, phi_ext and phi_cont with their losses; where the agent carries its cameras, a scout for phi_cont."""

    scaffold = ("scout",)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.fused: Callable[..., Loss] | None = None
        objective, n = config.objective, config.n
        self.body = Body(objective)  # first: checkpoints number the parameters, and the body's have always led
        self.inputs = Inputs(config.observation_shape)
        self.phi_int = Branch(make_encoder(config), n)
        self.scout = Scout(config) if objective.egocentric else None
        self.phi_cont = None if objective.egocentric else Branch(make_encoder(config), objective.contrast_dim)
        extra = {"likelihood": 2 if objective.body == "axes" else 0, "point": 0, "gaussian": n * (n + 1) // 2}
        shared = self.phi_cont if objective.shared_network else None
        encoder = make_encoder(config) if shared is None else shared.encoder
        self.phi_ext = Branch(encoder, n + extra[objective.external])
        if objective.egocentric:
            self.split = place_split(config)
        else:
            self.split = Split(on=objective.split_on, window=objective.split_window, floor=objective.split_floor)
        self.bend = Bend(n, objective.bend) if objective.bend else None
        self.register_load_state_dict_pre_hook(_as_named_now)

    def loss(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
        """L = L_int + L_cont + L_ext (Eq. 7), term by term."""
        clean = self.inputs(torch.cat((batch.o, batch.o_next)))
        x = self.inputs.disturbed(clean, generator)
        t = torch.rand(len(batch.a), generator=generator, device=batch.a.device)
        w: Tensor | None = None
        if self.phi_cont is not None:
            z_int, ext, w = side_by_side((self.phi_int, self.phi_ext, self.phi_cont), x)
        else:
            z_int, ext = side_by_side((self.phi_int, self.phi_ext), x)
            if self.scout is not None:
                w = self.scout(clean, z_int.detach(), self.inputs, generator)
        # bf16 is for the encoders; distances and likelihoods stay in float32.
        with torch.autocast(x.device.type, enabled=False):
            objective = self.fused if self.fused is not None and self.training else self._objective
            return objective(z_int, ext, w, batch.a / self.inputs.unit, t, progress)

    def _objective(
        self, z_int_both: Tensor, ext_both: Tensor, w_both: Tensor | None, a: Tensor, t: Tensor, progress: Tensor
    ) -> Loss:
        """The losses from what the networks say of o and o', stacked [2b, ...]."""
        objective, n = self.config.objective, self.config.n
        z_int, z_int_next = z_int_both.chunk(2)  # [b, n]
        ext_both = self._placed(ext_both, z_int_both.detach())
        scene = ext_both[:, :n] if self.phi_cont is None or w_both is None else F.normalize(w_both, dim=-1)
        w, w_next = scene.chunk(2)  # [b, m]
        touched = self.split.told(w, w_next)  # [b]
        # With the gradient a small body drowns L_int and the agent's frame collapses.
        # o and o' both tell where the path began; the paper takes o's word.
        start = (z_int + z_int_next - a) / 2 if objective.external == "likelihood" else z_int
        path = Segment(start if objective.segment_gradient else start.detach(), a)
        terms = {"agent": equivariance(z_int, a, z_int_next).mean()}
        if self.phi_cont is not None:
            terms["contrast"] = self._contrast(w, w_next, z_int_next)
        if self.scout is None or w_both is None:
            ext, ext_next = ext_both.chunk(2)
            terms |= self._external(ext, ext_next, path, touched, self.split.share, t, progress)
        else:
            terms |= self._scouted(self.scout, w_both, ext_both, path, touched, t, progress)
        return Loss(terms, {"contact_share": touched.float().mean()}, self._sure(touched))

    def _scouted(
        self,
        scout: Scout,
        place_both: Tensor,
        ext_both: Tensor,
        path: Segment,
        moved: Tensor,
        t: Tensor,
        progress: Tensor,
    ) -> dict[str, Tensor]:
        """The scout's loss, and L_ext with the contacts that it tells.

        phi_ext sees the object and the whole world, and would say that the object stands in one place of it; so it
        begins in the scout's footsteps. These leave a constant open, which the contacts find: as long as z_ext follows
        they move nothing but its mean.

        An object that the scout has lost, behind a net for example, seems to have moved. Such triples are not followed,
        and as soon as z_ext is free it has to agree that the object `moved` [b]. Its word counts while it tells two
        classes apart: one that sees nothing move would have no contacts to explain.
        """
        place, place_next = place_both.chunk(2)
        told = scout.split.told(place, place_next)
        alone = (progress < FREE_FROM) | ~self.split.apart()
        touched = told & (moved | alone)
        free, left = (((progress - FOLLOWS_UNTIL) / (end - FOLLOWS_UNTIL)).clamp(0, 1) for end in (FREE_FROM, LEFT_AT))
        mean = ext_both.mean(0)
        led = ext_both.detach() + mean - mean.detach()
        ext, ext_next = (led + free * (ext_both - led)).chunk(2)
        external = self._external(ext, ext_next, path, touched, scout.split.share, t, progress)
        followed = (~told).to(place.dtype).repeat(2)[:, None]  # [2b, 1]
        followed = followed / followed.sum().clamp(min=1.0)
        z_ext, ahead = ext_both[:, : self.config.n], place_both.detach()
        apart = stay(z_ext - (followed * z_ext).sum(0), ahead - (followed * ahead).sum(0))
        return {
            "scout": scout.loss(place, place_next, progress),
            "follow": (1 - left) * FOLLOW * (followed[:, 0] * apart).sum(),
            "contact": (progress >= KNOWN_FROM) * external["contact"],
            "stay": free * external["stay"],
        }

    def _contrast(self, w: Tensor, w_next: Tensor, z_int_next: Tensor) -> Tensor:
        """L_cont (Eq. 5)."""
        objective = self.config.objective
        z_other = z_int_next if objective.contrast_gradient else z_int_next.detach()
        z_other = z_other * math.sqrt(objective.temperature / objective.agent_temperature)
        if objective.agent_spread:
            # Twice the variance is the mean square of a step from anywhere to anywhere, which is 1 in these units.
            z_other = z_other / (2 * z_int_next.detach().var(0).sum()).clamp(min=1.0).sqrt()
        return infonce(w, w_next, z_other, temperature=objective.temperature, floor=objective.contrast_floor).mean()

    def _external(
        self,
        ext: Tensor,
        ext_next: Tensor,
        path: Segment,
        touched: Tensor,
        share: Tensor,
        t: Tensor,
        progress: Tensor,
    ) -> dict[str, Tensor]:
        """L_ext (Eq. 6): L_- where nothing was touched; elsewhere L_+, or the likelihood of touching everywhere.

        `touched` [b] are the contacts, and `share` about how many of all triples are.
        """
        objective = self.config.objective
        kind, weight = objective.external, objective.stay_weight
        z_ext, shape = self._seen(ext)
        z_ext_next, shape_next = self._seen(ext_next)
        if kind == "likelihood":
            form = self._form(torch.where(progress < SHAPE_FROM, 0.0, 1.0))
            remained = stay(z_ext, z_ext_next)
            if objective.stay_reach > 0 and self.training and len(z_ext) > 1:
                remained = unshrinkable(z_ext, z_ext_next, spread_nearby(z_ext, z_ext_next, objective.stay_reach))
            if shape is not None and shape_next is not None:
                # Turning counts by how far it moves the tips: a doubled angle moves twice as far as the angle.
                remained = remained + stay(shape, shape_next) * (form.tip() / 2).square().detach()
            rise = objective.stay_rise ** ((progress - RISES_FROM) / (RISES_UNTIL - RISES_FROM)).clamp(0, 1)
            # Held-out triples count as they come: a few rare contacts would make the choice of the weights a lottery.
            share = share if self.training else torch.full_like(share, 0.5)
            doubt = DOUBT if objective.egocentric or not self.training else 0.0
            before, after = (form.touch_logit(z, s, path) for z, s in ((z_ext, shape), (z_ext_next, shape_next)))
            return {
                "contact": balanced_nll(before, after, touched, share.clamp(*SHARE_RANGE), doubt),
                "stay": weight * rise * torch.where(touched, 0.0, levelled(remained, objective.stay_level)).mean(),
            }
        if kind == "point":
            remained, met = stay(z_ext, z_ext_next), touch(z_ext, path)
        else:
            assert shape is not None
            assert shape_next is not None
            remained = gaussian_stay(z_ext, shape, z_ext_next, shape_next)
            met = gaussian_touch(z_ext, shape, path, t)
        return {
            "stay": weight * torch.where(touched, 0.0, remained).mean(),
            "touch": torch.where(touched, met, 0.0).mean(),
        }

    def _placed(self, ext: Tensor, z_int: Tensor) -> Tensor:
        """What phi_ext says [b, n + ...], its place in the common frame: as seen by an agent it is told from there."""
        n = self.config.n
        if not self.config.objective.egocentric:
            return ext
        return torch.cat((ext[:, :n] + z_int, ext[:, n:]), 1)

    def _seen(self, ext: Tensor) -> tuple[Tensor, Tensor | None]:
        """z_ext and how the body lies: an axis in the unit disc [b, 2], a triangular root [b, n, n], or nothing."""
        n, objective = self.config.n, self.config.objective
        z_ext, rest = ext[:, :n], ext[:, n:]
        if self.bend is not None and not self.training:  # it is fitted when training is over
            z_ext = self.bend(z_ext)
        if objective.external == "gaussian":
            diagonal = F.softplus(rest[:, :n]) + 1e-3
            rows, columns = torch.tril_indices(n, n, offset=-1, device=ext.device)
            root = torch.diag_embed(diagonal).index_put(
                (torch.arange(ext.shape[0], device=ext.device)[:, None], rows, columns), rest[:, n:]
            )
            return z_ext, root
        if objective.external == "likelihood" and objective.body == "axes":
            return z_ext, rest / torch.sqrt(1 + rest.square().sum(-1, keepdim=True))
        return z_ext, None

    def _form(self, learned: Tensor | float = 1.0) -> Form:
        return self.body.form(self.inputs.unit, learned)

    @torch.no_grad()
    def settle(self, draw: Callable[[], Batch], steps: int) -> None:
        """Bend z_ext, and fit the body with it, until they explain the contacts of many fresh triples at once.

        A step sees few triples, and the error that a whole region of the field has in common is a small part of what
        each of them says. Triples that the fit has not seen must be explained better by it; else all stays as it was.
        """
        count = math.ceil(SETTLES * steps)
        if self.bend is None or self.bend.coefficients.any() or count < 2 or self.split.separation() < SEPARABLE:
            return
        told = [self._told(draw())]
        count = min(count, max(2, MOST_SETTLING // len(told[0].touched)))
        told += [self._told(draw()) for _ in range(count - 1)]
        judging = math.ceil(JUDGES * count)
        others, fitted = (Told(*map(torch.cat, zip(*part, strict=True))) for part in (told[:judging], told[judging:]))
        if not fitted.ext.isfinite().all():
            return
        self.bend.measure(fitted.ext[:, : self.config.n])
        keep_the_best(self.bend, self.body.learned, lambda: self._surprise(fitted), lambda: self._surprise(others))

    def _told(self, batch: Batch) -> Told:
        x, a = self.inputs(torch.cat((batch.o, batch.o_next))), batch.a / self.inputs.unit
        z_int, z_int_next = self.phi_int(x).chunk(2)
        ext, ext_next = self.phi_ext(x).chunk(2)
        touched = self.split(self.distance(batch.o, batch.o_next))
        return Told(ext, ext_next, (z_int + z_int_next - a) / 2, a, touched)

    def _surprise(self, told: Told) -> Tensor:
        """-log P(contacts), whatever the share of contacts."""
        path = Segment(told.start, told.move)
        before, after = (self._form().touch_logit(*self._seen(ext), path) for ext in (told.ext, told.ext_next))
        share = told.touched.float().mean().clamp(*SHARE_RANGE)
        return balanced_nll(before, after, told.touched, share, SETTLING_DOUBT)

    @property
    def not_judged(self) -> frozenset[str]:
        """InfoNCE says nothing of positions; of L_- one contact taken for none outweighs all the rest."""
        likelihood = self.config.objective.external == "likelihood"
        return frozenset({"contrast", "stay", "scout"} if likelihood else {"contrast"})

    def held_out(self, blocks: Sequence[Batch]) -> float:
        """As every model's, with contacts told among these triples themselves; see `Split.recall`."""
        if self.phi_cont is None:
            return super().held_out(blocks)
        with self.split.recalling(self._distances(blocks)):
            return super().held_out(blocks)

    def recall(self, blocks: Sequence[Batch]) -> None:
        """Let triples that were not trained on say from which distance on triples were touched."""
        if blocks and self.phi_cont is not None:
            self.split.recall(self._distances(blocks))

    def _distances(self, blocks: Sequence[Batch]) -> Tensor:
        return torch.cat([self.distance(batch.o, batch.o_next) for batch in blocks])

    def contacts(self, batch: Batch) -> Tensor:
        return self._sure(self.split(self.distance(batch.o, batch.o_next)))

    def _sure(self, touched: Tensor) -> Tensor:
        """A threshold of one batch is not trusted so far, nor one between classes that are not apart yet."""
        apart = self.split.valley >= SEPARABLE
        return touched & apart if self.config.objective.split_window else torch.zeros_like(touched)

    @property
    def telling(self) -> Split:
        """Who says in training what was touched."""
        return self.split if self.scout is None else self.scout.split

    def vitals(self) -> dict[str, float]:
        """What a person watching the run wants to know beside its losses; waits for the device."""
        vitals = {"separation": self.split.separation()}
        if self.scout is not None:
            vitals["scout_separation"] = self.scout.split.separation()
        if self.config.objective.external == "likelihood":
            vitals |= self.body.vitals(self.inputs.unit)
            if self.bend is not None:  # its root mean square, 0 before the last fit and where that was of no use
                vitals["bend"] = float(self.bend.coefficients.norm() * self.inputs.unit)
        return vitals

    def compile_step(self) -> None:
        """Fuse the kernels of the encoders and of the losses."""
        leading = self.phi_cont if self.scout is None else self.scout.branch
        for branch in (self.phi_int, self.phi_ext, leading):
            if branch is not None:
                branch.fuse()
        self.fused = torch.compile(self._objective, dynamic=False)

    def parameter_groups(self) -> list[dict[str, Any]]:
        parts = (self.phi_int, self.phi_ext, self.phi_cont, self.scout)
        networks = [p for part in parts if part is not None for p in part.parameters()]
        groups = [{"params": list(dict.fromkeys(networks))}, *self.body.parameter_groups()]
        return [group for group in groups if group["params"]]

    def encode(self, o: Tensor) -> Encoding:
        """Positions, ellipsoid and orientation for observations `[b, ...]`."""
        x, unit, objective = self.inputs(o), self.inputs.unit, self.config.objective
        z_int = self.phi_int(x)
        z_ext, shape = self._seen(self._placed(self.phi_ext(x), z_int))
        covariance = orientation = None
        if objective.external == "gaussian":
            assert shape is not None
            covariance = shape @ shape.mT
            if self.config.n == 2:
                x_axis, y_axis = long_axis(covariance).unbind(-1)
                orientation = torch.atan2(y_axis, x_axis) % torch.pi
        elif objective.external == "likelihood":
            form = self._form()
            covariance = form.covariance(shape, o.shape[0], self.config.n)  # len() would fix the size of an export
            if shape is not None:  # should the ratio have come out below 1, the long axis is the other one
                orientation = axis_angle(torch.where(form.log_ratio < 0, -shape, shape))
        return Encoding(
            z_int * unit, z_ext * unit, None if covariance is None else covariance * unit.square(), orientation
        )

    def border(self, o: Tensor) -> Tensor | None:
        objective = self.config.objective
        if self.config.n != 2 or objective.external == "point":
            return None
        x = self.inputs(o)
        _, shape = self._seen(self.phi_ext(x))
        u = around(BORDER_DIRECTIONS, self.inputs.unit)
        if objective.external == "gaussian":
            assert shape is not None
            reach = (u @ shape).norm(dim=-1)  # the root of u^T covariance u
        else:
            reach = self._form().reach(u, shape)
        return border(reach.expand(o.shape[0], -1), BORDER_POINTS) * self.inputs.unit

    def distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        """d_W `[b]` between observations."""
        return squared_distance(*self.scene(torch.cat((o, o_next))).split(len(o)))

    def scene(self, o: Tensor) -> Tensor:
        """Points of W `[b, m]` for observations."""
        if self.phi_cont is None:
            return self.encode(o).object / self.inputs.unit
        return F.normalize(self.phi_cont(self.inputs(o)), dim=-1)

    def contact(self, o: Tensor, o_next: Tensor) -> Tensor:
        """Probability `[b]` that the object was touched between two observations, by the split."""
        return self.split.probability(self.distance(o, o_next))

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor:
        """Probability `[b]` that moving by `a` touches the object, by geometry alone."""
        if self.config.objective.external != "likelihood":
            raise ValueError("this model was trained without a body; would_touch needs the 'contact' objective")
        return self._foretold(o, a[:, None])[:, 0].sigmoid()

    def passing(self, o: Tensor, a: Tensor) -> Tensor:
        """How far moving by `a` passes from the object's border, and its radius on top, `[b]`: as of a disc."""
        form = self._form()
        return (form.radius - self._foretold(o, a[:, None])[:, 0] * form.softness) * self.inputs.unit

    def doubts(self, o: Tensor, moves: Tensor) -> Tensor:
        likelihood = self.config.objective.external == "likelihood"
        return -self._foretold(o, moves).abs() if likelihood else super().doubts(o, moves)

    def _foretold(self, o: Tensor, moves: Tensor) -> Tensor:
        """log-odds `[b, k]` that each of some `moves` [b, k, n] from o touches the object."""
        x = self.inputs(o)
        z_int = self.phi_int(x)
        ext = self._placed(self.phi_ext(x), z_int)
        count = moves.shape[1]

        def repeated(y: Tensor) -> Tensor:
            return y.float()[:, None].expand(-1, count, -1).flatten(0, 1)

        with torch.autocast(o.device.type, enabled=False):
            z_ext, shape = self._seen(ext.float())
            path = Segment(repeated(z_int), moves.flatten(0, 1) / self.inputs.unit)
            shapes = None if shape is None else repeated(shape)
            return self._form().touch_logit(repeated(z_ext), shapes, path).view(-1, count)


def _as_named_now(model: Interaction, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Take the body from models and runs that were saved before it was a part of its own."""
    for name, _ in model.body.named_parameters():
        if prefix + name in state:
            state[f"{prefix}body.{name}"] = state.pop(prefix + name)
