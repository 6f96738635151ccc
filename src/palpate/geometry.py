"""Points, segments and ellipsoids: pure tensor functions that broadcast over leading dimensions.

Legend: n ambient dimension; `...` any batch shape, for instance [b] or [b, k] for k objects.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor


class Segment(NamedTuple):
    """The path of an agent that moves straight from `start` by `move` (paper, Assumption 2)."""

    start: Tensor  # [..., n]
    move: Tensor  # [..., n]; all zero: the path is the point `start`

    @property
    def corners(self) -> Tensor:
        """Start and end, `[..., 2, n]`."""
        return torch.stack((self.start, self.start + self.move), -2)

    @property
    def chords(self) -> "Segment":
        """Its straight parts, of which it has one, `[..., 1]`."""
        return Segment(self.start[..., None, :], self.move[..., None, :])

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
        first, last = ((end[..., None, :] @ direction.mT).squeeze(-2) for end in (start, start + self.move))
        return torch.minimum(first, last)

    def seen(self, point: Tensor) -> "Segment":
        """The path of a point at rest [..., n], as the agent sees it."""
        return Segment(point - self.start, -self.move)


class Polyline(NamedTuple):
    """The path of an agent that moves from corner to corner, straight in between."""

    corners: Tensor  # [..., c, n]

    @property
    def chords(self) -> Segment:
        """Its straight parts, `[..., c - 1]`."""
        return Segment(self.corners[..., :-1, :], self.corners.diff(dim=-2))

    def at(self, t: Tensor) -> Tensor:
        """The point at parameter `t` [...] in [0, 1], with equal steps between corners: `[..., n]`."""
        along = t[..., None] * (self.corners.shape[-2] - 1)
        place = torch.arange(self.corners.shape[-2], device=t.device, dtype=t.dtype)
        weight = (1 - (along - place).abs()).clamp(min=0)  # [..., c], of the two corners beside the point
        return (weight[..., None] * self.corners).sum(-2)

    def offset(self, point: Tensor) -> Tensor:
        """From `point` [..., n] to the nearest point of the path, `[..., n]`."""
        start = self.corners - point[..., None, :]
        nearest = _nearest(start[..., :-1, :], start.diff(dim=-2))  # [..., c - 1, n]
        best = nearest.square().sum(-1).argmin(-1)[..., None, None].expand(*nearest.shape[:-2], 1, nearest.shape[-1])
        return nearest.gather(-2, best).squeeze(-2)

    def distance2(self, point: Tensor) -> Tensor:
        """Squared distance of `point` [..., n] to the path, `[...]`."""
        return self.offset(point).square().sum(-1)

    def least_along(self, direction: Tensor, point: Tensor) -> Tensor:
        """The minimum of (x - point) . direction over x in the path, for directions [..., d, n]: `[..., d]`."""
        return ((self.corners - point[..., None, :]) @ direction.mT).amin(-2)

    def seen(self, point: Tensor) -> "Polyline":
        """The path of a point at rest [..., n], as the agent sees it."""
        return Polyline(point[..., None, :] - self.corners)


class Sweep(NamedTuple):
    """The path of an agent that turns, and how it turns on its way.

    A chord between two stops turns evenly. So where the agent sees a point at rest is off by at most a 512th of the
    way on which it sees it pass, per radian, for an eighth of the turn between two stops.
    """

    corners: Tensor  # [..., c, n] as in `Polyline`
    stops: Tensor  # [..., s, n] positions
    axes: Tensor  # [..., s, n, n] the agent's axes there, as columns

    @property
    def line(self) -> Polyline:
        """The path without its turns."""
        return Polyline(self.corners)

    @property
    def chords(self) -> Segment:
        return self.line.chords

    def at(self, t: Tensor) -> Tensor:
        return self.line.at(t)

    def offset(self, point: Tensor) -> Tensor:
        return self.line.offset(point)

    def distance2(self, point: Tensor) -> Tensor:
        return self.line.distance2(point)

    def least_along(self, direction: Tensor, point: Tensor) -> Tensor:
        return self.line.least_along(direction, point)

    def seen(self, point: Tensor) -> Polyline:
        """The path of a point at rest [..., n], as the agent sees it along its own axes."""
        return Polyline((self.axes.mT @ (point[..., None, :] - self.stops)[..., None]).squeeze(-1))


Path: TypeAlias = Segment | Polyline | Sweep


def joined(paths: Sequence[Path]) -> Path:
    """One path for several of a kind, each of which begins where the one before it ends."""
    if len(paths) == 1:
        return paths[0]
    corners = _end_to_end([path.corners for path in paths], -2)
    if not isinstance(paths[0], Sweep):
        return Polyline(corners)
    stops, axes = ([x for path in paths if isinstance(path, Sweep) for x in (path[i],)] for i in (1, 2))
    return Sweep(corners, _end_to_end(stops, -2), _end_to_end(axes, -3))


def _end_to_end(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Rows along an axis of one part after the other; the first row of a part is the last one of the part before."""
    first, *others = parts
    return torch.cat((first, *(x.narrow(axis, 1, x.shape[axis] - 1) for x in others)), axis)


def beside_objects(path: Path) -> Path:
    """Paths [b] with an axis of length 1 for the objects."""
    return type(path)(*(x[:, None] for x in path))


def rotated(vector: Tensor, unit: Tensor) -> Tensor:
    """Vectors [..., 2] turned by the angle of unit vectors [..., 2]: the product of complex numbers."""
    (x, y), (cos, sin) = vector.unbind(-1), unit.unbind(-1)
    return torch.stack((cos * x - sin * y, sin * x + cos * y), -1)


def conjugate(unit: Tensor) -> Tensor:
    """Unit vectors [..., 2] of the opposite angles."""
    return torch.stack((unit[..., 0], -unit[..., 1]), -1)


def unit(angle: Tensor) -> Tensor:
    """Unit vectors `[..., 2]` in directions [...] in radians."""
    return torch.stack((torch.cos(angle), torch.sin(angle)), -1)


def directed(vector: Tensor) -> Tensor:
    """Vectors [..., 2] divided by their length; of length 0: (1, 0), so that all have a direction."""
    zero = vector.square().sum(-1, keepdim=True) < 1e-12
    first = torch.stack((torch.ones_like(vector[..., 0]), torch.zeros_like(vector[..., 0])), -1)
    some = torch.where(zero, first, vector)
    return some / some.norm(dim=-1, keepdim=True)


def axes_of(ahead: Tensor) -> Tensor:
    """Axes, the columns of `[..., 2, 2]`, whose first one is a unit vector [..., 2]."""
    cos, sin = ahead.unbind(-1)
    return torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))


def angle_of(vector: Tensor) -> Tensor:
    """Directions `[...]` of vectors [..., 2], in radians from -pi to pi."""
    return torch.atan2(vector[..., 1], vector[..., 0])


def _nearest(start: Tensor, move: Tensor) -> Tensor:
    """The shortest of start + t move over t in [0, 1]: its square is a quadratic in t, so at the clamped vertex."""
    length2 = move.square().sum(-1)
    t = -(start * move).sum(-1) / length2.clamp(min=torch.finfo(move.dtype).tiny)
    return start + t.clamp(0, 1)[..., None] * move


def double_angle(angle: Tensor) -> Tensor:
    """An axis without front and back as a unit vector: (cos 2 angle, sin 2 angle), `[..., 2]`."""
    return unit(2 * angle)


def axis_angle(axis: Tensor) -> Tensor:
    """The inverse of `double_angle`, in [0, pi): `[...]`; the length of `axis` [..., 2] does not matter."""
    angle = (angle_of(axis) / 2) % torch.pi
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
    return unit(angle)


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
