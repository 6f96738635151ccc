"""Worlds that generate triples in batches on the training device, fresh at every step."""

from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from palpate.data.sources import Source
from palpate.data.transitions import Batch


@runtime_checkable
class World(Protocol):
    """What `fit` needs to train on a world of yours: sample states in batches, and render them.

    States are any tuple or object with `displacement` [b, n], the action; a stream reads nothing else of them.
    Everything is device work. On a GPU a training step is captured in a CUDA graph, so nothing may wait for the host.
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def observation_shape(self) -> tuple[int, ...]: ...  # (channels, height, width), or (numbers,)

    @property
    def n(self) -> int: ...  # dimension of the actions

    def sample(self, count: int, generator: torch.Generator) -> Any:
        """States of random triples."""

    def render_pair(self, states: Any, /) -> tuple[Tensor, Tensor]:
        """Observations before and after: pictures [b, c, h, w] uint8 or float32, or vectors [b, d] float32."""


@runtime_checkable
class SteerableWorld(World, Protocol):
    """A world whose agent can choose its moves; `fit` then trains on moves whose contact is uncertain."""

    def reset(self, count: int, generator: torch.Generator) -> Any:
        """Random scenes."""

    def render(self, scene: Any, /) -> Tensor:
        """Their observations."""

    def moves(self, scene: Any, count: int, generator: torch.Generator) -> Tensor:
        """Random displacements [b, count, n] that are possible there."""

    def step(self, scene: Any, displacement: Tensor, generator: torch.Generator) -> Any:
        """States of the triples that these displacements [b, n] lead to."""


@final
class Stream(Source[Batch]):
    """Endless fresh triples of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        return self.triples(self.world.sample(count, generator))

    def triples(self, states: Any) -> Batch:
        """What the agent observes of states."""
        o, o_next = self.world.render_pair(states)
        return Batch(o, states.displacement, o_next)
