"""Gymnasium shells: a batch of one."""

from typing import Any

import gymnasium
import numpy as np
import torch

from palpate.envs.options import configured
from palpate.envs.soccer import Scene as SoccerScene
from palpate.envs.soccer import Soccer, SoccerConfig
from palpate.envs.soccer.cameras import demand_shown
from palpate.envs.soccer.config import AGENT_RANGE, FIRST_PERSON
from palpate.envs.soccer.window import Window
from palpate.envs.sprites import Scene, Sprites, SpritesConfig, Triple


class SpritesEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One Sprites scene. Observations are pictures [h, w, 3]; an action is the agent's wanted displacement.

    There is no task: the reward is 0 and episodes do not end. `info` holds the true state and `displacement`, how far
    the agent really went before the border stopped it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        _demand_mode(render_mode, self.metadata)
        self.render_mode = render_mode
        self.world = Sprites(configured(SpritesConfig, options))
        size = self.world.config.size
        reach = 1 - 2 * self.world.config.agent_radius
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gymnasium.spaces.Box(-reach, reach, (2,), np.float32)
        self._generator = torch.Generator()
        self._scene: Scene | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._generator.manual_seed(int(self.np_random.integers(2**63)))
        self._scene = self.world.reset(1, self._generator)
        return self._picture(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._scene is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        triple = self.world.step(self._scene, torch.from_numpy(displacement(action))[None], self._generator)
        self._scene = Scene(triple.agent_next, triple.object_next, triple.angle_next)
        return self._picture(), 0.0, False, False, self._info(triple)

    def render(self) -> np.ndarray | None:
        return self._picture() if self.render_mode == "rgb_array" else None

    def _picture(self) -> np.ndarray:
        assert self._scene is not None
        return self.world.render(self._scene)[0].permute(1, 2, 0).contiguous().numpy()

    def _info(self, triple: Triple | None = None) -> dict[str, Any]:
        assert self._scene is not None
        info: dict[str, Any] = {name: value[0].numpy().copy() for name, value in self._scene._asdict().items()}
        if triple is not None:
            info |= {"displacement": triple.displacement[0].numpy(), "contact": bool(triple.contact[0])}
        return info


class SoccerEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One soccer scene. Observations are pictures [h, w, 3], in first person [4, h, w, 3]. An action is the agent's
    wanted displacement, and a step lasts until the ball rests. `width` and `height` are those of `render`, by default
    the observation's size.

    There is no task: the reward is 0 and episodes do not end. `info` holds the true state and, after a step,
    `displacement`, how far the agent moved before the border or a pinned ball stopped it, and `contact`. Two flags mark
    steps that collecting drops: `grazing`, a contact too weak to count, after which the ball is put back; `unsettled`,
    a ball that did not come to rest in time.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        _demand_mode(render_mode, self.metadata)
        self.render_mode = render_mode
        self.world = Soccer(self._configure(options))
        self._window = Window(self.world.config) if render_mode == "human" else None
        size = self.world.config.size
        self._shown = demand_shown(*(size if side is None else side for side in (width, height)))
        self.observation_space, most = self._spaces()
        self.action_space = gymnasium.spaces.Box(-most, most, (2,), np.float32)
        self.scene: SoccerScene | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.scene = self._start(options or {})
        return self._observation(self.scene), self._info(self.scene)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self.scene
        if before is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        outcome = self.world.step(before, self._displacement(action))
        self.scene = SoccerScene(outcome.agent[None], outcome.object[None], outcome.orientation[None])
        info = self._info(self.scene) | {
            "displacement": outcome.agent - before.agent[0],
            "contact": outcome.contact,
            "grazing": outcome.grazing,
            "stopped": outcome.stopped,
            "unsettled": not outcome.settled,
        }
        reward, terminated = self._judge(info)
        return self._observation(self.scene), reward, terminated, False, info

    def render(self) -> np.ndarray | None:
        """The cameras' pictures, four views side by side; with "human", a window shows the scene instead."""
        if self.render_mode != "rgb_array" or self.scene is None:
            return None
        cameras = FIRST_PERSON if self.world.config.view == "first" else ("third",)
        return np.concatenate([self.world.render(self.scene, name, *self._shown)[0] for name in cameras], axis=1)

    def close(self) -> None:
        self.world.close()
        if self._window is not None:
            self._window.close()

    # What a task changes

    def _configure(self, options: dict[str, Any]) -> SoccerConfig:
        return configured(SoccerConfig, options)

    def _spaces(self) -> tuple[gymnasium.spaces.Box, np.float32]:
        """The observations, and the largest displacement along an axis."""
        config = self.world.config
        views = (4,) if config.view == "first" else ()
        pictures = gymnasium.spaces.Box(0, 255, (*views, config.size, config.size, 3), np.uint8)
        return pictures, np.float32(min(config.stride, AGENT_RANGE[1] - AGENT_RANGE[0]))

    def _start(self, options: dict[str, Any]) -> SoccerScene:
        return self.world.reset(self.np_random)

    def _displacement(self, action: np.ndarray) -> np.ndarray:
        return displacement(action)

    def _judge(self, info: dict[str, Any]) -> tuple[float, bool]:
        """The reward of a step, and whether it ends the episode."""
        return 0.0, False

    def _observation(self, scene: SoccerScene) -> np.ndarray:
        if self._window is not None:
            self._window.show(scene)
        return self.world.observe(scene)[0]

    def _info(self, scene: SoccerScene) -> dict[str, Any]:
        return {name: value[0].copy() for name, value in scene._asdict().items()}


def displacement(action: np.ndarray) -> np.ndarray:
    move = np.asarray(action, dtype=np.float32)
    if move.shape != (2,) or not np.isfinite(move).all():
        raise ValueError(f"action is {action!r}; allowed are two finite numbers, the agent's displacement")
    return move


def _demand_mode(render_mode: str | None, metadata: dict[str, Any]) -> None:
    modes = [None, *metadata["render_modes"]]
    if render_mode not in modes:
        raise ValueError(
            f"render_mode is {render_mode!r}; allowed are {', '.join(map(repr, modes[:-1]))} and {modes[-1]!r}"
        )
