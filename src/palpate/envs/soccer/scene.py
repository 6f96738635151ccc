"""The visual model of the soccer world: field, goals, stands, a player and the balls.

Metres, the field's centre at the origin, x to the right and y up as in the unit square, z towards the sky. The bodies
move as in `physics`, and nothing here touches anything.

MuJoCo draws its own capsules and ellipsoids with hundreds of triangles each, which in software costs more than all
pixels of a small picture. Solids of few triangles replace them, and parts of one colour are joined into one mesh.
"""

import math
from collections.abc import Iterable
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from palpate.envs.soccer import textures
from palpate.envs.soccer.config import (
    ABOVE_RANGE,
    AGENT_RADIUS,
    AROUND,
    BALL_RADIUS,
    FIGURE_FACES,
    FIRST_PERSON,
    GOAL_DEPTH,
    GOAL_MOUTH,
    LEFT_GOAL,
    RIGHT_GOAL,
    SCALE,
)

ABOVE_HEIGHT = 70.0  # metres, so high that perspective does not shift the head


Point = tuple[float, float, float]


class Solid(NamedTuple):
    vertices: np.ndarray  # [p, 3]
    faces: np.ndarray  # [t, 3] int, seen from outside counter-clockwise


class Look(NamedTuple):
    """Level of detail."""

    samples: int  # per pixel
    slices: int  # of the ball
    stacks: int


FAST = Look(samples=0, slices=16, stacks=10)  # for data
FINE = Look(samples=4, slices=40, stacks=24)  # for the eye

AGENT_GROUP = 2  # of geoms, so that the agent's own cameras can leave out its figure
EYE_HEIGHT = 4.5  # of the mast that the agent carries
EYE_PITCH = math.radians(45)  # downwards: from the horizon to the feet, so that the ball is in view everywhere
AHEAD_FOVY = 120  # degrees, of the one camera ahead
EDGE = SCALE * textures.FIELD_SIDE / 2  # where the boards stand
HORIZON = 40.0
GOAL_HEIGHT = 1.3
FLAGS = (
    (4.7, 4.7, "0.9 0.2 0.2"),
    (-4.7, 4.7, "0.2 0.4 0.9"),
    (-4.7, -4.7, "0.95 0.8 0.2"),
    (4.7, -4.7, "0.6 0.2 0.7"),
)
COLOURS = {"skin": "0.93 0.72 0.56", "shirt": "0.9 0.12 0.12", "shorts": "0.97 0.97 0.97", "dark": "0.13 0.1 0.1"}
MEADOW = " ".join(f"{v / 255:.3f}" for v in textures.MEADOW) + " 1"
FIGURE_RADIUS = 0.5  # of the figure as it is drawn below; it is scaled to the agent's


def build(mujoco: Any, look: Look, shadows: bool, balls: int = 1) -> Any:
    """The compiled model, textures in place; `qpos` is the agent's x, y and turn, then each ball's position and
    orientation."""
    model = mujoco.MjModel.from_xml_string(_mjcf(look, shadows, balls))
    for name, texels in textures.painted(balls).items():
        start = model.tex_adr[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXTURE, name)]
        model.tex_data[start : start + texels.size] = texels.ravel()
    return model


def _mjcf(look: Look, shadows: bool, balls: int) -> str:
    low, high = ABOVE_RANGE
    above_fovy = 2 * math.degrees(math.atan((high - low) * SCALE / 2 / ABOVE_HEIGHT))
    return f"""
<mujoco model="soccer scene">
  <compiler angle="radian"/>
  <visual>
    <quality shadowsize="{4096 if shadows else 0}" numquads="1" offsamples="{look.samples}"
      numslices="{look.slices}" numstacks="{look.stacks}"/>
    <map znear="0.005" zfar="4" shadowclip="0.8" shadowscale="0.9"/>
    <headlight ambient="0.42 0.42 0.42" diffuse="0.12 0.12 0.12" specular="0 0 0"/>
  </visual>
  <statistic extent="20" center="0 0 0"/>
  <asset>
    {_lines(_meshes(SCALE * AGENT_RADIUS / FIGURE_RADIUS))}
    {_lines(_materials(balls))}
  </asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light directional="true" castshadow="{"true" if shadows else "false"}" pos="-5 -5 16" dir="0.3 0.34 -1"
      ambient="0.05 0.05 0.05" diffuse="0.62 0.61 0.57" specular="0.1 0.1 0.1"/>
    {_camera("third", (0.0, -8.3, 14.6), (0.0, -0.35, 0.0), 43.5)}
    <camera name="above" pos="0 0 {ABOVE_HEIGHT}" xyaxes="1 0 0 0 1 0" fovy="{above_fovy}"/>
    {_lines(_ground())}
    {_lines(_stands())}
    {_lines(_nets())}
    <geom type="mesh" mesh="white" rgba="0.96 0.96 0.96 1"/>
    <body name="agent">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      {_lines(_eyes(FIRST_PERSON, 0.0))}
      <body name="facing">
        <joint type="hinge" axis="0 0 1"/>
        {_lines(_player())}
        {_lines(_eyes(AROUND, FIGURE_FACES))}
        {_camera("ahead", (0.0, 0.0, EYE_HEIGHT), (0.0, -1.0, EYE_HEIGHT - math.tan(EYE_PITCH)), AHEAD_FOVY)}
      </body>
    </body>
    {_lines(_ball(i) for i in range(balls))}
  </worldbody>
</mujoco>
"""


def _lines(lines: Iterable[str]) -> str:
    return "\n    ".join(lines)


def _meshes(figure_scale: float) -> Iterable[str]:
    yield _mesh("white", _white())
    for name, solids in _figure().items():
        yield _mesh(name, [Solid(vertices * figure_scale, faces) for vertices, faces in solids])


def _materials(balls: int) -> Iterable[str]:
    cubes = {f"ball{i}": "cube" for i in range(balls)}
    for name, texels in textures.painted(balls).items():
        kind = {"sky": "skybox", **cubes}.get(name, "2d")
        h, w, _ = texels.shape
        yield f'<texture name="{name}" type="{kind}" builtin="flat" width="{w}" height="{h}"/>'
    yield '<material name="field" texture="field" specular="0.05" shininess="0"/>'
    for name in cubes:
        yield f'<material name="{name}" texture="{name}" specular="0.4" shininess="0.5"/>'
    yield '<material name="net" texture="net" texrepeat="4 4" rgba="1 1 1 0.32" specular="0"/>'
    for name in (f"{kind}{i}" for kind, i in product(("board", "stand"), range(4))):
        yield f'<material name="{name}" texture="{name}" specular="0.1" emission="0.15"/>'


def _ball(number: int) -> str:
    name, radius = f"ball{number}", SCALE * BALL_RADIUS
    geom = f'<geom name="{name}" type="sphere" size="{radius}" material="{name}"/>'
    return f'<body name="{name}" pos="0 0 {radius}"><freejoint/>{geom}</body>'


def _camera(name: str, place: tuple[float, ...], target: tuple[float, ...], fovy: float) -> str:
    forward = np.subtract(target, place) / math.dist(target, place)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    axes = _numbers(*right, *np.cross(right, forward))
    return f'<camera name="{name}" pos="{_numbers(*place)}" xyaxes="{axes}" fovy="{fovy}"/>'


def _numbers(*values: float) -> str:
    return " ".join(f"{v:.9g}" for v in values)


def _eyes(names: Iterable[str], first: float) -> Iterable[str]:
    """Cameras to four sides; the first looks in the direction `first`, the others follow to the left."""
    for i, name in enumerate(names):
        x, y = (round(f(first + i * math.pi / 2)) for f in (math.cos, math.sin))
        yield _camera(name, (0.0, 0.0, EYE_HEIGHT), (x, y, EYE_HEIGHT - math.tan(EYE_PITCH)), 90)


def _ground() -> Iterable[str]:
    """The field, and the meadow around it in four pieces: nothing is painted twice."""
    yield f'<geom type="plane" size="{EDGE} {EDGE} 1" material="field"/>'
    middle, half = (HORIZON + EDGE) / 2, (HORIZON - EDGE) / 2
    for s in (-1, 1):
        yield f'<geom type="plane" size="{half} {HORIZON} 1" pos="{s * middle} 0 0" rgba="{MEADOW}"/>'
        yield f'<geom type="plane" size="{EDGE} {half} 1" pos="0 {s * middle} 0" rgba="{MEADOW}"/>'


def _stands() -> Iterable[str]:
    """Boards around the field, stands behind them, and flags in the corners."""
    for i, (x, y) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):
        # The picture is on local z, which looks at the field; local x runs to the right as seen from there.
        place = f'pos="{x * EDGE} {y * EDGE} 0.45" xyaxes="{y} {-x} 0 0 0 1"'
        yield f'<geom type="box" material="board{i}" size="{EDGE} 0.45 0.04" {place}/>'
        far = EDGE + 2.6
        place = f'pos="{x * far} {y * far} 1.7" xyaxes="{y} {-x} 0 {x * 0.75} {y * 0.75} 0.66"'
        yield f'<geom type="box" material="stand{i}" size="{EDGE} 1.7 0.05" {place}/>'
    for flag_x, flag_y, rgba in FLAGS:
        yield f'<geom type="box" size="0.2 0.02 0.14" pos="{flag_x + 0.2} {flag_y} 1.06" rgba="{rgba} 1"/>'


def _nets() -> Iterable[str]:
    for x, back in _goal_lines():
        slope = np.array((x - back, 0.0, GOAL_HEIGHT))
        axes = _numbers(0.0, 1.0, 0.0, *slope)
        size = f"{SCALE * GOAL_MOUTH / 2} {np.linalg.norm(slope) / 2} 0.004"
        place = f'pos="{(x + back) / 2} 0 {GOAL_HEIGHT / 2}" xyaxes="{axes}"'
        yield f'<geom type="box" material="net" size="{size}" {place}/>'


def _goal_lines() -> Iterable[tuple[float, float]]:
    """Where the goal line and the foot of the net stand, left and right."""
    for centre, outward in ((LEFT_GOAL, -1), (RIGHT_GOAL, 1)):
        x = SCALE * (centre[0] - 0.5)
        yield x, x + outward * SCALE * GOAL_DEPTH


def _white() -> list[Solid]:
    """Goal posts and the poles of the corner flags."""
    half, high = SCALE * GOAL_MOUTH / 2, GOAL_HEIGHT
    solids = [_capsule((x, y, 0), (x, y, 1.2), 0.035, 6) for x, y, _ in FLAGS]
    for x, back in _goal_lines():
        solids += [_capsule((x, y, 0), (x, y, high), 0.055) for y in (-half, half)]
        solids += [_capsule((back, y, 0), (x, y, high), 0.025, 6) for y in (-half, half)]
        solids.append(_capsule((x, -half, high), (x, half, high), 0.055))
        solids.append(_capsule((back, -half, 0.02), (back, half, 0.02), 0.025, 6))
    return solids


def _figure() -> dict[str, list[Solid]]:
    """A player by colour, all of it inside a disc of `FIGURE_RADIUS`."""
    both = (-1, 1)
    return {
        "skin": [
            *(_capsule((s * 0.14, 0, 0.2), (s * 0.13, 0, 0.6), 0.085) for s in both),
            *(_capsule((s * 0.31, -0.01, 1.1), (s * 0.38, -0.06, 0.85), 0.085) for s in both),
            _ellipsoid((0, 0, 1.56), (0.25, 0.25, 0.26), 12, 9),
        ],
        "shirt": [
            _capsule((-0.07, 0, 0.87), (0.07, 0, 0.87), 0.19, 10),
            _capsule((-0.09, 0, 1.12), (0.09, 0, 1.12), 0.22, 10),
            *(_capsule((s * 0.26, 0, 1.22), (s * 0.33, -0.02, 1.05), 0.105) for s in both),
        ],
        "shorts": [_capsule((-0.08, 0, 0.68), (0.08, 0, 0.68), 0.19, 10)],
        "dark": [
            *(_capsule((s * 0.15, 0.03, 0.1), (s * 0.15, -0.12, 0.1), 0.1) for s in both),
            _ellipsoid((0, 0.03, 1.66), (0.27, 0.26, 0.22), 12, 9),
            *(_ellipsoid((s * 0.09, -0.235, 1.57), (0.03, 0.03, 0.04), 6, 5) for s in both),
        ],
    }


def _player() -> Iterable[str]:
    for name in _figure():
        yield f'<geom type="mesh" mesh="{name}" group="{AGENT_GROUP}" rgba="{COLOURS[name]} 1"/>'


def _ellipsoid(centre: Point, half_axes: Point, slices: int = 10, stacks: int = 7) -> Solid:
    unit = _lathe(np.linspace(-np.pi / 2, np.pi / 2, stacks), np.zeros(stacks), slices)
    return Solid(unit.vertices * half_axes + centre, unit.faces)


def _capsule(start: Point, end: Point, radius: float, slices: int = 8) -> Solid:
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


def _mesh(name: str, solids: list[Solid]) -> str:
    """MJCF of all solids as one asset."""
    starts = np.cumsum([0] + [len(s.vertices) for s in solids[:-1]])
    vertices = np.concatenate([s.vertices for s in solids])
    faces = np.concatenate([s.faces + start for s, start in zip(solids, starts, strict=True)])
    points, corners = (" ".join(f"{v:.6g}" for v in x.ravel()) for x in (vertices, faces))
    return f'<mesh name="{name}" inertia="shell" smoothnormal="true" vertex="{points}" face="{corners}"/>'
