"""Table: a gripper pushes a block, and its arm hides what is behind it from the cameras.

States live in the unit square, x to the right and y away from the front camera. The block moves if and only if the
gripper touches it on its way, and a step lasts until the block rests. Weak contacts are kept: a *nudge* moves every
corner of the block by at most `MOVED_EPSILON`.

Legend: b batch, k candidates, v views, h and w picture height and width.
"""

from dataclasses import asdict
from typing import Any, NamedTuple, Self, final

import numpy as np

from palpate.envs.simulator import engine
from palpate.envs.simulator.renderer import FINE_FROM, Renderer, require_picture_size, shared
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

CANDIDATES = 64
PATH_POINTS = 48  # at which a proposed path is compared with the block
REASONS = ("left", "unsettled", "missed")  # why a proposal is dropped; missed: the simulated contact is not as proposed


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
class Table:
    """The world: `states` are random triples, `rows` the same with pictures, `step` moves the gripper of one scene.

    Triple i depends on the seed and on i, not on the cameras. So workers may share the rows of a set in any way.
    """

    n = 2

    def __init__(self, config: TableConfig | None = None) -> None:
        self.config = config or TableConfig()
        self._slabs = BLOCKS[self.config.block]
        self._physics = Physics(self.config.block)
        self._closed = False

    def close(self) -> None:
        """No more pictures are drawn; states can still be computed."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settings(self) -> dict[str, Any]:
        """The settings that determine the rows of a seed."""
        return asdict(self.config) | {"world_version": VERSION, "cameras": ",".join(self.config.cameras)}

    # States

    def states(self, seed: int, start: int, stop: int) -> Triples:
        """Triples `start` to `stop` of this seed."""
        if seed < 0 or not 0 <= start <= stop:
            raise ValueError(f"rows {start} to {stop} of seed {seed} do not exist; allowed are 0 <= start <= stop")
        dropped = dict.fromkeys(REASONS, 0)
        found = [self._triple(seed, i, dropped) for i in range(start, stop)]
        before, after = (_stacked([pair[i] for pair in found]) for i in (0, 1))
        contact, nudge = (
            np.array([getattr(outcome, name) for _, outcome in found], bool) for name in ("contact", "nudge")
        )
        return Triples(before, after.agent - before.agent, after, contact, nudge, dropped)

    def reset(self, rng: np.random.Generator) -> Scene:
        """A random scene, b = 1."""
        scenes, _ = self._propose(rng)
        return Scene(*(x[:1] for x in scenes))

    def step(self, scene: Scene, displacement: np.ndarray) -> Outcome:
        """Move the gripper of one scene (b = 1) by `displacement` [2], stopped at the border axis by axis."""
        agent, position, angle = (x[0] for x in scene)
        target = np.clip(agent + displacement, *GRIPPER_RANGE).astype(np.float32)
        return self._physics.step(agent, position, angle, target)

    def left(self, position: np.ndarray) -> bool:
        """Whether a block at `position` [2] is where the gripper cannot pass it on all sides."""
        low, high = BLOCK_RANGE
        return bool((position < low).any() or (position > high).any())

    def _triple(self, seed: int, row: int, dropped: dict[str, int]) -> tuple[Scene, Outcome]:
        rng = np.random.default_rng(np.random.SeedSequence([seed, row]))
        share, coin = self.config.contact_share, rng.random()
        while True:
            scenes, target = self._propose(rng)
            wanted = np.arange(len(target))
            if share is not None:
                wanted = np.flatnonzero(self.touches(scenes, target) == (coin < share))
            for i in wanted:
                scene = Scene(*(x[i] for x in scenes))
                outcome = self._physics.step(scene.agent, scene.object, float(scene.angle), target[i])
                if not outcome.settled:
                    dropped["unsettled"] += 1
                elif self.left(outcome.object):
                    dropped["left"] += 1
                elif share is not None and outcome.contact != (coin < share):
                    dropped["missed"] += 1
                else:
                    return scene, outcome

    def _propose(self, rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
        """Random scenes with bodies apart, and targets of the gripper [k, 2]; k varies."""
        agent = rng.uniform(*GRIPPER_RANGE, (CANDIDATES, 2)).astype(np.float32)
        near, far = (np.clip(agent + sign * self.config.stride, *GRIPPER_RANGE) for sign in (-1, 1))
        target = rng.uniform(near, far).astype(np.float32)
        position = rng.uniform(*BLOCK_RANGE, (CANDIDATES, 2)).astype(np.float32)
        angle = rng.uniform(-np.pi, np.pi, CANDIDATES).astype(np.float32)
        apart = clearance(self._slabs, agent, position, angle) > GAP
        return Scene(agent[apart], position[apart], angle[apart]), target[apart]

    def touches(self, scene: Scene, target: np.ndarray) -> np.ndarray:
        """Whether the gripper meets the block on its straight path to `target` [b, 2]: [b] bool, up to small steps."""
        along = np.linspace(0, 1, PATH_POINTS)[:, None, None]
        path = scene.agent + (target - scene.agent) * along
        return np.min([clearance(self._slabs, place, *scene[1:]) for place in path], 0) <= 0

    # Pictures

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        """Triples `start` to `stop` of this seed with their observations."""
        triples = self.states(seed, start, stop)
        before, after = triples.before, triples.after
        pictures = self.observe(before), triples.action, self.observe(after)
        return Rows(*pictures, *before, *after, triples.contact, self.visible(before), triples.dropped)

    def observe(self, scene: Scene) -> np.ndarray:
        """Pictures of the configured cameras: [b, h, w, 3] of one, [b, v, h, w, 3] of several, uint8."""
        size = self.config.size
        pictures = np.stack([self.render(scene, name, size, size) for name in self.config.cameras], 1)
        return pictures if len(self.config.cameras) > 1 else pictures[:, 0]

    def render(self, scene: Scene, camera: Camera = "front", width: int = 640, height: int = 480) -> np.ndarray:
        """Scenes from one of `CAMERAS`: [b, h, w, 3] uint8."""
        if camera not in CAMERAS:
            raise ValueError(f"camera is {camera!r}; allowed are {', '.join(map(repr, CAMERAS))}")
        require_picture_size(width, height)
        renderer = self._renderer(max(width, height))
        renderer.focus(width, height)
        pictures = np.empty((len(scene.agent), height, width, 3), np.uint8)
        for i, state in enumerate(zip(*scene, strict=True)):
            renderer.pose(joints(*state))
            pictures[i] = renderer.shoot(CAMERAS.index(camera))
        return pictures

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

    def _renderer(self, side: int) -> Renderer:
        if self._closed:
            raise ValueError("this world was closed; make another to draw more pictures")
        block, arm, shadows, fine = self.config.block, self.config.arm, self.config.shadows, side >= FINE_FROM
        return shared(
            ("table", block, arm, shadows, fine),
            lambda: build(engine.load(), block, arm=arm, fine=fine, shadows=shadows),
        )


def _stacked(states: list[Any]) -> Scene:
    agent, position = (
        np.array([getattr(s, x) for s in states], np.float32).reshape(-1, 2) for x in ("agent", "object")
    )
    return Scene(agent, position, np.array([state.angle for state in states], np.float32))
