"""Figures over many runs, from their JSON and the small arrays stored with it.

Legend: s seeds, e evaluations.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from palpate.disk import write_whole
from palpate.figures import blank, draw_distances, draw_scene, panel, png, shared_legend
from palpate.methods.base import Threshold
from palpate.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, YELLOW
from palpate.projection import Homography
from palpate.reproduce.results import FAILED, Row, grouped, l_tests, read_arrays, read_results

Array = NDArray[Any]
Samples = Mapping[str, Array]  # the arrays of one run

COLOURS = {
    "ours": BLUE,
    "ours-plain": YELLOW,
    "paper-gaussian": ORANGE,
    "paper": VERMILION,
    "transporter": GREEN,
    "vae": PURPLE,
    "supervised": GREY,
}
TITLES = {
    "vanilla": "Sprites",
    "background": "Sprites, moving background",
    "anisotropic": "Sprites, anisotropic",
    "third": "Soccer, third person",
    "first": "Soccer, first person",
}
GALLERIES = {  # columns of the qualitative comparison
    "sprites": [
        (world, method) for world in ("vanilla", "background", "anisotropic") for method in ("ours", "transporter")
    ],
    "soccer": [("third", "ours"), ("first", "ours"), ("third", "transporter")],
}


def draw(experiment: str, folder: Path) -> list[Path]:
    """Draw all figures for which the runs in `folder` left data, into `figures/`; returns the files."""
    rows = read_results(folder)
    if experiment in GALLERIES:
        figures = {"curves": curves(rows)}
        columns = {names: _first(folder, *names, "homography") for names in GALLERIES[experiment]}
        if any(columns.values()):
            figures["gallery"] = gallery({names: found for names, found in columns.items() if found})
        distances = {world: _first(folder, world, "ours", "distances") for world in TITLES}
        if any(distances.values()):
            figures["distances"] = histograms({world: found for world, found in distances.items() if found})
    else:
        figures = {"l_test": dots(rows)}
    (folder / "figures").mkdir(exist_ok=True)
    written = {folder / "figures" / f"{name}.png": figure for name, figure in figures.items()}
    for path, figure in written.items():
        write_whole(path, png(figure))
    return list(written)


def _first(folder: Path, world: str, method: str, name: str) -> Samples:
    """The arrays of the first seed, if an array of this name is among them; else empty."""
    path = folder / f"{world}-{method}-0.npz"
    if not path.exists():
        return {}
    arrays = read_arrays(path)
    return arrays if name in arrays else {}


def curves(rows: Sequence[Row]) -> Figure:
    """L_test over training, a panel for each world: median over seeds, quartiles as a band."""
    groups = grouped(rows)
    worlds = list(dict.fromkeys(world for world, _ in groups))
    figure = blank(4.0 * len(worlds), 3.5)
    labels: dict[str, Any] = {}
    for place, world in enumerate(worlds, 1):
        axes = panel(figure, place, len(worlds), title=TITLES.get(world, world), xlabel="step")
        if place > 1:
            axes.sharey(figure.axes[0])
        for method, colour in COLOURS.items():
            group = [row for row in groups.get((world, method), ()) if row["curve"]]
            if group:
                steps, low, middle, high = band(group)
                line = "--" if method == "supervised" else "-"
                labels[method] = axes.plot(steps, middle, color=colour, linewidth=1.5, linestyle=line)[0]
                axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        constant = [row["scores"]["constant l_test"] for row in rows if row["world"] == world and row["scores"]]
        if constant:
            labels["constant predictor"] = axes.axhline(
                float(np.median(constant)), color="black", linestyle=":", linewidth=1.2
            )
        axes.set_yscale("log")
        axes.set_xlim(left=0)
    figure.axes[0].set_ylabel("$L_{test}$ (Eq. 8)")
    columns = min(len(labels), 2 if len(worlds) == 1 else 5)  # more would not fit below one panel
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return figure


def band(group: Sequence[Row]) -> tuple[Array, Array, Array, Array]:
    """Steps [e] at which all seeds were evaluated, and lower quartile, median and upper quartile over the seeds."""
    readings = [dict(map(tuple, row["curve"])) for row in group]
    steps = sorted(set.intersection(*map(set, readings)))
    values = np.array([[reading[step] for step in steps] for reading in readings], dtype=float)  # [s, e]
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return np.array(steps), low, middle, high


def gallery(columns: Mapping[tuple[str, str], Samples]) -> Figure:
    """Estimates on pictures, a column for each world and method: agent, object, learned body; rings mark the truth."""
    count = min(len(found["pictures"]) for found in columns.values())
    figure = blank(max(1.7 * len(columns), 3.4) + 0.2, 1.7 * count + 0.8)
    grid = figure.subplots(count, len(columns), squeeze=False)
    for j, ((world, method), found) in enumerate(columns.items()):
        grid[0, j].set_title("\n".join((*TITLES[world].split(", "), method)), fontsize=9)
        for i in range(count):
            picture, agent, body = (found[name][i] for name in ("pictures", "agent", "object"))
            border = found["border"][i : i + 1] if "border" in found else None
            true = np.stack((found["true_agent"][i], found["true_object"][i])) if "true_agent" in found else None
            draw_scene(grid[i, j], picture, Homography(found["homography"]), agent, body[None], border, true)
    shared_legend(figure, 4 if len(columns) > 3 else 2)
    return figure


def histograms(worlds: Mapping[str, Samples]) -> Figure:
    """Distances that find contacts in our method's test triples, a panel for each world, with the threshold."""
    figure = blank(3.7 * len(worlds), 3.0)
    for place, (world, found) in enumerate(worlds.items(), 1):
        axes = panel(figure, place, len(worlds), title=TITLES[world])
        threshold = Threshold(float(found["threshold"]), str(found["on"]), "positions" in found)
        draw_distances(axes, found["distances"], threshold, found["contact"])
    figure.axes[0].set_ylabel("triples")
    shared_legend(figure, 3)
    return figure


def dots(rows: Sequence[Row]) -> Figure:
    """L_test of every run, a line for each world or method, a bar at the median."""
    groups = grouped(rows)
    several = len({world for world, _ in groups}) > 1
    names = [world if several else method for world, method in reversed(groups)]
    figure = blank(6.4, 0.27 * len(groups) + 1.3)
    axes = panel(figure, 1, 1, xlabel="$L_{test}$ (Eq. 8)")
    for height, group in enumerate(reversed(groups.values())):
        values = l_tests(group)
        axes.plot(values, [height] * len(values), "o", color=BLUE, markersize=4, alpha=0.7)
        axes.plot([np.median(values)], [height], "|", color="black", markersize=13, markeredgewidth=1.8)
    axes.set_yticks(range(len(names)), names)
    constant = float(np.median([row["scores"]["constant l_test"] for row in rows if row["scores"]] or [1.0]))
    axes.axvline(FAILED * constant, color=GREY, linestyle=":", linewidth=1.2)
    small: dict[str, Any] = {"fontsize": 8, "color": GREY, "ha": "center", "va": "bottom"}
    axes.text(FAILED * constant, len(names) - 0.4, f"failed: above {FAILED:.0%} of the constant predictor's", **small)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(names) - 0.4)
    return figure
