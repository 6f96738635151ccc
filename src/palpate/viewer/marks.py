"""Pictures for a browser, and the marks on them as SVG in the picture's pixels.

Colours are those of `palpate.figures`.
Legend: h and w picture height and width, k objects, c border points, m true positions, p points of a path.
"""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from palpate.data.arrays import count_views
from palpate.figures import AHEAD, ahead_of, long_axis
from palpate.palette import FAINTEST, OBJECT_COLOURS, YELLOW
from palpate.projection import Projection
from palpate.viewer.embedded import encoded

Array = NDArray[Any]
PATH_COLOUR = "#ffffff"


class Marks(NamedTuple):
    """Positions in the plane of one observation."""

    agent: Array | None = None  # [2]
    objects: Array | None = None  # [k, 2]
    borders: Array | None = None  # [k, c, 2], around 0
    angles: Array | None = None  # [k] of the long axes, radians, for bodies that turn
    confidences: Array | None = None  # [k]
    true: Array | None = None  # [m, 2]
    path: Array | None = None  # [p, 2]
    heading: float | None = None  # of an agent that turns, radians


def as_picture(o: Tensor, attributes: Mapping[str, Any] | None = None) -> Array:
    """A picture [h, w * views, 3] uint8 from an observation [c, h, w]; the views are side by side."""
    views = count_views(tuple(o.shape), attributes or {})
    tiles = torch.cat(o.unflatten(0, (views, -1)).unbind(0), -1)  # [c / v, h, w * v]
    if tiles.dtype != torch.uint8:
        brightest = 255.0 if float(tiles.max()) > 2 else 1.0
        tiles = (tiles / brightest * 255).clamp(0, 255).to(torch.uint8)
    tiles = tiles[:3] if len(tiles) >= 3 else tiles[:1].expand(3, -1, -1)
    return tiles.permute(1, 2, 0).numpy()


def data_uri(picture: Array) -> str:
    """A picture [h, w, 3] uint8 as the address of an image."""
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(content, format="PNG", compress_level=1)
    return encoded(content.getvalue())


def svg(marks: Marks, project: Projection, width: int) -> str:
    """The marks on a picture of this width: dots for estimates, rings for true positions, lines for bodies and path."""
    unit = width / 100
    parts = []
    if marks.path is not None:
        pixels = pixels_of(project, marks.path)
        parts += [_line(pixels, "#000", 4.5, 0.55), _line(pixels, PATH_COLOUR, 2.2, 1, dashed=True)]
        parts += [_circle(pixels[-1], 1.6 * unit, fill="none", stroke=PATH_COLOUR, wide=2.5)]
    if marks.true is not None:
        parts += [
            _circle(at, 2.6 * unit, fill="none", stroke="#fff", wide=1.6) for at in pixels_of(project, marks.true)
        ]
    for i, centre in enumerate([] if marks.objects is None else marks.objects):
        colour = OBJECT_COLOURS[i % len(OBJECT_COLOURS)]
        sure = 1.0 if marks.confidences is None else max(float(marks.confidences[i]), FAINTEST)
        inside = []
        if marks.borders is not None:
            line = pixels_of(project, centre + np.concatenate((marks.borders[i], marks.borders[i, :1])))
            inside += [_line(line, "#000", 3.6, 0.6), _line(line, colour, 2, 1)]
            if marks.angles is not None:
                axis = pixels_of(project, long_axis(centre, marks.angles[i], marks.borders[i]))
                inside += [_line(axis, "#000", 3.0, 0.6), _line(axis, colour, 1.4, 1)]
        inside.append(_circle(pixels_of(project, centre[None])[0], 1.3 * unit, fill=colour, stroke="#000", wide=1))
        parts.append(f'<g opacity="{sure:.2f}">{"".join(inside)}</g>')
    if marks.agent is not None and marks.heading is not None:
        ahead = ahead_of(project, marks.agent, marks.heading, AHEAD * width)
        parts += [_line(ahead, "#000", 4.5, 0.6), _line(ahead, YELLOW, 2.5, 1)]
    if marks.agent is not None:
        parts.append(_circle(pixels_of(project, marks.agent[None])[0], 1.3 * unit, fill=YELLOW, stroke="#000", wide=1))
    return "".join(parts)


def degrees(angle: float | None) -> str:
    """The angle of a long axis, which has no direction: 0 to 179 degrees; empty if there is none."""
    return "" if angle is None else f"{round(float(np.degrees(angle))) % 180}°"


def pixels_of(project: Projection, points: Array) -> Array:
    return np.asarray(project(points), float)


def _circle(at: Array, radius: float, *, fill: str, stroke: str, wide: float) -> str:
    if not np.isfinite(at).all():
        return ""
    rim = f'<circle cx="{at[0]:.2f}" cy="{at[1]:.2f}" r="{radius:.2f}" vector-effect="non-scaling-stroke" '
    dark = f'{rim}fill="none" stroke="#000" stroke-width="{wide + 2}"/>' if fill == "none" else ""
    return f'{dark}{rim}fill="{fill}" stroke="{stroke}" stroke-width="{wide}"/>'


def _line(points: Array, colour: str, wide: float, opacity: float, *, dashed: bool = False) -> str:
    text = " ".join(f"{x:.2f},{y:.2f}" for x, y in points[np.isfinite(points).all(1)])
    dashes = ' stroke-dasharray="7 5"' if dashed else ""
    return (
        f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{wide}" stroke-opacity="{opacity}" '
        f'stroke-linejoin="round" stroke-linecap="round" vector-effect="non-scaling-stroke"{dashes}/>'
    )
