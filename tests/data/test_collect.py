import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

from palpate.data.collect import collect
from palpate.data.labelled import Labelled
from palpate.data.transitions import Transitions

WORLD = "palpate/SpritesFake-v0"


class States(NamedTuple):
    agent: Tensor
    object: Tensor
    angle: Tensor
    agent_next: Tensor
    object_next: Tensor
    angle_next: Tensor
    displacement: Tensor
    contact: Tensor


class FakeWorld:
    """Pictures show the agent, so that rows can be checked; one triple in four is a contact."""

    device = torch.device("cpu")
    n = 2
    made: dict[str, Any]

    def __init__(self, size: int = 2) -> None:
        self.observation_shape = (1, size, size)
        self.counts: list[int] = []

    def sample(self, count: int, generator: torch.Generator) -> States:
        self.counts.append(count)
        agent, thing, move, thing_next = torch.rand(4, count, 2, generator=generator)
        angle, angle_next = torch.rand(2, count, generator=generator)
        return States(agent, thing, angle, agent + move, thing_next, angle_next, move, move[:, 0] > 0.75)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        o, o_next = (
            (x[:, :1] * 100).byte()[..., None, None].expand(-1, *self.observation_shape)
            for x in (states.agent, states.agent_next)
        )
        return o, o_next


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """An agent on a line segment that stops at its ends; it reuses its arrays, as environments may."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-0.5, 0.5, (2,), np.float32)

    def __init__(self, truth: bool = True, horizon: int = 7) -> None:
        self.truth, self.horizon = truth, horizon
        self.at = np.zeros(2, np.float32)
        self.closed = False

    def info(self) -> dict[str, Any]:
        return {"agent": self.at, "object": -self.at, "angle": 0.25} if self.truth else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at[:] = self.np_random.uniform(-1, 1, 2)
        self.steps = 0
        return self.at, self.info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self.at.copy()
        self.at[:] = np.clip(self.at + action, -1, 1)
        self.steps += 1
        moved = self.at - before
        info = self.info() | ({"displacement": moved, "contact": bool(moved[0] > 0)} if self.truth else {})
        return self.at, 0.0, False, self.steps == self.horizon, info

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    fake, module = FakeWorld(), ModuleType("palpate.envs.registration")

    def make(env_id: str, **options: Any) -> FakeWorld:
        if env_id != WORLD:
            raise ValueError(f"no environment {env_id}; did you mean {WORLD}?")
        fake.made = options
        return fake

    module.world = make
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


class TestWorld:
    def test_generates_in_batches(self, world: FakeWorld) -> None:
        seen: list[tuple[int, int]] = []
        data = collect(WORLD, 1100, seed=3, contact_share=None, progress=lambda *at: seen.append(at))
        assert isinstance(data, Transitions)
        assert len(data) == 1100
        assert world.counts == [512, 512, 76]
        assert seen == [(512, 1100), (1024, 1100), (1100, 1100)]
        assert world.made == {"contact_share": None}
        assert data.attributes == {"environment": WORLD, "seed": 3, "contact_share": "None"}

    def test_rows_belong_together(self, world: FakeWorld) -> None:
        data = collect(WORLD, 600, labelled=True)
        batch, truth = data.transitions.rows(slice(None)), data.truth
        assert torch.equal(batch.o[:, 0, 0, 0], (truth.agent[:, 0] * 100).byte())
        assert torch.equal(truth.agent + batch.a, truth.agent_next)
        assert torch.equal(truth.contact, batch.a[:, 0] > 0.75)

    def test_file_and_memory_agree(self, world: FakeWorld, tmp_path: Path) -> None:
        memory = collect(WORLD, 600, seed=1, labelled=True)
        with collect(WORLD, 600, seed=1, labelled=True, out=tmp_path / "log.h5") as stored:
            for x, y in zip(memory.truth, stored.truth, strict=True):
                assert torch.equal(x, y)
            index = [599, 3, 3]
            for x, y in zip(memory.transitions.rows(index), stored.transitions.rows(index), strict=True):
                assert torch.equal(x, y)

    def test_files_carry_the_truth_but_transitions_do_not(self, world: FakeWorld, tmp_path: Path) -> None:
        with collect(WORLD, 5, out=tmp_path / "log.h5") as data:
            assert isinstance(data, Transitions)
        with Labelled.open(tmp_path / "log.h5") as stored:
            assert len(stored) == 5
            assert all(x is not None for x in stored.truth)

    def test_same_seed_same_bytes(self, world: FakeWorld, tmp_path: Path) -> None:
        for name in ("one", "two"):
            collect(WORLD, 40, seed=7, out=tmp_path / name).close()
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_other_seed_other_triples(self, world: FakeWorld) -> None:
        one, other = (collect(WORLD, 40, seed=seed).rows(slice(None)) for seed in (7, 8))
        assert not torch.equal(one.o, other.o)
        assert not torch.equal(one.a, other.a)

    def test_unknown_id(self, world: FakeWorld) -> None:
        with pytest.raises(ValueError, match=f"did you mean {WORLD}"):
            collect("palpate/Sprite-v0", 5)

    @pytest.mark.parametrize("num", [0, -3])
    def test_num(self, num: int) -> None:
        with pytest.raises(ValueError, match=f"num is {num}; collect at least 1 triple"):
            collect(WORLD, num)

    def test_an_existing_file_is_kept(self, world: FakeWorld, tmp_path: Path) -> None:
        (tmp_path / "log.h5").write_text("mine")
        with pytest.raises(FileExistsError, match="overwrite=True"):
            collect(WORLD, 5, out=tmp_path / "log.h5")
        assert not world.counts  # before any work
        collect(WORLD, 5, out=tmp_path / "log.h5", overwrite=True).close()

    def test_interrupted(self, world: FakeWorld, tmp_path: Path) -> None:
        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            collect(WORLD, 600, out=tmp_path / "log.h5", progress=interrupt)
        assert not os.listdir(tmp_path)


class TestEnvironment:
    def test_steps_with_truth(self) -> None:
        data = collect(Walk(), 150, seed=2, labelled=True)  # three blocks, many episodes
        batch, truth = data.transitions.rows(slice(None)), data.truth
        assert torch.equal(batch.o, truth.agent)
        assert torch.equal(batch.o_next, truth.agent_next)
        assert torch.equal(truth.object, -truth.agent)
        assert torch.allclose(batch.o + batch.a, batch.o_next, atol=1e-6)  # what was achieved, not what was asked
        assert torch.equal(truth.contact, batch.a[:, 0] > 0)
        assert truth.angle.unique().tolist() == [0.25]
        ends = torch.arange(150) % 7 == 6
        joined = (batch.o_next[:-1] == batch.o[1:]).all(1)
        assert torch.equal(joined, ~ends[:-1])
        assert data.transitions.attributes == {"environment": "Walk", "seed": 2}

    def test_the_action_where_no_displacement_is_reported(self) -> None:
        data = collect(Walk(truth=False), 20, seed=5)
        actions = Box(-0.5, 0.5, (2,), np.float32, seed=5)
        np.testing.assert_array_equal(data.rows(slice(None)).a, np.stack([actions.sample() for _ in range(20)]))

    def test_same_seed_same_bytes(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            collect(Walk(), 70, seed=7, out=tmp_path / name).close()
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_other_seed_other_triples(self) -> None:
        one, other = (collect(Walk(), 70, seed=seed).rows(slice(None)) for seed in (7, 8))
        assert not torch.equal(one.o[0], other.o[0])
        assert not torch.equal(one.a, other.a)

    def test_pictures(self, tmp_path: Path) -> None:
        class Camera(gymnasium.ObservationWrapper):
            observation_space = Box(0, 255, (4, 5, 3), np.uint8)

            def observation(self, at: np.ndarray) -> np.ndarray:
                return np.broadcast_to((at[0] * 100 + 100).astype(np.uint8), (4, 5, 3))

        with collect(Camera(Walk()), 9, out=tmp_path / "log.h5") as data:
            assert data.observation_shape == (3, 4, 5)
        with h5py.File(tmp_path / "log.h5") as file:
            assert file["observation"].shape == (9, 3, 4, 5)
            assert len(file["truth/agent"]) == 9

    def test_registered_ids_are_made_and_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []

        def make(**options: Any) -> Walk:
            made.append(Walk(**options))
            return made[0]

        spec = gymnasium.envs.registration.EnvSpec("Walk-v0", make, disable_env_checker=True)
        monkeypatch.setitem(gymnasium.registry, "Walk-v0", spec)
        data = collect("Walk-v0", 5, horizon=3)
        assert len(data) == 5
        assert data.attributes == {"environment": "Walk-v0", "seed": 0, "horizon": 3}
        assert made[0].horizon == 3
        assert made[0].closed

    def test_the_callers_environment_stays_open(self) -> None:
        env = Walk()
        collect(env, 3)
        assert not env.closed

    @pytest.mark.parametrize("space", [Discrete(4), Box(-1, 1, (2, 2)), Dict(x=Box(-1, 1, (2,)))])
    def test_action_spaces(self, space: gymnasium.Space[Any], tmp_path: Path) -> None:
        env = Walk()
        env.action_space = space
        with pytest.raises(ValueError, match=r"the action space is .*; wrap the environment .* Box with one axis"):
            collect(env, 3, out=tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    def test_observation_spaces(self) -> None:
        env = Walk()
        env.observation_space = Dict(x=Box(-1, 1, (2,)))
        with pytest.raises(ValueError, match=r"the observation space is Dict.*; wrap the environment .* Box"):
            collect(env, 3)

    def test_broken_observations(self, tmp_path: Path) -> None:
        class Broken(gymnasium.ObservationWrapper):
            def observation(self, at: np.ndarray) -> np.ndarray:
                return at * np.nan

        with pytest.raises(ValueError, match="observation has the value nan in row 0"):
            collect(Broken(Walk()), 3, out=tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize("out", ["log.h5", None])
    def test_labelled_needs_truth(self, tmp_path: Path, out: str | None) -> None:
        with pytest.raises(
            ValueError, match="does not report true states; labelled=True needs agent, object and angle"
        ):
            collect(Walk(truth=False), 3, labelled=True, out=tmp_path / out if out else None)
        assert not os.listdir(tmp_path)

    def test_options_are_for_ids(self) -> None:
        with pytest.raises(ValueError, match=r"options \['contact_share'\] are for ids; set them on the environment"):
            collect(Walk(), 3, contact_share=0.5)
