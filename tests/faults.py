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
