"""A shortest path of the agent around bodies: through corners of their borders, by Dijkstra's algorithm.

Borders are convex, and the agent's reference point may not enter them. So the agent is a point here.
Legend: c corners, s segments, p points of a path.
"""

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CORNERS = 24  # at most, of the polygon that stands for a body
MARGIN = 0.04  # kept from a border, as a share of the body's size


class Path(NamedTuple):
    points: Array  # [p, 2], from the start to the target
    note: str  # for a reader


def enters(start: Array, end: Array, polygon: Array) -> NDArray[np.bool_]:
    """Whether segments from `start` to `end` [s, 2] enter a convex polygon [c, 2] with corners in anticlockwise order.

    Cyrus and Beck: each side cuts the range of the segment's parameter at which it is inside.
    """
    side = np.roll(polygon, -1, 0) - polygon
    long = (side != 0).any(1)  # a closed line repeats its first corner; a side of length 0 has no inside
    if not long.any():
        return np.zeros(len(start), bool)
    side, polygon = side[long], polygon[long]
    inward = np.stack((-side[:, 1], side[:, 0]), 1)  # [c, 2]
    at = ((start[:, None] - polygon) * inward).sum(-1)  # [s, c], above 0 inside
    slope = (end - start) @ inward.T
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = -at / slope
    first = np.where(slope > 0, cut, np.where((slope == 0) & (at <= 0), np.inf, -np.inf)).max(1)
    last = np.where(slope < 0, cut, np.inf).min(1)
    return np.maximum(first, 0) < np.minimum(last, 1) - 1e-9


def around(start: Array, target: Array, bodies: Sequence[Array], low: Array, high: Array) -> Path:
    """A path [p, 2] from start to target that enters none of the closed lines `bodies` [c, 2].

    Corners outside the rectangle from `low` to `high` are not used. A body around the start is ignored; if the target
    is inside one, the path ends with a contact.
    """
    start, target = np.asarray(start, float), np.asarray(target, float)
    walls, rims, notes = [], [], []
    for body in bodies:
        polygon = _anticlockwise(body[:: max(1, len(body) // CORNERS)])
        centre = polygon.mean(0)
        begins, ends = (gauge(point, polygon, centre) for point in (start, target))
        if begins < 1:
            notes.append("the agent is inside a body, by the estimate")
            continue
        if ends < 1:
            notes.append("the target is inside a body, so the path ends with a contact")
            continue
        # A start or a target may lie within the margin.
        walls.append(centre + (polygon - centre) * min(1 + MARGIN / 2, 0.999 * begins, 0.999 * ends))
        rims.append(centre + (polygon - centre) * (1 + MARGIN) / np.cos(np.pi / len(polygon)))
    corners = np.concatenate([*rims, np.empty((0, 2))])
    corners = corners[((corners >= low) & (corners <= high)).all(1)]
    nodes = np.stack([start, target, *corners])
    order = _shortest(nodes, walls)
    if order is None:
        return Path(np.stack((start, target)), "no way around: the straight path touches a body")
    straight = "straight: nothing is in the way" if walls else "straight"
    return Path(nodes[order], "; ".join([*notes, straight if len(order) == 2 else "around the learned bodies"]))


def _shortest(nodes: Array, walls: Sequence[Array]) -> list[int] | None:
    """Node numbers of the shortest path from the first node to the second; None if there is none."""
    length = np.linalg.norm(nodes[:, None] - nodes, axis=-1)
    first, last = np.triu_indices(len(nodes), 1)
    for wall in walls:
        blocked = enters(nodes[first], nodes[last], wall)
        length[first[blocked], last[blocked]] = length[last[blocked], first[blocked]] = np.inf
    best, before = np.full(len(nodes), np.inf), np.zeros(len(nodes), int)
    best[0], queue = 0.0, [(0.0, 0)]
    while queue:
        done, node = heapq.heappop(queue)
        if node == 1:
            order = [1]
            while order[-1]:
                order.append(int(before[order[-1]]))
            return order[::-1]
        for near in np.flatnonzero(done + length[node] < best):
            best[near], before[near] = done + length[node, near], node
            heapq.heappush(queue, (float(best[near]), int(near)))
    return None


def gauge(point: Array, polygon: Array, centre: Array) -> float:
    """The factor by which a convex polygon [c, 2] grows around a centre inside it until it reaches the point."""
    side = np.roll(polygon, -1, 0) - polygon
    outward = np.stack((side[:, 1], -side[:, 0]), 1)
    reach = ((polygon - centre) * outward).sum(1)
    return float((((point - centre) * outward).sum(1) / np.maximum(reach, 1e-12)).max())


def _anticlockwise(polygon: Array) -> Array:
    x, y = polygon.T
    area = (x * np.roll(y, -1) - y * np.roll(x, -1)).sum()
    return polygon if area > 0 else polygon[::-1]
