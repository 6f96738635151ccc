"""Batches that a world generates on the training device, fresh at every step."""

from typing import Any, Protocol, final

import torch
from torch import Tensor

from palpate.data.sources import Source
from palpate.data.transitions import Batch


class World(Protocol):
    """A batched world such as Sprites. Its states hold the truth; a `Stream` reads nothing of them but the action."""

    @property
    def device(self) -> torch.device: ...

    @property
    def observation_shape(self) -> tuple[int, ...]: ...

    @property
    def n(self) -> int: ...

    def sample(self, count: int, generator: torch.Generator) -> Any:
        """True states of random triples, with `displacement` [b, n]."""

    def render_pair(self, states: Any, /) -> tuple[Tensor, Tensor]:
        """The observations before and after, [b, c, h, w] uint8 each."""


@final
class Stream(Source[Batch]):
    """Endless fresh triples of a world."""

    def __init__(self, world: World, batch_size: int) -> None:
        self.observation_shape = world.observation_shape
        self.n = world.n
        self._world = world
        self._batch_size = batch_size

    def draw(self, generator: torch.Generator) -> Batch:
        states = self._world.sample(self._batch_size, generator)
        o, o_next = self._world.render_pair(states)
        return Batch(o, states.displacement, o_next)
