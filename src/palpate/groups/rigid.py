"""What rigid motions of the plane and of space share: agents that turn, with actions in their own frame.

A pose is the position followed by the numbers of the heading. A complete action is the displacement along the agent's
axes before the move, followed by the numbers of the turn. A frame is a translation and a turn; it turns first.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from palpate.groups.base import Group


class RigidMotions(Group):
    """The frame is free up to one rigid motion; a mirrored frame would turn the wrong way."""

    turn_width: int
    freedom, led = "rigid motion", True
    heading_weight = 0.25  # of squared distances between axes, relative to those between positions

    @property
    def width(self) -> int:
        """Numbers that a network outputs: those of a pose and those of a landmark."""
        return self.pose_width + self.n

    def pose(self, raw: Tensor) -> Tensor:
        return raw[..., : self.pose_width]

    def flawless(self, z: Tensor) -> Tensor:
        return torch.cat((self.position(z), self.nearest(z[..., self.n :])), -1)

    @abstractmethod
    def nearest(self, axes: Tensor) -> Tensor:
        """The numbers of the true heading that is nearest to those of a network, `[..., pose_width - n]`."""

    def position(self, z: Tensor) -> Tensor:
        return z[..., : self.n]

    def displacement(self, a: Tensor) -> Tensor:
        return self.complete(a)[..., : self.n]

    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        position, heading = self.moved2(z, z_other).unbind(-1)
        return position + self.heading_weight * heading

    def spread2(self, z: Tensor) -> Tensor:
        position, heading = z.var(0).split((self.n, self.pose_width - self.n))
        return 2 * (position.sum() + self.heading_weight * heading.sum())

    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        a = self.complete(a)
        return torch.cat((a[..., : self.n] * factor, a[..., self.n :]), -1)

    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        return torch.cat((z[..., : self.n] * factor, z[..., self.n :]), -1)

    def identity(self) -> Tensor:
        return torch.zeros(self.n + self.turn_width)

    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        return self.turned(position, frame) + frame[: self.n]
