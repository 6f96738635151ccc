"""Error over triples with random moves, with an approach that uses true positions, and with moves chosen by `explore`.

    python benchmarks/explore.py OUT [--world vectors] [--ways random approach explore] [--num 4096] [--first 512]
        [--rounds 3] [--chosen 0.5] [--seeds 0 1] [--steps N] [--error 0.003]

Each way and seed is an exploration in OUT, which is continued if it exists. OUT/explore-WORLD.json holds L_test after
each round, and the triples that each way needs for `--error`. Test triples have random states, half of them in contact.
"""

import argparse
import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from balls import mixture, mixtures

import palpate
from palpate.collecting.readings import Moment
from palpate.envs.shells import SpritesEnv

HORIZON = 50  # moves of an episode
NEAR = 0.1  # standard deviation of an approach's target around the object, of the side
TEST_TRIPLES = 2000
WAYS = ("random", "approach", "explore", "explore-approach")


class Vectors(SpritesEnv):
    """Sprites whose observations are 64 numbers instead of pictures. Random moves rarely touch the object."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-1, 1, (64,), np.float32)

    def _picture(self) -> np.ndarray:
        return mixture(self.scene.agent, self.scene.object)[0].numpy()


class World(NamedTuple):
    env: Any
    options: dict[str, Any]
    test: Any  # a function that makes labelled triples


def near_the_object(now: Moment, rng: np.random.Generator) -> np.ndarray:
    """A displacement to a point near the object, by true positions."""
    target = now.info["object"] + rng.normal(0, NEAR, 2)
    return np.asarray(target - now.info["agent"])


def limited_vectors() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(Vectors(), HORIZON)


def world(name: str) -> World:
    if name == "vectors":
        test = partial(mixtures, "palpate/Sprites-v0", TEST_TRIPLES, seed=10**6)
        return World(limited_vectors, {"approach": near_the_object}, test)
    env, size = {"sprites": ("palpate/Sprites-v0", 50), "soccer": ("palpate/Soccer-v0", 64)}[name]
    options = {"size": size, "max_episode_steps": HORIZON, "approach": near_the_object}
    test = partial(palpate.collect, env, TEST_TRIPLES, seed=10**6, labelled=True, size=size)
    return World(env, options, test)


def needed(curve: dict[int, float], error: float) -> float | None:
    """Triples at which a curve first falls below an error, between two sizes on a logarithmic scale."""
    sizes = sorted(curve)
    if curve[sizes[0]] <= error:
        return float(sizes[0])
    for low, high in pairwise(sizes):
        if curve[high] <= error < curve[low]:
            part = np.log(curve[low] / error) / np.log(curve[low] / curve[high])
            return float(low * (high / low) ** part)
    return None


def run(way: str, seed: int, made: World, test: palpate.Labelled, folder: Path, a: argparse.Namespace) -> list[Any]:
    options = dict(made.options)
    if not way.endswith("approach"):
        del options["approach"]
    palpate.explore(
        made.env,
        a.num,
        out=folder,
        rounds=a.rounds,
        first=a.first,
        chosen_moves=a.chosen if way.startswith("explore") else 0.0,
        seed=seed,
        fit={"test": test, "steps": a.steps},
        resume=(folder / "explore.json").exists(),
        **options,
    )
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--world", choices=("vectors", "sprites", "soccer"), default="vectors")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:3])
    parser.add_argument("--num", type=int, default=4096)
    parser.add_argument("--first", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chosen", type=float, default=0.5, help="share of chosen moves, for explore")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, help="optimiser steps of each model; by default `fit` chooses")
    parser.add_argument("--error", type=float, default=0.003, help="L_test to reach")
    a = parser.parse_args()
    made = world(a.world)
    test = made.test()
    found: dict[str, Any] = {"world": a.world, "error": a.error, "steps": a.steps, "torch": torch.__version__}
    for way in a.ways:
        rounds = {seed: run(way, seed, made, test, a.out / f"{a.world}-{way}-{seed}", a) for seed in a.seeds}
        curve = {
            row["triples"]: median(rounds[seed][i]["l_test"] for seed in a.seeds)
            for i, row in enumerate(rounds[a.seeds[0]])
        }
        found[way] = {"needed": needed(curve, a.error), "l_test": curve, "rounds": rounds}
        (a.out / f"explore-{a.world}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"{way:<18} needs {found[way]['needed']} triples; {curve}")


if __name__ == "__main__":
    main()
