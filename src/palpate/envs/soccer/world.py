"""Soccer: an agent that kicks a ball, from a camera beside the field or from four on the agent (paper, Sec. 5.2).

The paper's world was a Unity player; this one is MuJoCo. States live in the unit square, x to the right and y up. The
ball moves if and only if the agent touches it on its way, and a step lasts until the ball rests. There may be several
balls, and one may push another.

Legend: b batch, k balls, h and w picture height and width. `...` is empty for one ball and `k` for several.
"""

from dataclasses import asdict
from typing import Any, NamedTuple, final

import numpy as np

from palpate.envs.simulator.world import Simulated, stacked
from palpate.envs.soccer import renderer
from palpate.envs.soccer.config import (
    AGENT_RANGE,
    BALL_RADIUS,
    FENCE_RANGE,
    FIRST_PERSON,
    GAP,
    REACH,
    VERSION,
    DrivingConfig,
    SoccerConfig,
)
from palpate.envs.soccer.physics import Physics, fence


class Scene(NamedTuple):
    """True states."""

    agent: np.ndarray  # [b, 2] float32
    object: np.ndarray  # [b, ..., 2] float32
    orientation: np.ndarray  # [b, ..., 4] float32, the ball's, as a unit quaternion w x y z


class Triples(NamedTuple):
    """True states of triples, without pictures."""

    before: Scene
    action: np.ndarray  # [b, 2] float32, the displacement achieved
    after: Scene
    contact: np.ndarray  # [b, ...] bool: the ball was touched and moved
    stopped: np.ndarray  # [b] bool: the agent stopped before its target, at a ball that could not give way
    dropped: dict[str, int]  # dropped proposals, by reason
    pushed: np.ndarray  # [b, ...] bool: in contact with other balls alone


class Rows(NamedTuple):
    """Triples with pictures: [b, h, w, 3] in third person, [b, 4, h, w, 3] in first person, uint8."""

    observation: np.ndarray
    action: np.ndarray  # [b, 2] float32, the displacement achieved
    next_observation: np.ndarray
    agent: np.ndarray  # [b, 2] float32, as all states
    object: np.ndarray  # [b, ..., 2]
    agent_next: np.ndarray
    object_next: np.ndarray
    contact: np.ndarray  # [b, ...] bool
    dropped: dict[str, int]


class OnField(Simulated):
    """What the worlds with a ball on this field have in common."""

    agent_range = AGENT_RANGE
    faults = ("unsettled", "grazing")

    def __init__(self, config: SoccerConfig | DrivingConfig, physics: Any, cameras: tuple[str, ...]) -> None:
        super().__init__(config, physics, cameras)
        self._each = (config.balls,) if config.balls > 1 else ()  # `...` of the legend
        self.observation_shape = (3 * len(cameras), config.size, config.size)
        self._normals, self._offsets = fence()

    def settings(self) -> dict[str, Any]:
        """The settings that determine the rows of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    def render(self, scene: Any, camera: str = "third", width: int = 640, height: int = 480) -> np.ndarray:
        """Scenes from one of `CAMERAS`: [b, h, w, 3] uint8."""
        return self._draw(scene, (camera,), width, height)[:, 0]

    def balls(self, agent: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random positions [b, ..., 2] and orientations [b, ..., 4] of balls, and whether [b] they all lie inside the
        fence and apart from the agents [b, 2] and each other."""
        positions, orientations, free = list[np.ndarray](), list[np.ndarray](), np.ones(len(agent), bool)
        for _ in range(self.config.balls):
            position = rng.uniform(*FENCE_RANGE, agent.shape).astype(np.float32)
            orientation = rng.normal(size=(len(agent), 4))
            orientation = (orientation / np.linalg.norm(orientation, axis=1, keepdims=True)).astype(np.float32)
            free &= ((position - 0.5) @ self._normals.T < self._offsets - GAP).all(1)
            free &= np.linalg.norm(agent - position, axis=1) > REACH + GAP
            for other in positions:
                free &= np.linalg.norm(other - position, axis=1) > 2 * BALL_RADIUS + GAP
            positions.append(position)
            orientations.append(orientation)
        shapes = (len(agent), *self._each, 2), (len(agent), *self._each, 4)
        return np.stack(positions, 1).reshape(shapes[0]), np.stack(orientations, 1).reshape(shapes[1]), free

    def stacked(self, states: list[Any], name: str, *shape: int) -> np.ndarray:
        """One entry of the balls in all states, [b, ..., *shape] float32."""
        return stacked(states, name, *self._each, *shape)

    def flags(self, states: list[Any], name: str) -> np.ndarray:
        """One flag of the balls in all states, [b, ...] bool."""
        return self.stacked(states, name).astype(bool)

    def _fault(self, outcome: Any) -> str:
        return "" if outcome.settled and not outcome.grazing else "grazing" if outcome.settled else "unsettled"

    def _draw(self, scene: Any, cameras: tuple[str, ...], width: int, height: int) -> np.ndarray:
        self._require_open()
        heading = {"heading": scene.heading} if hasattr(scene, "heading") else {}
        states = {"agent": scene.agent, "ball": scene.object, "orientation": scene.orientation, **heading}
        return renderer.draw(states, cameras, width, height, self.config.shadows)


@final
class Soccer(OnField):
    """The world: `states` are random triples, `rows` the same with pictures."""

    def __init__(self, config: SoccerConfig | None = None) -> None:
        config = config or SoccerConfig()
        super().__init__(
            config, Physics(config.agent_speed, config.balls), ("third",) if config.view == "third" else FIRST_PERSON
        )

    def states(self, seed: int, start: int, stop: int) -> Triples:
        """Triples `start` to `stop` of this seed."""
        scenes, outcomes, dropped = self.found(seed, start, stop)
        before, after = (
            Scene(stacked(x, "agent", 2), self.stacked(x, "object", 2), self.stacked(x, "orientation", 4))
            for x in (scenes, outcomes)
        )
        contact, pushed = (self.flags(outcomes, name) for name in ("contact", "pushed"))
        stopped = np.array([x.stopped for x in outcomes], bool)
        return Triples(before, after.agent - before.agent, after, contact, stopped, dropped, pushed)

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        """Triples `start` to `stop` of this seed with their observations."""
        triples = self.states(seed, start, stop)
        before, after = triples.before, triples.after
        pictures = self.observe(before), triples.action, self.observe(after)
        return Rows(*pictures, *before[:2], *after[:2], triples.contact, triples.dropped)

    def touches(self, scene: Scene, target: np.ndarray) -> np.ndarray:
        """Whether the agent's disc touches that of a ball on its path to `target` [b, 2]: [b] bool."""
        ways = scene.agent[:, None], (target - scene.agent)[:, None]
        touched: np.ndarray = nearest(*ways, objects(scene)).min(1) <= REACH
        return touched

    def _propose(self, rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
        agent, target = self._paths(rng)
        position, orientation, keep = self.balls(agent, rng)
        return Scene(agent[keep], position[keep], orientation[keep]), target[keep]


def objects(scene: Any) -> np.ndarray:
    """Positions of the balls with their axis, [b, k, 2]."""
    places: np.ndarray = scene.object
    return places if places.ndim == 3 else places[:, None]


def nearest(start: np.ndarray, move: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Distance [...] of the segments from `start` [..., 2] along `move` [..., 2] to a place [..., 2]."""
    offset = place - start
    share = (offset * move).sum(-1) / np.maximum((move * move).sum(-1), 1e-20)
    found: np.ndarray = np.linalg.norm(offset - np.clip(share, 0, 1)[..., None] * move, axis=-1)
    return found
