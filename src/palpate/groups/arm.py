"""A base that moves along fixed axes, and an arm on it that turns: translations of the plane and turns, side by side.

A pose is (x, y, cos, sin) of the base's position and of the arm's angle. An action is (x, y, turn): the base's
displacement along the fixed axes, and the arm's turn to the left in radians, both at a constant rate.
"""

from typing import final

import torch
from torch import Tensor

from palpate.geometry import Path, Sweep, angle_of, axes_of, conjugate, directed, rotated, unit
from palpate.groups.planar import PlanarPoses

CHORDS = 8  # of a turn


@final
class Arm(PlanarPoses):
    """The frame is free up to a translation, and the arm's zero up to a turn."""

    n, pose_width, action_width, turn_width = 2, 4, 3, 1
    freedom, own_zero = "translation and the arm's zero", True
    led = False  # nothing multiplies a displacement by a heading

    @property
    def width(self) -> int:
        return self.pose_width

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        return torch.cat((z[..., :2] + a[..., :2], rotated(z[..., 2:], unit(a[..., 2]))), -1)

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        u = directed(z[..., 2:] + rotated(z_next[..., 2:], unit(-a[..., 2])))
        return torch.cat(((z[..., :2] + z_next[..., :2] - a[..., :2]) / 2, u), -1)

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        turn = angle_of(rotated(z_next[..., 2:], conjugate(z[..., 2:])))
        return torch.cat((z_next[..., :2] - z[..., :2], turn[..., None]), -1)

    def compose(self, actions: Tensor) -> Tensor:
        return actions.sum(-2)

    def turn(self, a: Tensor) -> Tensor:
        return a[..., 2]

    def origin(self) -> Tensor:
        return torch.tensor([0.0, 0.0, 1.0, 0.0])

    def path(self, z: Tensor, a: Tensor) -> Path:
        t = torch.linspace(0, 1, CHORDS + 1, dtype=a.dtype, device=a.device)[:, None]
        start, move = z[..., None, :2], a[..., None, :2]
        ends = torch.cat((start, start + move), -2)
        return Sweep(ends, start + t * move, axes_of(rotated(z[..., None, 2:], unit(t[:, 0] * a[..., 2:]))))

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return z[..., :2] + rotated(seen, z[..., 2:])

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return rotated(position - z[..., :2], conjugate(z[..., 2:]))

    def towards(self, z: Tensor, position: Tensor) -> Tensor:
        way = position - z[..., :2]
        return torch.cat((way, torch.zeros_like(way[..., :1])), -1)[..., None, :]

    def identity(self) -> Tensor:
        return torch.zeros(self.n)

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        return (true - learned).mean(0)

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        return vector
