"""The interface of a group: what a pose is, how an action moves it, and how far the frame is free.

Legend: n dimension of positions; `...` any batch shape.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from palpate.geometry import Path


class Group(ABC):
    """Poses `z`, actions `a`, and positions in the common frame of agent and objects."""

    n: int  # dimension of positions
    pose_width: int  # numbers of a pose
    action_width: int  # numbers of an action
    turn_width = 0  # the last numbers of an action, which turn the agent
    freedom = "translation"  # of the frame, in words
    bearings = False  # whether positions are directions from a pivot, as points of the unit circle
    led = False  # whether a network also outputs a landmark, from which it learns features of the heading
    own_zero = False  # whether headings have a zero of their own, which no positions determine

    @property
    def turns(self) -> bool:
        """Whether agents turn."""
        return self.turn_width > 0

    @property
    def width(self) -> int:
        """Numbers that a network outputs."""
        return self.pose_width

    @property
    def recorded_width(self) -> int:
        """Numbers of a recorded pose, as in `posed`."""
        return self.n + self.turn_width

    def pose(self, raw: Tensor) -> Tensor:
        """The pose for a network's output [..., width]; in training it may have a flaw."""
        return raw

    def landmark(self, raw: Tensor) -> Tensor:
        """The position `[..., n]` of a landmark, a resting point, along the own axes of an agent that turns, for a
        network's output [..., width]."""
        return raw[..., self.pose_width :]

    def flaw(self, z: Tensor) -> Tensor:
        """Squared distance `[...]` from what `pose` returns to a true pose, for training; 0 without constraints."""
        return z.new_zeros(z.shape[:-1])

    def flawless(self, z: Tensor) -> Tensor:
        """The nearest pose without a flaw."""
        return z

    def posed(self, recorded: Tensor) -> Tensor:
        """The pose for a recorded position [..., n], followed by a heading in radians, or by a rotation vector, if
        poses have one."""
        return recorded

    @abstractmethod
    def position(self, z: Tensor) -> Tensor:
        """The position of a pose, `[..., n]`."""

    def known(self, position: Tensor) -> Tensor:
        """What the group's actions determine of positions [..., n]."""
        return position

    def heading(self, z: Tensor) -> Tensor | None:
        """The direction `[...]` in the plane in which an agent faces, in radians; None if poses have none."""
        return None

    def rotation(self, z: Tensor) -> Tensor | None:
        """The agent's axes in space, the columns of `[..., 3, 3]`; None if poses have none."""
        return None

    def axes(self, z: Tensor) -> Tensor:
        """The agent's axes in the common frame, the columns of `[..., n, n]`."""
        return torch.eye(self.n, dtype=z.dtype, device=z.device).expand(*z.shape[:-1], -1, -1)

    def complete(self, a: Tensor) -> Tensor:
        """Actions with all their numbers, for actions [..., action_width] or complete ones."""
        return a

    @abstractmethod
    def act(self, z: Tensor, a: Tensor) -> Tensor:
        """The pose after the action a at z."""

    def reached(self, a: Tensor) -> Tensor:
        """The pose after the action a at the origin."""
        return self.posed(self.complete(a))

    @abstractmethod
    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        """The pose before the action a, from estimates of the poses before and after it."""

    @abstractmethod
    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        """The complete action that leads from z to z_next."""

    @abstractmethod
    def compose(self, actions: Tensor) -> Tensor:
        """One complete action for a sequence [..., t, action_width] of actions."""

    @abstractmethod
    def origin(self) -> Tensor:
        """The pose of a chain's beginning, `[pose_width]`; any pose would do."""

    def travelled(self, actions: Tensor, chain: Tensor) -> Tensor:
        """Poses `[N, pose_width]` before each action [N, action_width], relative to the first pose of its chain.

        `chain` [N] numbers the chains in ascending order. In a chain, each action begins where the previous one ends.
        """
        first = torch.searchsorted(chain, chain)  # [N], the first row of each row's chain
        at = torch.arange(len(chain), device=chain.device) - first
        poses = self.origin().to(actions).repeat(len(actions), 1)
        for place in range(1, int(at.max()) + 1):
            rows = (at == place).nonzero()[:, 0]
            poses[rows] = self.act(poses[rows - 1], actions[rows - 1])
        return poses

    @abstractmethod
    def distance2(self, z: Tensor, z_other: Tensor) -> Tensor:
        """Squared distance of two poses, `[...]`."""

    def moved2(self, z: Tensor, z_other: Tensor) -> Tensor:
        """Squared distances `[..., 2]` of the positions and of the headings of two poses."""
        parts = (z - z_other).square().split((self.n, self.pose_width - self.n), -1)
        return torch.stack([part.sum(-1) for part in parts], -1)

    @abstractmethod
    def spread2(self, z: Tensor) -> Tensor:
        """Mean squared distance of two poses of a batch [b, pose_width], a scalar."""

    @abstractmethod
    def path(self, z: Tensor, a: Tensor) -> Path:
        """The positions that an agent passes during the action a from z."""

    def towards(self, z: Tensor, position: Tensor) -> Tensor:
        """Actions `[..., t, action_width]`, one after the other, that lead an agent at z straight to a position
        [..., n]; an agent that turns in the plane first faces the way."""
        ahead = self.seen(z, position)
        still = ahead.new_zeros(*ahead.shape[:-1], self.action_width - self.n)
        return torch.cat((ahead, still), -1)[..., None, :]

    @abstractmethod
    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        """From a position `seen` [..., n] in the frame of an agent at z to the common frame."""

    @abstractmethod
    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        """From a position [..., n] in the common frame to the frame of an agent at z."""

    @abstractmethod
    def scaled(self, a: Tensor, factor: Tensor | float) -> Tensor:
        """Complete actions with their lengths in another unit."""

    @abstractmethod
    def scaled_pose(self, z: Tensor, factor: Tensor | float) -> Tensor:
        """Poses with their lengths in another unit."""

    def displacement(self, a: Tensor) -> Tensor:
        """The displacement of actions, along the axes in which they are given, `[..., n]`."""
        return a

    def turn(self, a: Tensor) -> Tensor:
        """How far actions turn the agent, `[...]` in radians."""
        return a.new_zeros(a.shape[:-1])

    def length2(self, a: Tensor) -> Tensor:
        """Squared length of an action's displacement, `[...]`; turns have none."""
        return self.displacement(a).square().sum(-1)

    def usual(self, a: Tensor) -> float:
        """Root mean square of these actions, in the unit of lengths; 1 if the actions define this unit."""
        return 1.0

    def difference(self, position: Tensor, other: Tensor) -> Tensor:
        """The vector from `other` to `position`, `[..., n]`; both are positions in the common frame."""
        return position - other

    def shifted(self, position: Tensor, vector: Tensor) -> Tensor:
        """The positions [..., n] at a vector [n] from others; the inverse of `difference`."""
        return position + vector

    @abstractmethod
    def identity(self) -> Tensor:
        """The frame, as a vector of numbers, that moves no position."""

    @abstractmethod
    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        """The least-squares motion from learned positions [N, n] to true ones, as a vector of numbers."""

    @abstractmethod
    def moved(self, position: Tensor, frame: Tensor) -> Tensor:
        """Positions [..., n] moved by a frame's motion."""

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        """Vectors [..., n] between positions, after a frame's motion."""
        return self.moved(vector, frame) - self.moved(torch.zeros_like(vector), frame)
