"""Table: a gripper pushes a block, and its arm hides what is behind it from the cameras.

States live in the unit square, x to the right and y away from the front camera. The block moves if and only if the
gripper touches it on its way, and a step lasts until the block rests. Weak contacts are kept: a *nudge* moves every
corner of the block by at most `MOVED_EPSILON`.

Legend: b batch, v views, h and w picture height and width.
"""

from dataclasses import asdict
from typing import Any, NamedTuple, final

import numpy as np

from palpate.envs.simulator import engine
from palpate.envs.simulator.renderer import FINE_FROM, Renderer, require_picture_size, shared
from palpate.envs.simulator.world import Simulated, stacked
from palpate.envs.table.config import (
    BLOCK_RANGE,
    BLOCKS,
    CAMERAS,
    GAP,
    GRIPPER_RANGE,
    VERSION,
    VISIBLE,
    Camera,
    TableConfig,
)
from palpate.envs.table.physics import Outcome, Physics, clearance
from palpate.envs.table.scene import build, joints, sight_points

PATH_POINTS = 48  # at which a proposed path is compared with the block


class Scene(NamedTuple):
    """True states."""

    agent: np.ndarray  # [b, 2] float32, the gripper
    object: np.ndarray  # [b, 2] float32, the block
    angle: np.ndarray  # [b] float32, of the block


class Triples(NamedTuple):
    """True states of triples, without pictures."""

    before: Scene
    action: np.ndarray  # [b, 2] float32
    after: Scene
    contact: np.ndarray  # [b] bool
    nudge: np.ndarray  # [b] bool: a contact that hardly moved the block
    dropped: dict[str, int]  # dropped proposals, by reason


class Rows(NamedTuple):
    """Triples with pictures: [b, h, w, 3] of one camera, [b, v, h, w, 3] of several, uint8."""

    observation: np.ndarray
    action: np.ndarray  # [b, 2] float32
    next_observation: np.ndarray
    agent: np.ndarray  # [b, 2] float32, as all states
    object: np.ndarray
    angle: np.ndarray
    agent_next: np.ndarray
    object_next: np.ndarray
    angle_next: np.ndarray
    contact: np.ndarray  # [b] bool
    visible: np.ndarray  # [b] bool: one of the cameras sees the block in o
    dropped: dict[str, int]


@final
class Table(Simulated):
    """The world: `states` are random triples, `rows` the same with pictures."""

    agent_range = GRIPPER_RANGE
    faults = ("left", "unsettled")

    def __init__(self, config: TableConfig | None = None) -> None:
        config = config or TableConfig()
        super().__init__(config, Physics(config.block), config.cameras)
        self._slabs = BLOCKS[config.block]

    def settings(self) -> dict[str, Any]:
        """The settings that determine the rows of a seed."""
        return asdict(self.config) | {"world_version": VERSION, "cameras": ",".join(self.cameras)}

    def states(self, seed: int, start: int, stop: int) -> Triples:
        """Triples `start` to `stop` of this seed."""
        scenes, outcomes, dropped = self.found(seed, start, stop)
        before, after = (
            Scene(stacked(x, "agent", 2), stacked(x, "object", 2), stacked(x, "angle")) for x in (scenes, outcomes)
        )
        contact, nudge = (np.array([getattr(x, name) for x in outcomes], bool) for name in ("contact", "nudge"))
        return Triples(before, after.agent - before.agent, after, contact, nudge, dropped)

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        """Triples `start` to `stop` of this seed with their observations."""
        triples = self.states(seed, start, stop)
        before, after = triples.before, triples.after
        pictures = self.observe(before), triples.action, self.observe(after)
        return Rows(*pictures, *before, *after, triples.contact, self.visible(before), triples.dropped)

    def left(self, position: np.ndarray) -> bool:
        """Whether a block at `position` [2] is where the gripper cannot pass it on all sides."""
        low, high = BLOCK_RANGE
        return bool((position < low).any() or (position > high).any())

    def touches(self, scene: Scene, target: np.ndarray) -> np.ndarray:
        """Whether the gripper meets the block on its straight path to `target` [b, 2]: [b] bool, up to small steps."""
        along = np.linspace(0, 1, PATH_POINTS)[:, None, None]
        path = scene.agent + (target - scene.agent) * along
        return np.min([clearance(self._slabs, place, *scene[1:]) for place in path], 0) <= 0

    def render(self, scene: Scene, camera: Camera = "front", width: int = 640, height: int = 480) -> np.ndarray:
        """Scenes from one of `CAMERAS`: [b, h, w, 3] uint8."""
        if camera not in CAMERAS:
            raise ValueError(f"camera is {camera!r}; allowed are {', '.join(map(repr, CAMERAS))}")
        require_picture_size(width, height)
        return self._draw(scene, (camera,), width, height)[:, 0]

    def visible(self, scene: Scene) -> np.ndarray:
        """Whether one of the configured cameras sees the block, [b] bool: enough of its sight lines are free."""
        mujoco, renderer = engine.load(), self._renderer(self.config.size)
        model, data = renderer.model, renderer.data
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "block")
        points, hit = sight_points(self.config.block), np.zeros(1, np.int32)
        seen = np.zeros(len(scene.agent), bool)
        for i, state in enumerate(zip(*scene, strict=True)):
            renderer.pose(joints(*state))
            ends = data.xpos[body] + points @ data.xmat[body].reshape(3, 3).T
            for name in self.config.cameras:
                eye = data.cam_xpos[CAMERAS.index(name)]
                free = 0
                for end in ends:
                    mujoco.mj_ray(model, data, eye, end - eye, None, True, -1, hit)
                    free += bool(model.geom_bodyid[hit[0]] == body)
                seen[i] |= free >= VISIBLE * len(ends)
        return seen

    def _propose(self, rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
        agent, target = self._paths(rng)
        position = rng.uniform(*BLOCK_RANGE, agent.shape).astype(np.float32)
        angle = rng.uniform(-np.pi, np.pi, len(agent)).astype(np.float32)
        apart = clearance(self._slabs, agent, position, angle) > GAP
        return Scene(agent[apart], position[apart], angle[apart]), target[apart]

    def _fault(self, outcome: Outcome) -> str:
        return "unsettled" if not outcome.settled else "left" if self.left(outcome.object) else ""

    def _draw(self, scene: Scene, cameras: tuple[Camera, ...], width: int, height: int) -> np.ndarray:
        renderer = self._renderer(max(width, height))
        renderer.focus(width, height)
        pictures = np.empty((len(scene.agent), len(cameras), height, width, 3), np.uint8)
        for i, state in enumerate(zip(*scene, strict=True)):
            renderer.pose(joints(*state))
            for v, name in enumerate(cameras):
                pictures[i, v] = renderer.shoot(CAMERAS.index(name))
        return pictures

    def _renderer(self, side: int) -> Renderer:
        self._require_open()
        block, arm, shadows, fine = self.config.block, self.config.arm, self.config.shadows, side >= FINE_FROM
        return shared(
            ("table", block, arm, shadows, fine),
            lambda: build(engine.load(), block, arm=arm, fine=fine, shadows=shadows),
        )
