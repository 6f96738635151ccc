"""The agent's representation moves as the agent does (paper, Sec. 4.1). Legend: b batch."""

import torch
from torch import Tensor

from palpate.groups.base import Group

LEAST_MOVE = 0.25  # least mean squared motion of poses, relative to that of the actions
STILL_WEIGHTS = (4.0, 1.0)  # of positions, and of headings
LAST_HEADING = 0.75  # added to the headings' weight in L_int, 1/4, in the end


def equivariance(group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """L_int = |z_int' - a z_int|^2 (Eq. 3), `[b]`; for translations a z_int = z_int + a.

    And the flaws of both poses. Zero for the true state moved by any one element of the group.
    """
    return group.distance2(z_int_next, group.act(z_int, a)) + (group.flaw(z_int) + group.flaw(z_int_next)) / 2


def landmark_equivariance(group: Group, seen: Tensor, a: Tensor, seen_next: Tensor) -> Tensor:
    """|seen' - a^-1 seen|^2 `[b]`, for a landmark, a point at rest, as the agent sees it along its own axes.

    An addition to the paper, for agents that turn. L_int multiplies one output, the heading, by the action, and outputs
    that are 0 fulfil it. This loss compares one output with known numbers, as L_int does for translations, and has no
    such solution. So the network learns features of the heading early.
    """
    return (seen_next - group.seen(group.reached(a), seen)).square().sum(-1)


def heading_equivariance(group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """What L_int lacks for headings to count as much as positions, `[b]`.

    An addition to the paper, for agents that turn. A wrong heading moves the end of a usual displacement, whose length
    is 1, as far as the axes. But positions are learned first, and headings from them.
    """
    return LAST_HEADING * group.moved2(z_int_next, group.act(z_int, a))[..., 1]


def stillness(group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """How far poses move less than the actions, over a batch; a scalar, and 0 if they move at least half as far.

    An addition to the paper, for agents that turn. While headings are wrong, no positions fit the actions, and L_int
    alone would shrink all poses to one.
    """
    moved, asked = group.moved2(z_int, z_int_next), group.moved2(group.reached(a), group.reached(torch.zeros_like(a)))
    least = LEAST_MOVE * asked.mean(0)
    lacking = (least - moved.mean(0)).clamp(min=0) / least.clamp(min=1e-12)  # [2]
    return sum(weight * x.square() for weight, x in zip(STILL_WEIGHTS, lacking, strict=True))


def chain_equivariance(
    group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor, chain: Tensor, travelled: Tensor
) -> Tensor:
    """L_int between different triples of a chain, `[b]`: from o of one triple to o' of another; 0 for a single triple.

    A departure from the paper. An object that hardly moves within a triple can shift z_int without a loss. Over a chain
    the object moves farther, and the shift becomes visible. `travelled` [b, pose_width] is the pose before each action,
    relative to the first pose of its chain.
    """
    leg = group.between(travelled[:, None], group.act(travelled, a)[None])  # [b, b, action_width]
    residual2 = group.distance2(z_int_next[None], group.act(z_int[:, None], leg))
    others = (chain[:, None] == chain[None]) & ~torch.eye(len(a), dtype=torch.bool, device=a.device)
    return torch.where(others, residual2, 0.0).sum(1) / others.sum(1).clamp(min=1)
