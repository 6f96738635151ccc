"""`palpate.wrap` for environments of stable-baselines3, which this module imports."""

from typing import Any, final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from palpate.control.wrapping import Reader


@final
class VecPositions(VecEnvWrapper):
    """A `VecEnv` with positions as observations, encoded in one batch."""

    def __init__(self, env: VecEnv, reader: Reader) -> None:
        super().__init__(env, observation_space=reader.space)
        self._reader = reader

    def reset(self) -> np.ndarray:
        observation = self.venv.reset()
        assert isinstance(observation, np.ndarray)
        return self._reader(observation)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, done, infos = self.venv.step_wait()
        assert isinstance(observation, np.ndarray)
        ended = [i for i, info in enumerate(infos) if "terminal_observation" in info]
        read, last = self._reader.with_last(observation, [infos[i]["terminal_observation"] for i in ended])
        for i, each in zip(ended, last, strict=True):
            infos[i] = infos[i] | {"terminal_observation": each}
        return read, reward, done, infos
