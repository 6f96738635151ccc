"""A world that palpate has never seen, streamed: `fit(my_world)` learns it, and says what is wrong with one."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import palpate
from palpate.data.stream import World
from palpate.data.transitions import Batch
from palpate.material import require_variety
from palpate.refine import Correction

REACH, SIDE = 0.15, 16
EXAMPLE = Path(__file__).parent.parent / "examples" / "stream_world.py"


class States(NamedTuple):
    agent: Tensor
    object: Tensor
    displacement: Tensor
    object_next: Tensor
    contact: Tensor


class Discs:
    """Two discs in the unit square, drawn on two channels; the object lands anywhere when the agent touches it."""

    device = torch.device("cpu")
    observation_shape: tuple[int, ...] = (2, SIDE, SIDE)
    n = 2

    def sample(self, count: int, generator: torch.Generator) -> States:
        agent, target, thing = torch.rand(3, count, 2, generator=generator)
        return self.moved(agent, 0.2 + 0.6 * thing, target - agent, generator)

    def moved(self, agent: Tensor, thing: Tensor, move: Tensor, generator: torch.Generator) -> States:
        along = ((thing - agent) * move).sum(1, keepdim=True) / move.square().sum(1, keepdim=True)
        contact = (agent + along.clamp(0, 1) * move - thing).norm(dim=1) < REACH
        landed = 0.2 + 0.6 * torch.rand(thing.shape, generator=generator)
        return States(agent, thing, move, torch.where(contact[:, None], landed, thing), contact)

    def see(self, agent: Tensor, thing: Tensor) -> Tensor:
        grid = (torch.arange(SIDE) + 0.5) / SIDE
        place = torch.stack((agent, thing), 1)  # [b, 2, 2]
        across, up = ((grid - place[..., i, None]).square() for i in range(2))
        return (255 * torch.exp(-(across[:, :, None] + up[..., None]) / 0.02)).to(torch.uint8)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        return self.see(states.agent, states.object), self.see(states.agent + states.displacement, states.object_next)


class SteeredDiscs(Discs):
    """The same seen as 16 numbers, with an agent that can choose its moves."""

    observation_shape = (16,)

    def see(self, agent: Tensor, thing: Tensor) -> Tensor:
        mixed = torch.cat((agent, thing), 1) @ torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
        return torch.sin(2 * mixed)

    def reset(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        agent, thing = torch.rand(2, count, 2, generator=generator)
        return agent, 0.2 + 0.6 * thing

    def render(self, scene: tuple[Tensor, Tensor]) -> Tensor:
        return self.see(*scene)

    def moves(self, scene: tuple[Tensor, Tensor], count: int, generator: torch.Generator) -> Tensor:
        return torch.rand(len(scene[0]), count, 2, generator=generator) - scene[0][:, None]

    def step(self, scene: tuple[Tensor, Tensor], displacement: Tensor, generator: torch.Generator) -> States:
        return self.moved(*scene, displacement, generator)


def scores(model: palpate.Representation, world: Discs) -> Any:
    states = world.sample(2000, torch.Generator().manual_seed(99))
    o, o_next = world.render_pair(states)
    triples = palpate.Transitions(observation=o, action=states.displacement, next_observation=o_next)
    return palpate.evaluate(model, palpate.Labelled(triples, palpate.Truth(states.agent, states.object)))


def fit(world: Any, **changes: Any) -> palpate.Representation:
    options: dict[str, Any] = {"steps": 2, "batch_size": 64, "optimizer": "adamw", "device": "cpu", "progress": False}
    return palpate.fit(world, **options | changes)


UNTRAINED = "ignore:the positions of agent and object do not explain|triples with and without"  # and `fit` says so


@pytest.mark.slow
@pytest.mark.filterwarnings(UNTRAINED)
def test_a_world_that_only_samples_is_learned() -> None:
    before, after = (scores(fit(Discs(), steps=steps), Discs()) for steps in (1, 200))
    assert min(before.l_test, after.constant["l_test"]) > 0.1
    assert after.l_test < 0.01
    assert after.object_error < 0.1


@pytest.mark.filterwarnings(UNTRAINED)
def test_members_that_a_world_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(SteeredDiscs):
        config, compiled = "discs of mine", 0
        recipe: ClassVar = {"env": "mine/Discs", "size": 16}

        def compile(self) -> None:
            self.compiled += 1

    monkeypatch.setattr("palpate.methods.located.Located.compile_step", lambda self: None)  # it takes minutes
    world = Named()
    model = fit(world, out=tmp_path / "run", compile=True)
    assert world.compiled == 1
    assert model.facts["data"] == "stream of discs of mine"
    assert 'env = "mine/Discs"\nsize = 16\n' in (tmp_path / "run" / "run.toml").read_text()
    page = str(World.__doc__)
    assert all(f"`{member}" in page for member in ("compile()", "str(config)", "recipe"))


@pytest.mark.filterwarnings(UNTRAINED)
def test_a_run_is_not_resumed_with_another_world_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(Discs(), out=tmp_path / "run")
    fit(Discs(), out=tmp_path / "run", resume=True)
    see = Discs.see
    monkeypatch.setattr(Discs, "see", lambda self, agent, thing: see(self, thing, agent))
    with pytest.raises(ValueError, match="made with other settings: checksum of the data was"):
        fit(Discs(), out=tmp_path / "run", resume=True)


@pytest.mark.slow
@pytest.mark.filterwarnings(UNTRAINED)
def test_a_steerable_world_is_learned_by_chosen_moves_and_refinement() -> None:
    readings: list[dict[str, float]] = []
    model = fit(
        SteeredDiscs(), steps=300, batch_size=128, refine=True, watch=lambda step, values: readings.append(values)
    )
    assert readings[-1]["chosen_moves"] == 0.5
    (correction,) = (module for module in model.model.modules() if isinstance(module, Correction))
    assert correction.fitted
    before, after = scores(fit(SteeredDiscs(), steps=1), SteeredDiscs()), scores(model, SteeredDiscs())
    assert min(before.l_test, after.constant["l_test"]) > 0.1
    assert after.l_test < 0.01
    radius = math.sqrt(float(model.encode(SteeredDiscs().see(*torch.rand(2, 1, 2))).covariance[0, 0, 0]))
    assert radius == pytest.approx(REACH, rel=0.1)


def changed(**parts: Any) -> SteeredDiscs:
    """A world with something else in the place of some of its parts."""
    world: SteeredDiscs = type("Changed", (SteeredDiscs,), parts)()
    return world


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (object(), r"data is <object .* a world with device, observation_shape, n, sample and render_pair"),
        (Discs, r"data is <class .* a world with"),
        (changed(observation_shape=(15,)), r"render_pair after sample is a tensor \[2048, 16\]; .* \[2048, 15\]"),
        (changed(n=3), r"displacement after sample is a tensor \[2048, 2\]; .* \[2048, 3\]"),
        (changed(render=lambda self, scene: scene[0]), r"render is a tensor \[8, 2\]; .* \[8, 16\]"),
        (changed(moves=lambda self, scene, count, generator: scene[0]), r"moves is a tensor \[8, 2\]; .* \[8, 2, 2\]"),
        (changed(see=lambda self, *scene: np.zeros((len(scene[0]), 16))), "render_pair after sample is a ndarray"),
        (changed(see=lambda self, *scene: torch.full((len(scene[0]), 16), torch.nan)), "holds NaN or infinity"),
        (changed(see=lambda self, *scene: torch.ones(len(scene[0]), 16)), "observations of a sample are the same"),
        (
            changed(device=torch.device("cuda")),
            "the world is on cuda, but training runs on cpu; build it with device='cpu'",
        ),
    ],
)
def test_what_is_no_world_is_refused(world: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(world)


def test_a_world_that_only_samples_has_no_moves_to_choose() -> None:
    with pytest.raises(ValueError, match=r"chosen_moves is 0\.5; .* this world is not steerable"):
        fit(Discs(), chosen_moves=0.5)


@pytest.mark.slow
def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLE, "--steps", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "object error" in done.stdout
    assert "true is 0.13" in done.stdout


SEEN, MOVES = torch.rand(400, 4, generator=torch.Generator().manual_seed(0)), torch.eye(2).repeat(200, 1)


@pytest.mark.parametrize(
    ("o", "a", "o_next", "message"),
    [
        (0 * SEEN, MOVES, 0 * SEEN, "observations of a sample are the same"),
        (
            0 * SEEN,
            0 * MOVES + 1,
            0 * SEEN + 1,
            "observations of a sample before a move, and all after one, are the same",
        ),
        (
            0 * SEEN,
            SEEN[:, :2],
            0 * SEEN + 1,
            "observations of a sample before a move, and all after one, are the same",
        ),
        (SEEN[:1].repeat(400, 1), 0 * MOVES + 1, SEEN[:7].repeat(60, 1)[:400], "400 triples has only 7 different ones"),
        (SEEN[:2].repeat(200, 1), MOVES, SEEN[2:4].repeat(200, 1), "only 2 different ones; at least 8 are needed"),
        (SEEN, 0 * MOVES, SEEN + 1, "all actions are zero"),
        (SEEN, 1e30 * MOVES, SEEN + 1, r"root mean square of 1e\+30; allowed is 1e-12 to 1e\+12"),
        (SEEN, 1e-30 * MOVES, SEEN + 1, "root mean square of 1e-30"),
    ],
)
def test_sets_from_which_nothing_can_be_learned_are_refused(o: Tensor, a: Tensor, o_next: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(palpate.Transitions(observation=o, action=a, next_observation=o_next))


def test_eight_different_triples_are_enough() -> None:
    """However few actions there are, and also if there are no more triples."""
    o, a = SEEN[:8].repeat(50, 1), torch.ones(400, 2)
    require_variety(Batch(o, a, o + 1))
    require_variety(Batch(o[:3], a[:3], o[:3] + 1))
