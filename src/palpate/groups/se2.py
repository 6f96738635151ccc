"""Rigid motions of the plane: agents that turn, with actions in their own frame.

A pose is (x, y, cos, sin) of position and heading. A network outputs these numbers as they are, and `flaw` measures how
far the last two are from a unit vector. Divided by its length instead, the vector could not cross 0, and a network that
begins with one heading for all observations would keep it.

An action is (forward, sideways, turn): a displacement along the axes of the agent before the move, sideways to its
left, and a turn to the left in radians. A robot that cannot move sideways may record (forward, turn).
"""

from typing import final

import torch
from torch import Tensor

from palpate.config import Motion
from palpate.geometry import Path, Sweep, angle_of, axes_of, conjugate, rotated, unit
from palpate.groups.planar import PlanarPoses

CHORDS = 8  # of an arc: a chord is off by at most a 512th of the arc's length per radian of the turn
WIDEST = 6.0  # radians: of an arc that turns farther, the chord is nearly 0 and does not determine the arc


@final
class SE2(PlanarPoses):
    """Poses and moves in the plane.

    With motion "arc" the agent drives and turns at once, at a constant rate. With "straight" it drives, and turns
    before or after; actions (forward, turn) then lead along the heading before the move. For a long agent, which
    touches what its turn sweeps, "straight" means that it drives first.
    """

    n, pose_width, turn_width = 2, 4, 1

    def __init__(self, actions: int = 3, motion: Motion = "arc") -> None:
        self.action_width, self.motion = actions, motion

    def complete(self, a: Tensor) -> Tensor:
        if a.shape[-1] == 3:
            return a
        forward, turn = a.unbind(-1)
        ahead = torch.stack((forward, torch.zeros_like(forward)), -1)
        if self.motion == "arc":
            ahead = rotated(ahead * _chord(turn)[..., None], unit(turn / 2))
        return torch.cat((ahead, turn[..., None]), -1)

    def act(self, z: Tensor, a: Tensor) -> Tensor:
        a = self.complete(a)
        position, u = z[..., :2], z[..., 2:]
        return torch.cat((position + rotated(a[..., :2], u), rotated(u, unit(a[..., 2]))), -1)

    def start(self, z: Tensor, a: Tensor, z_next: Tensor) -> Tensor:
        a = self.complete(a)
        u = self.nearest(z[..., 2:] + rotated(z_next[..., 2:], unit(-a[..., 2])))
        return torch.cat(((z[..., :2] + z_next[..., :2] - rotated(a[..., :2], u)) / 2, u), -1)

    def between(self, z: Tensor, z_next: Tensor) -> Tensor:
        back = conjugate(z[..., 2:])
        turn = angle_of(rotated(z_next[..., 2:], back))
        return torch.cat((rotated(z_next[..., :2] - z[..., :2], back), turn[..., None]), -1)

    def compose(self, actions: Tensor) -> Tensor:
        z = self.origin().to(actions).expand(*actions.shape[:-2], -1)
        turn = self.complete(actions)[..., 2].sum(-1, keepdim=True)
        for a in actions.unbind(-2):
            z = self.act(z, a)
        return torch.cat((z[..., :2], turn), -1)

    def turn(self, a: Tensor) -> Tensor:
        return self.complete(a)[..., 2]

    def origin(self) -> Tensor:
        return torch.tensor([0.0, 0.0, 1.0, 0.0])

    def path(self, z: Tensor, a: Tensor) -> Path:
        a = self.complete(a)
        start, move, turn = z[..., None, :2], rotated(a[..., :2], z[..., 2:])[..., None, :], a[..., 2:]
        t = torch.linspace(0, 1, CHORDS + 1, dtype=a.dtype, device=a.device)
        axes = axes_of(rotated(z[..., None, 2:], unit(t * turn)))
        if self.motion == "straight":
            ends = torch.cat((start, start + move), -2)
            stops = torch.cat((ends[..., :1, :], ends[..., 1:, :].expand_as(axes[..., 0])), -2)
            return Sweep(ends, stops, torch.cat((axes[..., :1, :, :], axes), -3))
        turn = turn.clamp(-WIDEST, WIDEST)
        # After a share t of an arc, the chord is shorter, and leads less far to the side of the turn.
        reach = t * _chord(t * turn) / _chord(turn)
        corners = start + rotated(reach[..., None] * move, unit((t - 1) * turn / 2))
        return Sweep(corners, corners, axes)

    def towards(self, z: Tensor, position: Tensor) -> Tensor:
        ahead = self.seen(z, position)
        zero, length = torch.zeros_like(ahead[..., 0]), ahead.norm(dim=-1)
        sideways = (zero,) * (self.action_width - 2)
        turn, drive = ((zero, *sideways, angle_of(ahead)), (length, *sideways, zero))
        return torch.stack((torch.stack(turn, -1), torch.stack(drive, -1)), -2)

    def place(self, z: Tensor, seen: Tensor) -> Tensor:
        return z[..., :2] + rotated(seen, z[..., 2:])

    def seen(self, z: Tensor, position: Tensor) -> Tensor:
        return rotated(position - z[..., :2], conjugate(z[..., 2:]))

    def frame(self, learned: Tensor, true: Tensor) -> Tensor:
        middle, true_middle = learned.mean(0), true.mean(0)
        # The sum of complex quotients, up to positive factors, points in the direction of the best turn.
        turn = angle_of(rotated(true - true_middle, conjugate(learned - middle)).sum(0))
        return torch.cat((true_middle - rotated(middle, unit(turn)), turn[None]))

    def turned(self, vector: Tensor, frame: Tensor) -> Tensor:
        return rotated(vector, unit(frame[2]).to(vector))


def _chord(turn: Tensor) -> Tensor:
    """Length of the chord of an arc that turns by `turn` [...], relative to the arc."""
    return torch.sinc(turn / (2 * torch.pi))
