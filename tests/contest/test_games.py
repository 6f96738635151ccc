"""`palpate reproduce control`: representations, then policies."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import TINY

from palpate.contest import games
from palpate.control import ppo, settings
from palpate.disk import alone
from palpate.reproduce.presets import PRESETS
from palpate.reproduce.runs import Place
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss

Play = Callable[..., games.Games]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENVS": 4, "EPISODES": 4, "EPOCHS": 1, "EPOCHS_FROM_PIXELS": 1}.items():
        monkeypatch.setattr(settings, name, value)
    for name, value in {"n_steps": 20, "batch_size": 40}.items():
        monkeypatch.setitem(settings.PPO_SETTINGS, name, value)
    monkeypatch.setattr("palpate.reproduce.sets.available_cores", lambda: 1)  # no processes for a few triples
    monkeypatch.setitem(PRESETS, "small", replace(TINY, name="small", control_steps=80, pixel_steps=80))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    place = Place(out=tmp_path, data=tmp_path / "data", device="cpu")

    def play(*representations: str, **how: Any) -> games.Games:
        how |= {"representations": representations, "jobs": 1, "show": False}
        return games.tournament(PRESETS["small"], 1, place, **how)

    return play


def test_each_seed_has_its_own_representation(tmp_path: Path) -> None:
    place = Place(out=tmp_path, data=tmp_path)
    models = [games.game(PRESETS["small"], "paper", seed, place).model for seed in (0, 1)]
    assert models == [tmp_path / "soccer" / "models" / f"third-paper-gaussian-{seed}" for seed in (0, 1)]


@pytest.mark.slow
def test_representations_then_policies(play: Play, tmp_path: Path) -> None:
    learned, policies = play("interaction", "truth")
    assert learned.finished == ["soccer/third-ours-0"]
    assert policies.finished == ["control/truth-0", "control/interaction-0"]
    row = json.loads((tmp_path / "control" / "interaction-0.json").read_text())
    assert (row["settings"]["model"]["method"], row["settings"]["steps"]) == ("contact", 80)
    learned, again = play("interaction", "truth")
    assert again.finished == []
    assert again.skipped == policies.finished
    assert learned.skipped == ["soccer/third-ours-0"]
    with pytest.raises(ValueError, match=r"truth-0.json was made with other settings: steps was 80 and is 160"):
        play("truth", steps=81)  # whole rollouts
    described = tmp_path / "soccer" / "models" / "third-ours-0" / "config.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"weights": "others"}))
    with pytest.raises(ValueError, match=r"interaction-0.json was made with other settings: weights was"):
        play("interaction")


def test_a_representation_without_its_model_is_refused(play: Play, tmp_path: Path) -> None:
    (tmp_path / "soccer").mkdir()
    (tmp_path / "soccer" / "third-vae-0.json").write_text("{}")
    with pytest.raises(ValueError, match=r"third-vae-0.json exists, but its model was not kept; choose another"):
        play("vae")
    assert not (tmp_path / "control").exists()


@pytest.mark.slow
def test_a_diverged_representation_is_reported_and_not_trained_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*given: Any, out: Path, **more: Any) -> Any:
        out.mkdir(parents=True)
        (out / "metrics.jsonl").touch()
        raise NonFiniteLoss("the loss is nan")

    monkeypatch.setattr("palpate.reproduce.runs.fit", diverges)
    learned, policies = play("truth", "vae")
    assert learned.failed == {"soccer/third-vae-0": games.DIVERGED}
    assert policies.finished == []
    with pytest.raises(ValueError, match="third-vae-0.json: its loss was not finite, .* choose the others with --m"):
        play("truth", "vae")


@pytest.fixture
def half_made(tmp_path: Path) -> Iterator[None]:
    """Another process trains the VAE, and a part of an earlier copy of its model is there."""
    place = Place(out=tmp_path, data=tmp_path / "data", device="cpu")
    (case,) = games.learned_by(PRESETS["small"], 1, ["vae"])
    place.model(case).mkdir(parents=True)
    place.run(case).parent.mkdir(parents=True)
    with alone(place.run(case)):
        yield


@pytest.mark.usefixtures("half_made")
def test_policies_of_busy_representations_are_left_out(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palpate.reproduce.campaign.gather", lambda *_: None)
    monkeypatch.setattr(ppo, "train", lambda run, folder, watch: folder.mkdir() or {})
    learned, policies = play("truth", "vae")
    assert (learned.busy, learned.failed) == (["soccer/third-vae-0"], {})
    assert policies.finished == ["control/truth-0"]


class TestCommand:
    @pytest.mark.usefixtures("half_made")
    def test_busy_runs_are_reported(self, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.reproduce.campaign.gather", lambda *_: None)
        where = ("--device", "cpu", "--out", tmp_path, "--data", tmp_path, "--seeds", 1, "--jobs", 1)
        code, said, err = command("reproduce", "control", "--methods", "vae", *where)
        assert code == 0, err
        assert "0 policies trained" in said
        assert "1 runs of other processes were passed over" in said

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("control", "--worlds", "third"), "leave out --worlds"),
            (("control", "--methods", "ours"), "method is 'ours'; control has interaction, paper, vae"),
            (("control", "--ppo-steps", "0"), "ppo_steps is 0; allowed is 1 or more"),
            (("soccer", "--ppo-steps", "9"), "no policy is trained; leave out --ppo-steps"),
        ],
    )
    def test_bad_input(self, command: Run, words: tuple[str, ...], says: str) -> None:
        code, _, err = command("reproduce", *words, "--device", "cpu")
        assert code == 2
        assert says in err

    def test_an_interrupted_run_prints_how_to_continue(
        self, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stopped(*given: Any) -> Any:
            raise Interrupted("stopped after step 80 of 240")

        monkeypatch.setattr("palpate.control.ppo.train", stopped)
        words = ("reproduce", "control", "--methods", "truth", "--device", "cpu", "--out", str(tmp_path))
        code, _, err = command(*words, "--jobs", 1)
        assert code == 130
        assert "stopped after step 80 of 240; 0 of 3 runs are finished" in err
        assert err.splitlines()[-1].strip() == f"palpate {' '.join(words)} --jobs 1"

    def test_runs_and_redraws(self, command: Run, tmp_path: Path) -> None:
        words = ("reproduce", "control", "--device", "cpu", "--out", tmp_path, "--seeds", 1, "--jobs", 1)
        code, said, err = command(*words, "--methods", "truth", "--ppo-steps", 160)
        assert code == 0, err
        assert "1 policies trained, 0 existed, 0 failed" in said
        assert [path.name for path in (tmp_path / "control" / ".runs").iterdir()] == []
        (tmp_path / "control" / "curves.png").unlink()
        code, said, err = command(*words, "--figures-only")
        assert code == 0, err
        assert "| truth | 1 | 160 |" in said
        assert (tmp_path / "control" / "curves.png").exists()

    def test_a_failed_policy_is_reported(self, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*given: Any) -> Any:
            raise ArithmeticError("lost count")

        monkeypatch.setattr("palpate.control.ppo.train", broken)
        where = ("--device", "cpu", "--out", tmp_path, "--seeds", 1, "--jobs", 1)
        code, _, err = command("reproduce", "control", "--methods", "truth", *where)
        assert code == 1
        assert "palpate: control/truth-0: ArithmeticError: lost count" in err

    def test_the_missing_extra_is_named(self, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        import palpate.control

        monkeypatch.delattr(palpate.control, "ppo", raising=False)
        for name in list(sys.modules):
            if name.startswith(("stable_baselines3", "palpate.control.ppo", "palpate.control.vec")):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        code, _, err = command("reproduce", "control", "--device", "cpu")
        assert code == 2
        assert "pip install 'palpate[rl]'" in err
