from typing import Any

import numpy as np
import pytest
from made_up import arrays, row
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from palpate.projection import Homography
from palpate.reproduce.plots import COLOURS, band, curves, dots, gallery, histograms
from palpate.reproduce.presets import METHODS, PLAIN

ROWS = [
    *(row("vanilla", "ours", seed, value) for seed, value in enumerate([1e-4, 4e-4, 2e-4])),
    *(row("vanilla", "paper", seed, value) for seed, value in enumerate([0.1, 0.3])),
    row("vanilla", "paper", 2, None),
    row("background", "ours", 0, 3e-4),
    row("background", "transporter-long", 0, 5e-3, curve=[[10_000, 5e-3]]),
    row("background", "supervised", 0, 5e-5),
]


def coloured(axes: Axes, colour: str) -> list[Any]:
    return [line for line in axes.lines if to_hex(line.get_color()).upper() == colour.upper()]


def test_every_method_has_its_own_colour() -> None:
    assert {*METHODS, PLAIN} == set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_band_is_median_and_quartiles_where_all_seeds_were_evaluated() -> None:
    rows = [row("vanilla", "ours", seed, 1.0, curve=curve) for seed, curve in enumerate(
        [[[1, 9.0], [2, 1.0], [3, 1.0]], [[2, 2.0], [3, 2.0]], [[2, 5.0], [3, 3.0], [4, 7.0]]]
    )]  # fmt: skip
    steps, low, middle, high = band(rows)
    assert steps.tolist() == [2, 3]
    assert (low.tolist(), middle.tolist(), high.tolist()) == ([1.5, 1.5], [2.0, 2.0], [3.5, 2.5])


@pytest.mark.parametrize("worlds", [["vanilla"], ["vanilla", "background", "anisotropic"]])
@pytest.mark.slow
def test_the_legend_fits_below_the_curves(worlds: list[str]) -> None:
    rows = [row(world, method, 0, 0.1, curve=[[1, 0.5], [2, 0.1]]) for world in worlds for method in METHODS]
    figure = curves(rows)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_curves_have_a_panel_for_each_world() -> None:
    figure = curves(ROWS)
    vanilla, background = figure.axes
    assert (vanilla.get_title(), background.get_title()) == ("Sprites", "Sprites, moving background")
    assert vanilla.get_yscale() == background.get_yscale() == "log"
    assert vanilla.get_ylim() == background.get_ylim()
    (ours,) = coloured(vanilla, COLOURS["ours"])
    assert ours.get_xydata()[:, 0].tolist() == [2, 4]
    assert ours.get_xydata()[:, 1] == pytest.approx([6e-4, 2e-4])
    assert len(vanilla.collections) == 2  # the bands
    assert background.get_xlim()[1] < 5  # a method without a colour is in the table only
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "paper", "constant predictor", "supervised"]


def test_gallery_marks_estimates_and_truth() -> None:
    ours, keypoints = arrays(), arrays(1)
    for name in ("border", "true_agent", "true_object"):
        del keypoints[name]
    figure = gallery({("vanilla", "ours"): ours, ("vanilla", "transporter"): keypoints})
    assert len(figure.axes) == 8
    assert [axes.get_title() for axes in figure.axes[:2]] == ["Sprites\nours", "Sprites\ntransporter"]
    for i in range(4):
        left, right = figure.axes[2 * i : 2 * i + 2]
        lines = {line.get_label(): line.get_xydata() for line in left.lines}
        project = Homography(ours["homography"])
        assert lines["agent, estimated"] == pytest.approx(project(ours["agent"][i][None]))
        assert lines["true"] == pytest.approx(project(np.stack((ours["true_agent"][i], ours["true_object"][i]))))
        assert lines["learned body"] == pytest.approx(project(ours["object"][i] + ours["border"][i][[0, 1, 2, 0]]))
        assert [line.get_label() for line in right.lines] == ["agent, estimated", "object, estimated"]
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 4


def test_histograms_show_the_threshold() -> None:
    (axes,) = histograms({"vanilla": arrays()}).axes
    without, contact = axes.containers
    assert (sum(b.get_height() for b in without), sum(b.get_height() for b in contact)) == (3, 2)
    (line,) = axes.lines
    assert line.get_xdata()[0] == pytest.approx(0.02)
    assert axes.get_xlabel() == "$d_W(w, w')$"
    led = arrays() | {"positions": np.array(True)}
    assert histograms({"vanilla": led}).axes[0].get_xlabel() == "$|z_{ext} - z_{ext}'|^2$"
    on_d = arrays() | {"threshold": np.array(0.3), "on": np.array("d")}
    assert histograms({"vanilla": on_d}).axes[0].lines[0].get_xdata()[0] == 0.3


def test_dots_show_every_run() -> None:
    rows = [row("vanilla", "ours", seed, 10.0**-seed, experiment="ablation") for seed in (1, 2, 3)]
    rows += [row("vanilla", name, 0, value, experiment="ablation") for name, value in (("ball", 0.05), ("lost", None))]
    figure = dots(rows)
    figure.draw_without_rendering()  # with an infinite value
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["lost", "ball", "ours"]
    shown = {line.get_ydata()[0]: sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"}
    assert (shown[1], shown[2]) == ([0.05], [1e-3, 1e-2, 1e-1])
    (limit,) = (line for line in axes.lines if line.get_linestyle() == ":")
    assert limit.get_xdata()[0] == pytest.approx(0.02 * 0.2)
    shares = [row(f"share-{share}", "ours", 0, 0.1, experiment="shares") for share in (0.03, 0.5)]
    assert [label.get_text() for label in dots(shares).axes[0].get_yticklabels()] == ["share-0.03", "share-0.5"]
