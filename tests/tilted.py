"""A second group, for tests: a network's output, a pose and a position have 4, 3 and 2 numbers."""

from typing import final

import torch
from torch import Tensor

from palpate.geometry import Segment
from palpate.groups.base import Group

REACH = 9.0  # bound of positions, in units of the actions' root mean square


@final
class Tilted(Group):
    """Displacements of a tilted plane: a pose is a point in space. The frame is free up to a rigid motion."""

    n, width, pose_width, action_width = 2, 4, 3, 2

    def __init__(self, n: int = 2, length: float = 1.0) -> None:
        assert n == 2
        self.length = length  # of a unit vector, for `difference`

    def pose(self, raw: Tensor) -> Tensor:
        return self._lifted(REACH * torch.tanh((raw[..., :2] + raw[..., 2:]) / REACH))

    def position(self, z: Tensor) -> Tensor:
        x, y, up = z.unbind(-1)  # an error for a network's output
        return torch.stack((0.6 * x + 0.8 * y, up), -1)

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        return z + self._lifted(a)

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        return (z + z_next - self._lifted(a)) / 2

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        return self.position(z_next - z)

    def compose(self, actions: Tensor) -> Tensor:
        return actions.sum(-2)

    def origin(self) -> Tensor:
        return torch.zeros(3)

    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        return (z - z_other).square().sum(-1)

    def spread2(self, z: Tensor) -> Tensor:
        return 2 * z.var(0).sum()

    def path(self, z: Tensor, a: Tensor) -> Segment:
        return Segment(self.position(z), a)

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return self.position(z) + seen

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return position - self.position(z)

    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        return a * factor

    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        return z * factor

    def difference(self, position: Tensor, other: Tensor) -> Tensor:
        return self.length * (position - other)

    def identity(self) -> Tensor:
        return torch.zeros(3)  # an angle and a translation

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        x, y = learned - learned.mean(0), true - true.mean(0)
        angle = torch.atan2((x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0]).sum(), (x * y).sum())
        return torch.cat((angle[None], true.mean(0) - self._turned(learned.mean(0), angle)))

    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        return self._turned(position, frame[0]) + frame[1:]

    @staticmethod
    def _lifted(x: Tensor) -> Tensor:
        return torch.stack((0.6 * x[..., 0], 0.8 * x[..., 0], x[..., 1]), -1)

    @staticmethod
    def _turned(x: Tensor, angle: Tensor) -> Tensor:
        c, s = torch.cos(angle), torch.sin(angle)
        return torch.stack((c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]), -1)
