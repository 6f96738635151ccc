"""Logs of two balls in a box with one fault each, and good ones beside them."""

from collections.abc import Callable
from typing import Any

import torch
from balls import States, mixture, picture, sample
from torch import Tensor

from palpate.data.transitions import Transitions

SIDES = (1.0, 1.0)


def states(num: int = 3000, share: float = 0.3, sides: tuple[float, ...] = SIDES, seed: int = 0) -> States:
    return sample(num, sides, share, torch.Generator().manual_seed(seed))


def log(s: States, action: Tensor | None = None, see: Callable[[Tensor, Tensor], Tensor] | None = None) -> Transitions:
    """These states as 64 numbers or as `see` shows them; the action is the displacement unless given."""
    see = see or mixture
    return Transitions(
        observation=see(s.agent, s.object),
        action=s.agent_next - s.agent if action is None else action,
        next_observation=see(s.agent_next, s.object_next),
    )


def pictures(side: int = 24) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda agent, thing: picture(agent, thing, SIDES, (side, side))


def noise(shape: Any, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pushes(episodes: int, reach: float, seed: int = 0) -> States:
    """Triples of episodes in which the agent pushes the object ahead of it, however little, when it touches it."""
    generator = torch.Generator().manual_seed(seed)
    agent = 0.05 + 0.9 * torch.rand(episodes, 2, generator=generator)
    thing = 0.25 + 0.5 * torch.rand(episodes, 2, generator=generator)
    rows = []
    for _ in range(20):
        aim = torch.rand(episodes, 2, generator=generator)
        towards = (torch.rand(episodes, 1, generator=generator) < 0.4) & ((thing - 0.5).abs().amax(1) < 0.35)[:, None]
        move = torch.where(towards, thing + 0.2 * (aim - 0.5), aim) - agent
        move = move * (0.3 / move.norm(dim=1, keepdim=True).clamp(min=1e-6)).clamp(max=1)
        length, ahead = move.norm(dim=1, keepdim=True).clamp(min=1e-6), thing - agent
        way = move / length
        along = (ahead * way).sum(1, keepdim=True)
        beside2 = (ahead - along * way).square().sum(1, keepdim=True)
        entry = along - (reach**2 - beside2).clamp(min=0).sqrt()  # of the path into the disc around the object
        hit = (beside2 < reach**2) & (along > 0) & (entry < length)
        pushed = torch.where(hit, thing + (length - entry.clamp(min=0)) * way, thing)
        outside = ahead.norm(dim=1) > reach  # before the move
        rows.append(tuple(x[outside] for x in (agent, thing, agent + move, pushed, hit[:, 0])))
        agent, thing = agent + move, pushed
    return States(*(torch.cat(column) for column in zip(*rows, strict=True)))
