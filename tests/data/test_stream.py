"""What a stream draws, and what counts as a world."""

from typing import NamedTuple

import torch
from torch import Tensor

from palpate.data.stream import SteerableWorld, Stream
from palpate.envs.sprites import Sprites, SpritesConfig


class States(NamedTuple):
    agent: Tensor
    displacement: Tensor


class Walk:
    """An agent that shows where it is."""

    device = torch.device("cpu")
    observation_shape = (2,)
    n = 2

    def sample(self, count: int, generator: torch.Generator) -> States:
        return States(*torch.rand(2, count, 2, generator=generator))

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        return states.agent, states.agent + states.displacement


def test_a_stream_draws_what_the_agent_observes_and_the_generator_decides() -> None:
    stream, world = Stream(Walk()), Walk()
    drawn, again, other = (stream.draw(9, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    states = world.sample(9, torch.Generator().manual_seed(3))
    o, o_next = world.render_pair(states)
    assert all(map(torch.equal, drawn, (o, states.displacement, o_next)))
    assert all(map(torch.equal, drawn, again))
    assert not torch.equal(drawn.o, other.o)


def test_a_steerable_world_lets_the_agent_choose() -> None:
    assert isinstance(Sprites(SpritesConfig(size=20)), SteerableWorld)
    assert not isinstance(Walk(), SteerableWorld)
