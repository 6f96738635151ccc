"""Environments in the interface of stable-baselines3: several at once, and with encoded observations."""

from itertools import pairwise
from typing import Any, Protocol, final

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from palpate.control.shards import Make, Shard, serve_shard
from palpate.workers import Worker, dismiss


@final
class Envs(VecEnv):
    """`count` environments in `workers` processes; with 0 workers this process steps them."""

    def __init__(self, make: Make, count: int, workers: int) -> None:
        workers = min(workers, count)
        self._workers: list[Worker] = []
        self._shard = None if workers else Shard(make, count)
        share = [count // max(workers, 1) + (i < count % max(workers, 1)) for i in range(workers)]
        self._cuts = np.cumsum(share)[:-1]
        self._closed = False
        try:
            for k in share:
                self._workers.append(Worker(serve_shard, make, k))
            spaces, *_ = [self._shard.spaces] if self._shard else [worker.receive() for worker in self._workers]
        except BaseException:
            self.close()
            raise
        super().__init__(count, *spaces)

    def reset(self) -> np.ndarray:
        observation = np.concatenate(self._ask("reset", self._split(self._seeds)))
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        parts = self._ask("step", self._split(self._actions))
        observation, reward, done = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:3])
        return observation, reward, done, [info for part in parts for info in part.infos]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._shard is not None:
            self._shard.close()
        dismiss(self._workers)

    def _split(self, rows: Any) -> list[Any]:
        if not self._workers:
            return [rows]
        ends = [0, *self._cuts.tolist(), len(rows)]
        return [rows[low:high] for low, high in pairwise(ends)]

    def _ask(self, name: str, arguments: list[Any]) -> list[Any]:
        if self._shard is not None:
            return [getattr(self._shard, name)(arguments[0])]
        for worker, argument in zip(self._workers, arguments, strict=True):
            worker.send((name, argument))
        return [worker.receive() for worker in self._workers]

    # The rest of the interface; these environments have no attributes.
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(f"these environments have no {attr_name!r} to ask for")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"these environments have no {attr_name!r} to set")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"these environments have no {method_name!r} to call")

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Reader(Protocol):
    """Replaces observations: by a representation's positions, or by a picture of a scene."""

    @property
    def space(self) -> gymnasium.Space[Any]: ...

    def demand(self, space: gymnasium.Space[Any], /) -> None:
        """Refuse a space whose observations cannot be read."""

    def __call__(self, observation: np.ndarray, /) -> np.ndarray: ...


@final
class VecRead(VecEnvWrapper):
    """Environments of stable-baselines3 whose observations are read in one batch."""

    def __init__(self, env: VecEnv, reader: Reader) -> None:
        reader.demand(env.observation_space)
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
        last = [infos[i]["terminal_observation"] for i in ended]
        read = self._reader(np.concatenate((observation, np.stack(last))) if ended else observation)
        for place, i in enumerate(ended):
            infos[i] = infos[i] | {"terminal_observation": read[self.num_envs + place]}
        return read[: self.num_envs], reward, done, infos
