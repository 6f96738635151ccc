"""Solids of few triangles for what is only seen.

MuJoCo draws its own capsules and ellipsoids with hundreds of triangles each, which in software costs more than all
pixels of a small picture; parts of one colour are therefore joined into one mesh.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

Point = tuple[float, float, float]


class Solid(NamedTuple):
    vertices: np.ndarray  # [p, 3]
    faces: np.ndarray  # [t, 3] int, seen from outside counter-clockwise


def ellipsoid(centre: Point, half_axes: Point, slices: int = 10, stacks: int = 7) -> Solid:
    unit = _lathe(np.linspace(-np.pi / 2, np.pi / 2, stacks), np.zeros(stacks), slices)
    return Solid(unit.vertices * half_axes + centre, unit.faces)


def capsule(start: Point, end: Point, radius: float, slices: int = 8) -> Solid:
    """A cylinder with round ends around the segment from `start` to `end`."""
    a, b = np.array(start), np.array(end)
    length = float(np.linalg.norm(b - a))
    latitude = np.radians((-90.0, -40.0, 0.0, 0.0, 40.0, 90.0))
    unit = _lathe(latitude, np.array((0.0, 0.0, 0.0, 1.0, 1.0, 1.0)) * length / radius, slices)
    along = (b - a) / length
    side = np.cross(along, (1.0, 0.0, 0.0) if abs(along[0]) < 0.7 else (0.0, 1.0, 0.0))
    side /= np.linalg.norm(side)
    axes = np.stack((side, np.cross(along, side), along))  # rows, right-handed
    return Solid(unit.vertices * radius @ axes + a, unit.faces)


def _lathe(latitude: np.ndarray, lift: np.ndarray, slices: int) -> Solid:
    """A unit sphere's rings from the south pole to the north pole, each lifted along z."""
    turn = np.arange(slices) * 2 * np.pi / slices
    middle, raised = latitude[1:-1], lift[1:-1]
    ring = np.stack(
        (
            np.cos(middle)[:, None] * np.cos(turn),
            np.cos(middle)[:, None] * np.sin(turn),
            np.broadcast_to((np.sin(middle) + raised)[:, None], (len(middle), slices)),
        ),
        -1,
    )
    vertices = np.concatenate((ring.reshape(-1, 3), [(0.0, 0.0, -1 + lift[0])], [(0.0, 0.0, 1 + lift[-1])]))
    number = np.arange(len(middle) * slices).reshape(len(middle), slices)
    after, south, north = np.roll(number, -1, 1), number.size, number.size + 1
    faces = [np.stack((np.full(slices, south), after[0], number[0]), -1)]
    for low, high in pairwise(range(len(middle))):
        faces.append(np.stack((number[low], after[low], after[high]), -1))
        faces.append(np.stack((number[low], after[high], number[high]), -1))
    faces.append(np.stack((np.full(slices, north), number[-1], after[-1]), -1))
    return Solid(vertices, np.concatenate(faces))


def mesh(name: str, solids: list[Solid]) -> str:
    """MJCF of all of them as one asset."""
    starts = np.cumsum([0] + [len(s.vertices) for s in solids[:-1]])
    vertices = np.concatenate([s.vertices for s in solids])
    faces = np.concatenate([s.faces + start for s, start in zip(solids, starts, strict=True)])
    points, corners = (" ".join(f"{v:.6g}" for v in x.ravel()) for x in (vertices, faces))
    return f'<mesh name="{name}" inertia="shell" smoothnormal="true" vertex="{points}" face="{corners}"/>'
