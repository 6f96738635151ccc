"""Error with agents that turn, in vectors.

    python benchmarks/turning.py OUT [--jobs 2] [--seeds 0 1 2] [--cases fixed fresh ...]

Each run is `palpate.fit(data, group="se2")` on one CPU thread. The world is SpritesTurning as vectors: a smooth mixture
of both positions and of the heading's cosine and sine in 96 numbers. The cases in space have group="se3" and the world
of gripper.py. Finished runs are kept in OUT/runs.json and not made again.
"""

from itertools import product
from typing import Any, NamedTuple

import torch
from gripper import Gripper
from many import Settings, command_line, fitted, make
from torch import Tensor

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.turning import Scene, SpritesTurning, Triple, TurningConfig

NUMBERS, HIDDEN = 96, 192
DRAWN = 10  # triples from which one is chosen
TRIPLES, TEST_TRIPLES, TEST_SEED = 20_000, 5_000, 10**6


class Case(NamedTuple):
    """What differs from a fixed set of arcs."""

    fresh: bool = False
    motion: str = "arc"  # of the world
    taken_for: str = "arc"  # of the model
    noise: float = 0.0  # standard deviation on each number of an action, relative to that number's root mean square
    gain: float = 1.0  # of the recorded turns
    space: float = 0.0  # in space: how little linear the observations are; 0: in the plane


CASES = {
    "fixed": Case(),
    "fresh": Case(fresh=True),
    "straight": Case(motion="straight", taken_for="straight"),
    "arcs taken for straight": Case(taken_for="straight"),
    "noise": Case(noise=0.02),
    "gain": Case(gain=1.03),
    "space": Case(space=4.0),
    "space, fresh": Case(space=4.0, fresh=True),
    "space, smooth": Case(space=1.0),
    "space, smooth, fresh": Case(space=1.0, fresh=True),
}


class Mixed:
    """SpritesTurning as vectors."""

    n, device, observation_shape = 3, torch.device("cpu"), (NUMBERS,)

    def __init__(self, motion: Any) -> None:
        self.world = SpritesTurning(TurningConfig(motion=motion, contact_share=None))
        draw = torch.Generator().manual_seed(0)
        self.inner = torch.randn(6, HIDDEN, generator=draw) * (4 / 6) ** 0.5
        self.outer = torch.randn(HIDDEN, NUMBERS, generator=draw) / HIDDEN**0.5
        self.reset, self.moves, self.step = self.world.reset, self.world.moves, self.world.step

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        """Random triples, half of them contacts. All choose from the same draws; in the world each has draws of its
        own, which takes several times as long on a CPU."""
        scene = self.reset(DRAWN * count, generator)
        drawn = self.step(scene, self.moves(scene, 1, generator)[:, 0], generator)
        wanted = torch.rand(count, generator=generator) < 0.5
        rows = torch.empty(count, dtype=torch.long)
        for contact in (True, False):
            found, places = (drawn.contact == contact).nonzero()[:, 0], (wanted == contact).nonzero()[:, 0]
            assert len(found) >= len(places)
            rows[places] = found[: len(places)]
        return Triple(*(x[rows] for x in drawn))

    def render(self, scene: Scene) -> Tensor:
        facing = torch.stack((scene.heading.cos(), scene.heading.sin()), 1) / 4
        state = torch.cat((scene.agent - 0.5, facing, scene.object - 0.5), 1)
        return torch.tanh(torch.tanh(4 * state @ self.inner) @ self.outer)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        after = Scene(triple.agent_next, triple.heading_next, triple.object_next)
        return self.render(Scene(triple.agent, triple.heading, triple.object)), self.render(after)

    def labelled(self, count: int, seed: int, case: Case) -> Labelled:
        generator = torch.Generator().manual_seed(seed)
        triple = self.sample(count, generator)
        o, o_next = self.render_pair(triple)
        spread = case.noise * triple.displacement.square().mean(0).sqrt()
        action = triple.displacement + spread * torch.randn(triple.displacement.shape, generator=generator)
        action[:, 2] *= case.gain
        rows = Transitions(observation=o, action=action, next_observation=o_next)
        truth = Truth(triple.agent, triple.object, contact=triple.contact, heading=triple.heading)
        return Labelled(rows, truth)


def labelled(world: Any, count: int, seed: int, case: Case) -> Labelled:
    made: Labelled = world.labelled(count, seed, case) if isinstance(world, Mixed) else world.labelled(count, seed)
    return made


def run(settings: Settings) -> dict[str, Any]:
    case = CASES[settings["case"]]
    world: Any = Gripper(case.space) if case.space else Mixed(case.motion)
    data = world if case.fresh else labelled(world, TRIPLES, settings["seed"], case).transitions
    group = "se3" if case.space else "se2"
    model, facts = fitted(data, group=group, motion=case.taken_for, seed=settings["seed"])
    scores = palpate.evaluate(model, labelled(world, TEST_TRIPLES, TEST_SEED, Case()))
    assert scores.own_l_test is not None
    return {
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "own_percent_of_constant": 100 * scores.own_l_test / scores.constant["own_l_test"],
        "heading_error": scores.heading_error,
        "rotation_error": scores.rotation_error,
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "contact_accuracy": scores.contact_accuracy,
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
