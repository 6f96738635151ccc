"""An outline: a body in the plane whose radius differs by direction and that does not turn."""

from typing import Any, final

import torch
from torch import Tensor, nn

from palpate.bodies.base import LR_SCALE
from palpate.bodies.planar import PlanarBody

HARMONICS = 4  # enough for a square
# Bound of the sum of (k^2 - 1) |c_k|, which is 2 for a regular polygon. At 3 the support function is still positive.
MOST_BENT = 3.0
# Decay toward a disc. Networks that fit every triple of a data set fit it with any outline, and nothing else would keep
# the outline from drifting.
TOWARD_DISC = 1.0


@final
class Outline(PlanarBody):
    """h = r (1 + sum over k >= 2 of c_k cos(k angle) + s_k sin(k angle)), with h the support function.

    k = 1 would be a shift of the centre. The bound on the coefficients excludes shapes with the same effect. These are
    far from convex: their supporting lines enclose a region to one side of the centre.
    """

    def __init__(self, n: int, **settings: Any) -> None:
        super().__init__(n, **settings)
        self.waves = nn.Parameter(torch.zeros(2, HARMONICS - 1))

    def shape_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.waves], "lr_scale": LR_SCALE, "weight_decay": TOWARD_DISC}]

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius * (1 + harmonics(direction, *bounded(self.waves)))


def bounded(waves: Tensor) -> Tensor:
    """Coefficients [2, K - 1] scaled down so that the sum of (k^2 - 1) |c_k| stays below `MOST_BENT`."""
    k = torch.arange(2, waves.shape[1] + 2, device=waves.device)
    amplitude = (waves.square().sum(0) + 1e-12).sqrt()  # its gradient is finite at 0
    return waves / (1 + ((k**2 - 1) * amplitude).sum() / MOST_BENT)


def harmonics(direction: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """A sum of harmonics in unit directions [..., 2]: `[...]`, for coefficients [K - 1] from k = 2."""
    x, y = real, imaginary = direction.unbind(-1)  # compiled code has no complex numbers
    total = torch.zeros_like(x)
    for cosine, sine in zip(cosines, sines, strict=True):
        real, imaginary = real * x - imaginary * y, real * y + imaginary * x
        total = total + cosine * real + sine * imaginary
    return total
