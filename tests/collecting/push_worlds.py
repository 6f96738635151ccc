"""Small environments of other people's making, in a module that spawned workers can import."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Cart(gymnasium.Env[Any, Any]):
    """An agent in a square of side 20 is driven to a target; a puck that is hit slides, and enters at the other end.

    An action is a target, so no displacement. The agent goes a third of the way in a step; the puck slides ten steps,
    by half as much in each. `always` keeps it sliding. An episode is truncated after `horizon` steps, and terminated
    once the agent was driven `most` times.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own convention
    observation_space: Any = Dict(pixels=Box(0, 255, (6, 5, 3), np.uint8), pos=Box(0, 20, (2,)))
    action_space: Any = Box(0, 20, (2,), np.float32)

    def __init__(
        self, render_mode: str | None = None, always: bool = False, horizon: int = 10**9, most: int = 10**9
    ) -> None:
        self.render_mode, self.always, self.horizon, self.most = render_mode, always, horizon, most
        self.actions: list[np.ndarray] = []
        self.at, self.puck, self.speed = np.zeros((3, 2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at[:], self.puck[:] = self.np_random.uniform(0, 20, (2, 2))
        self.speed[:] = (0, 1)  # it comes rolling in
        self.steps, self.hit = 0, False
        return self.look()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(np.array(action))
        self.steps += 1
        move = (action - self.at) / 3
        self.at += move
        self.hit = bool(np.linalg.norm(self.at - self.puck) < 2) and bool(np.linalg.norm(move) > 0.1)
        if self.hit:
            self.speed[:] = move / np.linalg.norm(move)
        self.puck[:] = (self.puck + self.speed) % 20
        if not self.always:
            self.speed[:] = np.where(np.abs(self.speed) < 1e-3, 0, self.speed / 2)
        observation, info = self.look()
        return observation, 0.0, self.steps == self.most, self.steps == self.horizon, info

    def look(self) -> tuple[Any, dict[str, Any]]:
        observation = {"pixels": np.full((6, 5, 3), int(np.clip(self.at[0] * 10, 0, 255)), np.uint8), "pos": self.at}
        return observation, {"pos": self.at, "pose": np.array([*self.puck, 0.5]), "hit": self.hit}

    def render(self) -> np.ndarray | None:
        return None if self.render_mode is None else np.full((7, 9, 3), int(self.at[1] * 10), np.uint8)


class Grid(gymnasium.Env[Any, Any]):
    """Discrete actions on a line of cells; the position is a scalar in an array."""

    observation_space: Any = Box(0, 9, (1,), np.float32)
    action_space: Any = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = np.array([5.0], np.float32)
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = np.clip(self.at + 2 * int(action) - 1, 0, 9).astype(np.float32)
        return self.at, 0.0, False, False, {}
