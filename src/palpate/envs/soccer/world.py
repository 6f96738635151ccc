"""Soccer: an agent that kicks a ball, from a camera beside the field or from four on the agent (paper, Sec. 5.2).

The paper's world was a Unity player; this one is MuJoCo. States live in the unit square, x to the right and y up. The
ball moves if and only if the agent touches it on its way, and a step lasts until the ball rests.

Legend: b batch, k candidates, v views, h and w picture height and width.
"""

from dataclasses import asdict
from typing import Any, NamedTuple, Self, final

import numpy as np

from palpate.envs.soccer import renderer
from palpate.envs.soccer.config import AGENT_RANGE, FENCE_RANGE, FIRST_PERSON, GAP, REACH, VERSION, SoccerConfig
from palpate.envs.soccer.physics import Outcome, Physics, fence

CANDIDATES = 64
REASONS = (
    "grazing",
    "unsettled",
    "missed",
)  # why a proposal is dropped; missed: two discs touch, the simulated bodies do not


class Scene(NamedTuple):
    """True states."""

    agent: np.ndarray  # [b, 2] float32
    object: np.ndarray  # [b, 2] float32
    orientation: np.ndarray  # [b, 4] float32, the ball's, as a unit quaternion w x y z


class Triples(NamedTuple):
    """True states of triples, without pictures."""

    before: Scene
    action: np.ndarray  # [b, 2] float32, the displacement achieved
    after: Scene
    contact: np.ndarray  # [b] bool: the ball was touched and moved
    stopped: np.ndarray  # [b] bool: the agent stopped before its target, at a ball that could not give way
    dropped: dict[str, int]  # dropped proposals, by reason


class Rows(NamedTuple):
    """Triples with pictures: [b, h, w, 3] in third person, [b, 4, h, w, 3] in first person, uint8."""

    observation: np.ndarray
    action: np.ndarray  # [b, 2] float32, the displacement achieved
    next_observation: np.ndarray
    agent: np.ndarray  # [b, 2] float32, as all states
    object: np.ndarray
    agent_next: np.ndarray
    object_next: np.ndarray
    contact: np.ndarray  # [b] bool
    dropped: dict[str, int]


@final
class Soccer:
    """The world: `states` are random triples, `rows` the same with pictures, `step` moves the agent of one scene.

    Triple i depends on the seed and on i, not on the cameras. So workers may share the rows of a set in any way.
    """

    n = 2

    def __init__(self, config: SoccerConfig | None = None) -> None:
        self.config = config or SoccerConfig()
        size = self.config.size
        self.observation_shape = (3 if self.config.view == "third" else 12, size, size)
        self._physics = Physics(self.config.agent_speed)
        self._closed = False
        self._normals, self._offsets = fence()

    def close(self) -> None:
        """No more pictures are drawn; states can still be computed."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settings(self) -> dict[str, Any]:
        """The settings that determine the rows of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    # States

    def states(self, seed: int, start: int, stop: int) -> Triples:
        """Triples `start` to `stop` of this seed."""
        if seed < 0 or not 0 <= start <= stop:
            raise ValueError(f"rows {start} to {stop} of seed {seed} do not exist; allowed are 0 <= start <= stop")
        dropped = dict.fromkeys(REASONS, 0)
        found = [self._triple(seed, i, dropped) for i in range(start, stop)]
        before, after = (
            Scene(
                *(np.array([pair[i][k] for pair in found], np.float32).reshape(-1, w) for k, w in enumerate((2, 2, 4)))
            )
            for i in (0, 1)
        )
        contact, stopped = (
            np.array([getattr(outcome, name) for _, outcome in found], bool) for name in ("contact", "stopped")
        )
        return Triples(before, after.agent - before.agent, after, contact, stopped, dropped)

    def reset(self, rng: np.random.Generator) -> Scene:
        """A random scene, b = 1."""
        scenes, _ = self._propose(rng)
        return Scene(*(x[:1] for x in scenes))

    def step(self, scene: Scene, displacement: np.ndarray) -> Outcome:
        """Move the agent of one scene (b = 1) by `displacement` [2], stopped at the border axis by axis.

        A contact that moves the ball by at most `MOVED_EPSILON` is grazing, and the ball is put back.
        """
        agent, position, orientation = (x[0] for x in scene)
        target = np.clip(agent + displacement, *AGENT_RANGE).astype(np.float32)
        return self._physics.step(agent, position, orientation, target)

    def _triple(self, seed: int, row: int, dropped: dict[str, int]) -> tuple[Scene, Outcome]:
        rng = np.random.default_rng(np.random.SeedSequence([seed, row]))
        share, coin = self.config.contact_share, rng.random()
        while True:
            scenes, target = self._propose(rng)
            if share is None:
                wanted = np.arange(len(target))
            else:
                wanted = np.flatnonzero(self.touches(scenes, target) == (coin < share))
            for i in wanted:
                scene = Scene(*(x[i] for x in scenes))
                outcome = self._physics.step(*scene, target[i])
                if not outcome.settled:
                    dropped["unsettled"] += 1
                elif outcome.grazing:
                    dropped["grazing"] += 1
                elif share is not None and outcome.contact != (coin < share):
                    dropped["missed"] += 1
                else:
                    return scene, outcome

    def _propose(self, rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
        """Random scenes with bodies apart, and targets of the agent [k, 2]; k varies."""
        agent = rng.uniform(*AGENT_RANGE, (CANDIDATES, 2)).astype(np.float32)
        near, far = (np.clip(agent + sign * self.config.stride, *AGENT_RANGE) for sign in (-1, 1))
        target = rng.uniform(near, far).astype(np.float32)
        position = rng.uniform(*FENCE_RANGE, (CANDIDATES, 2)).astype(np.float32)
        orientation = rng.normal(size=(CANDIDATES, 4))
        orientation = (orientation / np.linalg.norm(orientation, axis=1, keepdims=True)).astype(np.float32)
        inside = ((position - 0.5) @ self._normals.T < self._offsets - GAP).all(1)
        apart = np.linalg.norm(agent - position, axis=1) > REACH + GAP
        keep = inside & apart
        return Scene(agent[keep], position[keep], orientation[keep]), target[keep]

    def touches(self, scene: Scene, target: np.ndarray) -> np.ndarray:
        """Whether discs of the bodies' radii touch on the agent's path to `target` [b, 2]: [b] bool."""
        move, offset = target - scene.agent, scene.object - scene.agent
        share = (offset * move).sum(1) / np.maximum((move * move).sum(1), 1e-20)
        nearest = np.linalg.norm(offset - np.clip(share, 0, 1)[:, None] * move, axis=1)
        return nearest <= REACH

    # Pictures

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        """Triples `start` to `stop` of this seed with their observations."""
        triples = self.states(seed, start, stop)
        before, after = triples.before, triples.after
        pictures = self.observe(before), triples.action, self.observe(after)
        return Rows(*pictures, *before[:2], *after[:2], triples.contact, triples.dropped)

    def observe(self, scene: Scene) -> np.ndarray:
        """Pictures of the configured view: [b, h, w, 3], or [b, 4, h, w, 3] in first person, uint8."""
        size = self.config.size
        if self.config.view == "third":
            return self.render(scene, "third", size, size)
        return self._draw(scene, FIRST_PERSON, size, size)

    def render(self, scene: Scene, camera: str = "third", width: int = 640, height: int = 480) -> np.ndarray:
        """Scenes from one of `CAMERAS`: [b, h, w, 3] uint8."""
        return self._draw(scene, (camera,), width, height)[:, 0]

    def drawn_by(self) -> str:
        """OpenGL's name for what draws the observations: a GPU, or a software renderer."""
        self._require_open()
        return renderer.drawn_by(self.config.size, self.config.shadows)

    def _draw(self, scene: Scene, cameras: tuple[str, ...], width: int, height: int) -> np.ndarray:
        self._require_open()
        return renderer.draw(scene, cameras, width, height, self.config.shadows)

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("this world was closed; make another to draw more pictures")
