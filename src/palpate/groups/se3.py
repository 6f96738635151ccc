"""Rigid motions of space: grippers, drones and cameras that turn, with actions in their own frame.

A pose has 9 numbers: the position, and the first two columns of a rotation matrix, the agent's first two axes. The
third axis is their cross product, so no pose is mirrored. A network outputs these numbers as they are, and `flaw`
measures how far the columns are from being orthonormal; see `se2.py`.

An action has 6 numbers: the displacement along the agent's axes before the move, and the rotation vector, in radians,
of the turn about these axes. Together they are the agent's pose after the move, seen from its pose before.
"""

from typing import final

import torch
from torch import Tensor

from palpate.config import Motion
from palpate.geometry import Path, Polyline, Segment
from palpate.groups.rigid import RigidMotions
from palpate.rotations import best_rotation, completed, matrix_of, nearest, turned_by, vector_of

CHORDS = 8  # of a screw motion: a chord is off by at most a 512th of the path's length per radian of the turn
TWO_PI = 2 * torch.pi
WIDEST = 6.0  # radians: of a screw motion that turns farther, the displacement does not determine the path


@final
class SE3(RigidMotions):
    """Poses and moves in space.

    With motion "arc" the agent moves and turns at once, at a constant rate, so its path is a screw motion. With
    "straight" it moves along the axes that it has before the move, and turns before or after.
    """

    n, pose_width, action_width, turn_width = 3, 9, 6, 3

    def __init__(self, motion: Motion = "arc") -> None:
        self.motion = motion

    def flaw(self, z: Tensor) -> Tensor:
        first, second = z[..., 3:].split(3, -1)
        lengths = (first.square().sum(-1) - 1).square() + (second.square().sum(-1) - 1).square()
        return self.heading_weight * (lengths + 2 * (first * second).sum(-1).square())

    def nearest(self, axes: Tensor) -> Tensor:
        return nearest(axes)

    def rotation(self, z: Tensor) -> Tensor:
        return completed(z[..., 3:])

    def axes(self, z: Tensor) -> Tensor:
        return self.rotation(z)

    def posed(self, recorded: Tensor) -> Tensor:
        return _with_columns(recorded[..., :3], matrix_of(recorded[..., 3:]))

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        axes = self.rotation(z)
        return _with_columns(z[..., :3] + _times(axes, a[..., :3]), axes @ matrix_of(a[..., 3:]))

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        back = self.rotation(z_next) @ matrix_of(-a[..., 3:])
        columns = nearest(z[..., 3:] + _columns(back))
        moved = _times(completed(columns), a[..., :3])
        return torch.cat(((z[..., :3] + z_next[..., :3] - moved) / 2, columns), -1)

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        back = self.rotation(z).mT
        return torch.cat((_times(back, z_next[..., :3] - z[..., :3]), vector_of(back @ self.rotation(z_next))), -1)

    def compose(self, actions: Tensor) -> Tensor:
        origin = self.origin().to(actions).expand(*actions.shape[:-2], -1)
        z = origin
        for a in actions.unbind(-2):
            z = self.act(z, a)
        return self.between(origin, z)

    def turn(self, a: Tensor) -> Tensor:
        return a[..., 3:].norm(dim=-1)

    def origin(self) -> Tensor:
        return torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 1, 0])

    def path(self, z: Tensor, a: Tensor) -> Path:
        axes, start, move, turn = self.rotation(z), z[..., :3], a[..., :3], a[..., 3:]
        if self.motion == "straight":
            return Segment(start, _times(axes, move))
        angle = turn.norm(dim=-1, keepdim=True)
        turn = turn * (WIDEST / angle.clamp(min=WIDEST))
        angle = angle.clamp(max=WIDEST)
        t = torch.linspace(0, 1, CHORDS + 1, dtype=a.dtype, device=a.device)[:, None]
        # Perpendicular to the axis of the turn the path is an arc, of which a share t has a shorter chord that leads
        # less far to the side of the turn. Along the axis the agent moves evenly.
        reach = t * (torch.sinc(t * angle[..., None] / TWO_PI) / torch.sinc(angle[..., None] / TWO_PI))
        along = turn * ((turn * move).sum(-1, keepdim=True) / angle.square().clamp(min=1e-12))
        across = turned_by(move[..., None, :], (t - 1) / 2 * turn[..., None, :])
        way = reach * across + (t - reach) * along[..., None, :]  # [..., c, 3], along the axes before the move
        return Polyline(start[..., None, :] + way @ axes.mT)

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return z[..., :3] + _times(self.rotation(z), seen)

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return _times(self.rotation(z).mT, position - z[..., :3])

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        middle, true_middle = learned.mean(0), true.mean(0)
        turn = best_rotation(learned - middle, true - true_middle)
        return torch.cat((true_middle - turn @ middle, vector_of(turn)))

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        return turned_by(vector, frame[3:].to(vector))


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products `[..., 3]` of matrices [..., 3, 3] and vectors [..., 3]."""
    return (matrix @ vector[..., None]).squeeze(-1)


def _columns(matrix: Tensor) -> Tensor:
    """The first two columns `[..., 6]` of matrices [..., 3, 3]."""
    return matrix[..., :2].mT.flatten(-2)


def _with_columns(position: Tensor, matrix: Tensor) -> Tensor:
    """Poses of positions [..., 3] and rotation matrices [..., 3, 3]."""
    return torch.cat((position, _columns(matrix)), -1)
