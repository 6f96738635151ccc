import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import arrays, row, write

from palpate.reproduce.plots import draw
from palpate.reproduce.results import grouped, read_results
from palpate.reproduce.statistics import interquartile_mean, stratified_bootstrap
from palpate.reproduce.tables import HEADS, frame_distance, frame_notes, markdown, write_table


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([0.0, 6.0, 90.0], (0.25 * 0 + 6 + 0.25 * 90) / 1.5),
        ([100.0, 2.0, 4.0, -100.0], 3.0),  # the two in the middle
        ([1.0, 2.0, 3.0, math.inf], 2.5),  # a quarter of failures is outside
    ],
)
def test_interquartile_mean_by_hand(values: list[float], mean: float) -> None:
    assert float(interquartile_mean(np.array(values))) == pytest.approx(mean)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_interquartile_mean_equals_a_slow_one(values: list[float]) -> None:
    """Four copies of each value have a middle half without fractions."""
    copies = sorted(4 * values)
    middle = copies[len(values) : 3 * len(values)]
    assert float(interquartile_mean(np.array(values))) == pytest.approx(sum(middle) / len(middle), abs=1e-9)


def test_bootstrap_equals_a_slow_one() -> None:
    strata = [np.array([1.0, 2.0, 4.0]), np.array([10.0, 30.0])]
    rng, means = np.random.default_rng(0), []
    draws = [stratum[rng.integers(len(stratum), size=(500, len(stratum)))] for stratum in strata]
    for i in range(500):
        means.append(float(interquartile_mean(np.concatenate([draw[i] for draw in draws]))))
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
    row("background", "vae", 0, None),
]


def lines(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """The lines of a table by world and method, their cells by title."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {(each[0], each[1]): dict(zip(HEADS, each, strict=True)) for each in cells[1:]}


def test_a_line_of_the_table_by_hand() -> None:
    table = lines(markdown(ROWS))
    ours = table["vanilla", "ours"]
    assert (ours["seeds"], ours["median L_test"], ours["failed"], ours["x supervised"]) == ("3", "0.0002", "0%", "8")
    assert (ours["agent error"], ours["object error"], ours["seconds"]) == ("0.1", "0.2", "10")
    middle, interval = ours["interquartile mean [95 %]"].split(" ", 1)
    low, high = map(float, interval.strip("[]").split(", "))
    assert 1e-4 <= low < float(middle) == 2e-4 < high <= 3e-4
    assert table["vanilla", "paper"]["failed"] == "67%"  # 2 % of 0.2 lies between 0.0039 and 0.0041


def test_one_seed_has_no_interval_and_a_resumed_run_no_seconds() -> None:
    lonely = lines(markdown(ROWS))["background", "ours"]
    assert (lonely["median L_test"], lonely["interquartile mean [95 %]"], lonely["seconds"]) == ("0.0004", "-", "-")


def test_a_diverged_run_is_a_failure() -> None:
    lost = lines(markdown(ROWS))["background", "vae"]
    assert (lost["median L_test"], lost["failed"], lost["agent error"]) == ("inf", "100%", "-")
    rows = [*(row("vanilla", "ours", seed, 1e-4) for seed in range(3)), row("vanilla", "ours", 3, None)]
    three = lines(markdown(rows))["vanilla", "ours"]
    assert (three["failed"], three["interquartile mean [95 %]"]) == ("25%", "0.0001 [0.0001, inf]")


def test_groups_are_in_the_order_of_the_experiment() -> None:
    moon = row("moon", "ours", 0, 0.1)
    assert list(grouped([moon, *reversed(ROWS)])) == [
        ("vanilla", "ours"), ("vanilla", "paper"), ("vanilla", "supervised"), ("background", "ours"),
        ("background", "vae"), ("moon", "ours"),
    ]  # fmt: skip


def test_notes_describe_the_scoring() -> None:
    keypoints = {"l_test": 0.1, "constant l_test": 0.2, "probed_l_test": 0.05, "swap_rate": 0.25}
    text = " ".join(markdown([*ROWS, row("vanilla", "transporter", 0, None, scores=keypoints)]).split())
    assert "An affine probe" in text
    assert "vanilla transporter: the two are swapped in 25% of the pictures" in text
    assert "commit abc1234" in text
    assert "Orientation" not in text
    scores = [{"l_test": 0.1, "orientation_error": x, "contact_accuracy": 1 - x} for x in (0.1, 0.3, 0.2)]
    text = markdown([row("anisotropic", "ours", seed, 0.1, scores=each) for seed, each in enumerate(scores)])
    assert "Orientation error, medians over seeds: anisotropic ours 0.2 rad." in text
    assert "Split accuracy, medians over seeds: anisotropic ours 0.8." in text
    assert "An affine probe" not in text


def test_the_table_needs_the_folder_alone(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    (tmp_path / "notes.json").write_text('{"not": "ours"}')
    assert len(read_results(tmp_path)) == len(ROWS)
    text = write_table(tmp_path)
    assert (tmp_path / "table.md").read_text() == text
    assert write_table(tmp_path / "empty") is None
    for damaged in ("{", "[" * 10**5):
        (tmp_path / "vanilla-ours-0.json").write_text(damaged)
        with pytest.raises(ValueError, match="vanilla-ours-0.json is damaged .*delete it"):
            read_results(tmp_path)


def test_results_of_another_format_are_named(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    path = tmp_path / "vanilla-ours-0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    with pytest.warns(
        UserWarning, match=r"1 of the results in .* another format, such as vanilla-ours-0\.json, and are"
    ):
        assert len(read_results(tmp_path)) == len(ROWS) - 1


def test_frames_that_differ_by_a_translation_agree(tmp_path: Path) -> None:
    points = np.random.default_rng(0).random((10, 2))
    assert frame_distance(points, points + np.array([3.0, -1.0])) == pytest.approx(0)
    half = points + np.repeat([[0.2, 0.0], [0.0, 0.0]], 5, 0)  # the mean is 0.1, and so is every residual
    assert frame_distance(points, half) == pytest.approx(0.1)
    found = arrays()
    for view, shift in (("third", 0.0), ("first", 5.0)):
        moved = {name: found[name] + shift for name in ("all_agent", "all_object")}
        np.savez(tmp_path / f"{view}-ours-0.npz", **found | moved)
    (note,) = frame_notes(tmp_path, [row("third", "ours", 0, 1e-3)])
    assert float(note.split("differ by ")[1].split()[0]) == pytest.approx(0)


def test_a_limit_that_diverged_is_no_scale() -> None:
    rows = [row("vanilla", "ours", 0, None), row("vanilla", "supervised", 0, None)]
    assert lines(markdown(rows))["vanilla", "ours"]["x supervised"] == "-"  # without a warning


@pytest.mark.parametrize("field", ["scores", "curve", "commit", "seed"])
def test_a_json_without_a_field_is_named(tmp_path: Path, field: str) -> None:
    found = row("vanilla", "ours", 0, 0.1)
    write(tmp_path, [found])
    del found[field]
    (tmp_path / "vanilla-ours-0.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=rf"vanilla-ours-0.json is damaged \('{field}' is missing\); delete it"):
        write_table(tmp_path)


def test_damaged_arrays_are_named(tmp_path: Path) -> None:
    third, first = (tmp_path / f"{view}-ours-0.npz" for view in ("third", "first"))
    rows = [row("third", "ours", 0, 0.1, experiment="soccer")]
    write(tmp_path, rows)
    np.savez(first, **arrays())
    np.savez(third, other=np.zeros(2))
    with pytest.raises(ValueError, match=r"third-ours-0.npz is damaged \('all_agent' is missing\)"):
        frame_notes(tmp_path, rows)
    whole = first.read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], b"\x93NUMPY"):
        third.write_bytes(content)
        for reading in (lambda: frame_notes(tmp_path, rows), lambda: draw("soccer", tmp_path)):
            with pytest.raises(ValueError, match="third-ours-0.npz is damaged .*delete it, and repeat the run"):
                reading()
