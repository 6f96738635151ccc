"""The game as a run sets it up; light, since every worker process imports it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

import palpate.envs  # noqa: F401 - makes the ids known
from palpate.control.settings import LEARNED, ControlConfig

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
