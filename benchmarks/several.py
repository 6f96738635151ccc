"""Error with several objects in vectors.

    python benchmarks/several.py OUT [--jobs 2] [--seeds 0 1 2] [--objects 2 3 4] [--steps 2500]

Each run is `palpate.fit(world, objects=k)` on one CPU thread. The world is SpritesMany, streamed as vectors: a smooth
mixture of all positions in 96 numbers. Finished runs are kept in OUT/runs.json and not made again.
"""

from itertools import product
from typing import Any

import torch
from many import Settings, command_line, fitted, make
from torch import Tensor

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.many import ManyConfig, Scene, SpritesMany, Triple

NUMBERS, HIDDEN = 96, 192
TEST_TRIPLES, TEST_SEED = 5_000, 10**6


class Mixed:
    """SpritesMany as vectors."""

    n, device, observation_shape = 2, torch.device("cpu"), (NUMBERS,)

    def __init__(self, objects: int) -> None:
        self.world = SpritesMany(ManyConfig(objects=objects))
        draw = torch.Generator().manual_seed(0)
        width = 2 + 2 * objects
        self.inner = torch.randn(width, HIDDEN, generator=draw) * (4 / width) ** 0.5
        self.outer = torch.randn(HIDDEN, NUMBERS, generator=draw) / HIDDEN**0.5
        self.sample, self.reset = self.world.sample, self.world.reset
        self.moves, self.step = self.world.moves, self.world.step

    def render(self, scene: Scene) -> Tensor:
        state = torch.cat((scene.agent, scene.object.flatten(1)), 1)
        return torch.tanh(torch.tanh(4 * (state - 0.5) @ self.inner) @ self.outer)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        after = Scene(triple.agent_next, triple.object_next, triple.stray_next)
        return self.render(Scene(triple.agent, triple.object, triple.stray)), self.render(after)

    def labelled(self, count: int, seed: int) -> Labelled:
        triple = self.sample(count, torch.Generator().manual_seed(seed))
        o, o_next = self.render_pair(triple)
        rows = Transitions(observation=o, action=triple.displacement, next_observation=o_next)
        return Labelled(rows, Truth(triple.agent, triple.object, contact=triple.contact))


def run(case: Settings) -> dict[str, Any]:
    world = Mixed(case["objects"])
    model, facts = fitted(world, objects=case["objects"], steps=case["steps"], seed=case["seed"])
    scores = palpate.evaluate(model, world.labelled(TEST_TRIPLES, TEST_SEED))
    return {
        "percent_of_constant": [100 * one.l_test / one.constant_l_test for one in scores.each],
        "l_test": [one.l_test for one in scores.each],
        "agent_error": scores.agent_error,
        "object_swap_rate": scores.object_swap_rate,
        "contact_accuracy": scores.contact_accuracy,
        **facts,
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--objects", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--steps", type=int, default=2500)
    arguments = parser.parse_args()
    kinds = product(arguments.seeds, arguments.objects)
    cases = [{"objects": objects, "seed": seed, "steps": arguments.steps} for seed, objects in kinds]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
