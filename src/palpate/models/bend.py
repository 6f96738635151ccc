"""Places bent by a polynomial of themselves: what is left of a network's error that changes slowly over the field.

Legend: b batch, n ambient dimension, k terms.
"""

import itertools

import torch
from torch import Tensor, nn

OUTLIERS = 0.002  # of the places on each side; there and beyond, the bend is that at the border
WEAKEST = 1e-6  # mean square of a mixture of terms, of the largest; one that hardly differs from 0 is not blown up


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
