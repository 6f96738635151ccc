"""`palpate reproduce control`: representations, then policies."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import TINY

from palpate.contest import tournament
from palpate.control.settings import ControlConfig
from palpate.reproduce import presets
from palpate.reproduce.presets import PRESETS
from palpate.reproduce.runs import Place
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss

Play = Callable[..., tournament.Games]
Run = Callable[..., tuple[int, str, str]]
SHORT = ControlConfig(
    steps=80, envs=4, rollout=20, batch_size=40, epochs=1, evaluate_every=80, episodes=4, film=0, workers=0,
    device="cpu", size=20,
)  # fmt: skip


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(tournament, "settings", lambda *_: SHORT)
    place = Place(out=tmp_path / "results", data=tmp_path / "data", device="cpu")

    def play(*representations: str, seeds: int = 1, **how: Any) -> tournament.Games:
        return tournament.tournament(TINY, seeds, place, representations=representations, jobs=1, show=False, **how)

    return play


def played(folder: Path, name: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((folder / "results" / "control" / f"{name}.json").read_text())
    return row


def test_each_seed_plays_with_a_representation_of_its_own(play: Play, tmp_path: Path) -> None:
    games = play("interaction", "truth", seeds=2)
    assert games.representations.finished == ["soccer/third-ours-0", "soccer/third-ours-1"]
    assert games.finished == ["truth-0", "truth-1", "interaction-0", "interaction-1"]
    first, second = (played(tmp_path, f"interaction-{seed}")["settings"]["weights"] for seed in (0, 1))
    assert first != second
    again = play("interaction", "truth", seeds=2)
    assert again.finished == []
    assert again.skipped == games.finished
    assert len(again.representations.skipped) == 2


def test_a_representation_without_its_model_is_not_made_again_unasked(play: Play, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "soccer"
    folder.mkdir(parents=True)
    (folder / "third-vae-0.json").write_text("{}")
    with pytest.raises(ValueError, match=r"third-vae-0.json is there, but its model was not kept; choose another"):
        play("vae")
    assert not (tmp_path / "results" / "control").exists()
    assert play("vae", learn_again=True).finished == ["vae-0"]


def test_a_representation_that_diverged_is_said_and_not_made_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*given: Any, out: Path, **more: Any) -> Any:
        out.mkdir(parents=True)
        (out / "metrics.jsonl").touch()
        raise NonFiniteLoss("the loss is nan")

    monkeypatch.setattr("palpate.reproduce.runs.fit", diverges)
    games = play("truth", "vae")
    assert games.representations.failed == {"soccer/third-vae-0": tournament.DIVERGED}
    assert games.finished == []
    with pytest.raises(ValueError, match="third-vae-0.json: its loss was not finite, .* choose the others with --m"):
        play("truth", "vae")


def test_nothing_is_played_where_a_representation_failed(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise ArithmeticError("lost count")

    monkeypatch.setattr("palpate.reproduce.runs.fit", broken)
    games = play("truth", "transporter")
    assert games.representations.failed == {"soccer/third-transporter-0": "ArithmeticError: lost count"}
    assert games.finished == []


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_pixels_are_given_as_many_steps_at_least(preset: presets.Preset) -> None:
    ours, pixels = (tournament.settings(preset, name, "cpu") for name in ("interaction", "pixels"))
    assert pixels.steps == preset.pixel_steps >= ours.steps == preset.control_steps
    for config in (ours, pixels):
        assert config.steps // config.evaluate_every >= 12


class TestCommand:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--worlds", "third"), "leave out --worlds"),
            (("--methods", "ours"), "method is 'ours'; control has interaction, paper, vae"),
        ],
    )
    def test_bad_input(self, command: Run, words: tuple[str, ...], says: str) -> None:
        code, _, err = command("reproduce", "control", *words)
        assert code == 2
        assert says in err

    def test_stopped_while_playing_it_says_how_to_go_on(
        self, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stopped(*given: Any, **more: Any) -> Any:
            raise Interrupted("stopped after step 80 of 240")

        monkeypatch.setattr("palpate.control.ppo.train", stopped)
        words = ("reproduce", "control", "--methods", "truth", "--device", "cpu", "--out", str(tmp_path))
        code, _, err = command(*words)
        assert code == 130
        assert err.splitlines()[-1].strip() == f"palpate {' '.join(words)}"

    def test_runs_and_redraws(self, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(presets.PRESETS, "small", replace(TINY, name="small"))
        monkeypatch.setattr(tournament, "settings", lambda *_: SHORT)
        words = ("reproduce", "control", "--preset", "small", "--device", "cpu", "--out", tmp_path, "--seeds", 1)
        code, said, err = command(*words, "--methods", "truth")
        assert code == 0, err
        assert "1 policies trained, 0 existed" in said
        (tmp_path / "control" / "curves.png").unlink()
        code, said, err = command(*words, "--figures-only")
        assert code == 0, err
        assert "| truth | 1 | 80 |" in said
        assert (tmp_path / "control" / "curves.png").exists()
