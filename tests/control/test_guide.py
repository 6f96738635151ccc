"""The Python of docs/guide/control.md runs, shortened, and `examples/plan.py` plays."""

import re
import runpy
import sys
from pathlib import Path

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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An untrained one."""
    torch.manual_seed(0)
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.02)
    config = ModelConfig(method="contact", encoder="small", observation_shape=(3, 20, 20), n=2, objective=scene)
    folder = tmp_path / "runs" / "third"
    Representation(build(config), {}).save(folder)
    return folder


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


def test_a_plan_refuses_a_model_of_another_group(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["plan.py", "--model", str(model), "--agent", "driving"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "examples" / "plan.py"), run_name="__main__")


def test_a_plan_on_a_representation_runs(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned_goals(monkeypatch, capsys, "--model", str(model), "--known", "3", "--episodes", "1") == 0
