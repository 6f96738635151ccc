"""Collecting triples from a world, in memory or straight into a file."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias, overload

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from palpate.data.labelled import Labelled, Truth
from palpate.data.stream import World
from palpate.data.transitions import FIELDS, Batch, Transitions, Writer

WORLD_ROWS = 512  # generated at a time
ENV_ROWS = 64  # stepped one by one: only what waits in memory between writes

Block: TypeAlias = tuple[Batch, Truth | None]
Progress: TypeAlias = Callable[[int, int], object]


@overload
def collect(
    env: str | gymnasium.Env[Any, Any],
    num: int,
    *,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    labelled: Literal[False] = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
    **world_options: Any,
) -> Transitions: ...


@overload
def collect(
    env: str | gymnasium.Env[Any, Any],
    num: int,
    *,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    labelled: Literal[True],
    overwrite: bool = ...,
    progress: Progress | None = ...,
    **world_options: Any,
) -> Labelled: ...


def collect(
    env: str | gymnasium.Env[Any, Any],
    num: int,
    *,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    labelled: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **world_options: Any,
) -> Transitions | Labelled:
    """`num` triples of random motion in an environment, given by its id or as a Gymnasium instance.

    The Sprites ids generate in batches and take their settings as options, such as `contact_share`. Any other
    environment is stepped with random actions of its one-dimensional box; the triple's action is what was achieved,
    `info["displacement"]`, where the environment reports it. With `out` the triples go to that file, true states
    included where the environment reports them, and are read from there. `progress` is called with (done, num).
    """
    if num < 1:
        raise ValueError(f"num is {num}; collect at least 1 triple")
    made = None
    if isinstance(env, str):
        options = {name: x if isinstance(x, str | int | float) else str(x) for name, x in world_options.items()}
        attributes = {**options, "environment": env, "seed": seed}
        if env in gymnasium.registry and not env.startswith("palpate/Sprites"):
            made = gymnasium.make(env, **world_options)
            blocks = _step(made, num, seed)
        else:
            from palpate.envs.registration import world  # names the nearest id if there is none

            blocks = _generate(world(env, **world_options), num, seed)
    else:
        if world_options:
            raise ValueError(f"options {sorted(world_options)} are for ids; set them on the environment instead")
        attributes = {"environment": env.spec.id if env.spec else type(env.unwrapped).__name__, "seed": seed}
        blocks = _step(env, num, seed)
    if progress is not None:
        blocks = _report(blocks, num, progress)
    if labelled:
        blocks = _require_truth(blocks)
    try:
        if out is None:
            return _in_memory(blocks, num, labelled, attributes)
        with Writer(out, attributes=attributes, overwrite=overwrite) as writer:
            for batch, truth in blocks:
                writer.append(batch, truth and truth.known())
        return Labelled.open(out) if labelled else Transitions.open(out)
    finally:
        if made is not None:
            made.close()


def _generate(world: World, num: int, seed: int) -> Iterator[Block]:
    generator = torch.Generator(world.device).manual_seed(seed)
    for start in range(0, num, WORLD_ROWS):
        states = world.sample(min(WORLD_ROWS, num - start), generator)
        o, o_next = world.render_pair(states)
        truth = Truth(**{name: getattr(states, name).cpu() for name in Truth._fields})
        yield Batch(o.cpu(), states.displacement.cpu(), o_next.cpu()), truth


def _step(env: gymnasium.Env[Any, Any], num: int, seed: int) -> Iterator[Block]:
    action, observation = env.action_space, env.observation_space
    if not isinstance(action, Box) or len(action.shape) != 1:
        raise ValueError(f"the action space is {action}; wrap the environment so that it is a Box with one axis")
    if not isinstance(observation, Box):
        raise ValueError(f"the observation space is {observation}; wrap the environment so that it is a Box")
    triples = _triples(env, seed)
    for start in range(0, num, ENV_ROWS):
        o, a, o_next, truth = zip(*itertools.islice(triples, min(ENV_ROWS, num - start)), strict=True)
        block = Transitions(observation=np.stack(o), action=np.stack(a), next_observation=np.stack(o_next))
        known = None not in truth
        columns = (torch.from_numpy(np.stack(x)) for x in zip(*truth, strict=True)) if known else ()
        yield block.rows(slice(None)), Truth(*columns) if known else None


def _triples(env: gymnasium.Env[Any, Any], seed: int) -> Iterator[tuple[Any, ...]]:
    """(o, a, o', truth or None) without end; copied at once, since an environment may reuse its arrays."""
    env.action_space.seed(seed)
    o, state, _ = _copied(*env.reset(seed=seed))
    while True:
        action = env.action_space.sample()
        o_next, _, terminated, truncated, info = env.step(action)
        o_next, state_next, contact = _copied(o_next, info)
        known = state is not None and state_next is not None and contact is not None
        truth = (*state, contact, *state_next) if known else None
        yield o, np.array(info.get("displacement", action)), o_next, truth
        o, state = o_next, state_next
        if terminated or truncated:
            o, state, _ = _copied(*env.reset())


def _copied(observation: Any, info: dict[str, Any]) -> tuple[Any, ...]:
    """Observation, true state and contact; None for what the environment does not report."""
    names = ("agent", "object", "angle")
    state = tuple(np.array(info[name]) for name in names) if all(name in info for name in names) else None
    return np.array(observation), state, np.array(info["contact"]) if "contact" in info else None


def _report(blocks: Iterable[Block], num: int, progress: Progress) -> Iterator[Block]:
    done = 0
    for batch, truth in blocks:
        yield batch, truth
        done += len(batch.a)
        progress(done, num)


def _require_truth(blocks: Iterable[Block]) -> Iterator[Block]:
    for batch, truth in blocks:
        if truth is None:
            raise ValueError(
                "this environment does not report true states; labelled=True needs agent, object and angle in the "
                "info of reset and step, and contact in that of step"
            )
        yield batch, truth


def _in_memory(blocks: Iterable[Block], num: int, labelled: bool, attributes: dict[str, Any]) -> Transitions | Labelled:
    """Fill arrays of the final size: joining the blocks at the end would need twice the memory."""
    arrays: dict[str, Tensor] = {}
    done = 0
    for batch, truth in blocks:
        columns = dict(zip(FIELDS, batch, strict=True)) | (truth.known() if labelled and truth else {})
        for name, x in columns.items():
            if name not in arrays:
                arrays[name] = torch.empty((num, *x.shape[1:]), dtype=x.dtype)
            arrays[name][done : done + len(x)] = x
        done += len(batch.a)
    fields = {name: arrays.pop(name) for name in FIELDS}
    transitions = Transitions(**fields, layout="channel-first", attributes=attributes)
    return Labelled(transitions, Truth(**arrays)) if labelled else transitions
