"""Displacements of R^n."""

from typing import final

import torch
from torch import Tensor

from palpate.geometry import Segment
from palpate.groups.base import Group


@final
class Translations(Group):
    """Displacements of R^n: the paper's group. The frame is free up to one translation."""

    def __init__(self, n: int) -> None:
        self.n = self.pose_width = self.action_width = n

    def position(self, z: Tensor) -> Tensor:
        return z

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        return z + a

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        return (z + z_next - a) / 2

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        return z_next - z

    def compose(self, actions: Tensor) -> Tensor:
        return actions.sum(-2)

    def origin(self) -> Tensor:
        return torch.zeros(self.n)

    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        return (z - z_other).square().sum(-1)

    def spread2(self, z: Tensor) -> Tensor:
        return 2 * z.var(0).sum()

    def path(self, z: Tensor, a: Tensor) -> Segment:
        return Segment(z, a)

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return z + seen

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return position - z

    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        return a * factor

    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        return z * factor

    def identity(self) -> Tensor:
        return torch.zeros(self.n)

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        return (true - learned).mean(0)

    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        return position + frame

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        return vector
