"""Points, segments and ellipsoids: pure tensor functions that broadcast over leading dimensions.

Legend: n ambient dimension; `...` any batch shape, for instance [b] or [b, k] for k objects.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Segment(NamedTuple):
    """The path of an agent that moves straight from `start` by `move` (paper, Assumption 2)."""

    start: Tensor  # [..., n]
    move: Tensor  # [..., n]; all zero: the path is the point `start`

    def at(self, t: Tensor) -> Tensor:
        """The point at parameter `t` [...] in [0, 1]: `[..., n]`."""
        return self.start + t[..., None] * self.move

    def offset(self, point: Tensor) -> Tensor:
        """From `point` [..., n] to the nearest point of the path, `[..., n]`."""
        return _nearest(self.start - point, self.move)

    def distance2(self, point: Tensor) -> Tensor:
        """Squared distance of `point` [..., n] to the path: inf over x in the path of |point - x|^2, `[...]`."""
        return self.offset(point).square().sum(-1)

    def least_along(self, direction: Tensor, point: Tensor) -> Tensor:
        """The minimum of (x - point) . direction over x in the path, for directions [..., d, n]: `[..., d]`."""
        start = self.start - point
        first, last = ((end[..., None, :] * direction).sum(-1) for end in (start, start + self.move))
        return torch.minimum(first, last)


def _nearest(start: Tensor, move: Tensor) -> Tensor:
    """The shortest of start + t move over t in [0, 1]: its square is a quadratic in t, so at the clamped vertex."""
    length2 = move.square().sum(-1)
    t = -(start * move).sum(-1) / length2.clamp(min=torch.finfo(move.dtype).tiny)
    return start + t.clamp(0, 1)[..., None] * move


def double_angle(angle: Tensor) -> Tensor:
    """An axis without front and back as a unit vector: (cos 2 angle, sin 2 angle), `[..., 2]`."""
    return torch.stack((torch.cos(2 * angle), torch.sin(2 * angle)), -1)


def axis_angle(axis: Tensor) -> Tensor:
    """The inverse of `double_angle`, in [0, pi): `[...]`; the length of `axis` [..., 2] does not matter."""
    angle = (torch.atan2(axis[..., 1], axis[..., 0]) / 2) % torch.pi
    return torch.where(angle < torch.pi, angle, 0.0)  # rounding may give pi itself


def ellipse(axis: Tensor, radius: Tensor | float, log_ratio: Tensor | float) -> Tensor:
    """Covariance of an ellipse, `[..., 2, 2]`: the eigenvalues are the squares of its semi-axes.

    `axis` [..., 2] in the unit disc is the long axis by its doubled angle. At length s the semi-axes are
    radius exp(+-s log_ratio / 2). It is radius^2 exp(log_ratio A), A = [[c, s], [s, -c]], where A^2 is a multiple of I,
    so the series closes. No angle is computed, and a disc (axis 0) is not singular.
    """
    length = torch.sqrt(axis.square().sum(-1) + 1e-24)
    even = torch.cosh(log_ratio * length)
    odd = torch.sinh(log_ratio * length) / length
    c, s = axis.unbind(-1)
    matrix = torch.stack((even + odd * c, odd * s, odd * s, even - odd * c), -1).unflatten(-1, (2, 2))
    return torch.as_tensor(radius, device=axis.device)[..., None, None] ** 2 * matrix


def around(count: int, like: Tensor) -> Tensor:
    """Unit vectors `[count, 2]` in evenly spaced directions, with the dtype and device of `like`."""
    angle = torch.arange(count, device=like.device, dtype=like.dtype) * (2 * torch.pi / count)
    return torch.stack((torch.cos(angle), torch.sin(angle)), -1)


def border(support: Tensor, points: int) -> Tensor:
    """Points of the boundary of a convex body around 0, `[..., points, 2]`, in the directions of `around`.

    `support` [..., d] is the body's extent in d directions. The body is the intersection of their half planes, so a
    learned support that no convex body has is cut. At a straight side between two directions the boundary lies too far
    out, by at most half the side times pi / d.
    """
    toward = around(points, support)
    facing = toward @ around(support.shape[-1], support).mT  # [points, d] cosines
    length = torch.where(facing > 1e-3, support[..., None, :] / facing.clamp(min=1e-3), torch.inf).amin(-1)
    return length[..., None] * toward


def gaussian_kl(mean: Tensor, root: Tensor, mean_other: Tensor, root_other: Tensor) -> Tensor:
    """KL(N || N_other), `[...]`; the covariances are given by lower triangular roots, covariance = root root^T."""
    n = mean.shape[-1]
    ratio = torch.linalg.solve_triangular(root_other, root, upper=False)
    gap = torch.linalg.solve_triangular(root_other, (mean - mean_other)[..., None], upper=False)
    log_det = (_diagonal(root_other).log() - _diagonal(root).log()).sum(-1)
    return 0.5 * (ratio.square().sum((-2, -1)) + gap.square().sum((-2, -1)) - n) + log_det


def gaussian_nll(point: Tensor, mean: Tensor, root: Tensor) -> Tensor:
    """-log N(point; mean, root root^T), `[...]`."""
    n = mean.shape[-1]
    gap = torch.linalg.solve_triangular(root, (point - mean)[..., None], upper=False)
    half_log_two_pi = 0.9189385332046727
    return 0.5 * gap.square().sum((-2, -1)) + _diagonal(root).log().sum(-1) + n * half_log_two_pi


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)
