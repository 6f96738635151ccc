"""`palpate control` as a stranger runs it, and `examples/plan.py`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.contest import control as room
from palpate.disk import alone
from palpate.methods.store import build, load_model
from palpate.representation import Representation
from palpate.training.loop import Interrupted

COMMAND = [sys.executable, "-m", "palpate.cli", "control"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
SHORT = [
    *("--steps", "80", "--envs", "4", "--rollout", "20", "--batch-size", "40", "--epochs", "1"),
    *("--episodes", "4", "--evaluate-every", "40", "--film", "0", "--device", "cpu"),
]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run) -> Run:
    return partial(command, "control")


def save_model(folder: Path, method: str = "contact") -> Path:
    torch.manual_seed(0)
    config = ModelConfig(
        method=method,
        encoder="small",
        observation_shape=(3, 20, 20),
        n=2,
        objective=ObjectiveConfig(body="ball", refine=False, rest_floor=0.02),
    )
    Representation(build(config), {}).save(folder)
    return folder


def refused(outcome: tuple[int, str, str], *says: str) -> None:
    code, _, err = outcome
    assert code == 2, err
    assert "Traceback" not in err
    line = err.strip().splitlines()[-1]
    assert line.startswith("palpate: ")
    for text in says:
        assert text in line


def test_as_a_process_with_workers(tmp_path: Path) -> None:
    """A learned representation and true states; what is there is skipped, and compared."""
    model, out = save_model(tmp_path / "model-0"), tmp_path / "out"
    where = ["--out", str(out), *SHORT]
    learned = ["--representation", "interaction", "--model", str(model).replace("0", "{seed}"), "--workers", "1"]
    command = [*COMMAND, *learned, *where, "--tensorboard"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 runs made, 0 existed" in done.stdout
    assert "no runs from true states yet" in done.stdout
    row = json.loads((out / "interaction-0.json").read_text())
    assert [point[0] for point in row["curve"]] == [0, 80]
    assert row["settings"]["model"]["method"] == "contact"
    assert {path.name for path in (out / "interaction-0").iterdir()} == {
        "run.json",
        "metrics.jsonl",
        "checkpoint",
        "policy.safetensors",
        "tensorboard",
    }
    assert (out / "curves.png").exists()


def test_seeds_skipping_and_force(run: Run, tmp_path: Path) -> None:
    where = ["--representation", "truth", "--out", tmp_path, "--workers", 0, *SHORT]
    code, out, err = run(*where, "--seeds", 2)
    assert code == 0, err
    assert "2 runs made, 0 existed" in out
    assert "| truth | 2 | 80 |" in out
    first = (tmp_path / "truth-0.json").read_text()
    code, out, _ = run(*where, "--first-seed", 1, "--seeds", 2)
    assert "1 runs made, 1 existed" in out
    assert (tmp_path / "truth-0.json").read_text() == first
    code, out, _ = run("--out", tmp_path)  # nothing is run
    assert code == 0
    assert "| truth | 3 | 80 |" in out
    refused(run(*where, "--gamma", 0.5), "truth-0.json was made with other settings: gamma was 0.95", "--force")
    refused(run(*where, "--gamma", 0.5, "--force"), "runs of truth have gamma 0.5 and 0.95; keep those of one kind")
    assert (tmp_path / "truth-0.json").read_text() == first
    code, out, _ = run(*where, "--gamma", 0.5, "--force", "--seeds", 3)
    assert "3 runs made" in out
    assert json.loads((tmp_path / "truth-0.json").read_text())["settings"]["gamma"] == 0.5


def test_what_cannot_be_compared_is_refused_before_it_is_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--representation", "truth", "--out", tmp_path, "--workers", 0, *SHORT]
    assert run(*where)[0] == 0
    monkeypatch.setattr(room.demand_ppo(), "train", lambda *_: pytest.fail("it was run"))
    refused(run(*where, "--first-seed", 1, "--steps", 160), "runs of truth have 80 and 160 steps")
    refused(run(*where, "--representation", "pixels", "--max-step", 0.5), "runs have max_step 0.3 and 0.5")
    (tmp_path / "truth-1.json").write_text("{}")
    refused(run(*where, "--first-seed", 1), "truth-1.json is not the JSON of a run")


def test_a_mistake_with_force_deletes_nothing(run: Run, tmp_path: Path) -> None:
    ours, other = save_model(tmp_path / "ours"), save_model(tmp_path / "vae", "vae")
    kept = tmp_path / "out" / "interaction-0.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    refused(run("--representation", "interaction", "--model", other, "--out", kept.parent, "--force"), "'vae'")
    assert kept.exists()
    refused(run("--representation", "interaction", "--model", ours, "--out", kept.parent), "not the JSON of a run")


def test_another_trained_model_is_another_setting(run: Run, tmp_path: Path) -> None:
    model, out = save_model(tmp_path / "model"), tmp_path / "out"
    where = ["--representation", "interaction", "--model", model, "--out", out, "--workers", 0, *SHORT]
    assert run(*where)[0] == 0
    assert "0 runs made, 1 existed" in run(*where)[1]
    again = Representation(load_model(model)[0], {"origin": [1.0, 0.0]})
    again.save(model, overwrite=True)
    refused(run(*where), "interaction-0.json was made with other settings: weights was")
    (out / "interaction-0.json").unlink()
    refused(run(*where), "interaction-0 was made with other settings: weights was")


def test_one_process_at_a_run(run: Run, tmp_path: Path) -> None:
    with alone(tmp_path / "truth-0"):
        refused(
            run("--representation", "truth", "--out", tmp_path, *SHORT), "another process works in truth-0; wait for it"
        )
        refused(
            run("--representation", "truth", "--out", tmp_path, "--force", *SHORT), "another process works in truth-0"
        )


def test_ctrl_c_prints_how_to_go_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise Interrupted("stopped after step 40 of 80")

    monkeypatch.setattr(room.demand_ppo(), "train", stopped)
    code, _, err = run("--representation", "truth", "--out", tmp_path, "--force")
    assert code == 130
    assert err.strip().endswith(f"To continue:\n  palpate control --representation truth --out {tmp_path}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--representation", "vae"], ["'vae', which is learned first", "--method vae", "--model runs/x"]),
        (["--representation", "truth", "--model", "runs/x"], ["truth needs none; leave it out"]),
        (["--representation", "paper", "--model", "nowhere"], ["nowhere holds no trained model", "paper-gaussian"]),
        (["--representation", "truth", "--seeds", "0"], ["seeds is 0"]),
        (["--out", "nowhere"], ["nowhere holds no JSON of a run"]),
    ],
)
def test_mistakes(run: Run, arguments: list[str], says: list[str]) -> None:
    refused(run(*arguments), *says)


def test_a_model_of_another_kind(run: Run, tmp_path: Path) -> None:
    ours = save_model(tmp_path / "ours")
    paper = save_model(tmp_path / "paper", "paper-gaussian")
    where = ["--out", tmp_path / "out"]
    refused(run("--representation", "paper", "--model", ours, *where), "of the method 'contact'")
    refused(run("--representation", "interaction", "--model", paper, *where), "of the method 'paper-gaussian'")
    refused(run("--representation", "vae", "--model", ours, *where), "of the method 'contact'")


def test_settings_are_checked(run: Run) -> None:
    code, _, err = run("--representation", "truth", "--batch-size", "7")
    assert code == 2
    assert "a divisor of 640" in " ".join(err.replace("│", " ").split())


def test_the_extra_is_named_where_it_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import palpate.control

    monkeypatch.delattr(palpate.control, "ppo", raising=False)
    for name in list(sys.modules):
        if name.startswith(("stable_baselines3", "palpate.control.ppo", "palpate.control.vec")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    refused(run("--representation", "truth", "--out", tmp_path), "pip install 'palpate[rl]'")


@pytest.mark.parametrize("how", ["truth", "model"])
def test_planning(how: str, tmp_path: Path) -> None:
    """With true states it scores almost always; an untrained representation is no help, but runs."""
    script = Path(__file__).parents[2] / "examples" / "plan.py"
    which = ["--truth"] if how == "truth" else ["--model", str(save_model(tmp_path / "model")), "--known", "3"]
    episodes = 30 if how == "truth" else 1
    command = [sys.executable, str(script), *which, "--episodes", str(episodes)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    goals = int(done.stdout.split()[2])
    if how == "truth":
        assert goals >= 28
    else:
        assert f"of {episodes} episodes" in done.stdout
