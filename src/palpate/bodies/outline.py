"""An outline: a body in the plane whose radius differs by direction and that does not turn."""

from typing import Any, final

import torch
from torch import Tensor, nn

from palpate.bodies.planar import PlanarBody

HARMONICS = 4  # enough for a square


@final
class Outline(PlanarBody):
    """log h = log r + sum over k >= 2 of c_k cos(k angle) + s_k sin(k angle), with h the support function.

    k = 1 would be a shift of the centre.
    """

    def __init__(self, n: int, **settings: Any) -> None:
        super().__init__(n, **settings)
        self.waves = nn.Parameter(torch.zeros(2, HARMONICS - 1))

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius * log_outline(direction, *self.waves).exp()


def log_outline(direction: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """log of the support over the mean radius in unit directions [..., 2]: `[...]`, for coefficients [K - 1] from
    k = 2."""
    x, y = real, imaginary = direction.unbind(-1)  # compiled code has no complex numbers
    total = torch.zeros_like(x)
    for cosine, sine in zip(cosines, sines, strict=True):
        real, imaginary = real * x - imaginary * y, real * y + imaginary * x
        total = total + cosine * real + sine * imaginary
    return total
