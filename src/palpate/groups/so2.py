"""Turns about a pivot: the agent is an angle, such as that of an arm on a fixed base.

Positions are bearings from the pivot, points of the circle of radius 1; this radius is the unit of lengths. An action
is one number, a turn to the left in radians. An object has a bearing only: turns about one pivot do not determine how
far away it is.
"""

from typing import final

import torch
from torch import Tensor

from palpate.geometry import Path, Sweep, angle_of, axes_of, conjugate, directed, rotated, unit
from palpate.groups.base import Group

CHORDS = 32  # of an arc: a chord is off by at most a 200th of the radius for a whole turn


@final
class SO2(Group):
    """A pose is (cos, sin) of the angle. The frame is free up to one turn."""

    n, pose_width, action_width, turn_width = 2, 2, 1, 1
    freedom, bearings = "turn about the pivot", True

    @property
    def recorded_width(self) -> int:
        return 1

    def flaw(self, z: Tensor) -> Tensor:
        return (z.square().sum(-1) - 1).square()

    def flawless(self, z: Tensor) -> Tensor:
        return directed(z)

    def posed(self, recorded: Tensor) -> Tensor:
        return unit(recorded[..., 0])

    def position(self, z: Tensor) -> Tensor:
        return z

    def known(self, position: Tensor) -> Tensor:
        return directed(position)

    def heading(self, z: Tensor) -> Tensor:
        return angle_of(z)

    def axes(self, z: Tensor) -> Tensor:
        return axes_of(z)

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        return rotated(z, unit(a[..., 0]))

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        return directed(z + rotated(z_next, unit(-a[..., 0])))

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        return angle_of(rotated(z_next, conjugate(z)))[..., None]

    def compose(self, actions: Tensor) -> Tensor:
        return actions.sum(-2)

    def origin(self) -> Tensor:
        return torch.tensor([1.0, 0.0])

    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        return (z - z_other).square().sum(-1)

    def spread2(self, z: Tensor) -> Tensor:
        return 2 * z.var(0).sum()

    def path(self, z: Tensor, a: Tensor) -> Path:
        t = torch.linspace(0, 1, CHORDS + 1, dtype=a.dtype, device=a.device)
        on_circle = rotated(z[..., None, :], unit(t * a))
        return Sweep(on_circle, torch.zeros_like(on_circle), axes_of(on_circle))

    def towards(self, z: Tensor, position: Tensor) -> Tensor:
        return angle_of(self.seen(z, position))[..., None, None]

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return rotated(seen, z)

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return rotated(position, conjugate(z))

    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        return a

    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        return z

    def turn(self, a: Tensor) -> Tensor:
        return a[..., 0]

    def length2(self, a: Tensor) -> Tensor:
        """The unit of lengths is the circle's radius, however far the turns lead."""
        return torch.ones_like(a[..., 0])

    def usual(self, a: Tensor) -> float:
        return float(a.double().square().mean().sqrt().clamp(min=1e-12))

    def identity(self) -> Tensor:
        return torch.zeros(1)

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        return angle_of(rotated(true, conjugate(learned)).sum(0))[None]

    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        return rotated(position, unit(frame[0]).to(position))
