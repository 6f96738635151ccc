"""The comparison of PPO runs, against numbers worked out by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from palpate.contest.compare import area, contest, first_reached, probability_of_improvement
from palpate.contest.table import curves, markdown, write_contest


def row(name: str, seed: int, returns: list[float], every: int = 100, goals: float = 0.5) -> dict[str, Any]:
    return {
        "format": 1,
        "experiment": "control",
        "representation": name,
        "seed": seed,
        "curve": [[i * every, value, goals] for i, value in enumerate(returns)],
        "final": {"return": returns[-1], "goals": goals},
        "random": {"return": -6.0, "goals": 0.02},
        "steps_per_second": 100.0 + seed,
        "settings": {"episodes": 64},
        "hardware": "abacus",
        "torch": "2",
        "commit": "abc",
    }


ROWS = [
    *(row("truth", seed, [-6.0, -3.0, -2.0, -1.0]) for seed in range(2)),
    *(row("interaction", seed, [-6.0, -4.0, -1.5, -1.0 - 0.1 * seed]) for seed in range(2)),
    *(row("pixels", seed, [-6.0, -6.0, -5.5, -5.0, -4.0 - seed]) for seed in range(2)),
]


def test_scores_by_hand() -> None:
    """Random is -6 and truth ends at -1, so a return R has the score (R + 6) / 5."""
    ours, pixels, truth = contest(ROWS)
    assert [each.representation for each in (ours, pixels, truth)] == ["interaction", "pixels", "truth"]
    assert (ours.final, ours.score) == (pytest.approx(-1.05), pytest.approx(0.99))
    assert truth.score == pytest.approx(1.0)
    assert pixels.score == pytest.approx(0.3)
    assert truth.score_interval == pytest.approx((1.0, 1.0))
    assert pixels.score_interval == pytest.approx((0.2, 0.4))


def test_steps_by_hand() -> None:
    ours, pixels, truth = contest(ROWS)
    # A score of 0.9 is a return of -1.5; pixels end at -4.5.
    assert (truth.steps_to_score, ours.steps_to_score, pixels.steps_to_score) == (250, 200, None)
    assert ours.steps_to_score_interval == (200, 200)
    assert pixels.steps_to_score_interval == (None, None)
    assert (truth.steps_to_pixels, ours.steps_to_pixels, pixels.steps_to_pixels) == (50, 75, None)


def test_areas_are_over_the_steps_that_all_were_given() -> None:
    """300 of them: pixels had 400."""
    _, pixels, truth = contest(ROWS)
    mean = np.mean([(-6 - 3) / 2, (-3 - 2) / 2, (-2 - 1) / 2])
    assert truth.area == pytest.approx((mean + 6) / 5)
    assert pixels.area == pytest.approx((np.mean([-6, -5.75, -5.25]) + 6) / 5)


def test_area_between_evaluations() -> None:
    assert area(np.array([0.0, 2.0]), np.array([[0.0, 2.0], [1.0, 1.0]]), 1.0) == pytest.approx([0.5, 1.0])


def test_improvement_by_hand() -> None:
    assert probability_of_improvement(np.array([1.0, 3.0]), np.array([2.0, 3.0])) == pytest.approx(
        (0 + 0 + 1 + 0.5) / 4
    )
    ours, pixels, _ = contest(ROWS)
    assert ours.better_than_pixels == 1.0
    assert ours.better_interval == (1.0, 1.0)
    assert pixels.better_than_pixels is None


@pytest.mark.parametrize(
    ("values", "step"), [([5.0, 6.0], 0), ([0.0, 4.0], 10), ([0.0, 8.0], 5), ([0.0, 1.0], None), ([0.0, 9.0], 4)]
)
def test_when_a_level_is_reached(values: list[float], step: int | None) -> None:
    assert first_reached(np.array([0.0, 10.0]), np.array(values), 4.0) == step


def test_without_truth_there_are_no_scores() -> None:
    rows = [r for r in ROWS if r["representation"] != "truth"]
    assert all(each.score is None and each.area is None for each in contest(rows))
    assert "no runs from true states yet" in markdown(rows, contest(rows))


def test_one_seed_has_no_interval() -> None:
    (alone,) = contest([ROWS[0]])
    assert alone.final_interval is alone.score_interval is alone.area_interval is alone.better_interval is None


def test_runs_of_two_lengths_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="runs of truth have 100 and 300 steps; keep those of one length"):
        contest([ROWS[0], row("truth", 7, [-6.0, -1.0])])


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("truth", {"gamma": 0.5}, "runs of truth have gamma 0.9 and 0.5; keep those of one kind in a folder"),
        ("vae", {"max_step": 0.9}, "runs have max_step 0.3 and 0.9; keep each game in a folder of its own"),
        ("vae", {"episodes": 3}, "runs have episodes 64 and 3"),
    ],
)
def test_runs_of_two_kinds_are_not_mixed(name: str, settings: dict[str, Any], says: str) -> None:
    """Another representation may have other settings, but not another game."""
    usual = {"episodes": 64, "gamma": 0.9, "max_step": 0.3, "model": {"n": 2}, "weights": "a"}
    own = {"gamma": 0.7, "model": {"n": 3}, "weights": "b"}
    rows = [
        row("truth", 0, [-6.0, -1.0]) | {"settings": usual},
        row("vae", 0, [-6.0, -2.0]) | {"settings": usual | own},
    ]
    assert len(contest(rows)) == 2
    with pytest.raises(ValueError, match=says):
        contest([*rows, row(name, 7, [-6.0, -1.0]) | {"settings": rows[name == "vae"]["settings"] | settings}])


@pytest.mark.parametrize("end", [-6.0, -6.2])
def test_truth_that_is_no_better_than_chance_gives_no_scores(end: float, tmp_path: Path) -> None:
    """The scale from one to the other would be none, or upside down."""
    rows = [row("truth", 0, [-6.2, end]), row("pixels", 0, [-6.2, -6.1])]
    assert all(each.score is each.area is each.steps_to_score is None for each in contest(rows))
    assert "no better than the random policy, so there are no scores" in markdown(rows, contest(rows))
    for each in rows:
        (tmp_path / f"{each['representation']}-0.json").write_text(json.dumps(each))
    write_contest(tmp_path)


def test_what_is_written(tmp_path: Path) -> None:
    for each in ROWS:
        (tmp_path / f"{each['representation']}-{each['seed']}.json").write_text(json.dumps(each))
    text, files = write_contest(tmp_path)
    assert (tmp_path / "table.md").read_text() == text
    assert "| interaction | 2 | 300 | -1.05 [-1.10, -1.00] | 0.99 " in text
    assert "never" in text
    assert "first 300 steps" in text
    assert [path.name for path in files] == ["table.md", "table.json", "curves.png"]
    table = json.loads((tmp_path / "table.json").read_text())["contestants"]
    assert [each["representation"] for each in table] == ["interaction", "pixels", "truth"]
    assert (tmp_path / "curves.png").stat().st_size < 300_000
    write_contest(tmp_path)  # its own table is not taken for a run
    with pytest.raises(FileNotFoundError, match="holds no JSON of a run; make some with `palpate control`"):
        write_contest(tmp_path / "nowhere")


def test_curves() -> None:
    figure = curves(ROWS)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert len(axes.lines) == 4  # and the random policy
    assert len(axes.collections) == 3


def test_runs_that_are_much_longer_are_drawn_beside_the_others() -> None:
    """Once as far as all go, 300 steps, and once to the end of the longest; one legend for both."""
    figure = curves([*ROWS[:4], *(row("pixels", seed, [-6.0, -5.0, -4.0, -3.5]) for seed in range(2))])
    assert len(figure.axes) == 1
    figure = curves([*ROWS[:4], *(row("pixels", seed, [-6.0, -5.0, -4.0, -3.5], every=1000) for seed in range(2))])
    near, whole = figure.axes
    assert (near.get_xlim()[1], whole.get_xlim()[1]) == (pytest.approx(306), pytest.approx(3060))
    assert len(near.lines) == len(whole.lines) == 4
    assert len(figure.legends[0].get_texts()) == 4


@pytest.mark.parametrize(("goals", "said"), [(0.0, True), (0.49, True), (0.5, False)])
def test_truth_that_has_not_learned_the_game_is_no_scale(goals: float, said: bool) -> None:
    """A ball that is left alone scores more than one that a random policy kicks about."""
    rows = [row("truth", 0, [-5.9, -5.5], goals=goals), row("pixels", 0, [-6.0, -5.8], goals=0.0)]
    assert ("not those of a game that has been learned" in markdown(rows, contest(rows))) == said


def test_how_many_trained_models_were_seen() -> None:
    saw = [{**each, "settings": {"episodes": 64, "weights": name}} for each, name in zip(ROWS[2:4], "ab", strict=True)]
    rows = [*ROWS[:2], *saw, *ROWS[4:]]
    assert "that the seeds of PPO saw: interaction 2." in markdown(rows, contest(rows))
    assert "trained models" not in markdown(ROWS, contest(ROWS)).lower()
