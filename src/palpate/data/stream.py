"""Worlds that generate triples in batches on the training device, fresh at every step."""

from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from palpate.data.sources import Source
from palpate.data.transitions import Batch

CHECKED = 8  # scenes


@runtime_checkable
class World(Protocol):
    """What `fit` needs to train on your own world: sample states in batches, and render them.

    States are any tuple or object with `displacement` [b, n], the action; training reads nothing else of them. On a GPU
    a CUDA graph captures a training step, so no method may wait for the host.

    Three more members are used if they exist: `compile()` is called once if the run has `compile=True`; `str(config)`
    names the world in the run; `recipe`, settings of `palpate train` by name, goes to `run.toml`.
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
        """Observations of scenes."""

    def moves(self, scene: Any, count: int, generator: torch.Generator) -> Tensor:
        """Random possible displacements [b, count, n]."""

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
        """The triples of these states."""
        o, o_next = self.world.render_pair(states)
        return Batch(o, states.displacement, o_next)


def first_triples(world: World, count: int, generator: torch.Generator) -> Batch:
    """Some triples of a world, after a check of the shapes and values that all its methods give."""
    stream = Stream(world)
    drawn = stream.draw(count, generator)
    _require_triples(world, "sample", drawn, count)
    if isinstance(world, SteerableWorld):  # training calls these methods only later
        scene = world.reset(CHECKED, generator)
        moves = world.moves(scene, 2, generator)
        _require("render", world.render(scene), (CHECKED, *world.observation_shape))
        _require("moves", moves, (CHECKED, 2, world.n))
        _require_triples(world, "step", stream.triples(world.step(scene, moves[:, 0], generator)), CHECKED)
    return drawn


def _require_triples(world: World, part: str, triples: Batch, count: int) -> None:
    for observations in (triples.o, triples.o_next):
        _require(f"render_pair after {part}", observations, (count, *world.observation_shape))
    _require(f"displacement after {part}", triples.a, (count, world.n))


def _require(part: str, x: Any, shape: tuple[int, ...]) -> None:
    found = f"a tensor {list(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
    if found != f"a tensor {list(shape)}":
        raise ValueError(f"the world's {part} is {found}; its observation_shape and n require {list(shape)}")
    if not x.isfinite().all():
        raise ValueError(f"the world's {part} holds NaN or infinity; all values must be finite")
