"""The last fit: places bent by a polynomial of themselves, which is what is left of a network's error that changes
slowly over the field.

Legend: b batch, n ambient dimension, k terms.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

OUTLIERS = 0.002  # of the places on each side; there and beyond, the bend is that at the border
WEAKEST = 1e-6  # mean square of a mixture of terms, of the largest; one that hardly differs from 0 is not blown up
STEPS = 60  # of L-BFGS


class Bend(nn.Module):
    """z + p(z), where p has all terms up to a `degree`; at first p = 0."""

    centre: Tensor
    reach: Tensor
    mixing: Tensor

    def __init__(self, n: int, degree: int) -> None:
        super().__init__()
        self.powers: list[tuple[int, ...]] = [
            axes for count in range(degree + 1) for axes in itertools.combinations_with_replacement(range(n), count)
        ]
        self.register_buffer("centre", torch.zeros(n))
        self.register_buffer("reach", torch.ones(n))
        self.register_buffer("mixing", torch.eye(len(self.powers)))
        self.coefficients = nn.Parameter(torch.zeros(len(self.powers), n), requires_grad=False)

    def forward(self, z: Tensor) -> Tensor:
        return z + self._terms(z) @ (self.mixing @ self.coefficients)

    def measure(self, z: Tensor) -> None:
        """Take the field from places [b, n], and mix the terms so that each is independent of the others there."""
        low, high = z.quantile(OUTLIERS, 0), z.quantile(1 - OUTLIERS, 0)
        self.centre.copy_((low + high) / 2)
        self.reach.copy_(((high - low) / 2).clamp(min=1e-6))
        terms = self._terms(z).double()
        power, axes = torch.linalg.eigh(terms.T @ terms / len(z))
        self.mixing.copy_(axes / power.clamp(min=WEAKEST * power[-1]).sqrt())

    def _terms(self, z: Tensor) -> Tensor:
        """Products of coordinates that run from -1 to 1 over the field, `[b, k]`."""
        x = ((z - self.centre) / self.reach).clamp(-1, 1)
        columns: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(x[:, 0])}
        for axes in self.powers[1:]:
            columns[axes] = columns[axes[:-1]] * x[:, axes[-1]]
        return torch.stack(list(columns.values()), 1)


@torch.no_grad()
def keep_the_best(
    bend: Bend, body: list[nn.Parameter], surprise: Callable[[], Tensor], judge: Callable[[], Tensor]
) -> None:
    """Make `surprise` small by moving the body alone, or bend and body; keep what the `judge` finds smallest.

    A bend is not to be kept because the border that was fitted with it is sharper; and all stays as it is where
    neither helps.
    """
    everything = [bend.coefficients, *body]

    def put(values: list[Tensor]) -> None:
        for parameter, value in zip(everything, values, strict=True):
            parameter.copy_(value)

    def judged() -> tuple[float, list[Tensor]]:
        value = float(judge())
        return value if math.isfinite(value) else math.inf, [p.detach().clone() for p in everything]

    found = [judged()]
    for moved in (body, everything):
        put(found[0][1])
        bend.coefficients.requires_grad_(moved is everything)
        _minimise(surprise, moved)
        bend.coefficients.requires_grad_(False)
        found.append(judged())
    put(min(found, key=lambda each: each[0])[1])


def _minimise(value: Callable[[], Tensor], moved: list[nn.Parameter]) -> None:
    mover = torch.optim.LBFGS(moved, max_iter=STEPS, history_size=30, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        mover.zero_grad()
        now = value()
        now.backward()
        return now

    mover.step(step)
    mover.zero_grad()
