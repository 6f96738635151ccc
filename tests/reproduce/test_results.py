import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import row, write

from palpate.reproduce.results import read_results, summarise
from palpate.reproduce.statistics import interquartile_mean, stratified_bootstrap
from palpate.reproduce.tables import frame_distance, markdown, write_tables


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([0.0, 6.0, 90.0], (0.25 * 0 + 6 + 0.25 * 90) / 1.5),
        ([100.0, 2.0, 4.0, -100.0], 3.0),  # the two in the middle
        ([0.0, 1.0, 2.0, 3.0, 1e9], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
        ([1.0, 2.0, 3.0, math.inf], 2.5),  # a quarter of failures is outside
    ],
)
def test_interquartile_mean_by_hand(values: list[float], mean: float) -> None:
    assert float(interquartile_mean(np.array(values))) == pytest.approx(mean)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_interquartile_mean_slowly(values: list[float]) -> None:
    """Four copies of each value have a middle half without fractions."""
    copies = sorted(4 * values)
    middle = copies[len(values) : 3 * len(values)]
    assert float(interquartile_mean(np.array(values))) == pytest.approx(sum(middle) / len(middle), abs=1e-9)


def test_interquartile_mean_along_the_last_axis() -> None:
    values = np.random.default_rng(0).random((3, 2, 5))
    each = [[float(interquartile_mean(values[i, j])) for j in range(2)] for i in range(3)]
    assert interquartile_mean(values) == pytest.approx(np.array(each))


def test_bootstrap_slowly() -> None:
    strata = [np.array([1.0, 2.0, 4.0]), np.array([10.0, 30.0])]
    rng, means = np.random.default_rng(0), []
    draws = [[stratum[rng.integers(len(stratum), size=(500, len(stratum)))]] for stratum in strata]
    for i in range(500):
        means.append(float(interquartile_mean(np.concatenate([draw[0][i] for draw in draws]))))
    low, high = stratified_bootstrap(strata, seed=0, resamples=500)
    assert (low, high) == (sorted(means)[round(0.025 * 499)], sorted(means)[round(0.975 * 499)])


def test_bootstrap_resamples_within_the_strata() -> None:
    """A stratum whose seeds agree adds no uncertainty, however far it is from the other."""
    assert stratified_bootstrap([np.full(3, 1.0), np.full(3, 100.0)]) == (50.5, 50.5)
    low, high = stratified_bootstrap([np.array([1.0, 1.0, 1.0, 100.0, 100.0, 100.0])])
    assert low < 40 < 60 < high


def test_bootstrap_covers_the_mean_of_a_symmetric_law() -> None:
    rng = np.random.default_rng(1)
    inside = sum(low <= 0 <= high for low, high in (
        stratified_bootstrap([rng.normal(size=20)], resamples=400) for _ in range(200)
    ))  # fmt: skip
    assert 170 <= inside <= 199  # a percentile bootstrap of 20 values is a little narrow


ROWS = [
    *(row("vanilla", "ours", seed, value) for seed, value in enumerate([1e-4, 3e-4, 2e-4])),
    *(row("vanilla", "paper", seed, value) for seed, value in enumerate([0.1, 0.0039, 0.0041])),
    *(row("vanilla", "supervised", seed, value) for seed, value in enumerate([4e-5, 1e-5])),
    row("background", "ours", 0, 4e-4, resumed_at=2, seconds=1.0),
    row("background", "supervised", 0, 1e-4),
]


def test_summaries_by_hand() -> None:
    ours, paper, limit, _, _, *overall = summarise(ROWS)
    assert (ours.world, ours.method, ours.seeds, ours.median) == ("vanilla", "ours", 3, 2e-4)
    assert (ours.mean, ours.std) == pytest.approx((2e-4, 1e-4))
    assert ours.iqm == pytest.approx(2e-4)
    assert ours.interval is not None
    assert 1e-4 <= ours.interval[0] < 2e-4 < ours.interval[1] <= 3e-4
    assert ours.to_supervised == pytest.approx(2e-4 / 2.5e-5)
    assert ours.failures == 0
    assert paper.failures == pytest.approx(2 / 3)  # 2 % of 0.2 lies between 0.0039 and 0.0041
    assert limit.to_supervised == pytest.approx(1)
    # Over all worlds, only methods that were run in each: shares of the constant answer's 0.2.
    assert [(s.world, s.method, s.seeds) for s in overall] == [
        ("all worlds", "ours", 4),
        ("all worlds", "supervised", 3),
    ]
    assert overall[0].median == pytest.approx(2.5e-4 / 0.2)


def test_one_seed_has_no_interval_and_a_resumed_run_no_seconds() -> None:
    (lonely,) = (s for s in summarise(ROWS) if (s.world, s.method) == ("background", "ours"))
    assert (lonely.interval, lonely.std, lonely.seconds) == (None, None, None)
    assert lonely.median == lonely.iqm == 4e-4


def test_a_run_that_diverged_is_a_failure() -> None:
    rows = [*(row("vanilla", "ours", seed, 1e-4) for seed in range(3)), row("vanilla", "ours", 3, None)]
    (summary,) = summarise(rows)
    assert (summary.seeds, summary.failures, summary.median) == (4, 0.25, 1e-4)
    assert summary.iqm == pytest.approx(1e-4)
    assert (summary.mean, summary.std) == (math.inf, None)
    assert summary.interval is not None
    assert summary.interval[1] == math.inf


def test_order_is_the_experiments_own() -> None:
    names = [(s.world, s.method) for s in summarise(reversed(ROWS))]
    assert names[:3] == [("vanilla", "ours"), ("vanilla", "paper"), ("vanilla", "supervised")]
    assert names[3][0] == "background"
    assert summarise([row("moon", "ours", 0, 0.1), row("vanilla", "ours", 0, 0.1)])[0].world == "vanilla"


def test_markdown_says_how_it_was_scored() -> None:
    keypoints = {"l_test": 0.1, "constant l_test": 0.2, "probed_l_test": 0.05, "swap_rate": 0.25}
    rows = [*ROWS, row("vanilla", "vae", 0, 0.1), row("vanilla", "transporter", 0, None, scores=keypoints)]
    text = markdown(rows, summarise(rows))
    lines = text.splitlines()
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    (ours,) = (line for line in lines if line.startswith("| vanilla | ours "))
    assert "| 3 | 0.0002 | 0.0002 [" in ours
    assert "| 0.0002 ± 0.0001 | 0% | 8 |" in ours
    assert "affine probe" in text
    assert "vanilla transporter: the two swapped in 25% of the pictures, L_test 0.05 with" in text
    assert "commit abc1234" in text
    assert "Orientation" not in text
    scores = [{"l_test": 0.1, "orientation_error": x, "contact_accuracy": 1 - x} for x in (0.1, 0.3, 0.2)]
    turned = [row("anisotropic", "ours", seed, 0.1, scores=each) for seed, each in enumerate(scores)]
    beside = markdown(turned, summarise(turned))
    assert "Orientation error, medians over seeds: anisotropic ours 0.2 rad." in beside
    assert "Split accuracy, medians over seeds: anisotropic ours 0.8." in beside
    assert "affine probe" not in markdown(ROWS, summarise(ROWS))


def test_tables_from_the_folder_alone(tmp_path: Path) -> None:
    write(tmp_path, [*ROWS, row("background", "paper", 0, None)])
    (tmp_path / "notes.json").write_text('{"not": "ours"}')
    (tmp_path / "vanilla-0.json").write_text('{"experiment": "vanilla", "scores": {}}')  # of another time
    assert len(read_results(tmp_path)) == len(ROWS) + 1
    text = write_tables(tmp_path)
    assert (tmp_path / "table.md").read_text() == text
    table = json.loads((tmp_path / "table.json").read_text(), parse_constant=pytest.fail)  # no Infinity
    assert table["notes"] == []
    (lost,) = (s for s in table["summaries"] if (s["world"], s["method"]) == ("background", "paper"))
    assert (lost["median"], lost["failures"]) == ("inf", 1.0)
    assert write_tables(tmp_path / "empty") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "vanilla-ours-0.json").write_text("{")
    with pytest.raises(ValueError, match="vanilla-ours-0.json is damaged .*delete it"):
        read_results(tmp_path)


def test_frames_that_differ_by_a_translation_agree() -> None:
    rng = np.random.default_rng(0)
    third = {"agent": rng.random((5, 2)), "object": rng.random((5, 2))}
    moved = {name: x + np.array([3.0, -1.0]) for name, x in third.items()}
    assert frame_distance(third, moved) == pytest.approx(0)
    apart = third | {"object": third["object"] + [0.2, 0.0]}  # the mean is 0.1, and so is every residual
    assert frame_distance(third, apart) == pytest.approx(0.1)
