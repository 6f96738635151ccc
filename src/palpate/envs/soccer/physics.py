"""The physics of the soccer world, by MuJoCo: balls on the grass, a fence around them, and the agent.

Arguments and results are in the unit square. Inside, lengths are metres from the field's centre, x to the right, y up
and z towards the sky. Only balls touch anything. The agent is a cylinder, so they touch where two discs do. The fence
consists of half spaces, so nothing tunnels.

Legend: p points of a path, k balls.
"""

import bisect
import math
from functools import partial
from itertools import combinations
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
BALLS_TOUCH = 2 * RADIUS
SPARE = 1.001  # bodies that are set apart get this much of `GAP`
REST_SPEED = 0.05  # metres per second, of the centre and of the rolling surface: slower is at rest
TIME_LIMIT = 8.0  # simulated seconds for the ball to come to rest after the agent has stopped
CHUNK = 10  # time steps between two looks at a rolling ball: longer than a collision lasts
PINNED_DEPTH = 0.15  # of the ball's radius: so deep in the agent, and at the fence too, it has no way out
CREEP = 1e-6  # metres that a ball at rest may move by rounding; a step undoes them
CLEARANCE = 1e-6  # metres of a resting ball from the fence, which would push it otherwise


class Outcome(NamedTuple):
    """The end of a step, in the unit square. `...` is empty for one ball and `k` for several, as in the arguments."""

    agent: np.ndarray  # [2] float32
    object: np.ndarray  # [..., 2] float32
    orientation: np.ndarray  # [..., 4] float32
    contact: Any  # [...] bool: touched, by agent or ball, and moved by more than MOVED_EPSILON
    grazing: bool  # a ball was touched, but not moved so far: it was put back
    settled: bool  # the balls came to rest in time; otherwise they were stopped
    stopped: bool  # the agent stopped before its target, at a ball that could not give way
    share: float  # of its path that the agent went
    pushed: Any  # [...] bool: in contact with other balls alone


@final
class Physics:
    """Moves the agent along its path and waits until the balls rest."""

    def __init__(self, agent_speed: float, balls: int = 1) -> None:
        mujoco = self._mujoco = engine.load()
        self._model: Any = build_mechanics(mujoco, balls)
        self._data = mujoco.MjData(self._model)
        self._poses, self._speeds = self._data.qpos[2:].reshape(balls, 7), self._data.qvel[2:].reshape(balls, 6)
        number = partial(mujoco.mj_name2id, self._model, mujoco.mjtObj.mjOBJ_GEOM)
        self._agent_geom, self._floor_geom = number("agent"), number("floor")
        self._balls = {number(f"ball{i}"): i for i in range(balls)}
        self._normals, self._offsets = fence()
        self._speed = SCALE * agent_speed
        self._height = self._resting_height()

    def step(
        self, agent: np.ndarray, position: np.ndarray, orientation: np.ndarray, target: np.ndarray, *, skip: bool = True
    ) -> Outcome:
        """The agent goes straight from `agent` to `target` [2], or along straight lines through several targets [p, 2];
        the balls lie at rest at `position` [..., 2].

        With `skip`, the beginning of the path, with the agent farther than `GAP` from the balls, is not simulated: they
        rest and the agent's motion is prescribed.
        """
        targets = target.reshape(-1, 2)
        start, ends, balls = ((x.astype(float) - 0.5) * SCALE for x in (agent, targets, position.reshape(-1, 2)))
        way, target = _Way(start, ends), targets[-1]
        length, none = way.length, np.zeros(position.shape[:-1], bool).tolist()
        free = way.free(balls, CONTACT_DISTANCE + SCALE * GAP) if skip else 0.0
        if free is None:
            return Outcome(
                target,
                position,
                orientation,
                contact=none,
                grazing=False,
                settled=True,
                stopped=False,
                share=1.0,
                pushed=none,
            )
        self._place(start, balls, orientation.reshape(-1, 4))
        walked, struck, pinned = self._walk(way, free)
        assert struck.any() or np.abs(self._poses[:, :2] - balls).max() < CREEP, "an untouched ball moved"
        settled = self._roll(way, walked, struck, pinned)
        touched = struck | (np.abs(self._poses[:, :2] - balls).max(1) > CREEP)
        gone, rest, contact = self._end(way, walked, position.reshape(-1, 2), struck, touched, pinned)
        turned = np.array([_normalised(quaternion) for quaternion in self._poses[:, 3:]])
        turned = np.where(contact[:, None], turned, orientation.reshape(-1, 4))
        return Outcome(
            _unit(way.at(gone)) if gone < length else target,
            np.where(contact[:, None], _unit(rest), position.reshape(-1, 2)).reshape(position.shape),
            turned.reshape(orientation.shape),
            contact=contact.reshape(position.shape[:-1]).tolist(),
            grazing=bool((touched & ~contact).any()),
            settled=settled,
            stopped=gone < length,
            share=gone / length if length else 1.0,
            pushed=(contact & ~struck).reshape(position.shape[:-1]).tolist(),
        )

    def _place(self, agent: np.ndarray, balls: np.ndarray, orientation: np.ndarray) -> None:
        self._mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:2] = agent
        self._poses[:, :2], self._poses[:, 2], self._poses[:, 3:] = balls, self._height, orientation

    def _walk(self, way: "_Way", gone: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Step the agent from `gone` to the end: the length achieved, which balls it touched, and which stopped it.

        The agent's position and velocity are written before every time step, so the contact solver sees a moving body
        that is not deflected.
        """
        mujoco, model, data = self._mujoco, self._model, self._data
        qpos, qvel = data.qpos, data.qvel
        length, stride = way.length, self._speed * TIMESTEP
        first, last = int(gone / stride), math.ceil(length / stride)
        struck = pinned = np.zeros(len(self._balls), bool)
        for step in range(first, last + 1):
            gone = min(step * stride, length)
            qpos[:2] = way.at(gone)
            qvel[:2] = way.heading(gone) * self._speed
            mujoco.mj_step(model, data)
            if data.ncon > len(struck) or (struck.any() and data.ncon):  # more than the grass, off which a ball may hop
                depth, held = self._contacts()
                struck = struck | (depth > -math.inf)
                pinned = held & (depth > PINNED_DEPTH * RADIUS)
                if pinned.any():
                    return gone, struck, pinned
        return length, struck, pinned

    def _contacts(self) -> tuple[np.ndarray, np.ndarray]:
        """Depth [k] of the balls in the agent, -inf without contact; and whether each is held by the fence, directly or
        by other balls."""
        depth, held = np.full(len(self._balls), -math.inf), np.zeros(len(self._balls), bool)
        beside: list[list[int]] = []
        contact = self._data.contact
        for pair, distance in zip(contact.geom.tolist(), contact.dist.tolist(), strict=True):
            balls = [self._balls[geom] for geom in pair if geom in self._balls]
            if self._agent_geom in pair:
                depth[balls] = -distance
            elif len(balls) > 1:
                beside.append(balls)
            elif self._floor_geom not in pair:
                held[balls] = True
        for balls in beside * len(beside):  # along chains of balls
            held[balls] = held[balls].any()
        return depth, held

    def _roll(self, way: "_Way", gone: float, struck: np.ndarray, pinned: np.ndarray) -> bool:
        """Let the balls roll until they rest; False when the time is up. The agent steps back from pinned balls."""
        if pinned.any():
            rolling = ~pinned & (np.abs(self._speeds[:, :3]).max(1) > REST_SPEED)
            if not rolling.any():
                return True
            self._poses[pinned, :2] = self._inside(self._poses[pinned, :2])
            self._speeds[pinned] = 0
            free = way.free(self._poses[pinned, :2], CONTACT_DISTANCE + SCALE * GAP, gone)
            gone = gone if free is None else free
        return not struck.any() or self._wait(way.at(gone))

    def _wait(self, agent: np.ndarray) -> bool:
        """Let the balls roll until they rest; False when the time is up."""
        mujoco, data = self._mujoco, self._data
        slow = 0
        for _ in range(round(TIME_LIMIT / TIMESTEP / CHUNK)):
            data.qpos[:2], data.qvel[:2] = agent, 0
            mujoco.mj_step(self._model, data, nstep=CHUNK)
            speed = np.abs(self._speeds)
            # Twice in a row: a bounce turns round within less than a chunk.
            slow = slow + 1 if max(speed[:, :3].max(), RADIUS * speed[:, 3:5].max()) < REST_SPEED else 0
            if slow == 2:
                return True
        return False

    def _end(
        self,
        way: "_Way",
        walked: float,
        position: np.ndarray,
        struck: np.ndarray,
        touched: np.ndarray,
        pinned: np.ndarray,
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The agent's path length, the balls' positions [k, 2] and which are in contact. All bodies are `GAP` apart.

        Balls that were touched, but hardly moved, are put back; all of them, if there is no other way.
        """
        balls = (position.astype(float) - 0.5) * SCALE

        def explained(gone: float, contact: np.ndarray) -> np.ndarray:
            """Without contacts of balls that the agent touched on a part of its path from which it was set back."""
            found = [way.free(ball[None], CONTACT_DISTANCE, gone) is not None for ball in balls]
            return contact & (np.array(found) | ~struck)

        rest = np.where(touched[:, None], self._inside(self._poses[:, :2]), balls)
        parted = self._part(way, walked, rest, ~touched | pinned)
        contact = np.zeros_like(touched)
        if parted is not None:
            gone, rest = parted
            contact = touched & (np.linalg.norm(_unit(rest) - position.astype(float), axis=1) > MOVED_EPSILON)
            # The agent is set back from a pinned ball. Its path may then end before a ball's old position.
            contact = explained(gone, contact) if pinned.any() else contact
            if (contact == touched).all():
                return gone, rest, contact
        for kept in (contact, np.zeros_like(contact)):
            fixed = np.where(kept[:, None], rest, balls)
            parted = self._part(way, walked, fixed, np.ones_like(kept))
            if parted is not None and (explained(parted[0], kept) == kept).all():
                return *parted, kept
        return 0.0, balls, np.zeros_like(contact)

    def _inside(self, places: np.ndarray) -> np.ndarray:
        """The nearest positions [k, 2] inside the fence: a ball pressed against it is a little too deep."""
        return np.array([self._pulled(place.copy()) for place in places]).reshape(places.shape)

    def _pulled(self, place: np.ndarray) -> np.ndarray:
        for _ in range(8):
            excess = self._normals @ place - (self._offsets * SCALE - CLEARANCE)
            worst = int(excess.argmax())
            if excess[worst] <= 0:
                break
            place -= self._normals[worst] * excess[worst]
        return place

    def _part(self, way: "_Way", gone: float, balls: np.ndarray, fixed: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The agent's path length and the balls' positions, with bodies `GAP` apart; None if that is impossible.

        Balls that are too close to the agent, or to each other, are moved away, unless they are `fixed` [k]. If that
        fails, the agent goes back along its path instead, at most to its start.
        """
        agent = way.at(gone)
        if _apart(balls, agent, SPARE):
            return gone, balls
        pushed = self._pushed(balls, fixed, agent)
        if (pushed != balls).any() and _apart(pushed, agent):
            return gone, pushed
        balls, distance = self._pushed(balls, fixed), CONTACT_DISTANCE + SCALE * GAP * SPARE
        if not _apart(balls) or min(math.dist(ball, way.at(0.0)) for ball in balls) < distance:
            return None
        if min(math.dist(ball, agent) for ball in balls) >= distance:
            return gone, balls
        free = way.free(balls, distance, gone)
        return None if free is None else (free, balls)

    def _pushed(self, balls: np.ndarray, fixed: np.ndarray, agent: np.ndarray | None = None) -> np.ndarray:
        """Balls that are not `fixed` moved away from the agent, if it is given, and from other balls."""
        balls = balls.copy()
        for _ in balls:
            for i in np.flatnonzero(~fixed):
                others = [(ball, BALLS_TOUCH) for j, ball in enumerate(balls) if j != i]
                for other, reach in [*others, *([] if agent is None else [(agent, CONTACT_DISTANCE)])]:
                    apart, distance = math.dist(balls[i], other), reach + SCALE * GAP * SPARE
                    if 0 < apart < distance:
                        balls[i] = self._pulled(other + (balls[i] - other) * (distance / apart))
        return balls

    def _resting_height(self) -> float:
        """Height of a resting ball's centre. The simulated grass is soft, so the height is measured."""
        self._height = RADIUS
        row = np.arange(len(self._balls))[:, None] * (2 * BALLS_TOUCH, 0.0)
        self._place(np.array((-40.0, -40.0)), row, np.array((1.0, 0.0, 0.0, 0.0)))
        self._mujoco.mj_step(self._model, self._data, nstep=200)
        return float(self._poses[0, 2])


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

    def free(self, balls: np.ndarray, distance: float, end: float = math.inf) -> float | None:
        """How far the agent gets before it is within `distance` of a ball [k, 2]; None: all the way, or to `end`."""
        for start, heading, length, before in zip(
            self._starts, self._headings, self._lengths, self._before, strict=True
        ):
            parts = [_free_length(start, heading, min(length, end - before), ball, distance) for ball in balls]
            reached = [part for part in parts if part is not None]
            if reached:
                return before + min(reached)
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


def _apart(balls: np.ndarray, agent: np.ndarray | None = None, spare: float = 1.0) -> bool:
    """Whether balls [k, 2] are `GAP` apart from each other and from the agent."""
    gap = SCALE * GAP * spare
    among = all(math.dist(*pair) >= BALLS_TOUCH + gap for pair in combinations(balls, 2))
    return among and (agent is None or all(math.dist(ball, agent) >= CONTACT_DISTANCE + gap for ball in balls))


def fence() -> tuple[np.ndarray, np.ndarray]:
    """The ball's centre stays where `normals @ (x - 0.5) <= offsets`: normals [s, 2] and offsets [s], unit square."""
    angle = np.arange(FENCE_SIDES) * 2 * np.pi / FENCE_SIDES
    normals = np.stack((np.cos(angle), np.sin(angle)), -1)
    straight = (FENCE_RANGE[1] - FENCE_RANGE[0]) / 2 - FENCE_CORNER
    return normals, straight * np.abs(normals).sum(-1) + FENCE_CORNER


def build_mechanics(mujoco: Any, balls: int = 1) -> Any:
    """The compiled model; `qpos` is the agent's x and y, then each ball's position and orientation."""
    slide = SLIDING_FRICTION
    rolling = 1.4 * RADIUS * ROLLING_FRICTION  # a torque m g x slows a rolling solid sphere by g x / (7/5 r)
    # A linear spring with this damping returns the share RESTITUTION of the ball's speed.
    decay = -math.log(RESTITUTION)
    damping = 2 * math.sqrt(STIFFNESS) * decay / math.hypot(math.pi, decay)
    bounce = f'condim="3" friction="{SIDE_FRICTION} {SIDE_FRICTION} 0 0 0" solref="{-STIFFNESS} {-damping}"'
    planes, pairs, names = [], [], [f"ball{i}" for i in range(balls)]
    for ball in names:
        pairs.append(
            f'<pair geom1="floor" geom2="{ball}" condim="6" solref="0.024 1" solreffriction="{GRIP_TIME} 1" '
            f'friction="{slide} {slide} {SPIN_FRICTION} {rolling} {rolling}"/>'
        )
        pairs.append(f'<pair geom1="agent" geom2="{ball}" {bounce}/>')
    pairs += [f'<pair geom1="{one}" geom2="{other}" {bounce}/>' for one, other in combinations(names, 2)]
    for i, (normal, offset) in enumerate(zip(*fence(), strict=True)):
        x, y = normal * (offset * SCALE + RADIUS)  # the ball's surface lies its radius beyond its centre
        inward = f"{-normal[0]:.12g} {-normal[1]:.12g} 0"
        planes.append(f'<geom name="fence{i}" type="plane" size="1 1 1" pos="{x:.12g} {y:.12g} 0" zaxis="{inward}"/>')
        pairs += [f'<pair geom1="fence{i}" geom2="{ball}" {bounce}/>' for ball in names]
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
    {lines(_ball(name) for name in names)}
  </worldbody>
  <contact>
    {lines(pairs)}
  </contact>
</mujoco>
"""
    return mujoco.MjModel.from_xml_string(mjcf)


def _ball(name: str) -> str:
    geom = f'<geom name="{name}" type="sphere" size="{RADIUS}" mass="{BALL_MASS}"/>'
    return f'<body name="{name}" pos="0 0 {RADIUS}"><freejoint/>{geom}</body>'
