"""An environment for tests that costs nothing."""

from typing import Any

import gymnasium
import numpy as np

SIZE, MOVES, LENGTH = 20, 0.3, 3


class Dots(gymnasium.Env[np.ndarray, np.ndarray]):
    """Every state has another picture; episodes have three steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.action_space = gymnasium.spaces.Box(-MOVES, MOVES, (2,), np.float32)
        self.state, self.time = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.time = int(self.np_random.integers(100)), 0
        return self._look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.state, self.time = (self.state + 1 + int(100 * abs(action[0]))) % 256, self.time + 1
        return self._look(), 1.0, False, self.time == LENGTH, {"goal": self.state > 50}

    def _look(self) -> np.ndarray:
        picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        picture[self.state % SIZE, :, self.state % 3] = self.state
        return picture
