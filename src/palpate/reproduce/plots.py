"""Figures over many runs, from their JSON and the small arrays beside it; each returns a Figure.

Legend: s seeds, e evaluations, k pictures, h and w picture height and width.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from palpate.disk import write_whole
from palpate.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    blank,
    draw_distances,
    draw_errors,
    draw_scene,
    panel,
    png,
    shared_legend,
)
from palpate.reproduce.presets import LONG, PAPER_SCHEDULE
from palpate.reproduce.results import FAILED, Row, read_results, summarise

Array = NDArray[Any]
Samples = Mapping[str, Array]  # the arrays of one run

COLOURS = {
    "ours": BLUE,
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
    figures: dict[str, Figure] = {}
    if experiment in GALLERIES:
        worlds = list(dict.fromkeys(s.world for s in summarise(rows) if s.world in TITLES))

        def left(name: str, method: str | None = None) -> dict[str, Samples]:
            return {world: found for world in worlds if (found := _first(folder, rows, world, name, method))}

        columns = {
            (world, method): found
            for world, method in GALLERIES[experiment]
            if (found := _first(folder, rows, world, "pictures", method))
        }
        figures["curves"] = curves(rows)
        if examples := left("before"):
            figures["triples"] = triples(examples)
        if columns:
            figures["gallery"] = gallery(columns)
        if distances := left("distances", "ours"):
            figures["distances"] = histograms(distances)
        if positions := left("all_true_object", "ours"):
            figures["errors"] = error_maps(positions)
    else:
        figures["l_test"] = dots(rows)
    (folder / "figures").mkdir(exist_ok=True)
    written = {folder / "figures" / f"{name}.png": figure for name, figure in figures.items()}
    for path, figure in written.items():
        write_whole(path, png(figure))
    return list(written)


def _first(folder: Path, rows: Iterable[Row], world: str, name: str, method: str | None = None) -> dict[str, Array]:
    """The arrays of the first run in this world that left an array of this name; empty if there is none."""
    for row in rows:
        if row["world"] != world or method not in (None, row["method"]):
            continue
        path = folder / f"{world}-{row['method']}-{row['seed']}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                if name in arrays:
                    return dict(arrays)
    return {}


def curves(rows: Sequence[Row]) -> Figure:
    """L_test over training, a panel for each world: median over seeds, quartiles as a band.

    A triangle at the right border marks the end of runs that are longer than the others.
    """
    summaries = [s for s in summarise(rows) if s.world in TITLES]
    worlds = list(dict.fromkeys(s.world for s in summaries))
    if not worlds:
        raise ValueError(f"these {len(rows)} runs are of no world of {', '.join(TITLES)}; give those of one experiment")
    figure = blank(4.0 * len(worlds), 3.5)
    shared: Axes | None = None
    labels: dict[str, Any] = {}
    for place, world in enumerate(worlds, 1):
        axes = panel(figure, place, len(worlds), title=TITLES[world], xlabel="step")
        if shared is not None:
            axes.sharey(shared)
        shared = shared or axes
        for method in [s.method for s in summaries if s.world == world]:
            group = [row for row in rows if (row["world"], row["method"]) == (world, method) and row["curve"]]
            if not group:
                continue
            colour = COLOURS.get(_base(method), "black")
            if method != _base(method):
                last = np.median([row["curve"][-1][1] for row in group])
                style: dict[str, Any] = {"marker": "<", "linestyle": "none", "clip_on": False, "markersize": 7}
                labels[_title(method)] = axes.plot(
                    [1.0], [last], color=colour, transform=axes.get_yaxis_transform(), zorder=4, **style
                )[0]
                continue
            steps, low, middle, high = band(group)
            line = "--" if method == "supervised" else "-"
            labels[method] = axes.plot(steps, middle, color=colour, linewidth=1.5, linestyle=line)[0]
            axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        constant = [row["scores"]["constant l_test"] for row in rows if row["world"] == world and row["scores"]]
        if constant:
            labels["constant answer"] = axes.axhline(
                float(np.median(constant)), color="black", linestyle=":", linewidth=1.2
            )
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        if place == 1:
            axes.set_ylabel("$L_{test}$ (Eq. 8)")
    abreast = min(len(labels), 2 if len(figure.axes) == 1 else 5)  # more would not fit below one panel
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=abreast, frameon=False, fontsize=9)
    return figure


def band(group: Sequence[Row]) -> tuple[Array, Array, Array, Array]:
    """Steps [e] that all seeds were evaluated at, and lower quartile, median and upper quartile over the seeds."""
    readings = [dict(map(tuple, row["curve"])) for row in group]
    steps = sorted(set.intersection(*map(set, readings)))
    values = np.array([[reading[step] for step in steps] for reading in readings], dtype=float)  # [s, e]
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return np.array(steps), low, middle, high


def _base(method: str) -> str:
    return method.removesuffix(LONG).removesuffix(PAPER_SCHEDULE)


def _title(method: str) -> str:
    if method.endswith(LONG):
        return f"{_base(method)}, end of longer training"
    return f"{_base(method)}, end of the paper's schedule" if method.endswith(PAPER_SCHEDULE) else method


def triples(examples: Mapping[str, Samples]) -> Figure:
    """An example (o, a, o') of each world; the arrow between the two is the action."""
    figure = blank(3.2 * len(examples), 1.75)
    parts = np.ravel(np.asarray(figure.subfigures(1, len(examples), wspace=0.04, squeeze=False)))
    for (world, example), part in zip(examples.items(), parts, strict=True):
        part.suptitle(TITLES[world], fontsize=10)
        before, between, after = part.subplots(1, 3, width_ratios=(1, 0.5, 1))
        for axes, name, title in ((before, "before", "$o$"), (after, "after", "$o'$")):
            axes.imshow(views(example[name]), interpolation="nearest")
            axes.set_title(title, fontsize=10)
        x, y = example["action"] / max(abs(example["action"][0]) / 0.5, abs(example["action"][1]))
        between.annotate(
            "",
            xy=(x / 2, y / 2),
            xytext=(-x / 2, -y / 2),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-|>", "color": VERMILION, "linewidth": 1.8},
        )
        between.set(xlim=(-0.27, 0.27), ylim=(-0.54, 0.54), aspect="equal")  # as high as the pictures beside it
        between.set_title("$a$", fontsize=10)
        for axes in (before, between, after):
            axes.set_axis_off()
    return figure


def views(observation: Array) -> Array:
    """A picture [h, w, 3] of an observation [c, h, w]; four views are put together, two by two."""
    each = [observation[i : i + 3].transpose(1, 2, 0) for i in range(0, len(observation) - 2, 3)]
    if len(each) < 4:
        return each[0]
    return np.concatenate([np.concatenate(each[:2], 1), np.concatenate(each[2:4], 1)], 0)


def gallery(columns: Mapping[tuple[str, str], Samples]) -> Figure:
    """Estimates of methods on pictures of each world: agent, object, the learned body; rings mark the truth."""
    count = min(len(found["pictures"]) for found in columns.values())
    figure = blank(max(1.7 * len(columns), 3.4) + 0.2, 1.7 * count + 0.8)
    grid = figure.subplots(count, len(columns), squeeze=False)
    for j, ((world, method), found) in enumerate(columns.items()):
        grid[0, j].set_title("\n".join((*TITLES[world].split(", "), method)), fontsize=9)
        for i in range(count):
            picture, agent, body = (found[name][i] for name in ("pictures", "agent", "object"))
            border = found["border"][i] if "border" in found else None
            true = (found["true_agent"][i], found["true_object"][i]) if "true_agent" in found else None
            draw_scene(grid[i, j], picture, tuple(found["extent"].tolist()), agent, body, border, true)
    shared_legend(figure, 4 if len(columns) > 3 else 2)
    return figure


def histograms(worlds: Mapping[str, Samples]) -> Figure:
    """log d_W of our method's test triples, a panel for each world, with the threshold that splits them."""
    figure = blank(3.7 * len(worlds), 3.0)
    for place, (world, found) in enumerate(worlds.items(), 1):
        axes = panel(figure, place, len(worlds), title=TITLES[world], xlabel="$d_W(w, w')$")
        draw_distances(axes, found["distances"], float(found["threshold"]), found["contact"], str(found["on"]))
        if place == 1:
            axes.set_ylabel("triples")
    shared_legend(figure, 3)
    return figure


def error_maps(worlds: Mapping[str, Samples]) -> Figure:
    """The object's mean error over its true place, ours, a panel for each world in the same colours; arrows: bias."""
    figure = blank(3.6 * len(worlds) + 0.8, 3.8)
    panels = [panel(figure, place, len(worlds), title=TITLES[world]) for place, world in enumerate(worlds, 1)]
    meshes = [
        draw_errors(axes, found["all_object"], found["all_true_object"])
        for axes, found in zip(panels, worlds.values(), strict=True)
    ]
    largest = max(mesh.get_clim()[1] for mesh in meshes)
    for mesh in meshes:
        mesh.set_clim(0.0, largest)
    bar = figure.colorbar(meshes[-1], ax=panels, shrink=0.8, label="mean error of the object")
    bar.ax.tick_params(labelsize=9)
    return figure


def dots(rows: Sequence[Row]) -> Figure:
    """L_test of every run, a line for each kind, a bar at the median; for experiments with one method or one world."""
    summaries = [s for s in summarise(rows) if any(row["world"] == s.world for row in rows)]
    if not summaries:
        raise ValueError("there are no runs to draw; give those of one experiment")
    several = len({s.world for s in summaries}) > 1
    figure = blank(6.4, 0.27 * len(summaries) + 1.3)
    axes = panel(figure, 1, 1, xlabel="$L_{test}$ (Eq. 8)")
    for height, summary in enumerate(reversed(summaries)):
        group = [row for row in rows if (row["world"], row["method"]) == (summary.world, summary.method)]
        values = [row["scores"]["l_test"] for row in group if row["scores"]]
        axes.plot(values, [height] * len(values), "o", color=BLUE, markersize=4, alpha=0.7)
        if np.isfinite(summary.median):
            axes.plot([summary.median], [height], "|", color="black", markersize=13, markeredgewidth=1.8)
    names = [s.world if several else s.method for s in reversed(summaries)]
    axes.set_yticks(range(len(names)), names)
    constant = float(np.median([row["scores"]["constant l_test"] for row in rows if row["scores"]] or [1.0]))
    axes.axvline(FAILED * constant, color=GREY, linestyle=":", linewidth=1.2)
    small: dict[str, Any] = {"fontsize": 8, "color": GREY, "ha": "center", "va": "bottom"}
    axes.text(FAILED * constant, len(names) - 0.4, f"failed: above {FAILED:.0%} of a constant answer's", **small)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(names) - 0.4)
    return figure
