"""Whether the agent hides the object now and then, and a search for a better place of the object.

An object that appears or vanishes changes the scene, like one that is touched. A large body between the object and its
hiding places explains these changes as contacts, and no gradient leads away from it. So places nearby are compared
directly: each must explain the contacts by paths, and all other changes by where the object is relative to the agent.
Legend: N triples, k objects, n ambient dimension, r radii, c cells.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.geometry import Path
from palpate.groups.base import Group

SEARCH_AT = (0.25, 0.35, 0.45, 0.55, 0.65)  # shares of the run at which a better place is searched
WINDOW = 4096  # stored triples
FEWEST = 1024  # stored triples that a search needs
PLACES, REACH = 144, 1.5  # places to compare, about; how far they are from the present one along each axis, in radii
SMALLER = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3)  # radii to compare, relative to the present one
MARGINS = (-0.7, -0.5, -0.35, -0.2, 0.0, 0.25, 0.5)  # by which a body may be larger, in radii
MOST_AXES = 6  # that cells divide
CELLS, OUTLIERS = 64, 0.01  # cells of relative positions; share of positions beyond the borders of all cells
ROUNDS = 8  # of expectation maximisation
FIRST_RATE, LEAST_RATE = 0.2, 1e-3  # of hidden objects at first; of changes, and of none
GAIN = 0.01  # least gain of log-likelihood per triple; a smaller one may be due to the body's shape
# Least gain if objects are hidden: a part of what is unexplained without, and never less than a constant. Positions
# that are not accurate yet leave changes near the agent unexplained, too.
HIDING_PART, HIDING_GAIN = 0.08, 0.02


class Place(NamedTuple):
    offset: Tensor  # [n] from the present place
    radius: Tensor  # []


class Rows(NamedTuple):
    """Stored triples of one object."""

    path: Path
    position: Tensor  # [N, n]
    clearance: Tensor  # [N]
    cells: Tensor  # [2, N, c], of o and of o'
    changed: Tensor  # [N] bool

    def distance(self, offset: Tensor) -> Tensor:
        """Distances `[N]` between paths and positions that are moved by an offset [n]."""
        return self.path.distance2(self.position + offset).sqrt()


class Recent(nn.Module):
    """The last triples of training: actions, relative positions and changes; device work only."""

    def __init__(self, count: int, group: Group) -> None:
        super().__init__()
        self.group, n = group, group.n
        self.start = nn.Buffer(torch.zeros(WINDOW, group.pose_width))
        self.action = nn.Buffer(torch.zeros(WINDOW, group.complete(torch.zeros(group.action_width)).shape[-1]))
        self.object = nn.Buffer(torch.zeros(WINDOW, count, n))
        self.clearance = nn.Buffer(torch.zeros(WINDOW, count))  # of the paths; NaN since an object was moved
        self.apart = nn.Buffer(torch.zeros(WINDOW, count, 2 * n))  # objects relative to the agent, in o and in o'
        self.changed = nn.Buffer(torch.zeros(WINDOW, count, dtype=torch.bool))
        self.next = nn.Buffer(torch.zeros((), dtype=torch.long))  # rows stored so far
        self.searches = nn.Buffer(torch.zeros((), dtype=torch.long))  # so far
        self.since = nn.Buffer(torch.zeros(count, dtype=torch.long))  # rows stored before each object started anew

    @torch.no_grad()
    def store(
        self,
        start: Tensor,
        a: Tensor,
        position: Tensor,
        clearance: Tensor,
        apart: Tensor,
        apart_next: Tensor,
        changed: Tensor,
    ) -> None:
        """Store a batch: actions from the poses `start`, the objects' positions [b, k, n] in o, the clearance [b, k] of
        each path, and the objects' positions relative to the agent, in o and in o'."""
        count = min(len(changed), WINDOW)
        rows = (self.next + torch.arange(count, device=changed.device)) % WINDOW
        columns = (start, a, position, clearance, torch.cat((apart, apart_next), -1), changed)
        buffers = (self.start, self.action, self.object, self.clearance, self.apart, self.changed)
        for kept, column in zip(buffers, columns, strict=True):
            kept.index_copy_(0, rows, column[-count:].to(kept.dtype))
        self.next.add_(count)

    def shift(self, index: int, offset: Tensor) -> None:
        """Move the stored positions of one object by an offset [n]."""
        self.object[:, index] += offset
        self.clearance[:, index] = torch.nan
        self.apart[:, index] += offset.repeat(2)

    def due(self, share: float) -> bool:
        """Whether a search is due at this `share` of the run."""
        before, due = int(self.searches), sum(share >= at for at in SEARCH_AT)
        self.searches.fill_(due)
        return due > before

    def restart(self, index: int) -> None:
        """Forget the stored positions of one object."""
        self.since[index] = self.next

    def better_place(self, index: int, radius: Tensor, *, resize: bool) -> Place | None:
        """The best place of object `index`, if it is clearly better than the present one; waits for the device."""
        if not self._knows(index):
            return None
        radii = radius * torch.tensor(SMALLER if resize else (1.0,), device=radius.device)
        offsets = radius * places(self.object.shape[2]).to(radius)  # [places, n], the present one first
        rows = self._rows(index)
        scores = torch.stack([explanation(rows.distance(x), radii, rows.cells, rows.changed) for x in offsets])
        best = scores.flatten().argmax()  # of [places, r]
        if scores.flatten()[best] - scores[0, 0] < GAIN:
            return None
        return Place(offsets[int(best) // len(radii)], radii[best % len(radii)])

    def hides(self, index: int, radius: Tensor) -> bool:
        """Whether hiding explains changes that contacts with object `index` do not; waits for the device.

        Hiding depends on where the object is relative to the agent. So a rate of changes in each cell must explain much
        more than one rate for all. The body has this `radius`, and may be somewhat larger or smaller.
        """
        if not self._knows(index):
            return False
        rows = self._rows(index)
        if rows.clearance.isnan().any():
            return False
        margins = radius * torch.tensor(MARGINS, device=radius.device)
        alike = F.one_hot(torch.zeros_like(rows.cells[..., 0], dtype=torch.long), CELLS).to(rows.cells.dtype)
        hiding, without = (explanation(rows.clearance, margins, x, rows.changed).amax() for x in (rows.cells, alike))
        return bool(hiding - without > (-HIDING_PART * without).clamp(min=HIDING_GAIN))

    def _knows(self, index: int) -> bool:
        """Whether enough rows are stored; not while some are older than an object that started anew."""
        since = int(self.since[index])
        return int(self.next) >= FEWEST and (since == 0 or int(self.next) - since >= WINDOW)

    def _rows(self, index: int) -> Rows:
        count = min(int(self.next), WINDOW)
        path = self.group.path(self.start[:count], self.action[:count])
        apart = self.apart[:count, index].chunk(2, 1)
        cells = torch.stack([*map(_cells, apart)])
        position, clearance, changed = (x[:count, index] for x in (self.object, self.clearance, self.changed))
        return Rows(path, position, clearance, cells, changed)


def places(n: int) -> Tensor:
    """Offsets to compare, `[places, n]` in radii: none, and a grid; beyond space, steps along the axes alone."""
    along = torch.linspace(-REACH, REACH, max(3, round(PLACES ** (1 / min(n, 3)))))
    if n <= 3:
        grid = torch.cartesian_prod(*[along] * n).reshape(-1, n)
    else:
        grid = (torch.eye(n)[:, None] * along[:, None]).flatten(0, 1)
    return torch.cat((torch.zeros(1, n), grid))


def explanation(distance: Tensor, radii: Tensor, cells: Tensor, changed: Tensor) -> Tensor:
    """Log-likelihood per triple `[r]` of changes [N], for each radius.

    Paths nearer than the radius change the scene at one rate. Otherwise it changes if the object appears or vanishes;
    in each cell it is hidden at a rate of its own. If it is hidden in both observations, the scene always changes or
    never, whichever explains more. `cells` [2, N, c] has a 1 for the cell of o, and of o'.
    """
    touching = distance < radii[:, None]  # [r, N]
    count = touching.sum(1)
    often = ((touching & changed).sum(1) / count.clamp(min=1)).clamp(0.5, 1 - LEAST_RATE)[:, None]
    found = []
    for both in (0.0, 1.0):  # P(changed) if the object is hidden in both
        chance = torch.where(touching, often, _hiding(~touching, cells, changed, both))
        found.append(torch.where(changed, chance, 1 - chance).log().mean(1))
    return torch.maximum(*found)


def _hiding(free: Tensor, cells: Tensor, changed: Tensor, both: float) -> Tensor:
    """P(changed) `[r, N]` by hiding, from the rates of the cells that explain the triples `free` [r, N] best."""
    weight = free.to(torch.float32)
    rate = weight.new_full((len(free), CELLS), FIRST_RATE)
    seen = _summed(cells, [weight, weight])
    for _ in range(ROUNDS):
        first, second = (rate @ cell.mT for cell in cells)
        chance = _chance(first, second, both)
        together = first * second
        hidden = [
            weight * torch.where(changed, (one - (1 - both) * together) / chance, (1 - both) * together / (1 - chance))
            for one in (first, second)
        ]
        rate = (_summed(cells, hidden) + 0.5) / (seen + 2.0)  # few observations of a cell say little
    return _chance(rate @ cells[0].mT, rate @ cells[1].mT, both)


def _chance(first: Tensor, second: Tensor, both: float) -> Tensor:
    return (first + second - (2 - both) * first * second).clamp(LEAST_RATE, 1 - LEAST_RATE)


def _summed(cells: Tensor, weights: list[Tensor]) -> Tensor:
    """Sums `[r, c]` of weights [r, N] over the triples whose observations are in a cell."""
    return weights[0] @ cells[0] + weights[1] @ cells[1]  # a product has a fixed order on a GPU


def _cells(apart: Tensor) -> Tensor:
    """Cells `[N, c]` of positions [N, n] relative to the agent: 1 for the own cell, else 0.

    Above `MOST_AXES` dimensions the axes along which positions vary most decide.
    """
    apart = apart[:, apart.var(0).topk(min(apart.shape[1], MOST_AXES)).indices.sort().values]
    n = apart.shape[1]
    side = max(2, int(CELLS ** (1 / n) + 1e-9))
    low, high = apart.quantile(OUTLIERS, 0), apart.quantile(1 - OUTLIERS, 0)
    along = ((apart - low) / (high - low).clamp(min=1e-9) * side).long().clamp(0, side - 1)
    number = (along * side ** torch.arange(n, device=apart.device)).sum(1)
    return F.one_hot(number, CELLS).to(apart.dtype)
