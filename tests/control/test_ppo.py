"""PPO runs: closed forms, resuming, learning."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dots import LENGTH, Dots
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from palpate.checkpoint import read_state, write_state
from palpate.control import settings
from palpate.control.ppo import HELD_OUT_SEED, Run, Standardised, play, train
from palpate.training.loop import Interrupted

STEPS = 240  # three rollouts


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENVS": 4, "EPISODES": 4, "EPOCHS": 2, "EPOCHS_FROM_PIXELS": 1, "EVALUATIONS": 1}.items():
        monkeypatch.setattr(settings, name, value)
    for name, value in {"n_steps": 20, "batch_size": 40}.items():
        monkeypatch.setitem(settings.PPO_SETTINGS, name, value)


@pytest.fixture
def run(tiny: None) -> Iterator[Run]:
    run = Run("truth", 3, STEPS, device="cpu")
    yield run
    run.env.close()


def test_returns_and_goals_by_hand(run: Run) -> None:
    """A ball that nobody touches stays 0.31 from the goal for 20 steps."""
    returns, goals = play(run.env, lambda o: np.zeros((len(o), 2), np.float32), 8, HELD_OUT_SEED)
    assert returns == pytest.approx([-20 * 0.31] * 8)
    assert not goals.any()


def test_a_goal_ends_its_episode(run: Run) -> None:
    starts: list[np.ndarray] = []
    for seed in range(0, 400, 4):
        run.env.seed(seed)
        starts.extend(run.env.reset())
    start = np.stack(starts)
    behind = int(np.argmin(abs(start[:, 1] - 0.5) + (start[:, 0] > 0.4)))
    straight = np.tile(np.array([0.3, 0.0], np.float32), (4, 1))
    returns, goals = play(run.env, lambda o: straight, 4, behind)
    assert goals[0]
    assert returns[0] > -2


def test_a_time_limit_is_bootstrapped() -> None:
    """One reward a step and no end but the limit: if the value is right, 1 / (1 - gamma), no advantage is left."""
    gamma, value = 0.5, 2.0
    env = DummyVecEnv([Dots] * 2)
    ppo = PPO("MlpPolicy", env, n_steps=LENGTH, batch_size=2 * LENGTH, gamma=gamma, device="cpu", seed=0)
    with torch.no_grad():
        ppo.policy.value_net.weight.zero_()
        ppo.policy.value_net.bias.fill_(value)
    ppo.learn(2 * LENGTH)
    assert ppo.rollout_buffer.advantages == pytest.approx(np.zeros((2 * LENGTH, 1)), abs=1e-6)


def test_a_random_policy_gives_the_scale_of_the_observations(run: Run) -> None:
    run.begin()
    scale = run.ppo.policy.features_extractor
    assert isinstance(scale, Standardised)
    assert scale.mean.tolist() == pytest.approx([0.5] * 4, abs=0.25)
    assert all(0.1 < x < 0.4 for x in scale.deviation[:2].tolist())
    assert run.random["return"] < -4
    before = scale.mean.clone()
    run.advance()
    assert torch.equal(scale.mean, before)
    scale.measure(np.tile(np.array([0.1, 0.2, 0.5, 0.5], np.float32), (9, 1)))
    assert scale.deviation.tolist() == [1.0] * 4  # constant numbers are not amplified


class TestStopping:
    @pytest.fixture
    def straight(self, run: Run, tmp_path: Path) -> tuple[object, dict[str, dict[str, torch.Tensor]]]:
        return train(run, tmp_path / "straight"), saved(tmp_path / "straight")

    @pytest.mark.parametrize("rollout", [0, 1, 2])
    def test_a_resumed_run_equals_one_that_was_not_stopped(
        self, straight: tuple[object, object], rollout: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def with_ctrl_c(run: Run) -> None:
            if run.rollout == rollout:
                signal.raise_signal(signal.SIGINT)
            advance(run)

        advance = Run.advance
        monkeypatch.setattr(Run, "advance", with_ctrl_c)
        with pytest.raises(Interrupted, match=f"stopped after step {80 * (rollout + 1)} of 240"):
            train(Run("truth", 3, STEPS, device="cpu"), tmp_path / "resumed")
        monkeypatch.setattr(Run, "advance", advance)
        found = train(Run("truth", 3, STEPS, device="cpu"), tmp_path / "resumed")
        assert found == straight[0]
        same(saved(tmp_path / "resumed"), straight[1])

    def test_a_killed_run_continues_from_its_last_evaluation(
        self, straight: tuple[object, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began: list[int] = []

        def killed_once(run: Run) -> None:
            began.append(run.rollout)
            if began == [0, 1, 2]:
                raise SystemError("killed")
            advance(run)

        advance = Run.advance
        monkeypatch.setattr(Run, "advance", killed_once)
        monkeypatch.setattr(settings, "MOST_BETWEEN", 160)
        with pytest.raises(SystemError):
            train(Run("truth", 3, STEPS, device="cpu"), tmp_path / "resumed")
        found = train(Run("truth", 3, STEPS, device="cpu"), tmp_path / "resumed")
        assert began == [0, 1, 2, 2]
        assert [step for step, *_ in found["curve"]] == [0, 160, 240]
        same(saved(tmp_path / "resumed"), straight[1])

    @pytest.mark.parametrize(
        ("group", "change"),
        [
            ("facts", {"rollout": 99}),
            ("facts", {"curve": []}),
            ("facts", {"random": 0}),
            ("moments", {}),
            ("moments", {"0.velocity": torch.zeros(2)}),
            ("moments", {"0.step": torch.zeros(()), "0.exp_avg": torch.zeros(()), "0.exp_avg_sq": torch.zeros(())}),
            ("policy", {}),
        ],
        ids=str,
    )
    def test_a_checkpoint_with_anything_in_it(
        self, run: Run, tmp_path: Path, group: str, change: dict[str, Any]
    ) -> None:
        path = tmp_path / "checkpoint" / "state.safetensors"
        run.begin()
        run.advance()
        run.save(path)
        groups, facts = read_state(path)
        write_state(
            path, groups if group == "facts" else groups | {group: change}, facts | (change if group == "facts" else {})
        )
        with pytest.raises(
            ValueError, match=r"state\.safetensors is damaged or was not written by palpate \(.*\); restore"
        ):
            train(run, tmp_path)


def saved(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return read_state(folder / "checkpoint" / "state.safetensors")[0]


def same(one: dict[str, dict[str, torch.Tensor]], two: object) -> None:
    assert isinstance(two, dict)
    for group in ("policy", "moments"):
        assert one[group]
        assert one[group].keys() == two[group].keys()
        assert all(torch.equal(value, two[group][name]) for name, value in one[group].items())


def test_seeds_differ_and_repeat(tiny: None) -> None:
    def weights(seed: int) -> torch.Tensor:
        run = Run("truth", seed, STEPS, device="cpu")
        run.begin()
        run.advance()
        run.env.close()
        return torch.cat([p.detach().flatten() for p in run.ppo.policy.parameters()])

    first = weights(0)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))


@pytest.mark.slow
def test_from_pixels(tiny: None, tmp_path: Path) -> None:
    run = Run("pixels", 0, 80, size=20, device="cpu")
    readings: list[int] = []
    row = train(run, tmp_path, lambda step, _: readings.append(step))
    run.env.close()
    assert run.ppo.observation_space.shape == (3, 20, 20)
    assert [step for step, *_ in row["curve"]] == [0, 80]
    assert readings == [80]
    assert row["final"] == {"return": row["curve"][-1][1], "goals": row["curve"][-1][2]}


@pytest.mark.slow
def test_it_learns_from_true_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats the random policy (-6.4) and an untouched ball (-6.2) by a margin that a broken set-up misses."""
    monkeypatch.setattr(settings, "EPISODES", 32)
    run = Run("truth", 1, 5_120, device="cpu")
    run.begin()
    for _ in range(6):
        run.advance()
    run.evaluate()
    run.env.close()
    assert run.random["return"] < -6
    (_, before, _), (_, after, _) = run.curve
    assert before < -6
    assert after > -4.7
