"""A world of your own, streamed: every training step sees fresh triples, so no data are collected.

    python examples/stream_world.py

An agent and a disc lie in a square of side 1. The agent moves along a straight line; a touched disc lands at a random
position. An observation is 32 numbers that mix all coordinates. `fit` needs `device`, `observation_shape`, `n`,
`sample` and `render_pair`. With `reset`, `render`, `moves` and `step` it also trains on moves whose contact is
uncertain, which are more informative.
"""

import argparse
from typing import NamedTuple

import torch
from torch import Tensor

import palpate

REACH = 0.13  # sum of the two radii


class Scene(NamedTuple):
    agent: Tensor  # [b, 2]
    object: Tensor  # [b, 2]


class States(NamedTuple):
    """The true states of triples. Training reads `displacement` and what `render_pair` shows, nothing else."""

    agent: Tensor  # [b, 2]
    object: Tensor
    displacement: Tensor
    agent_next: Tensor
    object_next: Tensor
    contact: Tensor  # [b] bool


class DiscWorld:
    """Everything works on batches of tensors, on one device."""

    observation_shape = (32,)
    n = 2  # dimension of the actions

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)
        layers = torch.Generator().manual_seed(0)
        self.inner = torch.randn(4, 64, generator=layers).to(device)
        self.outer = (torch.randn(64, 32, generator=layers) / 8).to(device)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        return Scene(self.anywhere(count, generator), 0.2 + 0.6 * self.anywhere(count, generator))

    def render(self, scene: Scene) -> Tensor:
        state = torch.cat((scene.agent, scene.object), 1) - 0.5
        return torch.tanh(torch.tanh(2 * state @ self.inner) @ self.outer)

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Some possible displacements [b, count, 2] for each scene: to anywhere in the square."""
        targets = self.anywhere(len(scene.agent) * count, generator).view(-1, count, 2)
        return targets - scene.agent[:, None]

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> States:
        towards = ((scene.object - scene.agent) * displacement).sum(1) / displacement.square().sum(1).clamp(min=1e-12)
        nearest = scene.agent + towards.clamp(0, 1)[:, None] * displacement
        contact = (scene.object - nearest).norm(dim=1) < REACH
        landed = 0.2 + 0.6 * self.anywhere(len(contact), generator)
        object_next = torch.where(contact[:, None], landed, scene.object)
        return States(*scene, displacement, scene.agent + displacement, object_next, contact)

    def sample(self, count: int, generator: torch.Generator) -> States:
        scene = self.reset(count, generator)
        return self.step(scene, self.moves(scene, 1, generator)[:, 0], generator)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        before, after = Scene(states.agent, states.object), Scene(states.agent_next, states.object_next)
        return self.render(before), self.render(after)

    def anywhere(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.rand(count, 2, generator=generator, device=self.device)


def labelled(world: DiscWorld, count: int, seed: int) -> palpate.Labelled:
    """Triples with their true states, to measure the errors; training never sees true states."""
    states = world.sample(count, torch.Generator(world.device).manual_seed(seed))
    o, o_next = world.render_pair(states)
    triples = palpate.Transitions(observation=o, action=states.displacement, next_observation=o_next)
    return palpate.Labelled(triples, palpate.Truth(states.agent, states.object, contact=states.contact))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    world = DiscWorld(arguments.device)
    model = palpate.fit(world, steps=arguments.steps, optimizer="adamw", device=arguments.device)
    print(palpate.evaluate(model, labelled(world, 2000, seed=1)))
    covariance = model.encode(labelled(world, 1, seed=2).transitions.rows([0]).o).covariance
    print(f"agent and disc touch at a distance of {float(covariance[0, 0, 0]) ** 0.5:.3f}; true is {REACH}")


if __name__ == "__main__":
    main()
