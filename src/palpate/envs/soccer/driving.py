"""SoccerDriving: the agent turns, its cameras turn with it, and its actions are moves along its own axes.

An action is (forward, sideways, turn), or (forward, turn) for a differential drive; sideways and turns to the left. The
balls, the fence and the pictures are Soccer's, and so are the ends of the random paths.

Legend: b batch, k balls, t points of a path. `...` is empty for one ball and `k` for several.
"""

import math
from typing import Any, NamedTuple, final

import numpy as np

from palpate.envs.driving import IN_PLACE, MOST_TURN
from palpate.envs.simulator.world import stacked
from palpate.envs.soccer.config import AGENT_RANGE, AROUND, REACH, DrivingConfig
from palpate.envs.soccer.physics import Physics
from palpate.envs.soccer.world import OnField, nearest, objects

POINTS = 64  # of an arc, whose chords the agent drives: so near to the arc that the bodies stay apart
STOPS = 256  # places along a path at which the border may stop the agent


class Scene(NamedTuple):
    """True states."""

    agent: np.ndarray  # [b, 2] float32
    heading: np.ndarray  # [b] float32, radians
    object: np.ndarray  # [b, ..., 2] float32
    orientation: np.ndarray  # [b, ..., 4] float32, the ball's, as a unit quaternion w x y z


class Outcome(NamedTuple):
    """The end of a step; flags as in `physics.Outcome`."""

    agent: np.ndarray  # [2] float32
    heading: np.float32
    object: np.ndarray  # [..., 2] float32
    orientation: np.ndarray  # [..., 4] float32
    displacement: np.ndarray  # [3] float32, or [2] for a differential drive: the action carried out
    contact: Any  # [...] bool
    grazing: bool
    settled: bool
    stopped: bool
    pushed: Any  # [...] bool


class Triples(NamedTuple):
    """True states of triples, without pictures."""

    before: Scene
    action: np.ndarray  # [b, n] float32, the action carried out
    after: Scene
    contact: np.ndarray  # [b, ...] bool: the ball was touched and moved
    stopped: np.ndarray  # [b] bool: the agent stopped before its target, at a ball that could not give way
    dropped: dict[str, int]  # dropped proposals, by reason
    pushed: np.ndarray  # [b, ...] bool: in contact with other balls alone


class Rows(NamedTuple):
    """Triples with pictures: [b, 4, h, w, 3] of the cameras around the agent, [b, h, w, 3] of one, uint8."""

    observation: np.ndarray
    action: np.ndarray  # [b, n] float32, the action carried out
    next_observation: np.ndarray
    agent: np.ndarray  # [b, 2] float32, as all states
    heading: np.ndarray  # [b]
    object: np.ndarray
    agent_next: np.ndarray
    heading_next: np.ndarray
    object_next: np.ndarray
    contact: np.ndarray  # [b, ...] bool
    dropped: dict[str, int]


@final
class SoccerDriving(OnField):
    """The world: `states` are random triples, `rows` the same with pictures."""

    group = "se2"  # of the actions

    def __init__(self, config: DrivingConfig | None = None) -> None:
        config = config or DrivingConfig()
        super().__init__(config, Drive(config), AROUND if config.view == "around" else ("ahead",))
        self.n = 3 if config.sideways else 2

    def step(self, scene: Scene, displacement: np.ndarray) -> Outcome:
        """Move the agent of one scene (b = 1) by an action [n], as far as the border and the ball let it."""
        outcome: Outcome = self._physics.step(*(x[0] for x in scene), displacement.astype(np.float64))
        return outcome

    def displacement(self, scene: Scene, outcome: Outcome) -> np.ndarray:
        return outcome.displacement

    def states(self, seed: int, start: int, stop: int) -> Triples:
        """Triples `start` to `stop` of this seed."""
        scenes, outcomes, dropped = self.found(seed, start, stop)
        before, after = (
            Scene(
                stacked(x, "agent", 2),
                stacked(x, "heading"),
                self.stacked(x, "object", 2),
                self.stacked(x, "orientation", 4),
            )
            for x in (scenes, outcomes)
        )
        contact, pushed = (self.flags(outcomes, name) for name in ("contact", "pushed"))
        stopped = np.array([x.stopped for x in outcomes], bool)
        return Triples(before, stacked(outcomes, "displacement", self.n), after, contact, stopped, dropped, pushed)

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        """Triples `start` to `stop` of this seed with their observations."""
        triples = self.states(seed, start, stop)
        before, after = triples.before, triples.after
        pictures = self.observe(before), triples.action, self.observe(after)
        return Rows(*pictures, *before[:3], *after[:3], triples.contact, triples.dropped)

    def touches(self, scene: Scene, target: np.ndarray) -> np.ndarray:
        """Whether the agent's disc touches that of a ball on its path, for actions `target` [b, n]: [b] bool."""
        drive: Drive = self._physics
        path = drive.along(scene.agent, scene.heading, target, POINTS)
        gaps = nearest(path[:, :-1, None], np.diff(path, axis=1)[:, :, None], objects(scene)[:, None])
        touched: np.ndarray = gaps.min((1, 2)) <= REACH
        return touched

    def _propose(self, rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
        drive: Drive = self._physics
        agent, target = self._paths(rng)
        in_place = rng.random(len(agent)) < IN_PLACE
        way = np.where(in_place[:, None], 0.0, target - agent)
        turn = rng.uniform(-MOST_TURN, MOST_TURN, len(agent))
        heading, backward = rng.uniform(-math.pi, math.pi, len(agent)), rng.random(len(agent)) < 0.5
        if not self.config.sideways:
            leads = np.arctan2(way[:, 1], way[:, 0]) - np.where(self.config.motion == "arc", turn / 2, 0)
            heading = np.where(in_place, heading, _wrapped(leads + np.where(backward, math.pi, 0)))
        heading = heading.astype(np.float32)
        move = drive.leading(way, heading, turn, backward)
        position, orientation, keep = self.balls(agent, rng)
        keep &= _inside(drive.along(agent, heading, move, POINTS)).all(1)
        return Scene(agent[keep], heading[keep], position[keep], orientation[keep]), move[keep]


@final
class Drive:
    """Moves the agent along its own axes and waits until the ball rests.

    In a move "arc" the agent drives and turns at constant rates. In a move "straight" it drives, then turns in place.
    """

    def __init__(self, config: DrivingConfig) -> None:
        self._physics = Physics(config.agent_speed, config.balls)
        self._sideways, self._arc = config.sideways, config.motion == "arc"

    def step(
        self, place: np.ndarray, faces: float, position: np.ndarray, orientation: np.ndarray, action: np.ndarray
    ) -> Outcome:
        """Carry out an action [n] at a place [2] until the border or a pinned ball stops the agent."""
        agent, heading = place[None], np.array([faces])
        free = _inside(self.along(agent, heading, action[None], STOPS))[0]  # [t]
        action = self.part(action, (int(free.cumprod().sum()) - 1) / STOPS if not free.all() else 1.0)
        path = self.along(agent, heading, action[None], POINTS if self._arc else 1)[0]
        targets = np.clip(path[1:], *AGENT_RANGE).astype(np.float32)
        found = self._physics.step(place, position, orientation, targets)
        action = self.part(action, found.share).astype(np.float32)
        end = self.along(agent, heading, action[None].astype(np.float64), 1)[0, -1]
        return Outcome(
            np.clip(end, *AGENT_RANGE).astype(np.float32),
            np.float32(_wrapped(heading[0] + action[-1])),
            found.object,
            found.orientation,
            action,
            contact=found.contact,
            grazing=found.grazing,
            settled=found.settled,
            stopped=found.stopped,
            pushed=found.pushed,
        )

    def leading(self, way: np.ndarray, heading: np.ndarray, turn: np.ndarray, backward: np.ndarray) -> np.ndarray:
        """Actions [b, n] that lead along `way` [b, 2] and turn the agent; a differential drive must face the way."""
        if self._sideways:
            return np.concatenate((turned(way, -heading), turn[:, None]), 1)
        length = np.linalg.norm(way, axis=1) / (_chord(turn) if self._arc else 1)
        return np.stack((np.where(backward, -length, length), turn), 1)

    def part(self, action: np.ndarray, share: np.ndarray | float) -> np.ndarray:
        """Actions [..., n] of agents that stop after a share [...] of their way. On a straight way they still turn."""
        share, drive, turn = np.asarray(share), action[..., :-1], action[..., -1]
        if not self._arc:
            return np.concatenate((share[..., None] * drive, np.broadcast_to(turn, share.shape)[..., None]), -1)
        if not self._sideways:
            return share[..., None] * action
        reach = share * _chord(share * turn) / _chord(turn)
        drive = reach[..., None] * turned(drive, (share - 1) * turn / 2)
        return np.concatenate((drive, (share * turn)[..., None]), -1)

    def along(self, agent: np.ndarray, heading: np.ndarray, action: np.ndarray, count: int) -> np.ndarray:
        """Points [b, count + 1, 2] of the paths of agents [b, 2] that carry out actions [b, n]."""
        action = self.part(action[:, None], np.arange(count + 1) / count * np.ones((len(agent), 1)))
        ahead, turn = action[..., :-1], action[..., -1]
        if not self._sideways:
            ahead = np.concatenate((ahead, np.zeros_like(ahead)), -1)
            ahead = turned(ahead * _chord(turn)[..., None], turn / 2) if self._arc else ahead
        return agent[:, None] + turned(ahead, heading[:, None].astype(np.float64))


def turned(vector: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Vectors [..., 2] turned to the left by angles [...]."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = vector[..., 0], vector[..., 1]
    return np.stack((cos * x - sin * y, sin * x + cos * y), -1)


def _chord(turn: np.ndarray) -> np.ndarray:
    """Length of the chord of an arc that turns by `turn` [...], relative to the arc."""
    found: np.ndarray = np.sinc(turn / (2 * math.pi))
    return found


def _wrapped(angle: np.ndarray) -> np.ndarray:
    """Angles from -pi to pi."""
    return np.remainder(angle + math.pi, 2 * math.pi) - math.pi


def _inside(points: np.ndarray) -> np.ndarray:
    low, high = AGENT_RANGE
    inside: np.ndarray = np.abs(points - (low + high) / 2).max(-1) <= (high - low) / 2 + 1e-6
    return inside
