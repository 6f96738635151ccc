"""The comparison of PPO runs, against numbers computed by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palpate.contest.compare import area, contest, first_reached
from palpate.contest.table import curves, markdown, write_contest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "control"


def row(name: str, seed: int, returns: list[float], every: int = 100, goals: float = 0.5) -> dict[str, Any]:
    return {
        "format": 1,
        "experiment": "control",
        "representation": name,
        "seed": seed,
        "curve": [[i * every, value, goals] for i, value in enumerate(returns)],
        "final": {"return": returns[-1], "goals": goals},
        "random": {"return": -6.0, "goals": 0.02},
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
    """The random policy has -6 and truth ends at -1, so a return R has the score (R + 6) / 5."""
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


def test_areas_end_with_the_shortest_runs() -> None:
    _, pixels, truth = contest(ROWS)
    mean = np.mean([(-6 - 3) / 2, (-3 - 2) / 2, (-2 - 1) / 2])
    assert truth.area == pytest.approx((mean + 6) / 5)
    assert pixels.area == pytest.approx((np.mean([-6, -5.75, -5.25]) + 6) / 5)
    assert area(np.array([0.0, 2.0]), np.array([[0.0, 2.0], [1.0, 1.0]]), 1.0) == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize(
    ("values", "step"), [([5.0, 6.0], 0), ([0.0, 4.0], 10), ([0.0, 8.0], 5), ([0.0, 1.0], None), ([0.0, 9.0], 4)]
)
def test_when_a_level_is_reached(values: list[float], step: int | None) -> None:
    assert first_reached(np.array([0.0, 10.0]), np.array(values), 4.0) == step


def test_one_seed_has_no_interval() -> None:
    (alone,) = contest([ROWS[0]])
    assert alone.final_interval is alone.score_interval is alone.area_interval is None


def test_runs_of_two_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="runs of truth have 100 and 300 steps; keep those of one length"):
        contest([ROWS[0], row("truth", 7, [-6.0, -1.0])])


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        ([], "no scores, because there are no runs from true states"),
        ([row("truth", 0, [-6.2, -6.0])], "no scores, because true states ended no better than the random policy"),
        ([row("truth", 0, [-5.9, -5.5], goals=0.49)], "only 49% of the episodes have a goal"),
    ],
)
def test_true_states_that_give_no_scale(truth: list[dict[str, Any]], says: str) -> None:
    rows = [*truth, row("pixels", 0, [-6.2, -6.1])]
    text = markdown(rows, contest(rows))
    assert says in text
    assert ("no scores" in says) == (contest(rows)[0].score is contest(rows)[0].area is None)


def test_the_table_of_the_committed_results(tmp_path: Path) -> None:
    """The JSON of docs/results/control gives its own numbers again."""
    for path in RESULTS.glob("*.json"):  # table.json, which is not a run, among them
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tables, files = write_contest(tmp_path)
    columns = 9
    committed = [line.split("|")[1 : columns + 1] for line in (RESULTS / "table.md").read_text().splitlines()[:8]]
    assert [line.split("|")[1 : columns + 1] for line in tables["control"].splitlines()[:8]] == committed
    assert [path.name for path in files] == ["table.md", "table.json", "curves.png"]
    assert files[0].read_text() == tables["control"]
    assert len(json.loads(files[1].read_text())["contestants"]) == 6
    assert files[2].stat().st_size < 300_000
    assert write_contest(tmp_path / "empty") == ({}, [])


def test_much_longer_runs_are_drawn_in_a_second_panel() -> None:
    """One panel ends with the shortest runs, one with the longest; both share a legend."""
    (axes,) = curves(ROWS).axes
    assert len(axes.lines) == 4  # and the random policy
    assert len(axes.collections) == 3
    figure = curves([*ROWS[:4], *(row("pixels", seed, [-6.0, -5.0, -4.0, -3.5], every=1000) for seed in range(2))])
    near, whole = figure.axes
    assert (near.get_xlim()[1], whole.get_xlim()[1]) == (pytest.approx(306), pytest.approx(3060))
    assert len(near.lines) == len(whole.lines) == 4
    assert len(figure.legends[0].get_texts()) == 4


def test_the_oldest_numpy_allowed_can_integrate() -> None:
    assert '"numpy>=2.0"' in (ROOT / "pyproject.toml").read_text()  # the first with np.trapezoid
