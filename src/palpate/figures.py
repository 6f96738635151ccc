"""Figures of a run. Each is a matplotlib Figure of its own; pyplot's global state is not used.

Estimates are aligned to the true frame, x to the right and y up.
Legend: b observations, c channels, h and w picture height and width, N rows of data.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from palpate.contacts.split import SMALLEST
from palpate.curves import panels
from palpate.data.labelled import Truth
from palpate.methods.base import Encoding, Threshold
from palpate.palette import BLUE, FAINTEST, GREY, OBJECT_COLOURS, ORANGE, TERMS, YELLOW
from palpate.projection import Extent, Homography, Projection

Array = NDArray[Any]

DPI = 110
OVERLAID = 8  # pictures of an overlay
UNIT_SQUARE: Extent = (0.0, 1.0, 0.0, 1.0)
AHEAD = 0.09  # length of the line in the direction in which an agent faces, in widths of the picture
BINS = 12  # of an error map, along each axis
LINES: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.4},
    "points": {"linewidth": 1.4, "marker": "o", "markersize": 3},
    "level": {"linestyle": ":"},
}
# What a histogram of distances shows; positions are in units of the actions' root mean square.
SCENE_MOVED, POSITIONS_MOVED = "$d_W(w, w')$", "$|z_{ext} - z_{ext}'|^2$"


def overlay(
    observations: Tensor,
    encoding: Encoding,
    truth: Truth | None = None,
    *,
    extent: Extent | None = None,
    project: Projection | None = None,
    border: Tensor | None = None,
) -> Figure:
    """Estimates on the first pictures of [b, c, h, w], of one camera: agent, objects, and the learned bodies around
    them.

    `project` maps points [k, 2] of the encoding's frame to pixels [k, 2], x to the right and y down; for a perspective
    camera use a `palpate.projection.Homography`. A picture from above has an `extent` instead: the rectangle (left,
    right, bottom, top) of the plane that it shows, by default the unit square; bottom is larger than top if y points
    down. `border` [b, c, 2], or [b, k, c, 2] for k objects, is from `Representation.border`. With a truth, rings mark
    the true positions.
    """
    if extent is not None and project is not None:
        raise ValueError("both extent and project are given; extent is for pictures from above, project for others")
    count = min(len(observations), OVERLAID)
    agent, objects = _array(encoding.agent), _array(encoding.objects)
    if border is not None and border.ndim == 3:
        border = border[:, None]
    height, width = observations.shape[-2:]
    project = project or Homography.of_extent(extent or UNIT_SQUARE, width, height)
    columns = min(4, count)
    rows = -(-count // columns)
    across, down = (width, height) if extent is None else (extent[1] - extent[0], extent[3] - extent[2])
    side = 2.4  # inches
    figure = blank(side * columns, side * rows * abs(down / across) + 0.4)
    for i in range(count):
        axes = figure.add_subplot(rows, columns, i + 1)
        true = None if truth is None else np.concatenate((_array(truth.agent[i : i + 1]), _array(truth.objects[i])))
        lines = None if border is None else _array(border[i])
        sure = None if encoding.confidences is None else _array(encoding.confidences[i])
        angles = None if encoding.orientations is None else _array(encoding.orientations[i])
        heading = None if encoding.heading is None else float(encoding.heading[i])
        draw_scene(axes, _picture(observations[i]), project, agent[i], objects[i], lines, true, sure, angles, heading)
        axes.set_aspect(abs(down / across) * width / height)
    shared_legend(figure, 4 + (encoding.orientations is not None) + (encoding.heading is not None))
    return figure


def draw_scene(
    axes: Axes,
    picture: Array,
    project: Projection,
    agent: Array,
    objects: Array,
    borders: Array | None = None,
    true: Array | None = None,
    confidences: Array | None = None,
    angles: Array | None = None,
    heading: float | None = None,
) -> None:
    """A picture [h, w, 3] or [h, w] with estimates of the agent [2] and the objects [k, 2], and borders [k, c, 2].

    `project` maps their plane to the picture's pixels. Rings mark the `true` positions [m, 2]. An object of low
    confidence is faint. A body that turns has a line along its long axis, at an angle [k] in radians. An agent that
    turns has a line ahead.
    """
    brightest = 255 if picture.dtype == np.uint8 else 1
    height, width = picture.shape[:2]
    shown = (0, width, height, 0)
    axes.imshow(picture, extent=shown, interpolation="nearest", cmap="gray", vmin=0, vmax=brightest)
    axes.set(xlim=shown[:2], ylim=shown[2:])
    axes.set_axis_off()
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4, "zorder": 3}
    _mark(axes, _pixels(project, agent[None]), "agent, estimated", color=YELLOW, **dot)
    if heading is not None:
        ahead = ahead_of(project, agent, heading, AHEAD * width)
        _mark(axes, ahead, "heading, estimated", color=YELLOW, linewidth=1.8, solid_capstyle="round")
    for i, (centre, colour) in enumerate(zip(objects, OBJECT_COLOURS, strict=False)):
        faint = 1.0 if confidences is None else max(float(confidences[i]), FAINTEST)
        _mark(axes, _pixels(project, centre[None]), "object, estimated", color=colour, alpha=faint, **dot)
        if borders is not None:
            closed = _pixels(project, centre + np.concatenate((borders[i], borders[i, :1])))
            _mark(axes, closed, "learned body", color=colour, alpha=faint, linewidth=1.2, solid_capstyle="round")
            if angles is not None:
                axis = _pixels(project, long_axis(centre, angles[i], borders[i]))
                _mark(axes, axis, "long axis", color=colour, alpha=faint, linewidth=1.0)
    if true is not None:
        ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 13, "fillstyle": "none"}
        _mark(axes, _pixels(project, true), "true", color="white", **ring)


def ahead_of(project: Projection, agent: Array, heading: float, length: float) -> Array:
    """Pixels [2, 2] of a line of this length from the agent [2] in the direction in which it faces."""
    step = 1e-3 * np.array([np.cos(heading), np.sin(heading)])
    start, end = np.asarray(project(np.stack((agent, agent + step))), float)
    return np.stack((start, start + (end - start) * length / max(float(np.linalg.norm(end - start)), 1e-9)))


def long_axis(centre: Array, angle: float, border: Array) -> Array:
    """Ends [2, 2] of the line through `centre` [2] at an angle, as long as the body with this border [c, 2]."""
    direction = np.array([np.cos(angle), np.sin(angle)])
    along = border @ direction
    ends: Array = centre + np.outer((along.min(), along.max()), direction)
    return ends


def _pixels(project: Projection, points: Array) -> Array:
    """Pixels [k, 2] of points [k, 2]."""
    pixels = np.asarray(project(points), float)
    if pixels.shape != points.shape:
        raise ValueError(
            f"project returns shape {pixels.shape} for points {points.shape}; allowed is [k, 2] for [k, 2]"
        )
    return pixels


def curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The panels of `palpate.curves` for the rows of a run's `metrics.jsonl`."""
    found = panels(rows)
    if not found:
        raise ValueError(f"these {len(rows)} rows hold none of {', '.join(TERMS)} or l_test; give a run's metrics")
    figure = blank(4.4 * len(found), 3.2)
    for place, each in enumerate(found, 1):
        axes = panel(figure, place, len(found), title=each.title, xlabel="step")
        for curve in each.curves:
            axes.plot(*zip(*curve.points, strict=True), color=curve.colour, label=curve.name, **LINES[curve.style])
        axes.set_yscale("log" if each.logarithmic else "linear")
        axes.legend(frameon=False, fontsize=9)
    return figure


def distance_histogram(distances: Tensor, threshold: Threshold, contact: Tensor | None = None) -> Figure:
    """Histogram of squared distances [N] on a logarithmic axis, with the threshold that splits it (paper, Sec. 4.2).

    With the true `contact` [N] each class has its colour.
    """
    figure = blank(5.2, 3.2)
    axes = panel(figure, 1, 1, ylabel="triples")
    draw_distances(axes, _array(distances), threshold, None if contact is None else _array(contact))
    axes.legend(frameon=False, fontsize=9)
    return figure


def draw_distances(axes: Axes, distances: Array, threshold: Threshold, contact: Array | None) -> None:
    """The histogram of distances [N], by the true contacts [N] where they are known, and the threshold."""
    axes.set_xlabel(POSITIONS_MOVED if threshold.positions else SCENE_MOVED)
    d = np.maximum(distances, SMALLEST)
    bins = np.geomspace(d.min() / 1.1, d.max() * 1.1, 61).tolist()
    if contact is None:
        axes.hist(d, bins=bins, color=GREY)
    else:
        touched = contact.astype(bool)
        axes.hist(d[~touched], bins=bins, color=BLUE, alpha=0.75, label="no contact")
        axes.hist(d[touched], bins=bins, color=ORANGE, alpha=0.75, label="contact")
    cut = float(np.exp(threshold.value)) if threshold.on == "log" else threshold.value
    axes.axvline(cut, color="black", linestyle=":", linewidth=1.4, label="threshold")
    axes.set_xscale("log")


def error_map(encoding: Encoding, truth: Truth) -> Figure:
    """The objects' mean error over their true positions, and its bias as arrows."""
    figure = blank(5.0, 4.2)
    axes = panel(figure, 1, 1, title="Object error over the plane", xlabel="x", ylabel="y")
    estimate, at = (_array(state.objects).reshape(-1, 2) for state in (encoding, truth))
    mesh = draw_errors(axes, estimate, at)
    figure.colorbar(mesh, ax=axes, label="mean error, in the action's unit").ax.tick_params(labelsize=9)
    return figure


def draw_errors(axes: Axes, estimate: Array, at: Array, bins: int = BINS) -> QuadMesh:
    """Mean error of `estimate` [N, 2] over the true positions `at` [N, 2] as colours, and the bias as arrows.

    Cells without a position stay empty. The length of the longest arrow is added to the title.
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


def shared_legend(figure: Figure, columns: int) -> None:
    """One legend below the figure for all its axes."""
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(handles.values(), handles.keys(), **place)


def png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI)
    return content.getvalue()


def _mark(axes: Axes, pixels: Array, label: str, **style: Any) -> None:
    """Pixels [k, 2] with a dark rim, visible on any picture."""
    axes.plot(*pixels.T, label=label, path_effects=[withStroke(linewidth=2.4, foreground="black")], **style)


def _picture(observation: Tensor) -> Array:
    """`[h, w, 3]` from three channels or more, `[h, w]` from fewer."""
    picture = _array(observation)
    return picture[:3].transpose(1, 2, 0) if len(picture) >= 3 else picture[0]


def _array(x: Any) -> Array:
    return torch.as_tensor(x).detach().cpu().numpy()
