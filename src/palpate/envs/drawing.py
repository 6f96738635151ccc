"""Shapes painted into batches of pictures, anti-aliased at their exact positions; device work only.

Positions live in the unit square, x to the right and y up.
Legend: b batch, p side of a shape's patch in pixels, h and w picture height and width, here equal.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Offsets = tuple[Tensor, Tensor]  # of the pixels of a patch from the shape's centre: x [b, 1, p] and y [b, p, 1]

# The agent's figure as capsules (from, to, radius), in units of its touching radius; all of it lies inside that disc.
FIGURE = (
    ((0.0, 0.58), (0.0, 0.58), 0.38),  # head
    ((0.0, 0.15), (0.0, -0.30), 0.26),  # trunk
    ((-0.72, 0.10), (0.72, 0.10), 0.13),  # arms
    ((0.0, -0.30), (-0.38, -0.76), 0.14),  # legs
    ((0.0, -0.30), (0.38, -0.76), 0.14),
)
# A robot that faces along x: a body, and a broad nose at its front.
ROBOT = (((-0.38, 0.0), (0.38, 0.0), 0.60),)
NOSE = (((0.55, -0.22), (0.55, 0.22), 0.38),)
Capsule = tuple[tuple[float, float], tuple[float, float], float]


def paint(
    canvas: Tensor,
    centre: Tensor,
    reach: float,
    colour: tuple[int, int, int],
    coverage: Callable[[Offsets], Tensor],
) -> None:
    """Blend a shape into `canvas` [b, 3, h*w]; only the patch around it, up to `reach` from its centre, is touched.

    `coverage` gives the share `[b, p, p]` of each pixel that the shape covers.
    """
    size = math.isqrt(canvas.shape[2])
    pixels = torch.arange(size, device=canvas.device)
    p = min(size, math.ceil(2 * reach * size) + 2)
    column = centre[:, :1] * size - 0.5  # in pixel indices
    row = (1 - centre[:, 1:]) * size - 0.5
    columns, rows = (
        (at - reach * size - 0.5).ceil().clamp(0, size - p).long() + pixels[:p] for at in (column, row)
    )  # [b, p]
    alpha = coverage(((columns - column)[:, None, :] / size, (row - rows)[:, :, None] / size)).flatten(1)[:, None]
    index = (rows[:, :, None] * size + columns[:, None, :]).flatten(1)[:, None].expand(-1, 3, -1)
    under = canvas.gather(2, index).float()
    shade = torch.stack([torch.full_like(alpha[:, 0], part) for part in colour], 1)
    canvas.scatter_(2, index, (under + alpha * (shade - under) + 0.5).to(torch.uint8))


def paint_figure(
    canvas: Tensor,
    centre: Tensor,
    radius: float,
    colour: tuple[int, int, int],
    figure: Sequence[Capsule] = FIGURE,
    heading: Tensor | None = None,
) -> None:
    """An agent's figure, turned to its heading [b] if it has one: the union of its capsules."""
    size = math.isqrt(canvas.shape[2])

    def coverage(at: Offsets) -> Tensor:
        x, y = at[0] / radius, at[1] / radius
        if heading is not None:
            cos, sin = heading.cos()[:, None, None], heading.sin()[:, None, None]
            x, y = cos * x + sin * y, cos * y - sin * x
        gaps = []
        for (x0, y0), (x1, y1), thickness in figure:
            dx, dy = x1 - x0, y1 - y0
            length2 = dx * dx + dy * dy or 1.0  # the head is a point
            t = (((x - x0) * dx + (y - y0) * dy) / length2).clamp(0, 1)
            gaps.append(torch.hypot(x - x0 - t * dx, y - y0 - t * dy) - thickness)
        return (0.5 - functools.reduce(torch.minimum, gaps) * radius * size).clamp(0, 1)

    paint(canvas, centre, radius, colour, coverage)


def paint_disc(canvas: Tensor, centre: Tensor, radius: float, colour: tuple[int, int, int]) -> None:
    size = math.isqrt(canvas.shape[2])
    paint(canvas, centre, radius, colour, lambda at: (0.5 + (radius - torch.hypot(*at)) * size).clamp(0, 1))
