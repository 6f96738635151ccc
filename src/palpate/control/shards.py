"""Environments in worker processes, each with its share of them.

Workers are spawned, since neither OpenGL nor torch survives a fork. A pipe ties each to the parent: a worker ends when
the parent is gone, and the parent learns at once when a worker is. Nothing heavy is imported here: every worker pays.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np

PATIENCE = 5.0  # seconds for a worker to close its environments
Env = gymnasium.Env[np.ndarray, np.ndarray]
Make = Callable[[], Env]
KEPT = ("goal",)  # of an environment's info: what a run looks at


class Stepped(NamedTuple):
    """One step of some environments; where one has ended, `observation` begins its next episode."""

    observation: np.ndarray  # [b, ...]
    reward: np.ndarray  # [b] float32
    done: np.ndarray  # [b] bool
    infos: list[dict[str, Any]]


class Failure(NamedTuple):
    message: str
    trace: str
    mistake: bool  # something the user can mend, such as a missing library


class WorkerFailed(RuntimeError):  # noqa: N818 - reads as what it is
    """A worker failed or died; its own traceback is in the message where it could still give one."""


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
                # A time limit is no end of the world: PPO adds the value of what would have followed, by these names.
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


@final
class Remote:
    """A shard in a process of its own, seen from the parent."""

    def __init__(self, make: Make, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, count), name="palpate-env", daemon=True)
        self._process.start()
        theirs.close()  # the worker's copy is the only one now: when it ends, we read the end of the pipe

    def send(self, name: str, argument: Any) -> None:
        try:
            self._connection.send((name, argument))
        except OSError:
            self.answer()  # says what happened

    def answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(PATIENCE)
            raise WorkerFailed(
                f"a worker process ended with code {self._process.exitcode}: memory may be short (take fewer workers); "
                'a script with workers must run under `if __name__ == "__main__":`'
            ) from None
        if isinstance(answer, Failure):
            if answer.mistake:
                raise ValueError(answer.message)
            raise WorkerFailed(f"a worker failed: {answer.message}\n{answer.trace}")
        return answer

    def close(self) -> None:
        self._connection.close()
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._process.close()


def _serve(connection: Connection, make: Make, count: int) -> None:
    """A worker's life: requests in, answers out, until the pipe ends."""
    os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa's software renderer would take every core for itself
    try:
        shard = Shard(make, count)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        try:
            connection.send(shard.spaces)
            while True:
                name, argument = connection.recv()
                connection.send(getattr(shard, name)(argument))
        finally:
            shard.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has all it wants, or is gone
    except Exception as error:
        mistake = isinstance(error, ValueError | OSError | ModuleNotFoundError)
        message = str(error) if mistake else f"{type(error).__name__}: {error}"
        connection.send(Failure(message, traceback.format_exc(), mistake))
