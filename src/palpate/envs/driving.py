"""Paths of a robot that drives along its own axes; sideways and turns are to its left.

Legend: t points of a path; `...` any batch shape.
"""

import math
from typing import Literal

import torch
from torch import Tensor

Motion = Literal["arc", "straight"]  # arc: the robot drives and turns at once; straight: one after the other
MOST_TURN = math.pi / 2  # of one random move
IN_PLACE = 0.1  # share of random moves that only turn the robot
POINTS = 8  # of an arc, whose chords are swept
STOPS = 64  # places along a path at which the border may stop the robot


def turned(vector: Tensor, angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    x, y = vector.unbind(-1)
    return torch.stack((cos * x - sin * y, sin * x + cos * y), -1)


def part(move: Tensor, share: Tensor, motion: Motion) -> Tensor:
    """The part of actions [..., 3] until a share [...] of their way."""
    turn = move[..., 2]
    if motion == "straight":
        return share[..., None] * move
    reach = share * _chord(share * turn) / _chord(turn)
    return torch.cat((reach[..., None] * turned(move[..., :2], (share - 1) * turn / 2), (share * turn)[..., None]), -1)


def along(agent: Tensor, heading: Tensor, move: Tensor, count: int, motion: Motion) -> Tensor:
    """Points `[..., count + 1, 2]` of the path of actions [..., 3] from positions [..., 2] and headings [...]."""
    share = torch.arange(count + 1, device=move.device) / count
    some = part(move[..., None, :], share.expand(*move.shape[:-1], -1), motion)
    return agent[..., None, :] + turned(some[..., :2], heading[..., None])


def inside(points: Tensor, low: float, high: float) -> Tensor:
    """Whether points [..., 2] lie in a square, `[...]` bool."""
    return ((points >= low - 1e-6) & (points <= high + 1e-6)).all(-1)


def random_moves(
    agent: Tensor, heading: Tensor, target: Tensor, numbers: Tensor, border: tuple[float, float], motion: Motion
) -> Tensor:
    """Actions `[..., 3]` towards targets [..., 2], with turns from uniform `numbers` [..., 2]; some only turn in place.

    An arc that would cross the border bends the other way, or is straight.
    """
    target = torch.where(numbers[..., 1:] < IN_PLACE, agent, target)
    ahead = turned(target - agent, -heading)
    turn = MOST_TURN * (2 * numbers[..., :1] - 1)
    choices = [torch.cat((ahead, sign * turn), -1) for sign in (1, -1, 0)]
    first, second = (
        inside(along(agent, heading, a, POINTS, motion), *border).all(-1, keepdim=True) for a in choices[:2]
    )
    return torch.where(first, choices[0], torch.where(second, choices[1], choices[2]))


def stopped(agent: Tensor, heading: Tensor, move: Tensor, border: tuple[float, float], motion: Motion) -> Tensor:
    """The part of actions [..., 3] until the border stops the robot."""
    within = inside(along(agent, heading, move, STOPS, motion), *border)  # [..., t]
    share = (within.long().cumprod(-1).sum(-1) - 1).clamp(min=0) / STOPS
    return part(move, share, motion)


def _chord(turn: Tensor) -> Tensor:
    """Length of the chord of an arc that turns by `turn` [...], relative to the arc."""
    return torch.sinc(turn / (2 * math.pi))
