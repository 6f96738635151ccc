"""`palpate.wrap`: an environment with the positions of a representation as observations.

Legend: b observations, n ambient dimension, d numbers in the input of a policy.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor

from palpate.representation import Representation

EAGER_CALLS = 3  # before a CUDA graph is captured: memory settles, and kernels are chosen


def wrap(
    env: Any, model: Representation, *, covariance: bool = False, confidence: bool = False, device: str | None = None
) -> Any:
    """The same environment, with observations `[agent, object]` in the action's unit, float32; `[agent, object 1,
    object 2...]` for several objects. The position of an agent that turns is followed by the axis ahead of it, the
    cosine and the sine of its heading; in space by its first two axes.

    `env` is a Gymnasium environment, a Gymnasium vector environment or a `VecEnv` of stable-baselines3; the wrapper is
    of the same kind. The observations of several environments are encoded in one batch, including those that end an
    episode. With `covariance` the n x n numbers of the object's ellipsoid follow, row by row. With `confidence` the
    probability that the object is visible comes last.

    A VAE does not place the object: the agent's position is followed by its latent. A Transporter gives its two
    keypoints in their own order. `device` is where to encode; by default a GPU if there is one.
    """
    if not isinstance(model, Representation):
        raise ValueError(f"model is a {type(model).__name__}; allowed is a representation, as palpate.load returns it")
    stable_baselines = sys.modules.get("stable_baselines3.common.vec_env")
    wrapper: Callable[..., Any]
    if isinstance(env, gymnasium.Env):
        wrapper, space = Positions, env.observation_space
    elif isinstance(env, gymnasium.vector.VectorEnv):
        wrapper, space = VectorPositions, env.single_observation_space
    elif stable_baselines and isinstance(env, stable_baselines.VecEnv):
        from palpate.control.vec import VecPositions

        wrapper, space = VecPositions, env.observation_space
    else:
        raise ValueError(
            f"env is a {type(env).__name__}; allowed are a Gymnasium environment, a Gymnasium vector environment and a "
            "VecEnv of stable-baselines3"
        )
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(f"the environment's observations are {space}; allowed are arrays (a Box)")
    model.canonical(np.zeros((1, *space.shape), space.dtype))  # refuses observations that the model cannot encode
    appended = [name for name, asked in (("covariance", covariance), ("confidence", confidence)) if asked]
    return wrapper(env, Reader(model, appended, device=device))


@final
class Reader:
    """Encodes observations [b, ...] to the input of a policy [b, d], in one batch; on a GPU by a CUDA graph."""

    def __init__(self, model: Representation, appended: Sequence[str] = (), *, device: str | None = None) -> None:
        gpu = torch.cuda.is_available()
        self._device = where = torch.device(device or ("cuda" if gpu else "cpu"))
        if where.type == "cuda" and not gpu:
            raise ValueError(f"device is {device!r}, but torch sees no GPU here; use 'cpu', or leave it out")
        config = model.config
        self.model, self._appended = model.to(where), appended
        self._frame = model.frame.to(where)
        self._graphs: dict[int, Graph] = {}
        # Networks give any number; keypoints lie in the picture's unit square.
        self._low, self._high = (-np.inf, np.inf) if model.model.tells_apart else (0.0, 1.0)
        dtype = getattr(torch, config.observation_dtype)
        blank = self._read(torch.zeros((1, *config.observation_shape), dtype=dtype, device=where))
        self.space = gymnasium.spaces.Box(self._low, self._high, blank.shape[1:], np.float32)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        o = self.model.canonical(observation)
        if self._device.type != "cuda":
            return self._read(o).numpy()
        return self._captured(o)

    def with_last(self, observation: np.ndarray, last: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Also encode the last observations of ended episodes, in the same batch."""
        read = self(np.concatenate((observation, np.stack(last))) if last else observation)
        return read[: len(observation)], read[len(observation) :]

    @torch.no_grad()
    def _read(self, o: Tensor) -> Tensor:
        model = self.model.model
        encoding = self._frame.placed(model, model.encode(o))
        # The last axis follows from the others.
        axes = [] if encoding.attitude is None else [encoding.attitude[..., :-1].mT.flatten(1)]
        parts = [encoding.agent, *axes, encoding.objects.flatten(1)]
        for name in self._appended:
            part = getattr(encoding, f"{name}s")
            if part is None:
                raise ValueError(
                    f"{name} is True, but this model ({self.model.config.method}) gives none; leave it out"
                )
            parts.append(part.flatten(1))
        # A keypoint can lie outside a picture whose size is no multiple of the map's cells.
        return torch.cat(parts, -1).float().clamp(self._low, self._high)

    def _captured(self, o: Tensor) -> np.ndarray:
        """By a CUDA graph. Batches are padded to a power of two, so that there are few graphs."""
        rows = 1 << (len(o) - 1).bit_length()
        if rows not in self._graphs:
            self._graphs[rows] = Graph(self._read, o.new_zeros((rows, *o.shape[1:]), device=self._device))
        return self._graphs[rows](o)[: len(o)].cpu().numpy()


@final
class Graph:
    """A function of one tensor as a CUDA graph: the time of a small batch is the time of its kernel launches."""

    def __init__(self, function: Callable[[Tensor], Tensor], like: Tensor) -> None:
        self._held = like
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(EAGER_CALLS):
                function(self._held)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        gc.collect()  # garbage of earlier runs must not be freed during the capture
        with torch.cuda.graph(self._graph):
            self._result = function(self._held)

    def __call__(self, o: Tensor) -> Tensor:
        """For at most as many rows; the result is valid until the next call."""
        self._held[: len(o)].copy_(o)
        self._graph.replay()
        return self._result


@final
class Positions(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """One environment."""

    def __init__(self, env: gymnasium.Env[np.ndarray, np.ndarray], reader: Reader) -> None:
        super().__init__(env)
        self.observation_space = reader.space
        self._reader = reader

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return self._reader(observation[None])[0]


@final
class VectorPositions(gymnasium.vector.VectorWrapper):
    """A vector environment of Gymnasium."""

    def __init__(self, env: gymnasium.vector.VectorEnv, reader: Reader) -> None:
        super().__init__(env)
        self.single_observation_space = reader.space
        self.observation_space = batch_space(reader.space, env.num_envs)
        self._reader = reader

    def reset(self, **how: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**how)
        return self._reader(observation), info

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        # If an episode ends and the next begins in one step, the last observation is in here.
        ended = np.flatnonzero(info.get("_final_obs", np.zeros(self.num_envs, bool)))
        read, last = self._reader.with_last(observation, [info["final_obs"][i] for i in ended])
        if len(ended):
            final_obs = np.full(self.num_envs, None, dtype=object)
            for i, each in zip(ended, last, strict=True):
                final_obs[i] = each
            info = info | {"final_obs": final_obs}
        return read, reward, terminated, truncated, info
