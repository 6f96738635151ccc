"""Gymnasium shells: a batch of one."""

from typing import Any

import gymnasium
import numpy as np
import torch

from palpate.envs.sprites import Scene, Sprites, SpritesConfig, Triple


class SpritesEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One Sprites scene. Observations are pictures [h, w, 3]; an action is the agent's wanted displacement.

    There is no task: the reward is 0 and episodes do not end. `info` holds the true state and `displacement`, how far
    the agent really went before the border stopped it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; allowed are None and 'rgb_array'")
        self.render_mode = render_mode
        self.world = Sprites(SpritesConfig(**options))
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
        move = torch.as_tensor(np.asarray(action), dtype=torch.float32)
        if move.shape != (2,) or not move.isfinite().all():
            raise ValueError(f"action is {action!r}; allowed are two finite numbers, the agent's displacement")
        triple = self.world.step(self._scene, move[None], self._generator)
        self._scene = Scene(triple.agent_next, triple.object_next, triple.angle_next)
        return self._picture(), 0.0, False, False, self._info(triple)

    def render(self) -> np.ndarray | None:
        return self._picture() if self.render_mode == "rgb_array" else None

    def _picture(self) -> np.ndarray:
        assert self._scene is not None
        return self.world.render(self._scene)[0].permute(1, 2, 0).contiguous().numpy()

    def _info(self, triple: Triple | None = None) -> dict[str, Any]:
        assert self._scene is not None
        info: dict[str, Any] = {name: value[0].numpy() for name, value in self._scene._asdict().items()}
        if triple is not None:
            info |= {"displacement": triple.displacement[0].numpy(), "contact": bool(triple.contact[0])}
        return info
