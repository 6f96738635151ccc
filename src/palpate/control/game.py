"""The game as a run sets it up. Every worker process imports this module, so it imports nothing heavy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import gymnasium
import numpy as np

import palpate.envs  # noqa: F401 - makes the ids known
from palpate.control.settings import LEARNED, ControlConfig
from palpate.envs.soccer import Scene, Soccer, SoccerConfig

if TYPE_CHECKING:
    from palpate.representation import Representation

GAME = "palpate/SoccerGoal-v0"


def make_game(options: Mapping[str, Any]) -> gymnasium.Env[np.ndarray, np.ndarray]:
    """One environment; a worker process calls this."""
    env: gymnasium.Env[np.ndarray, np.ndarray] = gymnasium.make(GAME, disable_env_checker=True, **options)
    return env


def game_options(representation: str, config: ControlConfig, model: "Representation | None") -> dict[str, Any]:
    """Options of the game: true states need no pictures, and a model reads pictures of its own size."""
    if (model is None) == (representation in LEARNED):
        raise ValueError(
            f"representation is {representation!r}, which needs {'a' if model is None else 'no'} trained model"
        )
    return {
        "observation": "state" if representation == "truth" else "picture",
        "max_step": config.max_step,
        "end_on_goal": config.end_on_goal,
        "ball": config.ball,
        "size": config.size if model is None else model.config.observation_shape[-1],
    }


@final
class Painter:
    """Draws scenes [b, 8] of all games in this process.

    On a GPU this is faster than drawing in each worker: OpenGL contexts of several processes take turns, and a turn
    takes longer than a small picture. In software it is slower.
    """

    def __init__(self, size: int) -> None:
        self._world = Soccer(SoccerConfig(view="third", size=size))
        self.space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def demand(self, space: gymnasium.Space[Any]) -> None:
        """Refuse observations that are not scenes."""
        if space.shape != (8,):
            raise ValueError(f"the environment's observations are {space}; allowed are scenes")

    def __call__(self, scenes: np.ndarray) -> np.ndarray:
        return self._world.observe(Scene(scenes[:, :2], scenes[:, 2:4], scenes[:, 4:]))

    def in_software(self) -> bool:
        """Whether OpenGL draws on the CPU, by the name of its renderer."""
        return any(word in self._world.drawn_by().lower() for word in ("llvmpipe", "softpipe", "swrast", "software"))

    def close(self) -> None:
        self._world.close()
