"""The soccer world's textures, painted by numpy: [h, w, 3] uint8, cube maps as six faces below each other.

Legend: h and w texels, f the six faces of a cube map.
"""

import functools
from itertools import pairwise

import numpy as np

from palpate.envs.soccer.config import LEFT_GOAL, RIGHT_GOAL

FIELD_SIDE = 1.16  # of the painted square, in units of the unit square
FIELD_TEXELS = 768
BALL_TEXELS = 128
SKY_TEXELS = 128
BOARD_TEXELS = (48, 768)
SEATS, SEAT_TEXELS = (12, 40), 10

MEADOW = (74.0, 112.0, 70.0)
WHITE = np.array((245.0, 245.0, 240.0))
# East, north, west and south: an agent that looks around must know which is which.
BOARDS = (
    ((196, 43, 52), (255, 214, 74)),
    ((28, 86, 176), (240, 244, 250)),
    ((112, 44, 140), (255, 150, 40)),
    ((235, 176, 30), (30, 34, 42)),
)


def field() -> np.ndarray:
    """Grass in two shades, with white lines: border, halfway line, centre circle, a box before each goal."""
    texels = FIELD_TEXELS
    along = (np.arange(texels) + 0.5) / texels * FIELD_SIDE + 0.5 - FIELD_SIDE / 2
    x, y = along[None, :], along[::-1, None]
    light = np.where(np.floor(x * 12) % 2 == 0, 1.0, 0.84)[..., None]
    noise = np.random.default_rng(0).normal(1, 0.035, (texels, texels, 1))
    grass = np.array((66.0, 148.0, 58.0)) * light * noise
    soft = FIELD_SIDE / texels
    half = 0.006  # of a line's width

    def ink(distance: np.ndarray) -> np.ndarray:
        return np.clip((half - np.abs(distance)) / soft + 0.5, 0, 1)

    def box(x0: float, x1: float, y0: float, y1: float) -> np.ndarray:
        outside = np.maximum(np.abs(x - (x0 + x1) / 2) - (x1 - x0) / 2, np.abs(y - (y0 + y1) / 2) - (y1 - y0) / 2)
        return ink(outside)

    centre = np.hypot(x - 0.5, y - 0.5)
    inside = (np.abs(y - 0.5) < 0.47) * np.ones_like(x)
    lines = [
        box(0.03, 0.97, 0.03, 0.97),
        ink(x - 0.5) * inside,
        ink(centre - 0.13),
        ink(np.maximum(centre - 0.006, 0)),
        box(LEFT_GOAL[0], LEFT_GOAL[0] + 0.12, 0.32, 0.68),
        box(RIGHT_GOAL[0] - 0.12, RIGHT_GOAL[0], 0.32, 0.68),
    ]
    white = np.maximum.reduce([np.broadcast_to(line, (texels, texels)) for line in lines])[..., None]
    return _shades(grass * (1 - white) + WHITE * white)


def ball() -> np.ndarray:
    """White hexagons, dark pentagons: a truncated icosahedron as the power diagram of its 32 panels."""
    golden = (1 + 5**0.5) / 2
    base = [(0, s, t * golden) for s in (1, -1) for t in (1, -1)]
    pentagons = np.array([np.roll(p, k) for p in base for k in range(3)])
    pentagons /= np.linalg.norm(pentagons[0])
    near = (pentagons @ pentagons.T) > 0.4  # neighbours lie 63 degrees apart
    triples = [(i, j, k) for i in range(12) for j in range(i) for k in range(j) if near[i, j] & near[j, k] & near[i, k]]
    hexagons = np.array([pentagons[list(t)].sum(0) for t in triples])
    hexagons /= np.linalg.norm(hexagons, axis=1, keepdims=True)
    at = _directions(BALL_TEXELS)
    dark, pale = (at @ pentagons.T).max(-1) - 0.004, np.sort(at @ hexagons.T, -1)
    seam = np.clip((np.abs(pale[..., -1] - pale[..., -2]) - 0.006) / 0.02, 0.45, 1)[..., None]
    panel = np.clip((dark - pale[..., -1]) / 0.03 + 0.5, 0, 1)[..., None]
    return _shades(WHITE * seam * (1 - panel) + np.array((24.0, 26.0, 38.0)) * panel)


def sky() -> np.ndarray:
    """Blue that pales towards the horizon, clouds, hills, and ground below."""
    at = _directions(SKY_TEXELS)  # up is the second coordinate
    up, round_ = at[..., 1:2], np.arctan2(at[..., 0], at[..., 2])[..., None]
    high = np.clip(up, 0, 1) ** 0.6
    colour = np.array((196.0, 222.0, 245.0)) * (1 - high) + np.array((52.0, 120.0, 205.0)) * high
    drift = sum(np.sin(k * round_ + 1.7 * k) * np.sin((9 + 3 * k) * up + k) for k in (2, 3, 5, 7)) / 4
    cloud = np.clip((drift - 0.12) * 4, 0, 0.8) * np.clip(up * 6 - 0.9, 0, 1)
    colour = colour * (1 - cloud) + 250.0 * cloud
    for height, waves, shade in ((0.13, (3, 5, 11), (120.0, 150.0, 168.0)), (0.07, (4, 9, 13), MEADOW)):
        ridge = height * (1 + 0.45 * sum(np.sin(k * round_ + k * k) for k in waves) / len(waves))
        cover = np.clip((ridge - up) * SKY_TEXELS / 4 + 0.5, 0, 1)
        colour = colour * (1 - cover) + np.array(shade) * cover
    return _shades(colour)


def board(side: int) -> np.ndarray:
    """The board on one side of the field: a row of blocks whose widths, marks and tones never repeat."""
    h, w = BOARD_TEXELS
    ground, mark = (np.array(c, dtype=float) for c in BOARDS[side])
    x, y = np.arange(w)[None, :] / w, np.arange(h)[:, None] / h
    colour = np.broadcast_to(ground, (h, w, 3)).copy()
    widths = 0.5 + np.random.default_rng(10 + side).random(9)
    edges = np.concatenate(([0.0], np.cumsum(widths) / widths.sum()))
    for i, (left, right) in enumerate(pairwise(edges)):
        u = (x - left) / (right - left)
        here = (u >= 0) & (u < 1)
        shapes = (
            np.abs(y - 0.5) * 2.4 + np.abs(u - 0.5) * 2.4 < 0.9,  # diamond
            (np.abs(u - 0.5) < 0.34) & (np.abs(y - 0.5) < 0.14),  # bar
            np.abs((u * 3 + np.abs(y - 0.5) * 2) % 1 - 0.5) < 0.22,  # chevrons
            np.hypot((u - 0.5) * 1.6, y - 0.5) < 0.3,  # disc
        )
        tone = 0.82 + 0.36 * ((i * (3 + side)) % 5) / 4
        colour = np.where(here[..., None], ground * tone, colour)
        colour = np.where((here & shapes[(i + side) % 4])[..., None], mark, colour)
    trim = (y < 0.07) | (y > 0.93)
    return _shades(np.where(trim[..., None], WHITE, colour))


def crowd(side: int) -> np.ndarray:
    """People on a stand as dots in rows, mostly in the colours of the board below them."""
    rng, seat = np.random.default_rng(20 + side), SEAT_TEXELS
    kit = np.array([*BOARDS[side], *BOARDS[side], (225, 225, 225), (60, 64, 80), (205, 160, 130)], dtype=float)
    people = kit[rng.integers(len(kit), size=SEATS)] * rng.uniform(0.6, 1, (*SEATS, 1))
    at = (np.arange(seat) + 0.5) / seat - 0.5
    body = np.tile(np.hypot(at[:, None], at[None, :]) < 0.45, SEATS)[..., None]
    return _shades(np.where(body, people.repeat(seat, 0).repeat(seat, 1), np.array((78.0, 82.0, 92.0))))


def net() -> np.ndarray:
    """Pale cords on a darker ground; the material is translucent."""
    x = np.arange(64) % 16 < 4
    return _shades(np.where((x[:, None] | x[None, :])[..., None], 255.0, 150.0) * np.ones(3))


def _directions(texels: int) -> np.ndarray:
    """Unit vectors [6 h, w, 3] of a cube map's texels, in OpenGL's order and orientation of faces."""
    along = (np.arange(texels) + 0.5) / texels * 2 - 1
    s, t = np.meshgrid(along, along)
    one = np.ones_like(s)
    faces = [(one, -t, -s), (-one, -t, s), (s, one, t), (s, -one, -t), (s, -t, one), (-s, -t, -one)]
    at = np.concatenate([np.stack(face, -1) for face in faces])
    return at / np.linalg.norm(at, axis=-1, keepdims=True)


def _shades(colour: np.ndarray) -> np.ndarray:
    return np.clip(colour + 0.5, 0, 255).astype(np.uint8)


@functools.cache
def painted() -> dict[str, np.ndarray]:
    """Every texture by its name in the scene."""
    sides = {f"board{i}": board(i) for i in range(4)} | {f"crowd{i}": crowd(i) for i in range(4)}
    return {"field": field(), "ball": ball(), "sky": sky(), "net": net()} | sides
