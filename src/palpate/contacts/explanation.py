"""How well contacts and hiding explain which triples change the scene.

An object that appears or vanishes changes the scene, like one that is touched. Contacts depend on paths, and hiding on
where the object is relative to the agent: these positions are divided into cells, and each has a rate of its own.
Legend: N triples, n ambient dimension, m guesses, c cells.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_AXES = 6  # that cells divide
CELLS, OUTLIERS = 64, 0.01  # cells of relative positions; share of positions beyond the borders of all cells
ROUNDS = 8  # of expectation maximisation
FIRST_RATE, LEAST_RATE = 0.2, 1e-3  # of hidden objects at first; of changes, and of none


def explanation(touching: Tensor, cells: Tensor, changed: Tensor) -> Tensor:
    """Log-likelihood per triple `[m]` of changes [N], for each guess which paths touch the object, [m, N] bool.

    These paths change the scene at one rate. On other paths it changes if the object appears or vanishes. Each cell has
    its own rate of hiding. If the object is hidden in both observations, the scene changes always or never, whichever
    explains more. `cells` [2, N, c] is 1 for the cell of o and of o', else 0.
    """
    often = _often(touching, changed)[:, None]
    found = []
    for both in (0.0, 1.0):  # P(changed) if the object is hidden in both
        chance = torch.where(touching, often, _hiding(~touching, cells, changed, both))
        found.append(torch.where(changed, chance, 1 - chance).log().mean(1))
    return torch.maximum(*found)


def best_explanation(touching: Tensor, changed: Tensor) -> Tensor:
    """What `explanation` would be, `[m]`, if hiding explained every triple without contact."""
    often = _often(touching, changed)
    hits, misses = (touching & changed).sum(1), (touching & ~changed).sum(1)
    return (hits * often.log() + misses * torch.log1p(-often)) / len(changed)


def _often(touching: Tensor, changed: Tensor) -> Tensor:
    """The share `[m]` of contacts that change the scene."""
    return ((touching & changed).sum(1) / touching.sum(1).clamp(min=1)).clamp(0.5, 1 - LEAST_RATE)


def _hiding(free: Tensor, cells: Tensor, changed: Tensor, both: float) -> Tensor:
    """P(changed) `[m, N]` by hiding, from the rates of the cells that explain the triples `free` [m, N] best."""
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
        rate = (_summed(cells, hidden) + 0.5) / (seen + 2.0)  # a prior: few observations of a cell are weak evidence
    return _chance(rate @ cells[0].mT, rate @ cells[1].mT, both)


def _chance(first: Tensor, second: Tensor, both: float) -> Tensor:
    return (first + second - (2 - both) * first * second).clamp(LEAST_RATE, 1 - LEAST_RATE)


def _summed(cells: Tensor, weights: list[Tensor]) -> Tensor:
    """Sums `[m, c]` of weights [m, N] over the triples whose observations are in a cell."""
    return weights[0] @ cells[0] + weights[1] @ cells[1]  # a product has a fixed order on a GPU


def cells_of(apart: Tensor) -> Tensor:
    """Cells `[N, c]` of positions [N, n] relative to the agent: 1 for the own cell, else 0.

    Above `MOST_AXES` dimensions, only the axes along which positions vary most are divided.
    """
    apart = apart[:, apart.var(0).topk(min(apart.shape[1], MOST_AXES)).indices.sort().values]
    n = apart.shape[1]
    side = max(2, int(CELLS ** (1 / n) + 1e-9))
    low, high = apart.quantile(OUTLIERS, 0), apart.quantile(1 - OUTLIERS, 0)
    along = ((apart - low) / (high - low).clamp(min=1e-9) * side).long().clamp(0, side - 1)
    number = (along * side ** torch.arange(n, device=apart.device)).sum(1)
    return F.one_hot(number, CELLS).to(apart.dtype)
