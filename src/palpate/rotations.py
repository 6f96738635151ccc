"""Rotations of space, as matrices and as rotation vectors: pure tensor functions that broadcast over leading axes.

A rotation vector points along the axis; its length is the angle in radians, by the right-hand rule.
Legend: `...` any batch shape.
"""

import torch
from torch import Tensor

SMALL = 1e-6  # half an angle in radians, below which the series of `vector_of` is exact in float64
FLAT = 1e-12  # squared length below which a vector has no direction


def turned_by(vector: Tensor, rotation: Tensor) -> Tensor:
    """Vectors [..., 3] turned by rotation vectors [..., 3] (Rodrigues' formula)."""
    angle = rotation.norm(dim=-1, keepdim=True)
    half, whole = (torch.sinc(angle * share / torch.pi) for share in (0.5, 1.0))
    along = (rotation * vector).sum(-1, keepdim=True)
    across = torch.linalg.cross(*torch.broadcast_tensors(rotation, vector))
    return angle.cos() * vector + whole * across + half.square() / 2 * along * rotation


def matrix_of(rotation: Tensor) -> Tensor:
    """Matrices `[..., 3, 3]` of rotation vectors [..., 3]."""
    axes = torch.eye(3, dtype=rotation.dtype, device=rotation.device)
    return turned_by(axes, rotation[..., None, :]).mT


def vector_of(matrix: Tensor) -> Tensor:
    """Rotation vectors `[..., 3]` of matrices [..., 3, 3]; the angle is at most pi.

    By the unit quaternion, whose sign does not matter. Each row of a matrix of products of its numbers is a multiple of
    it. The row with the largest square is accurate for all angles.
    """
    (a, b, c), (d, e, f), (g, h, i) = (row.unbind(-1) for row in matrix.unbind(-2))
    rows = (
        (1 + a + e + i, h - f, c - g, d - b),
        (h - f, 1 + a - e - i, b + d, c + g),
        (c - g, b + d, 1 - a + e - i, f + h),
        (d - b, c + g, f + h, 1 - a - e + i),
    )
    products = torch.stack([torch.stack(row, -1) for row in rows], -2)  # [..., 4, 4], times 4
    best = products.diagonal(dim1=-2, dim2=-1).argmax(-1)[..., None, None]
    row = products.gather(-2, best.expand(*products.shape[:-2], 1, 4)).squeeze(-2)
    quaternion = row / row.norm(dim=-1, keepdim=True)
    quaternion = torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)
    cos, axis = quaternion[..., :1], quaternion[..., 1:]
    sin = axis.norm(dim=-1, keepdim=True)
    tiny = sin < SMALL
    ratio = torch.atan2(sin, cos) / torch.where(tiny, 1.0, sin)
    return 2 * torch.where(tiny, 1.0, ratio) * axis


def attitude(heading: Tensor | None, rotation: Tensor | None) -> Tensor | None:
    """An agent's axes in the common frame, the columns of `[..., n, n]`, of whichever is known."""
    if rotation is not None or heading is None:
        return rotation
    cos, sin = heading.cos(), heading.sin()
    return torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))


def completed(columns: Tensor) -> Tensor:
    """Matrices `[..., 3, 3]` with a third column, perpendicular to the two in [..., 6]. Never a mirror."""
    first, second = columns.split(3, -1)
    return torch.stack((first, second, torch.linalg.cross(first, second)), -1)


def nearest(columns: Tensor) -> Tensor:
    """The orthonormal pair `[..., 6]` nearest to two columns [..., 6]; some pair if they have no area."""
    first, second = columns.split(3, -1)
    longer = torch.where((first.square() >= second.square()).all(-1, keepdim=True), first, second)
    across = _unit(torch.linalg.cross(first, second), _perpendicular(_unit(longer, torch.zeros_like(longer))))
    # The sum of a column and the other one, turned by a quarter in their plane, has the direction of the nearest.
    found = _unit(first + torch.linalg.cross(second, across), _perpendicular(across))
    return torch.cat((found, torch.linalg.cross(across, found)), -1)


def angle_between(one: Tensor, other: Tensor) -> Tensor:
    """Angles `[...]` in radians, 0 to pi, of the rotations between matrices [..., n, n] of a plane or of space."""
    half = (one - other).square().sum((-2, -1)).sqrt() / 8**0.5  # the sine of half the angle
    return 2 * torch.asin(half.clamp(max=1))


def mean_rotation(matrices: Tensor) -> Tensor:
    """The rotation `[n, n]` with the least mean squared distance from matrices [N, n, n]."""
    return _proper(matrices.mean(0))


def best_rotation(learned: Tensor, true: Tensor) -> Tensor:
    """The rotation `[n, n]`, never a mirror, that leads points [N, n] nearest to others; both have the mean 0."""
    return _proper(true.mT @ learned)


def _proper(matrix: Tensor) -> Tensor:
    """The rotation nearest to a matrix [n, n]."""
    left, _, right = torch.linalg.svd(matrix)
    signs = torch.ones_like(matrix[0])
    signs[-1] = torch.det(left @ right)
    return (left * signs) @ right


def _unit(vector: Tensor, otherwise: Tensor) -> Tensor:
    """Vectors [..., 3] divided by their length, or others where they have none."""
    square = vector.square().sum(-1, keepdim=True)
    none = square < FLAT
    return torch.where(none, otherwise, vector / torch.where(none, 1.0, square).sqrt())


def _perpendicular(unit: Tensor) -> Tensor:
    """A unit vector perpendicular to each unit vector [..., 3]; of zeros, any."""
    x, y, z = unit.unbind(-1)
    flip = torch.where(z < 0, -1.0, 1.0)
    scale = -1 / (flip + z)
    return torch.stack((1 + flip * x * x * scale, flip * x * y * scale, -flip * x), -1)
