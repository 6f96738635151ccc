"""The soccer world's textures, painted by numpy: [h, w, 3] uint8, cube maps as six faces below each other.

Legend: h and w texels, f the six faces of a cube map.
"""

import functools

import numpy as np

from palpate.envs.soccer.config import LEFT_GOAL, RIGHT_GOAL

FIELD_SIDE = 1.16  # of the painted square, in units of the unit square
FIELD_TEXELS = 768
BALL_TEXELS = 128
SKY_TEXELS = 128
BOARD_TEXELS, STAND_TEXELS = (48, 16), (192, 16)
SEAT_ROWS = 12

MEADOW = (74.0, 112.0, 70.0)
WHITE = np.array((245.0, 245.0, 240.0))
BALLS = ((250.0, 140.0, 24.0), (236.0, 28.0, 48.0), (40.0, 96.0, 235.0), (150.0, 50.0, 200.0))  # orange, red, blue...
# East, north, west and south, distinguishable in first person.
BOARDS = ((176, 58, 62), (42, 92, 160), (112, 66, 136), (160, 138, 66))


def field() -> np.ndarray:
    """Grass in two shades, with white lines: border, halfway line, centre circle, a box before each goal."""
    texels = FIELD_TEXELS
    along = (np.arange(texels) + 0.5) / texels * FIELD_SIDE + 0.5 - FIELD_SIDE / 2
    x, y = along[None, :], along[::-1, None]
    light = np.where(np.floor(x * 12) % 2 == 0, 1.0, 0.84)[..., None]
    grass = np.array((66.0, 148.0, 58.0)) * light
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


def ball(number: int) -> np.ndarray:
    """Coloured hexagons, dark pentagons: a truncated icosahedron as the power diagram of its 32 panels."""
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
    return _shades(np.array(BALLS[number]) * seam * (1 - panel) + np.array((24.0, 26.0, 38.0)) * panel)


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
    """The board on one side of the field: its colour between white trims."""
    h, w = BOARD_TEXELS
    y = (np.arange(h) + 0.5)[:, None, None] / h
    return _shades(np.where((y < 0.1) | (y > 0.9), WHITE, np.array(BOARDS[side], float)) * np.ones((h, w, 1)))


def stand(side: int) -> np.ndarray:
    """Rows of seats in the board's colour, each row darker than the one above it."""
    h, w = STAND_TEXELS
    rows, within = np.divmod(np.arange(h) * SEAT_ROWS / h, 1)
    shade = (0.75 - 0.3 * rows / SEAT_ROWS) * np.where(within < 0.25, 0.7, 1.0)
    return _shades(shade[:, None, None] * np.array(BOARDS[side], float) * np.ones((h, w, 1)))


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
def painted(balls: int) -> dict[str, np.ndarray]:
    """Every texture by its name in the scene."""
    sides = {f"board{i}": board(i) for i in range(4)} | {f"stand{i}": stand(i) for i in range(4)}
    coloured = {f"ball{i}": ball(i) for i in range(balls)}
    return {"field": field(), **coloured, "sky": sky(), "net": net()} | sides
