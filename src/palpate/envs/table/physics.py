"""The physics of the table, by MuJoCo: a block that slides and turns, pushed by the fingers of a gripper.

Arguments and results are in the unit square. Inside, lengths are metres from the table's centre, x to the right, y away
from the front camera and z up. Only the block touches anything. The fingers are a cylinder that is moved along a
segment at constant speed, whatever it pushes.

Legend: p points, s slabs.
"""

import math
from typing import Any, NamedTuple, final

import numpy as np

from palpate.envs.simulator import engine
from palpate.envs.table.config import BLOCK_HEIGHT, BLOCKS, GAP, GRIPPER_RADIUS, MOVED_EPSILON, SCALE, Block, Slab

TIMESTEP = 0.002
SPEED = 0.35  # metres per second, of the gripper
DENSITY = 600.0  # kilograms per cubic metre, of the block: wood
SLIDING_FRICTION = 0.5  # of the block on the table
FINGER_FRICTION = 0.3  # of the block on the fingers
SPIN_FRICTION = 0.01  # metres, of the block on the table
GRIPPER_MASS = 1e4  # so heavy that a block does nothing to it between two writings of its state
LIFT = 0.006  # metres between the fingers and the table
REST_SPEED = 2e-3  # metres per second, also of a corner of a turning block
CHUNK = 10  # time steps between two looks at a sliding block
TIME_LIMIT = 3.0  # simulated seconds for the block to come to rest
LEAST_MOTION = 1e-5  # a touched block that moved less is put back, and counts as not touched
FREE_STEP = 0.01  # of the side: the fingers' path is searched in steps of this for where the simulation begins


class Outcome(NamedTuple):
    """The end of a step, in the unit square."""

    agent: np.ndarray  # [2] float32
    object: np.ndarray  # [2] float32
    angle: np.float32
    contact: bool  # the block was touched, and moved
    nudge: bool  # it moved by no more than MOVED_EPSILON
    settled: bool  # the block came to rest in time


@final
class Physics:
    """Moves the gripper along a segment and waits until the block rests."""

    def __init__(self, block: Block) -> None:
        mujoco = self._mujoco = engine.load()
        self._slabs, self._reach = BLOCKS[block], reach(block)
        self._model: Any = build_mechanics(mujoco, block)
        self._data = mujoco.MjData(self._model)
        self._fingers = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, "fingers")
        self._block = {
            mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, f"block{i}") for i in range(len(self._slabs))
        }
        self._height = self._resting_height()

    def step(self, agent: np.ndarray, position: np.ndarray, angle: float, target: np.ndarray) -> Outcome:
        """The gripper goes straight from `agent` to `target` [2]; the block lies at rest at `position`."""
        start, end = agent.astype(float), target.astype(float)
        free = self._free_share(start, end, position, angle)
        untouched = Outcome(target, position, np.float32(angle), contact=False, nudge=False, settled=True)
        if free is None:
            return untouched
        self._place(start, position, angle)
        touched = self._walk(start, end, free)
        if not touched:
            return untouched
        settled = self._wait(end)
        place, turned = self._rest()
        place = self._part(end, place, turned)
        moved = farthest(self._slabs, position, angle, place, turned)
        if moved < LEAST_MOTION:
            return untouched._replace(settled=settled)
        return Outcome(
            target,
            place.astype(np.float32),
            np.float32(turned),
            contact=True,
            nudge=moved <= MOVED_EPSILON,
            settled=settled,
        )

    def _free_share(self, start: np.ndarray, end: np.ndarray, position: np.ndarray, angle: float) -> float | None:
        """Share of the path on which the bodies are surely apart; None: all of it."""
        steps = max(1, math.ceil(math.dist(start, end) / FREE_STEP))
        path = start + (end - start) * np.linspace(0, 1, steps + 1)[:, None]
        near = np.flatnonzero(clearance(self._slabs, path, position, angle) < FREE_STEP)
        return None if not len(near) else max(0, int(near[0]) - 1) / steps

    def _place(self, agent: np.ndarray, position: np.ndarray, angle: float) -> None:
        self._mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:2], self._data.qpos[2:4] = _metres(agent), _metres(position)
        self._data.qpos[4] = self._height
        self._data.qpos[5:9] = (math.cos(angle / 2), 0, 0, math.sin(angle / 2))

    def _walk(self, start: np.ndarray, end: np.ndarray, share: float) -> bool:
        """Step the fingers along the rest of the path; whether they touched the block.

        Their position and velocity are written before every time step, so the contact solver sees a moving body that
        is not deflected.
        """
        mujoco, model, data = self._mujoco, self._model, self._data
        begin, stop = _metres(start), _metres(end)
        length = math.dist(begin, stop)
        velocity = (stop - begin) / length * SPEED if length else np.zeros(2)
        steps, touched = math.ceil(length / SPEED / TIMESTEP), False
        for step in range(int(share * steps), steps + 1):
            data.qpos[:2], data.qvel[:2] = begin + (stop - begin) * min(1.0, step / max(steps, 1)), velocity
            mujoco.mj_step(model, data)
            touched = touched or self._touches()
        return touched

    def _touches(self) -> bool:
        pairs = self._data.contact.geom
        return bool(((pairs == self._fingers).any(1)).any()) if len(pairs) else False

    def _wait(self, agent: np.ndarray) -> bool:
        """Let the block slide until it rests; False when the time is up."""
        data, slow, place = self._data, 0, _metres(agent)
        for _ in range(round(TIME_LIMIT / TIMESTEP / CHUNK)):
            for _ in range(CHUNK):
                data.qpos[:2], data.qvel[:2] = place, 0
                self._mujoco.mj_step(self._model, data)
            vx, vy, _, _, _, spin = data.qvel[2:8].tolist()
            slow = slow + 1 if math.hypot(vx, vy) + abs(spin) * self._reach * SCALE < REST_SPEED else 0
            if slow == 2:
                return True
        return False

    def _rest(self) -> tuple[np.ndarray, float]:
        w, x, y, z = self._data.qpos[5:9].tolist()
        turned = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        return self._data.qpos[2:4] / SCALE + 0.5, turned

    def _part(self, agent: np.ndarray, place: np.ndarray, angle: float) -> np.ndarray:
        """The block's position, moved straight away from the fingers until they are `GAP` apart."""
        for _ in range(20):
            short = GAP * 1.01 - float(clearance(self._slabs, agent[None], place, angle)[0])
            if short <= 0:
                break
            h = 1e-5
            shifts = h * np.array([[1.0, 0.0], [0.0, 1.0]])
            around = clearance(self._slabs, np.concatenate((agent + shifts, agent - shifts)), place, angle)
            away = -(around[:2] - around[2:]) / (2 * h)  # the block moves against the gradient at the fingers
            place = place + away / max(float(np.linalg.norm(away)), 1e-9) * short
        return place

    def _resting_height(self) -> float:
        """Height of a resting block's centre. The simulated table is soft, so the height is measured."""
        self._height = SCALE * BLOCK_HEIGHT / 2
        self._place(np.array((9.0, 9.0)), np.full(2, 0.5), 0.0)
        self._mujoco.mj_step(self._model, self._data, nstep=500)
        return float(self._data.qpos[4])


def clearance(slabs: tuple[Slab, ...], fingers: np.ndarray, position: np.ndarray, angle: Any) -> np.ndarray:
    """Distance `[p]` between fingers at [p, 2] and the block at [2] or [p, 2]; negative if they overlap."""
    cos, sin = np.cos(angle), np.sin(angle)
    offset = fingers - position
    x, y = offset[:, 0] * cos + offset[:, 1] * sin, offset[:, 1] * cos - offset[:, 0] * sin
    distances = []
    for (cx, cy), half in slabs:
        if len(half) == 1:
            distances.append(np.hypot(x - cx, y - cy) - half[0])
            continue
        out_x, out_y = np.abs(x - cx) - half[0], np.abs(y - cy) - half[1]
        outside = np.hypot(np.maximum(out_x, 0), np.maximum(out_y, 0))
        distances.append(outside + np.minimum(np.maximum(out_x, out_y), 0))
    return np.min(distances, 0) - GRIPPER_RADIUS


def reach(block: Block) -> float:
    """Distance of the block's farthest point from its position."""
    return max(math.hypot(*c) + math.hypot(*half) for c, half in BLOCKS[block])


def farthest(slabs: tuple[Slab, ...], before: np.ndarray, angle: float, after: np.ndarray, turned: float) -> float:
    """The longest way of a corner of the block."""
    corners = np.array([
        (cx + sx * half[0], cy + sy * half[-1]) for (cx, cy), half in slabs for sx in (-1, 1) for sy in (-1, 1)
    ])  # fmt: skip
    return float(np.linalg.norm(after + _turn(corners, turned) - before - _turn(corners, angle), axis=1).max())


def _turn(points: np.ndarray, angle: float) -> np.ndarray:
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def _metres(place: np.ndarray) -> np.ndarray:
    return (np.asarray(place, float) - 0.5) * SCALE


def slab_geoms(block: Block, attributes: str) -> str:
    """MJCF of the block's geoms, named block0 and so on, in metres around its position."""
    lines = []
    for i, ((x, y), half) in enumerate(BLOCKS[block]):
        kind, tall = ("cylinder", half) if len(half) == 1 else ("box", half)
        size = " ".join(f"{SCALE * value:.9g}" for value in (*tall, BLOCK_HEIGHT / 2))
        place = f"{SCALE * x:.9g} {SCALE * y:.9g} 0"
        lines.append(f'<geom name="block{i}" type="{kind}" size="{size}" pos="{place}" {attributes}/>')
    return "\n      ".join(lines)


def build_mechanics(mujoco: Any, block: Block) -> Any:
    """The compiled model; `qpos` is the gripper's x and y, then the block's position and orientation."""
    pairs = []
    for i in range(len(BLOCKS[block])):
        # The cone is elliptic, or friction would depend on the direction of motion.
        pairs.append(
            f'<pair geom1="table" geom2="block{i}" condim="4" solref="0.01 1" '
            f'friction="{SLIDING_FRICTION} {SLIDING_FRICTION} {SPIN_FRICTION} 0 0"/>'
        )
        pairs.append(
            f'<pair geom1="fingers" geom2="block{i}" condim="3" solref="0.008 1" '
            f'friction="{FINGER_FRICTION} {FINGER_FRICTION} 0 0 0"/>'
        )
    half = SCALE * BLOCK_HEIGHT
    mjcf = f"""
<mujoco model="table mechanics">
  <option timestep="{TIMESTEP}" cone="elliptic" impratio="10"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="table" type="plane" size="1 1 1"/>
    <body name="gripper">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <geom name="fingers" type="cylinder" size="{SCALE * GRIPPER_RADIUS} {half}" pos="0 0 {half + LIFT}"
        mass="{GRIPPER_MASS}"/>
    </body>
    <body name="block" pos="0 0 {half / 2}">
      <freejoint/>
      {slab_geoms(block, f'density="{DENSITY}"')}
    </body>
  </worldbody>
  <contact>
    {" ".join(pairs)}
  </contact>
</mujoco>
"""
    return mujoco.MjModel.from_xml_string(mjcf)
