"""From positions in the plane to pixels of a fixed camera.

A projection is any function from points [k, 2] of the common frame to pixels [k, 2]. Pixels are x to the right and y
down: (0, 0) is the upper left corner of the picture and (width, height) the lower right one.
Legend: k points, N pictures, g grid positions, p pixels.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Array = NDArray[Any]
Projection = Callable[[Array], Array]
Extent = tuple[float, float, float, float]  # left, right, bottom, top of a rectangle; top < bottom if y points down

AMBIGUOUS = 1e-3  # least singular value, relative to the largest, of points that determine a homography
FLAT = 1e-4  # least determinant, for a matrix of norm 1 in normalised coordinates
ITERATIONS = 10  # of a fit
FEWEST_PICTURES, MOST_PICTURES = 50, 400  # from which a projection is estimated
SIDE, GRID = 50, 16  # pixels and grid positions on a side of the estimate
CELL = 1 / 14  # width of a grid position, as a share of the positions' range
BLOB, CORE = 0.06, 0.4  # reach of an object's pixels, as a share of the side, and the share of the peak that counts
LARGEST_RESIDUAL = 0.04  # of the side: median of the grid positions' errors in an accepted projection


@final
class Homography:
    """The pixels of a plane's points in a camera without lens distortion; a projection.

    `matrix` [3, 3] maps (x, y, 1) to a multiple of (pixel x, pixel y, 1). The multiple is positive in front of the
    camera; the pixels of other points are NaN.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = np.array(matrix, dtype=float)
        if self.matrix.shape != (3, 3) or not np.isfinite(self.matrix).all():
            raise ValueError(f"matrix is {matrix!r}; allowed are finite numbers [3, 3]")

    def __call__(self, points: Any) -> Array:
        """Pixels [..., 2] of points [..., 2]."""
        points = np.asarray(points, float)
        across = points @ self.matrix[:, :2].T + self.matrix[:, 2]
        depth = across[..., 2:]
        return np.divide(across[..., :2], depth, out=np.full(points.shape, np.nan), where=depth > 0)

    def __repr__(self) -> str:
        return f"Homography({self.matrix.tolist()})"

    @staticmethod
    def of_extent(extent: Extent, width: int, height: int) -> "Homography":
        """The projection of a picture of width x height pixels that shows a rectangle of the plane from above."""
        left, right, bottom, top = extent
        if not np.isfinite(extent).all() or left == right or bottom == top:
            raise ValueError(
                f"extent is {extent}; allowed are left, right, bottom and top of a rectangle with an area above 0"
            )
        across, down = width / (right - left), height / (bottom - top)
        return Homography([[across, 0, -left * across], [0, down, -top * down], [0, 0, 1]])

    @staticmethod
    def fit(points: Any, pixels: Any, weights: Any = None) -> "Homography":
        """The homography from points [k, 2] to pixels [k, 2], k >= 4, by (weighted) least squares in the picture.

        Four of the points must form a quadrangle: no three of them on one line.
        """
        points, pixels = _pairs(points, pixels)
        weights = np.ones(len(points)) if weights is None else np.asarray(weights, float)
        (x, into), (u, out_of) = _normalised("points", points, weights), _normalised("pixels", pixels, weights)
        plane, root = np.column_stack((x, np.ones(len(x)))), np.sqrt(weights)  # [k, 3], [k]
        equations = (_slopes(plane, u) * root[:, None, None]).reshape(-1, 9)  # their product with the matrix is 0
        _, values, vectors = np.linalg.svd(np.vstack((equations, np.zeros((1, 9)))), full_matrices=False)
        if values[7] < AMBIGUOUS * values[0]:
            raise ValueError(
                "points and pixels do not determine a homography: all of them, or all but one, lie on one line; give "
                "four corners of a quadrangle, and more"
            )
        matrix = vectors[8].reshape(3, 3) * np.sign(vectors[8, 6:] @ plane.sum(0))
        for _ in range(ITERATIONS):  # from an algebraic error to one in the picture, by Gauss-Newton
            depth = plane @ matrix[2]
            if not (depth[weights > 0] > 0).all() or abs(np.linalg.det(matrix)) < FLAT * np.linalg.norm(matrix) ** 3:
                raise ValueError(
                    "no camera maps these points to these pixels: are the pairs in the same order, and are the pixels "
                    "(x, y)?"
                )
            scale = (root / np.where(weights > 0, depth, 1))[:, None]
            found = plane @ matrix[:2].T / depth[:, None]
            slopes = (_slopes(plane, found) * scale[..., None]).reshape(-1, 9)
            step, *_ = np.linalg.lstsq(slopes, (root[:, None] * (u - found)).reshape(-1), rcond=1e-10)
            matrix = matrix + step.reshape(3, 3)
        return Homography(np.linalg.inv(out_of) @ matrix @ into)


def fit_projection(pictures: Tensor, positions: Any) -> Homography | None:
    """The homography from the object's positions [N, 2] to where it is in pictures [N, c, h, w] of one fixed camera.

    A pixel's colour depends on whether the object is there. Each grid position gets the pixels whose colours correlate
    most with an object near it. A robust fit to these pairs gives the homography. The agent is not used: its pixels may
    belong to an arm that does not lie in the plane. The result is approximate; with known pairs use `Homography.fit`.
    None if there are too few pictures, or if no homography explains most of the grid, as for a camera on the agent.
    """
    places = np.asarray(positions, float)
    if pictures.dim() != 4 or places.shape != (len(pictures), 2):
        raise ValueError(
            f"pictures have shape {tuple(pictures.shape)} and positions {places.shape}; allowed are [N, c, h, w] and "
            "[N, 2]"
        )
    if len(places) < FEWEST_PICTURES or not np.isfinite(places).all():
        return None
    chosen = np.unique(np.linspace(0, len(places) - 1, MOST_PICTURES).astype(int))
    places = places[chosen]
    low, high = np.quantile(places, (0.02, 0.98), axis=0)
    if not (high > low).all():
        return None
    grid = _grid(np.linspace(low[0], high[0], GRID), np.linspace(low[1], high[1], GRID))  # [g, 2]
    away = (places[:, None] - grid) / (CELL * (high - low))
    near = np.exp(-(away**2).sum(-1) / 2)  # [N, g]
    colours, pixels, side = _colours(pictures[chosen])  # [N, c, p], [p, 2]
    related = np.sqrt(sum((_standard(near).T @ colours[:, c] / len(near)) ** 2 for c in range(colours.shape[1])))
    related = related - np.median(related, 1, keepdims=True)  # [g, p]
    peak = related.max(1, keepdims=True)
    if not peak.min() > 0:
        return None
    gap = np.linalg.norm(pixels[related.argmax(1)][:, None] - pixels, axis=-1) / (BLOB * side)  # [g, p]
    share = np.exp(-(gap**2) / 2) * np.maximum(related - CORE * peak, 0) ** 2
    seen = (share @ pixels) / np.maximum(share.sum(1, keepdims=True), 1e-30)
    return _robust(grid, seen, peak[:, 0] ** 2, LARGEST_RESIDUAL * side)


def _robust(grid: Array, seen: Array, trust: Array, tolerance: float) -> Homography | None:
    """A fit with weights that fall with the error (a Cauchy loss, squared); None if half of the errors are large."""
    weights, error = trust, np.zeros(len(grid))
    for _ in range(ITERATIONS):
        try:
            found = Homography.fit(grid, seen, weights)
        except ValueError:
            return None
        error = np.linalg.norm(found(grid) - seen, axis=1)
        weights = trust / (1 + (error / (1.5 * np.median(error) + 1e-9)) ** 2) ** 2
    return found if np.median(error) < tolerance else None


def _colours(pictures: Tensor) -> tuple[Array, Array, float]:
    """Standardised colours [N, c, p] of smaller pictures, their pixels' centres [p, 2], and the picture's longer side.

    Three channels count: more are no colours. Pixels that hardly change keep small values.
    """
    height, width = pictures.shape[-2:]
    square = max(1, min(max(height, width) // SIDE, height, width))
    shrunk = F.avg_pool2d(pictures[:, :3].float(), square)
    rows, columns = shrunk.shape[-2:]
    pixels = _grid(np.arange(columns) + 0.5, np.arange(rows) + 0.5) * square
    colours = shrunk.flatten(2).double().numpy()
    colours = colours - colours.mean(0)
    spread = colours.std(0)
    return colours / (spread + 0.2 * spread.max() + 1e-30), pixels, float(max(height, width))


def _standard(x: Array) -> Array:
    return (x - x.mean(0)) / (x.std(0) + 1e-30)


def _grid(x: Array, y: Array) -> Array:
    """All pairs [len(y) * len(x), 2]; x varies fastest, as in a flattened picture."""
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)


def _slopes(plane: Array, pixels: Array) -> Array:
    """[k, 2, 9]: what a pixel's two numbers, times their depth, change by with the numbers of the matrix."""
    zero = np.zeros_like(plane)
    return np.stack(
        (
            np.column_stack((plane, zero, -pixels[:, :1] * plane)),
            np.column_stack((zero, plane, -pixels[:, 1:] * plane)),
        ),
        1,
    )


def _pairs(points: Any, pixels: Any) -> tuple[Array, Array]:
    try:
        given = [np.asarray(x, float) for x in (points, pixels)]
    except (TypeError, ValueError) as error:
        raise ValueError(f"points and pixels are not arrays of numbers: {error}") from error
    for name, x in zip(("points", "pixels"), given, strict=True):
        if x.ndim != 2 or x.shape[1] != 2 or len(x) < 4:
            raise ValueError(f"{name} have shape {x.shape}; allowed are [k, 2] with k of 4 or more")
        if not np.isfinite(x).all():
            raise ValueError(f"{name} have values that are not finite; drop those pairs")
    if len(given[0]) != len(given[1]):
        raise ValueError(f"there are {len(given[0])} points and {len(given[1])} pixels; give a pixel for each point")
    return given[0], given[1]


def _normalised(name: str, x: Array, weights: Array) -> tuple[Array, Array]:
    """Points with mean 0 and spread 1, for accuracy, and the matrix [3, 3] that makes them so."""
    middle = np.average(x, axis=0, weights=weights)
    spread = np.sqrt(np.average((x - middle) ** 2, axis=0, weights=weights).mean())
    if not spread > 0:
        raise ValueError(f"{name} are all the same; give four corners of a quadrangle, and more")
    into = np.array([[1 / spread, 0, -middle[0] / spread], [0, 1 / spread, -middle[1] / spread], [0, 0, 1]])
    return (x - middle) / spread, into
