"""`examples/plan.py`."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.store import build
from palpate.representation import Representation

SCRIPT = Path(__file__).parents[2] / "examples" / "plan.py"


def goals(*words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> int:
    monkeypatch.setattr(sys, "argv", ["plan.py", *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return int(capsys.readouterr().out.split()[2])


def test_true_states_almost_always_score(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert goals("--truth", "--episodes", "30", monkeypatch=monkeypatch, capsys=capsys) >= 28


def test_a_representation_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrained one, which does not score."""
    torch.manual_seed(0)
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.02)
    config = ModelConfig(method="contact", encoder="small", observation_shape=(3, 20, 20), n=2, objective=scene)
    Representation(build(config), {}).save(tmp_path)
    words = ("--model", str(tmp_path), "--known", "3", "--episodes", "1")
    assert goals(*words, monkeypatch=monkeypatch, capsys=capsys) == 0
