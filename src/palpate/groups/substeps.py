"""Moves that were recorded in several parts: the path leads from sub-step to sub-step.

Legend: m sub-steps of an action, w numbers of a sub-step.
"""

from typing import final

import torch
from torch import Tensor

from palpate.geometry import Path, joined
from palpate.groups.base import Group


@final
class Substeps(Group):
    """A group whose actions are sequences of `count` sub-steps, each an action of another group: `[..., m w]`.

    A sequence moves the agent as the composition of its parts does; this is its complete action. Only the path needs
    the parts.
    """

    def __init__(self, group: Group, count: int) -> None:
        self.group, self.count = group, count
        self.n, self.pose_width, self.turn_width = group.n, group.pose_width, group.turn_width
        self.action_width = count * group.action_width
        self.freedom, self.bearings = group.freedom, group.bearings
        self.led, self.own_zero = group.led, group.own_zero
        # A sequence of complete sub-steps is longer if sub-steps are not complete.
        self._sequences = (self.action_width, count * group.scaled(torch.zeros(group.action_width), 1.0).shape[-1])

    def parts(self, a: Tensor) -> Tensor:
        """Actions as sequences of actions of the other group, `[..., m, w]`; one that is complete has a single part."""
        return a.unflatten(-1, (self.count, -1)) if a.shape[-1] in self._sequences else a[..., None, :]

    def complete(self, a: Tensor) -> Tensor:
        return self.group.compose(self.parts(a))

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        return self.group.act(z, self.complete(a))

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        return self.group.start(z, self.complete(a), z_next)

    def compose(self, actions: Tensor) -> Tensor:
        return self.group.compose(self.parts(actions).flatten(-3, -2))

    def path(self, z: Tensor, a: Tensor) -> Path:
        passed = []
        for part in self.parts(a).unbind(-2):
            passed.append(self.group.path(z, part))
            z = self.group.act(z, part)
        return joined(passed)

    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        return self.group.scaled(self.parts(a), factor).flatten(-2)

    def displacement(self, a: Tensor) -> Tensor:
        return self.group.displacement(self.complete(a))

    def turn(self, a: Tensor) -> Tensor:
        return self.group.turn(self.complete(a))

    def length2(self, a: Tensor) -> Tensor:
        return self.group.length2(self.complete(a))

    def usual(self, a: Tensor) -> float:
        return self.group.usual(self.complete(a))

    # What concerns poses alone is that of the other group.

    @property
    def width(self) -> int:
        return self.group.width

    @property
    def recorded_width(self) -> int:
        return self.group.recorded_width

    def pose(self, raw: Tensor) -> Tensor:
        return self.group.pose(raw)

    def landmark(self, raw: Tensor) -> Tensor:
        return self.group.landmark(raw)

    def flaw(self, z: Tensor) -> Tensor:
        return self.group.flaw(z)

    def flawless(self, z: Tensor) -> Tensor:
        return self.group.flawless(z)

    def posed(self, recorded: Tensor) -> Tensor:
        return self.group.posed(recorded)

    def position(self, z: Tensor) -> Tensor:
        return self.group.position(z)

    def known(self, position: Tensor) -> Tensor:
        return self.group.known(position)

    def heading(self, z: Tensor) -> Tensor | None:
        return self.group.heading(z)

    def rotation(self, z: Tensor) -> Tensor | None:
        return self.group.rotation(z)

    def axes(self, z: Tensor) -> Tensor:
        return self.group.axes(z)

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        return self.group.between(z, z_next)

    def origin(self) -> Tensor:
        return self.group.origin()

    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        return self.group.distance2(z, z_other)

    def moved2(self, z: Tensor, z_other: Tensor) -> Tensor:
        return self.group.moved2(z, z_other)

    def spread2(self, z: Tensor) -> Tensor:
        return self.group.spread2(z)

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return self.group.place(z, seen)

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return self.group.seen(z, position)

    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        return self.group.scaled_pose(z, factor)

    def towards(self, z: Tensor, position: Tensor) -> Tensor:
        return self.group.towards(z, position)

    def difference(self, position: Tensor, other: Tensor) -> Tensor:
        return self.group.difference(position, other)

    def shifted(self, position: Tensor, vector: Tensor) -> Tensor:
        return self.group.shifted(position, vector)

    def identity(self) -> Tensor:
        return self.group.identity()

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        return self.group.frame(learned, true)

    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        return self.group.moved(position, frame)

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        return self.group.turned(vector, frame)
