"""Collect triples from a world, in memory or into a file."""

import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, Literal, TypeAlias, final, overload

import gymnasium
import numpy as np
import torch

from palpate.collecting.blocks import AnyWorld, Block, RowWorld, Span, counted, make, pack, spans
from palpate.collecting.parallel import Recipe, blocks_of_workers
from palpate.collecting.parts import Parts, Stopped, parts_of
from palpate.collecting.stepped import Stepped
from palpate.collecting.stepping import NAMES as STEPPING
from palpate.collecting.stepping import Stepping
from palpate.data.files import FIELDS
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.disk import alone
from palpate.interrupts import terminations_interrupt
from palpate.progress import Rate, bar

Progress: TypeAlias = Callable[[int, int], object]
Source: TypeAlias = str | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]


@overload
def collect(env: Source, num: int, *, labelled: Literal[True], **options: Any) -> Labelled: ...


@overload
def collect(env: Source, num: int, *, labelled: Literal[False] = ..., **options: Any) -> Transitions: ...


def collect(
    env: Source,
    num: int,
    *,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    labelled: bool = False,
    workers: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool = True,
    **options: Any,
) -> Transitions | Labelled:
    """Collect `num` triples of random motion in an environment: its id, a Gymnasium instance, or a function that makes
    one.

    The ids of palpate take their settings as options, such as `contact_share`. Any other environment is stepped, by
    default with random actions; `palpate.collecting.stepping.Stepping` lists the options: `agent_position`,
    `observation`, `aggregate`, `settle`, `approach`, `truth` and so on (docs/guide/own-environment.md). Further options
    of an id go to `gymnasium.make`; "module:id" imports the module that registers the id.

    The triples depend on the seed, not on `workers` or interruptions, and the first rows do not depend on `num`. For a
    stepped environment this holds if `reset(seed=)` makes it deterministic. Sprites use one process. A script with
    several workers needs `if __name__ == "__main__":`.

    With `out` the triples are written to that file, with the true states if they are known. Until then they are in
    `OUT.parts`, which survives Ctrl-C (`parts.Stopped`) and failures. `resume` continues from there with the same
    settings; `num` may differ. `progress` shows a bar; a function is called with (done, num) instead.
    """
    for name, value, least in (("num", num, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}; allowed is {least} or more")
    if resume and out is None:
        raise ValueError("resume needs out: a collection in memory cannot be resumed")
    rate = Rate()
    with (
        bar("collecting", num, progress is True) as advance,
        closing(_origin(env, seed, workers, labelled, options)) as origin,
    ):
        report = progress if callable(progress) else lambda done, total: advance(done, f"{rate(done):,.0f}/s")
        if out is None:
            return _in_memory(origin, num, labelled, report)
        place = parts_of(out)
        with alone(place) if place.parent.is_dir() else nullcontext():  # `Parts` refuses a missing folder
            parts = Parts(out, origin.attributes, resume=resume, overwrite=overwrite)
            with terminations_interrupt():
                _to_file(origin, num, parts, report)
    return Labelled.open(out) if labelled else Transitions.open(out)


@final
class _Origin:
    """Makes blocks, in this process or in workers."""

    def __init__(self, world: Callable[[], AnyWorld], attributes: dict[str, Any], seed: int, workers: int) -> None:
        self._make, self._seed = world, seed
        self.world: Any = world()  # also with workers: bad settings raise here, before a worker starts
        self._workers = workers if isinstance(self.world, RowWorld) else 1
        # A world's own settings are complete, so that two sets can be compared later.
        attributes |= self.world.settings() if hasattr(self.world, "settings") else {}
        plain = {name: x if isinstance(x, str | int | float) else str(x) for name, x in attributes.items()}
        self.attributes = {**plain, "seed": seed}

    def blocks(self, wanted: Sequence[Span], finish: Callable[[Block], Any]) -> Generator[Any, None, None]:
        if min(self._workers, len(wanted)) > 1:
            yield from blocks_of_workers(Recipe(self._make, self._seed, finish), wanted, self._workers)
        else:
            yield from (finish(make(self.world, self._seed, span)) for span in wanted)

    def close(self) -> None:
        if isinstance(self.world, RowWorld):
            self.world.close()


def _origin(env: Source, seed: int, workers: int, labelled: bool, options: dict[str, Any]) -> _Origin:
    from palpate.envs.registration import world  # its error names the nearest id

    if isinstance(env, str) and ":" not in env and (env.startswith("palpate/") or env not in gymnasium.registry):
        return _Origin(partial(world, env, **options), {**options, "environment": env}, seed, workers)
    stepping = Stepping(**{name: options.pop(name) for name in STEPPING if name in options})
    if isinstance(env, str):
        if stepping.observation == "render":
            options.setdefault("render_mode", "rgb_array")
        # The id may be unknown in a worker: it receives the whole entry, or the module to import.
        make_env: Callable[[], gymnasium.Env[Any, Any]] = partial(
            _made, env if ":" in env else gymnasium.spec(env), **options
        )
    elif options:
        raise ValueError(
            f"options {sorted(options)} are for ids; set them on the environment instead. Allowed options of stepping: "
            f"{', '.join(STEPPING)}"
        )
    elif not isinstance(env, gymnasium.Env):
        make_env = env
    elif workers > 1:
        raise ValueError(
            f"workers is {workers}, but an existing environment cannot move to other processes; give its id, or a "
            "function that makes it"
        )
    else:
        return _Origin(lambda: Stepped(env, stepping, labelled=labelled, ours=False), options, seed, workers)
    return _Origin(lambda: Stepped(make_env(), stepping, labelled=labelled, ours=True), options, seed, workers)


def _made(entry: Any, **options: Any) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(entry, **options)
    except ModuleNotFoundError as error:  # the module before the colon, or one that the environment needs
        advice = "pip install 'palpate[pusht]'" if "gym_pusht" in str(entry) else "install the package that holds it"
        raise ValueError(f"env is {entry!r}: {error}; {advice}") from error
    except TypeError as error:
        raise ValueError(f"{entry} does not take these options: {error}") from error


def _to_file(origin: _Origin, num: int, parts: Parts, report: Progress) -> None:
    missing = parts.missing(num)
    try:
        report(min(parts.rows, num), num)
        with closing(origin.blocks(missing, partial(pack, attributes=origin.attributes))) as blocks:
            for packed in blocks:
                parts.write(packed)
                report(min(parts.rows, num), num)
        parts.join(num)
    except KeyboardInterrupt:
        if not parts.rows:
            raise
        raise Stopped(f"stopped; {_kept(parts, num)}") from None
    except Exception as error:
        if parts.rows:
            error.add_note(f"{_kept(parts, num)}; continue with resume=True (--resume)")
        raise
    finally:
        parts.discard_if_empty()


def _kept(parts: Parts, num: int) -> str:
    return f"{parts.rows} of {num} triples are kept in {parts.folder}"


def _in_memory(origin: _Origin, num: int, labelled: bool, report: Progress) -> Transitions | Labelled:
    made: list[Block] = []
    dropped: Counter[str] = Counter()
    done = 0
    report(done, num)
    with closing(origin.blocks(spans(num), lambda block: block)) as blocks:
        for block in blocks:
            made.append(block)
            dropped.update(block.dropped)
            done += block.span.stop - block.span.start
            report(done, num)
    made.sort(key=lambda block: block.span)
    # Each column leaves the blocks as it is joined, so that not all of them are in memory twice.
    arrays = {name: np.concatenate([block.columns.pop(name) for block in made]) for name in [*made[0].columns]}
    fields: dict[str, Any] = {name: arrays.pop(name) for name in FIELDS}
    fields |= {"episode": arrays.pop("episode", None), "attributes": origin.attributes | counted(dropped)}
    transitions = Transitions(**fields, layout="channel-first")
    if not labelled:
        return transitions
    truth = {name.removeprefix("truth/"): torch.from_numpy(x) for name, x in arrays.items()}
    return Labelled(transitions, Truth(**truth))
