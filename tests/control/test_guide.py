"""The Python of docs/guide/control.md runs, shortened, and `examples/plan.py` plays."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.store import build
from palpate.representation import Representation

ROOT = Path(__file__).parents[2]
SHORTER = {
    "n_envs=16": "n_envs=2",
    '"n_steps": 40, "batch_size": 160, "n_epochs": 40': '"n_steps": 20, "batch_size": 40, "n_epochs": 1',
    "60_000": "40",
    "n_eval_episodes=64": "n_eval_episodes=2",
}


def saved(folder: Path, **scene: Any) -> Path:
    """An untrained model."""
    torch.manual_seed(0)
    objective = ObjectiveConfig(body="ball", refine=False, rest_floor=0.02, **scene)
    config = ModelConfig(method="contact", encoder="small", observation_shape=(3, 20, 20), n=2, objective=objective)
    Representation(build(config), {}).save(folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path / "runs" / "third")


@pytest.mark.slow
def test_the_guide_trains_a_policy(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "guide" / "control.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for long, short in SHORTER.items():
        assert code.count(long) == 1
        code = code.replace(long, short)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert (tmp_path / "runs" / "policy.zip").exists()


def planned_goals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["plan.py", *words])
    runpy.run_path(str(ROOT / "examples" / "plan.py"), run_name="__main__")
    return int(capsys.readouterr().out.split()[2])


@pytest.mark.parametrize("agent", ["displacements", "driving", "differential"])
def test_a_plan_on_true_states_scores(
    agent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned_goals(monkeypatch, capsys, "--truth", "--episodes", "30", "--agent", agent) >= 28


@pytest.mark.parametrize(("balls", "kicked", "least"), [(2, 1, 27), (2, 0, 27), (3, 1, 25)])
def test_a_plan_kicks_one_of_several_balls(
    balls: int, kicked: int, least: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--truth", "--episodes", "30", "--balls", str(balls), "--kick", str(kicked))
    assert planned_goals(monkeypatch, capsys, *words) >= least


def test_a_plan_follows_the_number_of_the_ball() -> None:
    plan: Any = runpy.run_path(str(ROOT / "examples" / "plan.py"))["plan"]
    agent, balls, goal = np.array([0.2, 0.2]), np.array([[0.5, 0.5], [0.3, 0.7]]), np.array([0.81, 0.5])
    first, second = (plan(agent, balls, kicked, goal, 0.095) for kicked in (0, 1))
    assert not np.allclose(first, second)
    assert np.array_equal(plan(agent, balls[::-1], 0, goal, 0.095), second)
    between = np.array([[0.5, 0.5], [0.28, 0.36]])  # on the way to the place behind the first ball
    straight, around = plan(agent, balls, 0, goal, 0.095), plan(agent, between, 0, goal, 0.095)
    assert abs(straight[0] * around[1] - straight[1] * around[0]) > 1e-3


def test_a_plan_takes_the_object_of_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = str(saved(tmp_path / "two", objects=2))
    words = ("--model", two, "--balls", "2", "--kick", "1", "--known", "3", "--episodes", "1")
    assert planned_goals(monkeypatch, capsys, *words, "--object", "0") == 0
    for wrong, says in (
        (("--object", "2"), "object is 2; allowed is 0 to 1"),
        (("--balls", "3"), "there are 3 balls, but the model has 2 objects"),
    ):
        with pytest.raises(SystemExit, match="2"):
            planned_goals(monkeypatch, capsys, *words, *wrong)
        assert says in capsys.readouterr().err


def test_a_plan_refuses_a_model_of_another_group(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["plan.py", "--model", str(model), "--agent", "driving"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "examples" / "plan.py"), run_name="__main__")


def test_a_plan_on_a_representation_runs(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned_goals(monkeypatch, capsys, "--model", str(model), "--known", "3", "--episodes", "1") == 0
