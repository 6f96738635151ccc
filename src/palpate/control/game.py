"""The game as a run sets it up; light, since every worker process imports it."""

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
    """How the game is set up: with true states nothing is drawn, and a model sees pictures of its own size."""
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
    """Scenes [b, 8] of any number of games to pictures, all in this process.

    OpenGL contexts of several processes on one GPU take turns, and a turn is longer than it takes to draw a small
    picture: there, one process that draws for all is faster. In software each process had better draw its own.
    """

    def __init__(self, size: int) -> None:
        self._world = Soccer(SoccerConfig(view="third", size=size))
        self.space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def demand(self, space: gymnasium.Space[Any]) -> None:
        """That observations of this space are scenes."""
        if space.shape != (8,):
            raise ValueError(f"the environment's observations are {space}; allowed are scenes")

    def __call__(self, scenes: np.ndarray) -> np.ndarray:
        return self._world.observe(Scene(scenes[:, :2], scenes[:, 2:4], scenes[:, 4:]))

    def in_software(self) -> bool:
        """Whether OpenGL draws on the CPU here, by the name that it gives itself."""
        return any(word in self._world.drawn_by().lower() for word in ("llvmpipe", "softpipe", "swrast", "software"))

    def close(self) -> None:
        self._world.close()
