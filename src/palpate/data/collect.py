"""Collecting triples from a world, in memory or into a file."""

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias, final, overload

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box

from palpate.data.blocks import AnyWorld, Block, Packed, RowWorld, Span, counted, make, pack, spans, unpack
from palpate.data.files import FIELDS
from palpate.data.labelled import Labelled, Truth
from palpate.data.parts import Parts, Stopped
from palpate.data.transitions import Transitions
from palpate.data.workers import Recipe, packed_blocks

Progress: TypeAlias = Callable[[int, int], object]


@overload
def collect(
    env: str | gymnasium.Env[Any, Any],
    num: int,
    *,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    labelled: Literal[False] = ...,
    workers: int = ...,
    resume: bool = ...,
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
    workers: int = ...,
    resume: bool = ...,
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
    workers: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **world_options: Any,
) -> Transitions | Labelled:
    """`num` triples of random motion in an environment, given by its id or as a Gymnasium instance.

    Our own ids take their settings as options, such as `contact_share`, and give the same triples for a seed however
    many `workers` make them and however often they are interrupted; the first rows do not depend on `num`, and the
    states of Soccer not on the camera. Sprites need one process only. Several processes need, in a script,
    `if __name__ == "__main__":`.

    Any other environment is stepped with random actions of its one-dimensional box, by one process; the triple's
    action is what was achieved, `info["displacement"]`, where the environment reports it.

    With `out` the triples go to that file, true states included where the environment reports them, and are read from
    there. On their way they lie in `OUT.parts`, which survives Ctrl-C (`palpate.data.parts.Stopped` is raised) and
    failures; `resume` goes on from there, with the same settings, to a `num` that may be another. A stepped environment
    cannot go on in the middle: what is there can only be finished with a smaller `num`. `progress` is called with
    (done, num).
    """
    if num < 1:
        raise ValueError(f"num is {num}; collect at least 1 triple")
    if workers < 1:
        raise ValueError(f"workers is {workers}; allowed is 1 or more")
    if seed < 0:
        raise ValueError(f"seed is {seed}; allowed is 0 or more")
    if resume and out is None:
        raise ValueError("resume needs out: what is collected in memory cannot be resumed")
    report = progress or (lambda done, total: None)
    with closing(_origin(env, seed, workers, labelled, world_options)) as origin:
        if out is None:
            return _in_memory(origin, num, labelled, report)
        _to_file(origin, num, Parts(out, origin.attributes, resume=resume, overwrite=overwrite), report)
    return Labelled.open(out) if labelled else Transitions.open(out)


class Origin(Protocol):
    """Where blocks come from."""

    attributes: dict[str, Any]
    can_go_on: bool  # whether blocks can be made without those before them

    def blocks(self, wanted: Sequence[Span]) -> Generator[Block | Packed, None, None]: ...

    def close(self) -> None: ...


def _origin(
    env: str | gymnasium.Env[Any, Any], seed: int, workers: int, labelled: bool, world_options: dict[str, Any]
) -> Origin:
    if not isinstance(env, str):
        if world_options:
            raise ValueError(f"options {sorted(world_options)} are for ids; set them on the environment instead")
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        return _Stepped(env, False, {"environment": name, "seed": seed}, labelled)
    options = {name: x if isinstance(x, str | int | float) else str(x) for name, x in world_options.items()}
    attributes = {**options, "environment": env, "seed": seed}
    if env in gymnasium.registry and not env.startswith("palpate/"):
        return _Stepped(gymnasium.make(env, **world_options), True, attributes, labelled)
    from palpate.envs.registration import world  # names the nearest id if there is none

    return _Made(partial(world, env, **world_options), attributes, workers)


@final
class _Made:
    """Blocks of a world of ours, by number."""

    can_go_on = True

    def __init__(self, world: Callable[[], AnyWorld], attributes: dict[str, Any], workers: int) -> None:
        self.attributes = attributes
        self._recipe = Recipe(world, attributes["seed"], attributes)
        self._world = world()  # also where there are workers: bad settings show here, before any is started
        self._workers = workers if isinstance(self._world, RowWorld) else 1

    def blocks(self, wanted: Sequence[Span]) -> Generator[Block | Packed, None, None]:
        if min(self._workers, len(wanted)) > 1:
            yield from packed_blocks(self._recipe, wanted, self._workers)
        else:
            yield from (make(self._world, self._recipe.seed, span) for span in wanted)

    def close(self) -> None:
        if isinstance(self._world, RowWorld):
            self._world.close()


@final
class _Stepped:
    """Blocks of any environment, one step after the other."""

    can_go_on = False

    def __init__(self, env: gymnasium.Env[Any, Any], ours: bool, attributes: dict[str, Any], labelled: bool) -> None:
        self.attributes = attributes
        self._env, self._ours, self._labelled = env, ours, labelled

    def blocks(self, wanted: Sequence[Span]) -> Generator[Block | Packed, None, None]:
        action, observation = self._env.action_space, self._env.observation_space
        if not isinstance(action, Box) or len(action.shape) != 1:
            raise ValueError(f"the action space is {action}; wrap the environment so that it is a Box with one axis")
        if not isinstance(observation, Box):
            raise ValueError(f"the observation space is {observation}; wrap the environment so that it is a Box")
        dropped: Counter[str] = Counter()
        triples, names = _triples(self._env, self.attributes["seed"], dropped), None
        for span in wanted:
            o, a, o_next, truth = zip(*islice(triples, span.stop - span.start), strict=True)
            block = Transitions(observation=np.stack(o), action=np.stack(a), next_observation=np.stack(o_next))
            columns = {name: x.numpy() for name, x in zip(FIELDS, block.rows(slice(None)), strict=True)}
            known = set.intersection(*map(set, truth))
            known = known if {"agent", "object"} <= known else set()
            names = known if names is None else names  # those of the first block, or the blocks would not join
            if not names <= known or (self._labelled and not known):
                raise ValueError(
                    "this environment does not report true states, or not always; needed are agent and object in the "
                    "info of reset and step (and, where they are known, angle there and contact in that of step)"
                )
            columns |= {f"truth/{name}": np.stack([x[name] for x in truth]) for name in Truth._fields if name in names}
            yield Block(span, columns, dict(dropped))
            dropped.clear()

    def close(self) -> None:
        if self._ours:
            self._env.close()


def _triples(env: gymnasium.Env[Any, Any], seed: int, dropped: Counter[str]) -> Iterator[tuple[Any, ...]]:
    """(o, a, o', truth) without end; copied at once, since an environment may reuse its arrays.

    A step that an environment itself calls grazing or unsettled, as Soccer does, is none to learn from, and counted.
    """
    env.action_space.seed(seed)
    o, state = _copied(*env.reset(seed=seed))
    while True:
        action = env.action_space.sample()
        o_next, _, terminated, truncated, info = env.step(action)
        contact = {"contact": np.array(info["contact"])} if "contact" in info else {}
        o_next, state_next = _copied(o_next, info)
        truth = state | contact | {f"{name}_next": x for name, x in state_next.items()}
        faults = [name for name in ("grazing", "unsettled") if info.get(name)]
        dropped.update(faults)
        if not faults:
            yield o, np.array(info.get("displacement", action)), o_next, truth
        o, state = o_next, state_next
        if terminated or truncated:
            o, state = _copied(*env.reset())


def _copied(observation: Any, info: Mapping[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
    """The observation, and what the environment reports of the true state."""
    return np.array(observation), {n: np.array(info[n]) for n in ("agent", "object", "angle") if n in info}


def _to_file(origin: Origin, num: int, parts: Parts, report: Progress) -> None:
    missing = parts.missing(num)
    if missing and parts.rows and not origin.can_go_on:
        raise ValueError(_cannot_go_on(origin, parts))
    try:
        report(min(parts.rows, num), num)
        with closing(origin.blocks(missing)) as blocks:
            for block in blocks:
                parts.write(block if isinstance(block, Packed) else pack(block, origin.attributes))
                report(min(parts.rows, num), num)
        parts.join(num)
    except KeyboardInterrupt:
        if not parts.rows:
            raise
        raise Stopped(f"stopped; {_kept(origin, parts, num)}", origin.can_go_on) from None
    except Exception as error:
        if parts.rows:
            advice = "go on with resume=True (--resume)" if origin.can_go_on else ""
            error.add_note("; ".join(filter(None, (_kept(origin, parts, num), advice))))
        raise
    finally:
        parts.discard_if_empty()


def _kept(origin: Origin, parts: Parts, num: int) -> str:
    kept = f"{parts.rows} of {num} triples are kept in {parts.folder}"
    return kept if origin.can_go_on else f"{kept}; {_cannot_go_on(origin, parts)}"


def _cannot_go_on(origin: Origin, parts: Parts) -> str:
    return (
        f"{origin.attributes['environment']} is stepped one by one and cannot go on in the middle: finish with what is "
        f"there (num={parts.rows}, resume=True; --num {parts.rows} --resume), or begin anew (overwrite=True, --force)"
    )


def _in_memory(origin: Origin, num: int, labelled: bool, report: Progress) -> Transitions | Labelled:
    """Fill arrays of the final size: joining the blocks at the end would need twice the memory."""
    arrays: dict[str, np.ndarray] = {}
    dropped: dict[str, int] = {}
    done = 0
    report(done, num)
    with closing(origin.blocks(spans(num))) as blocks:
        for block in blocks:
            span, columns, more = unpack(block) if isinstance(block, Packed) else block
            for name, x in columns.items():
                if name not in arrays:
                    arrays[name] = np.empty((num, *x.shape[1:]), x.dtype)
                arrays[name][slice(*span)] = x
            for name, count in more.items():
                dropped[name] = dropped.get(name, 0) + count
            done += span.stop - span.start
            report(done, num)
    attributes = origin.attributes | counted(dropped)
    fields = {name: arrays.pop(name) for name in FIELDS}
    transitions = Transitions(**fields, layout="channel-first", attributes=attributes)
    if not labelled:
        return transitions
    truth = {name.removeprefix("truth/"): torch.from_numpy(x) for name, x in arrays.items()}
    return Labelled(transitions, Truth(**truth))
