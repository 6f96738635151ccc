"""The physics of the soccer world, by MuJoCo: a ball on the grass, a fence around it, and the agent.

Arguments and results are in the unit square. Inside, lengths are metres from the field's centre, x to the right, y up
and z towards the sky. Only the ball touches anything. The agent is a cylinder, so they touch where two discs do. The
fence consists of half spaces, so nothing tunnels.

Legend: p points of a path.
"""

import bisect
import math
from typing import Any, NamedTuple, final

import numpy as np

from palpate.envs.simulator import engine
from palpate.envs.soccer.config import (
    AGENT_RADIUS,
    BALL_RADIUS,
    FENCE_CORNER,
    FENCE_RANGE,
    FENCE_SIDES,
    GAP,
    MOVED_EPSILON,
    REACH,
    SCALE,
)

TIMESTEP = 0.006
BALL_MASS = 0.43  # kilograms
SLIDING_FRICTION = 0.6  # of the ball on the grass
ROLLING_FRICTION = 0.3  # a rolling ball slows by about 0.8 of this, in units of gravity
RESTITUTION = 0.6  # of the ball against the agent and the fence
AGENT_MASS = 1e7  # so heavy that a ball does nothing to it between two writings of its state
STIFFNESS = 1.1e4  # of contacts, per second squared: a collision lasts pi / sqrt(STIFFNESS), five time steps
SIDE_FRICTION = 0.2  # of the ball on the agent and on the fence
SPIN_FRICTION = 0.03  # metres, against spinning on the spot
GRIP_TIME = 0.3  # seconds, of the friction's regularisation: in MuJoCo, a hard grip makes a sliding ball hop
RADIUS, CONTACT_DISTANCE = SCALE * BALL_RADIUS, SCALE * REACH  # metres
REST_SPEED = 0.05  # metres per second, of the centre and of the rolling surface: slower is at rest
TIME_LIMIT = 8.0  # simulated seconds for the ball to come to rest after the agent has stopped
CHUNK = 10  # time steps between two looks at a rolling ball: longer than a collision lasts
PINNED_DEPTH = 0.15  # of the ball's radius: so deep in the agent, and at the fence too, it has no way out
CREEP = 1e-6  # metres that a ball at rest may move by rounding; a step undoes them
CLEARANCE = 1e-6  # metres of a resting ball from the fence, which would push it otherwise


class Outcome(NamedTuple):
    """The end of a step, in the unit square."""

    agent: np.ndarray  # [2] float32
    object: np.ndarray  # [2] float32
    orientation: np.ndarray  # [4] float32
    contact: bool  # touched, by the simulator's own list, and moved by more than MOVED_EPSILON
    grazing: bool  # touched, but not moved so far: the ball was put back
    settled: bool  # the ball came to rest in time; otherwise it was stopped
    stopped: bool  # the agent stopped before its target, at a ball that could not give way
    share: float  # of its path that the agent went


@final
class Physics:
    """Moves the agent along its path and waits until the ball rests."""

    def __init__(self, agent_speed: float) -> None:
        mujoco = self._mujoco = engine.load()
        self._model: Any = build_mechanics(mujoco)
        self._data = mujoco.MjData(self._model)
        self._agent_geom, self._floor_geom = (
            mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in ("agent", "floor")
        )
        self._normals, self._offsets = fence()
        self._speed = SCALE * agent_speed
        self._height = self._resting_height()

    def step(
        self, agent: np.ndarray, position: np.ndarray, orientation: np.ndarray, target: np.ndarray, *, skip: bool = True
    ) -> Outcome:
        """The agent goes straight from `agent` to `target` [2], or along straight lines through several targets [p, 2];
        the ball lies at rest at `position`.

        With `skip`, the beginning of the path, with the bodies farther apart than `GAP`, is not simulated: the ball
        rests and the agent's motion is prescribed.
        """
        targets = target.reshape(-1, 2)
        start, ends, ball = ((x.astype(float) - 0.5) * SCALE for x in (agent, targets, position))
        way, target = _Way(start, ends), targets[-1]
        length = way.length
        free = way.free(ball, CONTACT_DISTANCE + SCALE * GAP) if skip else 0.0
        if free is None:
            return Outcome(
                target, position, orientation, contact=False, grazing=False, settled=True, stopped=False, share=1.0
            )
        self._place(start, ball, orientation)
        gone, touched, pinned = self._walk(way, free)
        assert touched or np.abs(self._data.qpos[2:4] - ball).max() < CREEP, "an untouched ball moved"
        settled = pinned or not touched or self._wait(way.at(gone))
        parted = self._part(way, gone, self._inside(self._data.qpos[2:4]), pinned) if touched else None
        contact = parted is not None and math.dist(_unit(parted[1]), position) > MOVED_EPSILON
        if contact and parted is not None and pinned:
            # The agent is set back from the pushed ball. Its path may then end before the ball's old position.
            contact = way.free(ball, CONTACT_DISTANCE, parted[0]) is not None
        if parted is None or not contact:
            parted = self._part(way, gone, ball, pinned=True) or (0.0, ball)
        gone, rest = parted
        return Outcome(
            _unit(way.at(gone)) if gone < length else target,
            _unit(rest) if contact else position,
            _normalised(self._data.qpos[5:9]) if contact else orientation,
            contact=contact,
            grazing=touched and not contact,
            settled=settled,
            stopped=gone < length,
            share=gone / length if length else 1.0,
        )

    def _place(self, agent: np.ndarray, ball: np.ndarray, orientation: np.ndarray) -> None:
        self._mujoco.mj_resetData(self._model, self._data)
        qpos = self._data.qpos
        qpos[:2], qpos[2:4], qpos[4], qpos[5:9] = agent, ball, self._height, orientation

    def _walk(self, way: "_Way", gone: float) -> tuple[float, bool, bool]:
        """Step the agent from `gone` to the end: the length achieved, whether it touched, whether it was stopped.

        The agent's position and velocity are written before every time step, so the contact solver sees a moving body
        that is not deflected.
        """
        mujoco, model, data = self._mujoco, self._model, self._data
        qpos, qvel = data.qpos, data.qvel
        length, stride = way.length, self._speed * TIMESTEP
        first, last = int(gone / stride), math.ceil(length / stride)
        touched = False
        for step in range(first, last + 1):
            gone = min(step * stride, length)
            qpos[:2] = way.at(gone)
            qvel[:2] = way.heading(gone) * self._speed
            mujoco.mj_step(model, data)
            if data.ncon > 1 or (touched and data.ncon):  # more than the grass, off which a kicked ball may hop
                depth, fenced = self._contacts()
                touched |= depth is not None
                if fenced and depth is not None and depth > PINNED_DEPTH * RADIUS:
                    return gone, True, True
        return length, touched, False

    def _contacts(self) -> tuple[float | None, bool]:
        """Depth of the ball in the agent, None without contact; and whether the ball touches the fence."""
        depth, fenced = None, False
        contact = self._data.contact
        for (one, two), distance in zip(contact.geom.tolist(), contact.dist.tolist(), strict=True):
            if self._agent_geom in (one, two):
                depth = -distance
            elif self._floor_geom not in (one, two):
                fenced = True
        return depth, fenced

    def _wait(self, agent: np.ndarray) -> bool:
        """Let the ball roll until it rests; False when the time is up."""
        mujoco, data = self._mujoco, self._data
        slow = 0
        for _ in range(round(TIME_LIMIT / TIMESTEP / CHUNK)):
            data.qpos[:2], data.qvel[:2] = agent, 0
            mujoco.mj_step(self._model, data, nstep=CHUNK)
            vx, vy, vz, wx, wy, _ = data.qvel[2:8].tolist()
            fastest = max(abs(vx), abs(vy), abs(vz), RADIUS * abs(wx), RADIUS * abs(wy))
            # Twice in a row: a bounce turns round within less than a chunk.
            slow = slow + 1 if fastest < REST_SPEED else 0
            if slow == 2:
                return True
        return False

    def _inside(self, place: np.ndarray) -> np.ndarray:
        """The nearest position inside the fence: a ball pressed against it is a little too deep."""
        place = place.copy()
        for _ in range(8):
            excess = self._normals @ place - (self._offsets * SCALE - CLEARANCE)
            worst = int(excess.argmax())
            if excess[worst] <= 0:
                break
            place -= self._normals[worst] * excess[worst]
        return place

    def _part(self, way: "_Way", gone: float, rest: np.ndarray, pinned: bool) -> tuple[float, np.ndarray] | None:
        """The agent's path length and the ball's position, with bodies `GAP` apart; None if that is impossible.

        A ball too close to the agent is moved away. If the fence holds it, the agent goes back along its path instead,
        at most to its start.
        """
        distance = CONTACT_DISTANCE + SCALE * GAP * 1.001
        agent = way.at(gone)
        apart = math.dist(rest, agent)
        if apart >= distance:
            return gone, rest
        if not pinned and apart > 0:
            pushed = self._inside(agent + (rest - agent) * (distance / apart))
            if math.dist(pushed, agent) > CONTACT_DISTANCE + SCALE * GAP:
                return gone, pushed
        if math.dist(rest, way.at(0.0)) < distance:
            return None
        free = way.free(rest, distance, gone)
        return None if free is None else (free, rest)

    def _resting_height(self) -> float:
        """Height of a resting ball's centre. The simulated grass is soft, so the height is measured."""
        self._height = RADIUS
        self._place(np.array((-40.0, -40.0)), np.zeros(2), np.array((1.0, 0.0, 0.0, 0.0)))
        self._mujoco.mj_step(self._model, self._data, nstep=200)
        return float(self._data.qpos[4])


@final
class _Way:
    """A path along straight lines, by the length that the agent has gone."""

    def __init__(self, start: np.ndarray, ends: np.ndarray) -> None:
        self._starts = [start, *ends[:-1]]
        lines = list(zip(self._starts, ends, strict=True))
        self._lengths = [math.dist(*line) for line in lines]
        self._before = [sum(self._lengths[:i]) for i in range(len(lines))]
        self._headings = [
            (end - begin) / length if length else np.zeros(2)
            for (begin, end), length in zip(lines, self._lengths, strict=True)
        ]
        self.length = self._before[-1] + self._lengths[-1]

    def at(self, gone: float) -> np.ndarray:
        i = self._line(gone)
        place: np.ndarray = self._starts[i] + self._headings[i] * (gone - self._before[i])
        return place

    def heading(self, gone: float) -> np.ndarray:
        return self._headings[self._line(gone)]

    def free(self, ball: np.ndarray, distance: float, end: float = math.inf) -> float | None:
        """How far the agent gets before it is within `distance` of the ball; None: all the way, or to `end`."""
        for start, heading, length, before in zip(
            self._starts, self._headings, self._lengths, self._before, strict=True
        ):
            part = _free_length(start, heading, min(length, end - before), ball, distance)
            if part is not None:
                return before + part
        return None

    def _line(self, gone: float) -> int:
        return max(bisect.bisect_right(self._before, gone) - 1, 0)


def _free_length(
    start: np.ndarray, heading: np.ndarray, length: float, ball: np.ndarray, distance: float
) -> float | None:
    """How far the agent gets before it is within `distance` of the ball; None: all the way."""
    offset = ball - start
    along = float(offset @ heading)
    inside = distance * distance - (float(offset @ offset) - along * along)
    if inside < 0 or along < 0:
        return None
    enter = along - math.sqrt(inside)
    return None if enter > length else max(enter, 0.0)


def _unit(place: np.ndarray) -> np.ndarray:
    return (place / SCALE + 0.5).astype(np.float32)


def _normalised(quaternion: np.ndarray) -> np.ndarray:
    return (quaternion / np.linalg.norm(quaternion)).astype(np.float32)


def fence() -> tuple[np.ndarray, np.ndarray]:
    """The ball's centre stays where `normals @ (x - 0.5) <= offsets`: normals [s, 2] and offsets [s], unit square."""
    angle = np.arange(FENCE_SIDES) * 2 * np.pi / FENCE_SIDES
    normals = np.stack((np.cos(angle), np.sin(angle)), -1)
    straight = (FENCE_RANGE[1] - FENCE_RANGE[0]) / 2 - FENCE_CORNER
    return normals, straight * np.abs(normals).sum(-1) + FENCE_CORNER


def build_mechanics(mujoco: Any) -> Any:
    """The compiled model; `qpos` is the agent's x and y, then the ball's position and orientation."""
    slide = SLIDING_FRICTION
    rolling = 1.4 * RADIUS * ROLLING_FRICTION  # a torque m g x slows a rolling solid sphere by g x / (7/5 r)
    # A linear spring with this damping returns the share RESTITUTION of the ball's speed.
    decay = -math.log(RESTITUTION)
    damping = 2 * math.sqrt(STIFFNESS) * decay / math.hypot(math.pi, decay)
    bounce = f'condim="3" friction="{SIDE_FRICTION} {SIDE_FRICTION} 0 0 0" solref="{-STIFFNESS} {-damping}"'
    planes, pairs = [], []
    for i, (normal, offset) in enumerate(zip(*fence(), strict=True)):
        x, y = normal * (offset * SCALE + RADIUS)  # the ball's surface lies its radius beyond its centre
        inward = f"{-normal[0]:.12g} {-normal[1]:.12g} 0"
        planes.append(f'<geom name="fence{i}" type="plane" size="1 1 1" pos="{x:.12g} {y:.12g} 0" zaxis="{inward}"/>')
        pairs.append(f'<pair geom1="fence{i}" geom2="ball" {bounce}/>')
    lines = "\n    ".join
    # The cone is elliptic, or friction would depend on the direction of motion.
    mjcf = f"""
<mujoco model="soccer mechanics">
  <option timestep="{TIMESTEP}" cone="elliptic"><flag island="disable"/></option>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    {lines(planes)}
    <body name="agent">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <geom name="agent" type="cylinder" size="{SCALE * AGENT_RADIUS} 3" pos="0 0 3" mass="{AGENT_MASS}"/>
    </body>
    <body name="ball" pos="0 0 {RADIUS}">
      <freejoint/>
      <geom name="ball" type="sphere" size="{RADIUS}" mass="{BALL_MASS}"/>
    </body>
  </worldbody>
  <contact>
    <pair geom1="floor" geom2="ball" condim="6" solref="0.024 1" solreffriction="{GRIP_TIME} 1"
      friction="{slide} {slide} {SPIN_FRICTION} {rolling} {rolling}"/>
    <pair geom1="agent" geom2="ball" {bounce}/>
    {lines(pairs)}
  </contact>
</mujoco>
"""
    return mujoco.MjModel.from_xml_string(mjcf)
