"""How to read positions from an encoding: the order of the objects, the order of all points if the model does not tell
the agent from the objects, the probe of a latent.

All of it is fitted to true states, so it serves measuring alone.
"""

import functools
import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from palpate.data.labelled import OF_AGENT, Truth
from palpate.groups.base import Group
from palpate.methods.base import Encoding
from palpate.metrics.formulas import affine, affine_probe, agent_frame, apart2, exchanged2, placed
from palpate.metrics.rows import host, mapped, visible

OF_OBJECTS = ("objects", "covariances", "orientations", "confidences")


class Reading(NamedTuple):
    """How to read positions from an encoding; fitted to true states, so only for measuring."""

    probe: Tensor | None  # [k + 1, n] from a latent of the object and 1 to its position
    order: list[int]  # which learned object is the first true one, and so on
    points: list[int] | None = None  # which learned point is the agent, the first object and so on, if unknown

    @staticmethod
    def fit(group: Group, encoding: Encoding, truth: Truth, *, places_object: bool, tells_apart: bool) -> "Reading":
        """The order with the smallest L_test, and a probe of the object's latent.

        The probe's target is s_ext in the frame of z_int, by the motion that fits the agents.
        """
        if not tells_apart:
            return Reading(None, list(range(truth.objects.shape[1])), _points(group, encoding, truth))
        if places_object:
            return Reading(None, _order(group, placed(group, encoding, agent_frame(group, encoding, truth)), truth))
        target = group.moved(truth.object, group.frame(truth.agent, encoding.agent))
        return Reading(affine_probe(encoding.object, target), [0])

    def ordered(self, x: Tensor) -> Tensor:
        """Values [N, k, ...] of the objects in the order of the true ones; [N] stays."""
        return x[:, self.order] if x.dim() > 1 else x

    def __call__(self, encoding: Encoding) -> Encoding:
        ordered = {name: self.ordered(x) for name in OF_OBJECTS if (x := getattr(encoding, name)) is not None}
        encoding = encoding._replace(**ordered)
        if self.points is not None:
            points = torch.cat((encoding.agent[:, None], encoding.objects), 1)[:, self.points]
            encoding = encoding._replace(agent=points[:, 0], objects=points[:, 1:])
        if self.probe is not None:
            encoding = encoding._replace(objects=affine(encoding.objects, self.probe))
        return encoding


def _order(group: Group, encoding: Encoding, truth: Truth) -> list[int]:
    """The permutation of the learned objects with the least L_test."""
    cost = apart2(group, encoding, truth).mean(0).tolist()  # [learned][true]
    orders = itertools.permutations(range(len(cost)))
    return list(min(orders, key=lambda order: sum(cost[i][j] for j, i in enumerate(order))))


def _points(group: Group, encoding: Encoding, truth: Truth) -> list[int]:
    """The order of all learned points, with that of the agent first, that has the least L_test."""
    cost = exchanged2(group, encoding, truth).mean(0).tolist()  # [agent][object][true]
    orders = itertools.permutations(range(len(cost)))
    best = min(orders, key=lambda order: sum(cost[order[0]][i][j] for j, i in enumerate(order[1:])))
    return list(best)


def matched(group: Group, encoding: Encoding, truth: Truth) -> Truth:
    """The truth of objects that look alike, in each row in the order that is nearest to the encoding."""
    cost = apart2(group, encoding, truth)  # [N, learned, true]
    learned = torch.arange(cost.shape[1])
    orders = torch.tensor(list(itertools.permutations(learned.tolist())))
    best = torch.stack([cost[:, learned, order].sum(1) for order in orders]).argmin(0)

    def taken(x: Tensor) -> Tensor:
        return x.take_along_dim(orders[best].view(*cost.shape[:2], *(1 for _ in x.shape[2:])), 1)

    return Truth(**{name: x if name.startswith(OF_AGENT) else taken(x) for name, x in truth.known().items()})


def swapped(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """Rows [N] bool for which another order of the objects is nearer to the truth."""
    cost = apart2(group, encoding, truth)
    return _least(cost) < _present(cost)


def mistaken(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """Rows [N] bool for which another order of all learned points, the agent's among them, is nearer to the truth."""
    cost = exchanged2(group, encoding, truth)  # [N, agent, object, true]
    points = range(cost.shape[1])
    least = [_least(cost[:, agent, [point for point in points if point != agent]]) for agent in points]
    return torch.stack(least).amin(0) < _present(cost[:, 0, 1:])


def _present(cost: Tensor) -> Tensor:
    """The sum `[N]` of costs [N, learned, true] in the present order, added in the same way as in `_least`."""
    return functools.reduce(torch.add, cost.diagonal(dim1=1, dim2=2).unbind(1))


def _least(cost: Tensor) -> Tensor:
    """The least sum `[N]` of costs [N, learned, true] over all orders of the learned points.

    For each set of learned points only the least sum is kept: there are 2^k sets, but k! orders.
    """
    points = range(cost.shape[1])
    sums = {frozenset[int](): cost.new_zeros(len(cost))}
    for true in points:
        sums = {
            used: torch.stack([sums[used - {point}] + cost[:, point, true] for point in used]).amin(0)
            for used in map(frozenset, itertools.combinations(points, true + 1))
        }
    return sums[frozenset(points)]


def aligned(
    group: Group, encoding: Encoding, truth: Truth, *, places_object: bool = True, tells_apart: bool = True
) -> Encoding:
    """The representation read as positions and moved onto the truth; for figures of these rows."""
    encoding, truth = mapped(encoding, host), mapped(truth, host)
    seen = visible(encoding, truth)
    encoding = Reading.fit(group, *seen, places_object=places_object, tells_apart=tells_apart)(encoding)
    return placed(group, encoding, agent_frame(group, *visible(encoding, truth)))
