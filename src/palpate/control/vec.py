"""Environments as stable-baselines3 steps them: many at once, in worker processes, with positions for observations.

Workers are spawned, since neither OpenGL nor torch survives a fork; each has its share of the environments. A pipe ties
each to the parent: a worker ends when the parent is gone, and the parent learns at once when a worker is.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from palpate.control.wrapping import Reader

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
                # A time limit is no end of the world: the value of what would have followed is looked up by these names.
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
                f"a worker process ended with code {self._process.exitcode}: memory may be short (take fewer workers); a "
                'script with workers must run under `if __name__ == "__main__":`'
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


@final
class Envs(VecEnv):
    """`count` environments in `workers` processes; with 0 they are stepped by this one."""

    def __init__(self, make: Make, count: int, workers: int) -> None:
        workers = min(workers, count)
        self._workers: list[Remote] = []
        self._shard = None if workers else Shard(make, count)
        share = [count // max(workers, 1) + (i < count % max(workers, 1)) for i in range(workers)]
        self._cuts = np.cumsum(share)[:-1]
        self._closed = False
        try:
            with _deaf_children():
                self._workers += [Remote(make, k) for k in share]
            spaces = self._shard.spaces if self._shard else [worker.answer() for worker in self._workers][0]
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
        for worker in self._workers:
            worker.close()

    def _split(self, rows: Any) -> list[Any]:
        if not self._workers:
            return [rows]
        ends = [0, *self._cuts.tolist(), len(rows)]
        return [rows[low:high] for low, high in zip(ends, ends[1:], strict=False)]

    def _ask(self, name: str, arguments: list[Any]) -> list[Any]:
        if self._shard is not None:
            return [getattr(self._shard, name)(arguments[0])]
        for worker, argument in zip(self._workers, arguments, strict=True):
            worker.send(name, argument)
        return [worker.answer() for worker in self._workers]

    # What stable-baselines3 may ask beside; nothing here has attributes to offer.
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


@final
class VecPositions(VecEnvWrapper):
    """Many environments of stable-baselines3, encoded at once."""

    def __init__(self, env: VecEnv, reader: Reader) -> None:
        reader.demand(env.observation_space)
        super().__init__(env, observation_space=reader.space)
        self._reader = reader

    def reset(self) -> np.ndarray:
        return self._reader(self.venv.reset())

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, done, infos = self.venv.step_wait()
        ended = [i for i, info in enumerate(infos) if "terminal_observation" in info]
        last = [infos[i]["terminal_observation"] for i in ended]
        read = self._reader(np.concatenate((observation, np.stack(last))) if ended else observation)
        for place, i in enumerate(ended):
            infos[i] = infos[i] | {"terminal_observation": read[self.num_envs + place]}
        return read[: self.num_envs], reward, done, infos


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C: the parent does, and ends them when it has saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, make: Make, count: int) -> None:
    """A worker's life: requests in, answers out, until the pipe ends."""
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa's software renderer would take every core for itself
    try:
        shard = Shard(make, count)
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
