"""Logs of two balls in a box with one fault each, and good ones beside them."""

from collections.abc import Callable
from typing import Any

import torch
from balls import States, mixture, picture, sample
from torch import Tensor

from palpate.data.transitions import Transitions
from palpate.geometry import Segment

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


REACH = 0.13  # distance of centres in the episodes below at which agent and object touch
Chooser = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def wander(agent: Tensor, thing: Tensor, generator: torch.Generator) -> Tensor:
    """Targets of moves in all directions, a third of them towards the object."""
    aim = agent + 0.7 * (torch.rand(agent.shape, generator=generator) - 0.5)
    towards = torch.rand(len(agent), 1, generator=generator) < 0.33
    return torch.where(towards, thing + 0.3 * (torch.rand(agent.shape, generator=generator) - 0.5), aim)


def episodes(
    count: int, length: int, choose: Chooser = wander, *, width: float = 1.0, touching: bool = True, seed: int = 0
) -> tuple[States, Tensor]:
    """Triples of `count` episodes with `length` moves, one episode after the other, and their episodes.

    `width` is that of the part in the middle in which the agent moves. An object that is touched lands anywhere in it;
    without `touching` no move touches the object.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([0.0, 0.5 - width / 2]), torch.tensor([1.0, 0.5 + width / 2])

    def anywhere(margin: float) -> Tensor:
        return low + (high - low) * (margin + (1 - 2 * margin) * torch.rand(count, 2, generator=generator))

    agent, thing, rows = anywhere(0.0), anywhere(0.2), []
    if not touching:
        thing = anywhere(0.3)
    for _ in range(length):
        target = torch.maximum(torch.minimum(choose(agent, thing, generator), high), low)
        hit = Segment(agent, target - agent).distance2(thing) < REACH**2
        if not touching:
            target, hit = torch.where(hit[:, None], agent, target), torch.zeros_like(hit)
        landed = torch.where(hit[:, None], anywhere(0.2), thing)
        rows.append((agent, thing, target, landed, hit))
        agent, thing = target, landed
    made = States(*(torch.stack(column, 1).flatten(0, 1) for column in zip(*rows, strict=True)))
    return made, torch.arange(count).repeat_interleave(length)


def episode_log(made: States, episode: Tensor | None, action: Tensor | None = None) -> Transitions:
    """A log of `episodes`; None for unknown ones."""
    return Transitions(
        observation=mixture(made.agent, made.object),
        action=made.agent_next - made.agent if action is None else action,
        next_observation=mixture(made.agent_next, made.object_next),
        episode=episode,
    )
