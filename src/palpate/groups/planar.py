"""Poses (x, y, cos, sin) of a position and a heading in the plane, which groups with different actions share."""

import torch
from torch import Tensor

from palpate.geometry import angle_of, axes_of, directed, unit
from palpate.groups.rigid import RigidMotions


class PlanarPoses(RigidMotions):
    """A heading is a vector whose length should be 1."""

    def flaw(self, z: Tensor) -> Tensor:
        return self.heading_weight * (z[..., 2:].square().sum(-1) - 1).square()

    def nearest(self, axes: Tensor) -> Tensor:
        return directed(axes)

    def heading(self, z: Tensor) -> Tensor:
        return angle_of(z[..., 2:])

    def axes(self, z: Tensor) -> Tensor:
        return axes_of(z[..., 2:])

    def posed(self, recorded: Tensor) -> Tensor:
        return torch.cat((recorded[..., :2], unit(recorded[..., 2])), -1)
