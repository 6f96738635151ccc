"""Error with a laser scanner on the agent.

    python benchmarks/lidar.py OUT [--jobs 2] [--seeds 0 1 2] [--cases aligned turning ...]

Each run is `palpate.fit` without settings, except the group, on 20,000 triples of palpate/Lidar-v0 or LidarTurning-v0,
half of them contacts, and on one CPU thread. "taken for a fixed sensor" has egocentric=False. Finished runs are kept in
OUT/runs.json and not made again.
"""

from itertools import product
from typing import Any, NamedTuple

import torch
from many import Settings, command_line, fitted, make

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.lidar import Lidar, LidarConfig, LidarTurning

TRIPLES, TEST_TRIPLES, TEST_SEED, BLOCK = 20_000, 5_000, 10**6, 2_000


class Case(NamedTuple):
    """What differs from a scanner of 48 rays that keeps its direction."""

    turning: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 - of the world
    egocentric: bool | None = None


CASES = {
    "aligned": Case(),
    "turning": Case(turning=True),
    "aligned, 20 rays": Case(options={"rays": 20}),
    "aligned, 180 rays": Case(options={"rays": 180}),
    "aligned, noise": Case(options={"noise": 0.01}),
    "aligned, 20 % contacts": Case(options={"contact_share": 0.2}),
    "aligned, taken for a fixed sensor": Case(egocentric=False),
    "turning, taken for a fixed sensor": Case(turning=True, egocentric=False),
}


def labelled(case: Case, count: int, seed: int) -> Labelled:
    world = (LidarTurning if case.turning else Lidar)(LidarConfig(**case.options))
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(0, count, BLOCK):
        triple = world.sample(BLOCK, generator)
        parts.append((*triple, *world.render_pair(triple)))
    *columns, o, o_next = (torch.cat(column)[:count] for column in zip(*parts, strict=True))
    triple = type(triple)(*columns)
    rows = Transitions(observation=o, action=triple.displacement, next_observation=o_next)
    heading = triple.heading if case.turning else None
    return Labelled(rows, Truth(triple.agent, triple.object, contact=triple.contact, heading=heading))


def run(settings: Settings) -> dict[str, Any]:
    case = CASES[settings["case"]]
    data = labelled(case, TRIPLES, settings["seed"]).transitions
    group = "se2" if case.turning else "translations"
    model, facts = fitted(data, group=group, egocentric=case.egocentric, seed=settings["seed"])
    scores = palpate.evaluate(model, labelled(case, TEST_TRIPLES, TEST_SEED))
    return {
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "heading_error": scores.heading_error,
        "contact_accuracy": scores.contact_accuracy,
        "method": model.model.config.method,
        **facts,
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    cases = [{"case": case, "seed": seed} for seed, case in product(arguments.seeds, arguments.cases)]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
