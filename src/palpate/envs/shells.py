"""Gymnasium shells: a batch of one."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch

from palpate.envs.driving import MOST_TURN
from palpate.envs.lidar import FARTHEST, ROBOT_RANGE, Lidar, LidarConfig, LidarTurning
from palpate.envs.many import ManyConfig, SpritesMany
from palpate.envs.options import configured
from palpate.envs.simulator.renderer import require_picture_size
from palpate.envs.soccer import DrivingConfig, Soccer, SoccerConfig, SoccerDriving
from palpate.envs.soccer.config import AGENT_RANGE
from palpate.envs.sprites import AGENT_RADIUS, Sprites, SpritesConfig
from palpate.envs.table import Table, TableConfig
from palpate.envs.turning import SpritesTurning, TurningConfig


class _Shell(gymnasium.Env[np.ndarray, np.ndarray]):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(self, render_mode: str | None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; allowed are None and 'rgb_array'")
        self.render_mode = render_mode
        self.scene: Any = None  # before the first reset

    def _require_reset(self) -> None:
        if self.scene is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")


class _Streamed(_Shell):
    """One scene of a world that makes batches. An action is the agent's requested displacement.

    There is no task: the reward is 0 and episodes do not end. `info` holds the true state. After a step it also holds
    `displacement`, how far the agent moved before the border stopped it, and `contact`.
    """

    hidden: tuple[str, ...] = ()  # parts of a scene that are not in `info`

    def __init__(self, render_mode: str | None, world: Any, observations: gymnasium.spaces.Box, reach: float) -> None:
        super().__init__(render_mode)
        self.world = world
        most = np.array([reach, reach, MOST_TURN][: world.n], np.float32)
        self.observation_space = observations
        self.action_space = gymnasium.spaces.Box(-most, most, dtype=np.float32)
        self._generator = torch.Generator()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._generator.manual_seed(int(self.np_random.integers(2**63)))
        self.scene = self.world.reset(1, self._generator)
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._require_reset()
        move = torch.from_numpy(displacement(action, self.world.n))
        triple = self.world.step(self.scene, move[None], self._generator)
        self.scene = type(self.scene)(*(getattr(triple, f"{name}_next") for name in self.scene._fields))
        told = {"displacement": triple.displacement[0].numpy(), "contact": triple.contact[0].tolist()}
        return self._observation(), 0.0, False, False, self._info() | told

    def render(self) -> np.ndarray | None:
        return None if self.render_mode is None or self.scene is None else self._picture()

    def _observation(self) -> np.ndarray:
        raise NotImplementedError

    def _picture(self) -> np.ndarray:
        raise NotImplementedError

    def _info(self) -> dict[str, Any]:
        known = {name: x for name, x in self.scene._asdict().items() if name not in self.hidden}
        return {name: x[0].numpy().copy() for name, x in known.items()}


class _Drawn(_Streamed):
    """Observations are pictures [h, w, 3]."""

    def __init__(self, render_mode: str | None, world: Sprites | SpritesMany | SpritesTurning) -> None:
        size = world.config.size
        pictures = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        super().__init__(render_mode, world, pictures, 1 - 2 * AGENT_RADIUS)

    def _observation(self) -> np.ndarray:
        return self._picture()

    def _picture(self) -> np.ndarray:
        picture: np.ndarray = self.world.render(self.scene)[0].permute(1, 2, 0).contiguous().numpy()
        return picture


class SpritesEnv(_Drawn):
    """One scene of Sprites."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(render_mode, Sprites(configured(SpritesConfig, options)))


class ManyEnv(_Drawn):
    """One scene of SpritesMany; `object` and `contact` have a row for each object."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(render_mode, SpritesMany(configured(ManyConfig, options)))


class TurningEnv(_Drawn):
    """One scene of SpritesTurning. An action is (forward, sideways, turn) along the robot's own axes; `displacement` in
    `info` is the part of it until the border stopped the robot. `info` also holds the true `heading`."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(render_mode, SpritesTurning(configured(TurningConfig, options)))


class LidarEnv(_Streamed):
    """One room of Lidar. Observations are scans [r]; `render` draws the room from above."""

    hidden = ("noise",)
    kind: type[Lidar] = Lidar

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        world = self.kind(configured(LidarConfig, options))
        scans = gymnasium.spaces.Box(0.0, FARTHEST, world.observation_shape, np.float32)
        super().__init__(render_mode, world, scans, ROBOT_RANGE[1] - ROBOT_RANGE[0])

    def _observation(self) -> np.ndarray:
        scan: np.ndarray = self.world.render(self.scene)[0].numpy()
        return scan

    def _picture(self) -> np.ndarray:
        picture: np.ndarray = self.world.above(self.scene)[0].permute(1, 2, 0).contiguous().numpy()
        return picture


class LidarTurningEnv(LidarEnv):
    """One room of LidarTurning. An action is (forward, sideways, turn) along the robot's own axes; `displacement` in
    `info` is the part of it until the border stopped the robot. `info` also holds the true `heading`."""

    kind = LidarTurning


class Simulated(_Shell):
    """One scene of a world that MuJoCo simulates. `width` and `height` are those of `render`; by default they are the
    observation's size. There is no task: the reward is 0."""

    def __init__(
        self, render_mode: str | None, width: int | None, height: int | None, world: Any, most: Sequence[float]
    ) -> None:
        super().__init__(render_mode)
        self.world, size = world, world.config.size
        self._shown = (size if width is None else width, size if height is None else height)
        require_picture_size(*self._shown)
        views = (len(world.cameras),) if len(world.cameras) > 1 else ()
        self.observation_space = gymnasium.spaces.Box(0, 255, (*views, size, size, 3), np.uint8)
        largest = np.array(most, np.float32)
        self.action_space = gymnasium.spaces.Box(-largest, largest, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.scene = self._start()
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._require_reset()
        before, outcome = self.scene, self.world.step(self.scene, displacement(action, self.world.n))
        self.scene = type(before)(*(np.asarray(getattr(outcome, name))[None] for name in before._fields))
        told = {name: getattr(outcome, name) for name in self.told}
        moved = {"displacement": self.world.displacement(before, outcome), "unsettled": not outcome.settled}
        return self._observation(), 0.0, self._over(), False, self._info() | told | moved

    def render(self) -> np.ndarray | None:
        """The cameras' pictures side by side."""
        if self.render_mode is None or self.scene is None:
            return None
        cameras = self.world.cameras
        return np.concatenate([self.world.render(self.scene, name, *self._shown)[0] for name in cameras], axis=1)

    def close(self) -> None:
        self.world.close()

    told: tuple[str, ...]  # entries of the outcome that `info` holds after a step

    def _start(self) -> Any:
        return self.world.reset(self.np_random)

    def _over(self) -> bool:
        return False

    def _observation(self) -> np.ndarray:
        picture: np.ndarray = self.world.observe(self.scene)[0]
        return picture

    def _info(self) -> dict[str, Any]:
        return {name: value[0].copy() for name, value in self.scene._asdict().items()}


class SoccerEnv(Simulated):
    """One soccer scene. Observations are pictures [h, w, 3], in first person [4, h, w, 3]. An action is the agent's
    requested displacement, and a step lasts until the balls rest. Episodes do not end.

    `info` holds the true state; of several balls, `object` and so on have a row for each. After a step it also holds
    `displacement`, how far the agent moved before the border or a pinned ball stopped it, `contact`, `pushed` (in
    contact with other balls alone) and `stopped`. Two flags mark steps that `collect` drops: `grazing`, a contact too
    weak to count, after which the ball is put back; `unsettled`, a ball that did not come to rest in time.
    """

    told = ("contact", "grazing", "stopped", "pushed")

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        world = Soccer(configured(SoccerConfig, options))
        super().__init__(render_mode, width, height, world, (_longest(world.config.stride),) * 2)


class DrivingEnv(Simulated):
    """One soccer scene with an agent that turns. Observations are pictures of the cameras that it carries: [4, h, w, 3]
    around it, or [h, w, 3] ahead. An action is (forward, sideways, turn) along the agent's own axes, or (forward, turn)
    for a differential drive, and a step lasts until the ball rests. Episodes do not end.

    `info` is as in `SoccerEnv`, with the true `heading`. `displacement` is the action as far as the border or a pinned
    ball let the agent carry it out.
    """

    told = ("contact", "grazing", "stopped", "pushed")

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        world = SoccerDriving(configured(DrivingConfig, options))
        longest = _longest(world.config.stride)
        super().__init__(render_mode, width, height, world, (*(longest,) * (world.n - 1), MOST_TURN))


class TableEnv(Simulated):
    """One table. Observations are pictures [h, w, 3], of several cameras [v, h, w, 3]. An action is the gripper's
    requested displacement, and a step lasts until the block rests. An episode is terminated when the block leaves the
    area that the gripper can reach from all sides.

    `info` holds the true state and `visible`, whether a camera sees the block. After a step it also holds
    `displacement`, how far the gripper moved before the border stopped it, `contact`, `nudge`, a contact that hardly
    moved the block, and `unsettled`, which marks steps that `collect` drops.
    """

    told = ("contact", "nudge")

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        world = Table(configured(TableConfig, options))
        super().__init__(render_mode, width, height, world, (world.config.stride,) * 2)

    def _over(self) -> bool:
        return bool(self.world.left(self.scene.object[0]))

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"visible": bool(self.world.visible(self.scene)[0])}


def _longest(stride: float) -> float:
    return min(stride, AGENT_RANGE[1] - AGENT_RANGE[0])


def displacement(action: np.ndarray, count: int = 2) -> np.ndarray:
    move = np.asarray(action, dtype=np.float32)
    if move.shape != (count,) or not np.isfinite(move).all():
        raise ValueError(f"action is {action!r}; allowed are {count} finite numbers, the agent's move")
    return move
