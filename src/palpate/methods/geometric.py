"""The contact likelihood: bodies that explain which paths are in contact. Our two methods share it.

Legend: b batch, k objects, n ambient dimension, c moves.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from palpate.bodies import make_body
from palpate.bodies.base import LR_SCALE
from palpate.config import ModelConfig
from palpate.contacts.boundary import best_softness
from palpate.contacts.recent import Recent
from palpate.data.transitions import Batch
from palpate.geometry import Path
from palpate.methods.base import Anew
from palpate.methods.located import Located
from palpate.objectives.contact import (
    LEAST_CHANCE,
    SHARE_RANGE,
    Hidden,
    Wrong,
    balanced_nll,
    change_logs,
    rest_log_density,
    rest_nll,
    spread_nearby,
    unshrinkable,
)
from palpate.objectives.paper import stay
from palpate.objects import Objects
from palpate.refine import Correction

# Softness of the boundary. Below the range the likelihood of a few triples would grow without bound; above it distant
# objects get hardly any gradient. With a refinement triples are fresh, and the boundary may be sharper.
SOFTNESS, SHARPEST = (0.004, 0.1), 0.001
FIRST_RAW_SOFTNESS, FIRST_REST_SCALE = 2.0, 0.3
# Softnesses that are compared: their range before the sigmoid, and their number. A softness that is so many times the
# best one is far too large.
RAW_CHOICES, CHOICES, FAR_TOO_SOFT = (-6.0, 3.0), 41, 2.5
# Triples in which the object is hidden in both observations: least probability of a change, and of none; how much of
# their count is kept from step to step; how many changes among them are needed before a change is the rule.
UNSEEN_DOUBT, UNSEEN_MEMORY, FEWEST_UNSEEN = 0.02, 0.98, 10.0
# The rest floor falls from LOOSE_REST to its setting over this part of the run. The object is found then, and the
# contacts of a few batches are noisier than L_-.
LOOSE_REST, SHARPENS = 0.1, (0.4, 0.8)
NEIGHBOURHOOD = 0.25  # width used to normalise L_-, in standard deviations of all positions
GEOMETRY_DOUBT = 0.02  # least probability of a contact that geometry excludes, if the scene has changed
REACH = 2.0  # how far a touched object may move along each axis, about, in units of the actions' root mean square
DOUBT = 0.05  # share of wrong labels that a criterion assumes, so that one far away does not outweigh many right ones


class Geometric(Located):
    """Bodies, the softness of their boundary, and the scale of rest. Subclasses decide which triples are contacts."""

    hides = True

    def __init__(self, config: ModelConfig, objects: int = 1) -> None:
        scene = config.objective
        if config.n == 1 and scene.radius is None:
            raise ValueError(
                "actions have one dimension: the agent cannot pass the object without contact, so position and radius "
                "cannot be separated. Give the sum of the two radii as radius=, in the action's unit"
            )
        bodies = [make_body(scene.body, config.n, radius=scene.radius) for _ in range(objects)]
        super().__init__(config, bodies, Correction(config.n) if scene.refine else None)
        self.sharpest = SHARPEST if scene.refine else SOFTNESS[0]
        self.raw_softness = nn.Parameter(torch.full((objects,), FIRST_RAW_SOFTNESS))
        self.log_rest_scale = nn.Parameter(torch.full((objects,), FIRST_REST_SCALE).log())
        self.unseen = nn.Buffer(torch.zeros(2, objects))  # triples hidden in both observations; changes among them

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        super().measure(sample, actions)
        self.head.measure(self.inputs.unit)

    @property
    def softness(self) -> Tensor:
        """Width of the zone of uncertain contact, `[k]`."""
        return self.sharpest + self._softness_range * self.raw_softness.sigmoid()

    @property
    def _softness_range(self) -> float:
        return SOFTNESS[1] - self.sharpest

    @torch.no_grad()
    def sharpen(self, index: int, recent: Recent, wrong: Wrong) -> list[Anew]:
        """Set the softness of one object to the best one for the last triples, if it is far too large. Shares [k] of
        their labels are `wrong`.

        While positions are rough, it grows to its bound. From there gradients change it too slowly: it is flat there,
        and Adam divides by the large gradients of before.
        """
        rows = recent.rows(index)
        if rows is None or rows.clearance.isnan().any():
            return []
        choices = self.sharpest + self._softness_range * torch.linspace(*RAW_CHOICES, CHOICES).sigmoid()
        rates = Wrong(*(rate[index] for rate in wrong))
        best = best_softness(rows.clearance, rows.changed, choices.to(rows.clearance), rates)
        if self.softness[index] < FAR_TOO_SOFT * best:
            return []
        self.raw_softness[index] = torch.logit((best - self.sharpest) / self._softness_range)
        return [Anew(self.raw_softness, index)]

    def rest_scale(self, progress: Tensor) -> Tensor:
        """Scale of the distance between two observations of an object at rest, `[k]`."""
        last = self.config.objective.rest_floor
        assert last is not None
        begin, end = SHARPENS
        loose = max(LOOSE_REST, last)
        least = loose * (last / loose) ** ((progress - begin) / (end - begin)).clamp(0, 1)
        return torch.sqrt(least**2 + self.log_rest_scale.exp().square())

    @property
    def hidden_change(self) -> Tensor:
        """Log-odds `[k]` of a change if an object is hidden in both observations.

        The scene changes nearly always if it did so in most of such triples lately, else nearly never. A rate in
        between would let "hidden" explain the contacts of a visible object: any part of the plane could count as
        hidden.
        """
        never = math.log(UNSEEN_DOUBT / (1 - UNSEEN_DOUBT))
        return torch.where(self.unseen[1] > (self.unseen[0] / 2).clamp(min=FEWEST_UNSEEN), -never, never)

    @torch.no_grad()
    def _count_unseen(self, before: Objects, after: Objects, changed: Tensor) -> None:
        both = (before.hidden > 0) & (after.hidden > 0)  # [b, k]
        self.unseen.mul_(UNSEEN_MEMORY).add_(torch.stack((both.sum(0), (both & (changed > 0.5)).sum(0))))

    def logit(self, objects: Objects, path: Path) -> Tensor:
        """log-odds of contact `[b, k]` between paths and objects."""
        return -self.head.clearance(objects, path) / self.softness

    def start(self, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
        """Start of the path: the mean of the estimates from o and from o', which is more accurate than one.

        Detached: the gradient of a small body would outweigh L_int, and the agent's frame would collapse.
        """
        return self.group.start(z_int, a, z_int_next).detach()

    def contact_term(
        self,
        before: Objects,
        after: Objects,
        path: Path,
        changed: Tensor,
        share: Tensor,
        wrong: Wrong,
    ) -> Tensor:
        """-log P(label) of a batch, for labels [b, k], 0 to 1: changes, which are a `share` [k] of all triples."""
        if self.training:
            self._count_unseen(before, after, changed)
        else:
            # One criterion for all weights. Its classes are not balanced: a few rare contacts would decide.
            share, wrong = torch.full_like(share, 0.5), Wrong.evenly(DOUBT, share)
        return self.surprise(before, after, path, changed, share, wrong, sure=self.head.placed)

    def surprise(
        self,
        before: Objects,
        after: Objects,
        path: Path,
        changed: Tensor,
        share: Tensor,
        wrong: Wrong,
        *,
        sure: Tensor | bool = True,
    ) -> Tensor:
        logits, hidden = (self.logit(before, path), self.logit(after, path)), self._hidden(before, after)
        return balanced_nll(*logits, hidden, changed, share, wrong, sure=sure).mean(0).sum()

    @torch.no_grad()
    def changes(self, before: Objects, after: Objects, path: Path) -> Tensor:
        """Geometry's log-odds `[b, k]` of a change."""
        changed, unchanged = change_logs(self.logit(before, path), self._hidden(before, after))
        return changed - unchanged + torch.where(self.head.placed, 0.0, self._rarity)

    @property
    def _rarity(self) -> Tensor:
        """Log-odds `[k]` of a change in the data. Those of the geometry include it once an object is placed; before,
        they are for equally many triples with and without change."""
        share = self.scenes.share.clamp(*SHARE_RANGE)
        return torch.log(share) - torch.log1p(-share)

    def _hidden(self, before: Objects, after: Objects) -> Hidden:
        return Hidden(before.hidden, after.hidden, self.hidden_change)

    def stay_term(self, before: Objects, after: Objects, changed: Tensor, progress: Tensor) -> Tensor:
        """L_-: an object stays where it is, unless it has changed."""
        return ((1 - changed) * self.rest(before, after, progress)).mean(0).sum()

    def rest(self, before: Objects, after: Objects, progress: Tensor) -> Tensor:
        """-log of the density `[b, k]` of each object's motion if it is at rest, up to a constant."""
        pairs = zip(before.position.unbind(1), after.position.unbind(1), strict=True)
        remained = torch.stack([self.remained(z, z_next) for z, z_next in pairs], 1) + self.head.turned2(before, after)
        return rest_nll(remained, self.rest_scale(progress), self.group.n)

    def remained(self, z_ext: Tensor, z_ext_next: Tensor) -> Tensor:
        """|z_ext - z_ext'|^2 `[b]`, whose gradient in training does not shrink the frame."""
        if not self.training or len(z_ext) < 2:
            return stay(z_ext, z_ext_next)
        return unshrinkable(z_ext, z_ext_next, spread_nearby(z_ext, z_ext_next, NEIGHBOURHOOD))

    @torch.no_grad()
    def odds(self, before: Objects, after: Objects, path: Path, progress: Tensor) -> Tensor:
        """log-odds `[b, k]` that each object has changed, if it is the only one: by contact or hiding, and by motion.
        They are for equally many triples with and without change.

        An object that changes may move anywhere nearby; one that does not moves by as little as `rest` allows.
        """
        n, logit = self.group.n, self.logit(before, path)
        changed, unchanged = change_logs(logit, self._hidden(before, after))
        distance2 = stay(before.position, after.position) + self.head.turned2(before, after)
        resting = rest_log_density(distance2, self.rest_scale(progress), n)
        even = changed - unchanged - torch.where(self.head.placed, self._rarity, 0.0)
        return even - n * math.log(REACH) - resting

    @torch.no_grad()
    def restart(self, index: int, generator: torch.Generator) -> list[Anew]:
        """Start one object anew: its body, its scalars, and its rows of the network's read-out."""
        scene = self.config.objective
        body = make_body(scene.body, self.config.n, radius=scene.radius)
        body.measure(self.inputs.unit.cpu())
        rows = self.head.restart(index, body, self.phi_ext.head, generator)
        self.unseen[:, index] = 0
        self.raw_softness[index], self.log_rest_scale[index] = FIRST_RAW_SOFTNESS, math.log(FIRST_REST_SCALE)
        readout = [Anew(x, rows) for x in (self.phi_ext.head.weight, self.phi_ext.head.bias)]
        scalars = [Anew(x, index) for x in (self.raw_softness, self.log_rest_scale)]
        return [*readout, *scalars, *map(Anew, self.head[index].parameters())]

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor:
        """The posterior probability of a contact: geometry is the prior, the witness gives the likelihood of a change.

        A scene also changes if the object appears or vanishes; `objectives.contact.change_logs` has all causes.
        """
        (z_int, before), (_, after) = self.located(self.inputs(o)), self.located(self.inputs(o_next))
        path = self.group.path(z_int, self.inputs.scaled(a))
        touched = self.logit(before, path).sigmoid().clamp(GEOMETRY_DOUBT, 1 - GEOMETRY_DOUBT)
        hidden = self._hidden(before, after)
        seen, anyway = hidden.seen().exp(), hidden.otherwise(torch.ones_like(before.hidden, dtype=torch.bool)).exp()
        changed = super().contact(o, a, o_next).clamp(LEAST_CHANCE, 1 - LEAST_CHANCE)

        def likelihood(change: Tensor) -> Tensor:
            return change * changed + (1 - change) * (1 - changed)

        contact, other = touched * likelihood(seen + anyway), (1 - touched) * likelihood(anyway)
        return contact / (contact + other)

    def parameter_groups(self) -> list[dict[str, Any]]:
        scalars = [self.raw_softness, self.log_rest_scale]
        apart = [
            {"params": scalars, "lr_scale": LR_SCALE, "weight_decay": 0.0},
            *self.head.parameter_groups(),
        ]
        own = {id(p) for group in apart for p in group["params"]} | {id(p) for p in self.head.parameters()}
        return [{"params": [p for p in self.parameters() if id(p) not in own]}, *apart]

    @torch.no_grad()
    def vitals(self) -> dict[str, float]:
        return super().vitals() | {"softness": float(self.softness.max() * self.inputs.unit)}

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor:
        return self.predicted(o, a[:, None])[:, 0].sigmoid()

    def uncertainty(self, o: Tensor, moves: Tensor, share: float = 0.5) -> Tensor:
        """Minus the absolute log-odds of the least certain object."""
        low, high = SHARE_RANGE
        share = min(max(share, low), high)
        # Until an object is placed, its log-odds are those of equally many paths with and without contact.
        odds = torch.where(self.head.placed, 0.0, math.log(share / (1 - share)))
        return -(self.predicted(o, moves) + odds).abs().amin(-1)

    def predicted(self, o: Tensor, moves: Tensor) -> Tensor:
        """log-odds of contact `[b, c, k]` for moves [b, c, n] from o."""
        count = moves.shape[1]
        z_int, objects = self.located(self.inputs(o))
        with torch.autocast(o.device.type, enabled=False):
            objects = objects.repeated(count)
            path = self.group.path(z_int.repeat_interleave(count, 0), self.inputs.scaled(moves.flatten(0, 1)))
            return self.logit(objects, path).unflatten(0, (-1, count))
