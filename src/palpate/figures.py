"""Every picture, each a matplotlib Figure of its own: pyplot's global state is never touched.

Estimates come aligned to the true frame, x to the right and y up (`metrics.common_translation` says by how much).
Legend: b observations, c channels, h and w picture height and width, N rows of data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from palpate.contacts.split import SMALLEST
from palpate.data.labelled import Truth
from palpate.methods.base import Encoding

Array = NDArray[Any]

# From Okabe and Ito's palette: distinct for all common kinds of colour vision.
ORANGE, GREEN, YELLOW, BLUE, VERMILION, PURPLE = "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#666666"
# The losses of all models; colours differ among those that one model has.
TERMS = {
    "agent": BLUE,
    "contrast": ORANGE,
    "scout": ORANGE,
    "follow": VERMILION,
    "contact": GREEN,
    "stay": PURPLE,
    "touch": VERMILION,
    "object": ORANGE,
    "angle": GREEN,
    "reconstruction": VERMILION,
    "prior": PURPLE,
}


def overlay(
    observations: Tensor,
    encoding: Encoding,
    truth: Truth | None = None,
    rows: int = 2,
    columns: int = 4,
    extent: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 1.0),
    border: Tensor | None = None,
) -> Figure:
    """Estimates on the first pictures of [b, c, h, w] uint8: agent, object, and the learned body around it.

    `extent` is the rectangle (left, right, bottom, top) of the plane that a picture shows; where y points down, bottom
    is more than top. With a truth, rings mark where things really are. The body is drawn by its `border`, as
    `Representation.border` gives it, or where that is left out by the ellipse of the covariance.
    """
    count = min(len(observations), rows * columns)
    if not count:
        raise ValueError(f"there are {len(observations)} observations for {rows} x {columns} places; give at least one")
    agent, body = (_plane(x[:count]) for x in (encoding.agent, encoding.object))
    left, right, bottom, top = extent
    columns = min(columns, count)
    rows = -(-count // columns)
    side = 2.4  # inches
    figure = blank(side * columns, side * rows * abs((top - bottom) / (right - left)) + 0.4)
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4, "zorder": 3}
    ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 13, "fillstyle": "none"}
    for i in range(count):
        axes = figure.add_subplot(rows, columns, i + 1)
        brightest = 255 if observations.dtype == torch.uint8 else 1
        picture = _picture(observations[i])
        axes.imshow(picture, extent=extent, interpolation="nearest", cmap="gray", vmin=0, vmax=brightest)
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        mark(axes, agent[i], "agent, estimated", color=YELLOW, **dot)
        mark(axes, body[i], "object, estimated", color=PURPLE, **dot)
        line = body_line(
            None if border is None else _array(border[i]),
            None if encoding.covariance is None else _array(encoding.covariance[i]),
        )
        if line is not None:
            outline = body[i][:, None] + line
            mark(axes, outline, "learned body", color=PURPLE, linewidth=1.2, solid_capstyle="round")
        if truth is not None:
            true = np.stack((_array(truth.agent[i]), _array(truth.object[i])), -1)
            mark(axes, true, "true", color="white", **ring)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    return figure


def curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The loss terms over the steps of a run, and L_test where it was measured; `rows` are those of `metrics.jsonl`.

    Losses have a logarithmic axis; those that are negative somewhere, as InfoNCE is, a linear one on the right.
    """
    terms = {name: series for name in TERMS if len(series := _series(rows, name))}
    test, constant = _series(rows, "l_test"), _series(rows, "constant l_test")
    panels = bool(terms) + bool(len(test))
    if not panels:
        raise ValueError(f"these {len(rows)} rows hold none of {', '.join(TERMS)} or l_test; give a run's metrics")
    figure = blank(4.4 * panels, 3.2)
    if terms:
        axes = panel(figure, 1, panels, title="Losses", xlabel="step")
        signed = [name for name, series in terms.items() if (series[:, 1] < 0).any()]
        right = axes.twinx() if 0 < len(signed) < len(terms) else axes
        for name, series in terms.items():
            there, label = (right, f"{name} (right)") if name in signed and right is not axes else (axes, name)
            there.plot(*series.T, color=TERMS[name], linewidth=1.4, label=label)
        if len(signed) < len(terms):
            axes.set_yscale("log")
        if right is not axes:
            right.tick_params(labelsize=9)
            right.spines["top"].set_visible(False)
        lines = [line for each in dict.fromkeys((axes, right)) for line in each.get_lines()]
        names = [str(line.get_label()) for line in lines]
        right.legend(lines, names, loc="center right", framealpha=0.8, edgecolor="none", fontsize=9)
    if len(test):
        axes = panel(figure, panels, panels, title="$L_{test}$ (Eq. 8)", xlabel="step")
        axes.plot(*test.T, color=BLUE, linewidth=1.4, marker="o", markersize=3, label="learned")
        if len(constant):
            axes.axhline(constant[-1, 1], color=GREY, linestyle=":", label="constant answer")
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize=9)
    return figure


def distance_histogram(
    distances: Tensor, threshold: Tensor | float, contact: Tensor | None = None, on: Literal["log", "d"] = "log"
) -> Figure:
    """Histogram of d_W(w, w') [N] on a logarithmic axis, with the threshold that splits it (paper, Sec. 4.2).

    `threshold` is on the scale that the split was made `on`, as `Split.threshold` is. With the true `contact` [N] each
    class has its colour.
    """
    d = np.maximum(_array(distances), SMALLEST)
    cut = float(np.exp(float(threshold))) if on == "log" else float(threshold)
    bins = np.geomspace(d.min() / 1.1, d.max() * 1.1, 61).tolist()
    figure = blank(5.2, 3.2)
    axes = panel(figure, 1, 1, xlabel="$d_W(w, w')$", ylabel="triples")
    if contact is None:
        axes.hist(d, bins=bins, color=GREY)
    else:
        touched = _array(contact).astype(bool)
        axes.hist(d[~touched], bins=bins, color=BLUE, alpha=0.75, label="not touched")
        axes.hist(d[touched], bins=bins, color=ORANGE, alpha=0.75, label="touched")
    axes.axvline(cut, color="black", linestyle=":", linewidth=1.4, label="threshold")
    axes.set_xscale("log")
    axes.legend(frameon=False, fontsize=9)
    return figure


def error_map(encoding: Encoding, truth: Truth, bins: int = 12) -> Figure:
    """Where the object is estimated badly: mean error over its true position, and the bias there as arrows."""
    figure = blank(5.0, 4.2)
    axes = panel(figure, 1, 1, title="Object error over the plane", xlabel="x", ylabel="y")
    mesh = draw_errors(axes, _plane(encoding.object), _plane(truth.object), bins)
    figure.colorbar(mesh, ax=axes, label="mean error, in the action's unit").ax.tick_params(labelsize=9)
    return figure


def draw_errors(axes: Axes, estimate: Array, at: Array, bins: int = 12) -> QuadMesh:
    """Mean distance of `estimate` [N, 2] over the true places `at` [N, 2] as colours, and the mean offset as arrows.

    Cells without a place stay empty; how long the longest arrow is, is added to the title.
    """
    residual = estimate - at
    edges = [np.linspace(low, high, bins + 1) for low, high in zip(at.min(0), at.max(0), strict=True)]
    count, *sums = (
        np.histogram2d(at[:, 0], at[:, 1], bins=edges, weights=weights)[0].T
        for weights in (None, np.linalg.norm(residual, axis=1), *residual.T)
    )
    count[count == 0] = np.nan
    error, right, up = (total / count for total in sums)
    axes.grid(False)
    axes.set_aspect("equal")
    mesh = axes.pcolormesh(*edges, error, cmap="YlOrBr", vmin=0.0)
    longest = float(np.nanmax(np.hypot(right, up)))
    if longest > 0:
        x, y = np.meshgrid(*((edge[1:] + edge[:-1]) / 2 for edge in edges))
        style: dict[str, Any] = {"pivot": "mid", "width": 0.006, "edgecolor": "white", "linewidth": 0.4}
        axes.quiver(x, y, right, up, scale=bins * longest, **style)  # the longest is one cell long
        axes.set_title(
            f"{axes.get_title()}\nlongest arrow: a bias of {longest:.2g}", fontsize=axes.title.get_fontsize()
        )
    return mesh


def blank(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def panel(figure: Figure, place: int, places: int, **texts: str) -> Axes:
    axes = figure.add_subplot(1, places, place)
    axes.set(**texts)
    axes.title.set_fontsize(11)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def mark(axes: Axes, points: Array, label: str, **style: Any) -> None:
    """Points [2] or [2, k] with a dark rim, to be seen on any picture."""
    axes.plot(*points, label=label, path_effects=[withStroke(linewidth=2.4, foreground="black")], **style)


def body_line(border: Array | None, covariance: Array | None) -> Array | None:
    """A body around 0 as a closed line `[2, k]`: its border [k, 2], else the ellipse whose semi-axes are the roots of
    the covariance's eigenvalues."""
    if border is not None:
        return np.concatenate((border, border[:1])).T
    if covariance is None:
        return None
    turn = np.linspace(0, 2 * np.pi, 73)
    eigenvalues, axes = np.linalg.eigh(covariance)
    return axes * np.sqrt(eigenvalues) @ np.stack((np.cos(turn), np.sin(turn)))


def _picture(observation: Tensor) -> Array:
    """`[h, w, 3]` from three channels or more, `[h, w]` from fewer."""
    picture = _array(observation)
    return picture[:3].transpose(1, 2, 0) if len(picture) >= 3 else picture[0]


def _series(rows: Sequence[Mapping[str, Any]], name: str) -> Array:
    """Steps and values `[r, 2]` of the rows that have this reading."""
    return np.array([(row["step"], row[name]) for row in rows if name in row], dtype=float)


def _array(x: Any) -> Array:
    return torch.as_tensor(x).detach().cpu().numpy()


def _plane(points: Any) -> Array:
    """Points `[N, 2]`; pictures of the plane need no more and no fewer dimensions."""
    array = _array(points)
    if array.shape[1] != 2:
        raise ValueError(f"positions have {array.shape[1]} dimensions; this picture is of a plane and needs 2")
    return array
