"""How often the number of objects is found.

    python benchmarks/count_objects.py OUT [--jobs 2] [--seeds 0 1 2] [--objects 0 1 2 3 4]

Each run counts the objects of 12,000 triples, as `palpate.fit(data, objects="auto")` does, on one CPU thread. The world
is that of `several.py`; without objects only the agent is seen. Finished runs are kept in OUT/runs.json and not made
again.
"""

import time
from itertools import product
from typing import Any

import torch
from many import Settings, command_line, make
from several import HIDDEN, NUMBERS, Mixed
from torch import Tensor

from palpate.config import ObjectiveConfig
from palpate.counting import ROWS, count_objects, kept_and_held
from palpate.data.stream import first_triples
from palpate.envs.many import Scene


class Agent(Mixed):
    """The agent alone is seen."""

    def __init__(self) -> None:
        super().__init__(1)
        draw = torch.Generator().manual_seed(0)
        self.inner = torch.randn(2, HIDDEN, generator=draw) * 2**0.5
        self.outer = torch.randn(HIDDEN, NUMBERS, generator=draw) / HIDDEN**0.5

    def render(self, scene: Scene) -> Tensor:
        return torch.tanh(torch.tanh(4 * (scene.agent - 0.5) @ self.inner) @ self.outer)


def run(case: Settings) -> dict[str, Any]:
    torch.set_num_threads(1)
    objects, seed = case["objects"], case["seed"]
    world = Mixed(objects) if objects else Agent()
    rows = first_triples(world, ROWS, torch.Generator().manual_seed(seed))
    start = time.process_time()
    count = count_objects(*kept_and_held(rows, seed), ObjectiveConfig(), seed=seed)
    return {
        "found": len(count.found),
        "right": len(count.found) == objects,
        "slots": [slot._asdict() for slot in count.slots],
        "unexplained": count.unexplained,
        "processor_seconds": round(time.process_time() - start),
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--objects", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    cases = [{"objects": objects, "seed": seed} for seed, objects in product(arguments.seeds, arguments.objects)]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
