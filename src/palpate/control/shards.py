"""Some of the environments, stepped by one process. Every worker imports this module: it imports nothing heavy."""

from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np

Env = gymnasium.Env[np.ndarray, np.ndarray]
Make = Callable[[], Env]
KEPT = ("goal",)  # entries of an environment's info that a run reads


class Stepped(NamedTuple):
    """One step of some environments; where one has ended, `observation` begins its next episode."""

    observation: np.ndarray  # [b, ...]
    reward: np.ndarray  # [b] float32
    done: np.ndarray  # [b] bool
    infos: list[dict[str, Any]]


@final
class Shard:
    """Some environments, stepped one after the other."""

    def __init__(self, make: Make, count: int) -> None:
        self._envs = [make() for _ in range(count)]
        self.spaces = self._envs[0].observation_space, self._envs[0].action_space

    def reset(self, seeds: Sequence[int | None]) -> np.ndarray:
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)])

    def step(self, actions: np.ndarray) -> Stepped:
        observations, rewards, dones, infos = [], [], [], []
        for env, action in zip(self._envs, actions, strict=True):
            observation, reward, terminated, truncated, info = env.step(action)
            kept = {name: info[name] for name in KEPT if name in info}
            if terminated or truncated:
                # PPO bootstraps at a time limit; stable-baselines3 fixes these names.
                kept |= {"terminal_observation": observation, "TimeLimit.truncated": truncated and not terminated}
                observation, _ = env.reset()
            observations.append(observation)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(kept)
        return Stepped(np.stack(observations), np.array(rewards, np.float32), np.array(dones), infos)

    def close(self) -> None:
        for env in self._envs:
            env.close()


def serve_shard(pipe: Connection, make: Make, count: int) -> None:
    """Runs in a worker: sends the spaces, then the results of the methods that the parent requests."""
    with closing(Shard(make, count)) as shard:
        pipe.send(shard.spaces)
        while True:
            name, argument = pipe.recv()
            pipe.send(getattr(shard, name)(argument))
