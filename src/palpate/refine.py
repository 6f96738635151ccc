"""The optional refinement: a polynomial correction of smooth position bias, after training.

A training step sees few triples, and hardly any of the bias that a whole region shares. So the networks stay fixed, and
a polynomial of the positions is fitted, with the bodies, to the contacts of many fresh triples at once.
Legend: n ambient dimension, t terms; `...` any batch shape.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

DEGREE = 9
OUTLIERS = 0.002  # share of positions beyond each border of the field; they get the correction at the border
WEAKEST = 1e-6  # mean square of a mixture of terms, relative to the largest; weaker ones are not amplified
ITERATIONS = 60  # of L-BFGS
SHARE, JUDGES = 0.12, 0.2  # batches for the fit per training step; share of them that only judge the fit
MOST_TRIPLES = 100_000  # of all batches together: L-BFGS uses them at once


class Correction(nn.Module):
    """z + p(z), with a polynomial p of all terms up to a degree; p starts at zero."""

    def __init__(self, n: int, degree: int = DEGREE) -> None:
        super().__init__()
        self.powers: list[tuple[int, ...]] = [
            axes for count in range(degree + 1) for axes in itertools.combinations_with_replacement(range(n), count)
        ]
        self.centre = nn.Buffer(torch.zeros(n))
        self.reach = nn.Buffer(torch.ones(n))
        self.mixing = nn.Buffer(torch.eye(len(self.powers)))
        self.coefficients = nn.Parameter(torch.zeros(len(self.powers), n), requires_grad=False)

    def forward(self, z: Tensor) -> Tensor:
        return z + self._terms(z) @ (self.mixing @ self.coefficients)

    @property
    def fitted(self) -> bool:
        return bool(self.coefficients.any())

    def measure(self, z: Tensor) -> None:
        """Set the field to the range of positions [N, n], and mix the terms so that they are uncorrelated there."""
        low, high = z.quantile(OUTLIERS, 0), z.quantile(1 - OUTLIERS, 0)
        self.centre.copy_((low + high) / 2)
        self.reach.copy_(((high - low) / 2).clamp(min=1e-6))
        terms = self._terms(z).double()
        power, axes = torch.linalg.eigh(terms.T @ terms / len(z))
        self.mixing.copy_(axes / power.clamp(min=WEAKEST * power[-1]).sqrt())

    def _terms(self, z: Tensor) -> Tensor:
        """Products of coordinates that run from -1 to 1 over the field, `[..., t]`."""
        x = ((z - self.centre) / self.reach).clamp(-1, 1)
        columns: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(x[..., 0])}
        for axes in self.powers[1:]:
            columns[axes] = columns[axes[:-1]] * x[..., axes[-1]]
        return torch.stack(list(columns.values()), -1)


Evidence = TypeVar("Evidence", bound=tuple[Any, ...])


@torch.no_grad()
def refine(
    correction: Correction,
    bodies: list[nn.Parameter],
    draw: Callable[[], Evidence],
    positions: Callable[[Evidence], Tensor],
    surprise: Callable[[Evidence], Tensor],
    steps: int,
) -> None:
    """Fit the correction, and the parameters of the bodies, to triples whose number is proportional to `steps`.

    `draw` returns the networks' outputs for a batch: a named tuple of tensors [b, ...]. `positions` are those that the
    correction applies to, [N, n]. `surprise` is -log P(contacts), given the correction and the bodies. The fit is kept
    only if it also explains other triples better.
    """
    count = math.ceil(SHARE * steps)
    if correction.fitted or count < 2:
        return
    drawn = [draw()]
    count = min(count, max(2, MOST_TRIPLES // len(drawn[0][0])))
    drawn += [draw() for _ in range(count - 1)]
    judging = math.ceil(JUDGES * count)
    others, fitted = (
        type(drawn[0])(*map(torch.cat, zip(*part, strict=True))) for part in (drawn[:judging], drawn[judging:])
    )
    if not positions(fitted).isfinite().all():
        return
    correction.measure(positions(fitted))
    keep_best(correction, bodies, lambda: surprise(fitted), lambda: surprise(others))


@torch.no_grad()
def keep_best(
    correction: Correction, bodies: list[nn.Parameter], surprise: Callable[[], Tensor], judge: Callable[[], Tensor]
) -> None:
    """Minimise `surprise` over the bodies alone, and over correction and bodies; keep the result with least `judge`.

    The fit of the bodies alone prevents keeping a correction only for its sharper boundary. If neither fit helps,
    nothing changes.
    """
    everything = [correction.coefficients, *bodies]

    def put(values: list[Tensor]) -> None:
        for parameter, value in zip(everything, values, strict=True):
            parameter.copy_(value)

    def judged() -> tuple[float, list[Tensor]]:
        value = float(judge())
        return value if math.isfinite(value) else math.inf, [p.detach().clone() for p in everything]

    found = [judged()]
    for moved in (bodies, everything):
        put(found[0][1])
        correction.coefficients.requires_grad_(moved is everything)
        _minimise(surprise, moved)
        correction.coefficients.requires_grad_(False)
        found.append(judged())
    put(min(found, key=lambda each: each[0])[1])


@torch.enable_grad()
def _minimise(value: Callable[[], Tensor], moved: list[nn.Parameter]) -> None:
    optimizer = torch.optim.LBFGS(moved, max_iter=ITERATIONS, history_size=30, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimizer.zero_grad()
        now = value()
        now.backward()
        return now

    optimizer.step(step)
    optimizer.zero_grad()
