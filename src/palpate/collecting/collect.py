"""Collect triples from a world, in memory or into a file."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, TypeAlias, overload

import gymnasium
import numpy as np
import torch

from palpate.collecting.blocks import COMMAND, Block, described, pack, spans
from palpate.collecting.origins import Origin, Source, stepped
from palpate.collecting.parts import Parts, Stopped, parts_of
from palpate.data.files import FIELDS
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.disk import alone
from palpate.interrupts import terminations_interrupt
from palpate.progress import Rate, bar

Progress: TypeAlias = Callable[[int, int], object]


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
            fill(origin, num, parts, report)
            with keeping(parts, num), terminations_interrupt():
                parts.join(num)
                parts.remove()
    return Labelled.open(out) if labelled else Transitions.open(out)


def _origin(env: Source, seed: int, workers: int, labelled: bool, options: dict[str, Any]) -> Origin:
    from palpate.envs.registration import world  # its error names the nearest id

    if isinstance(env, str) and ":" not in env and (env.startswith("palpate/") or env not in gymnasium.registry):
        return Origin(partial(world, env, **options), {**options, "environment": env}, seed, workers)
    return stepped(env, seed, workers, options, labelled=labelled)


def fill(origin: Origin, num: int, parts: Parts, report: Progress) -> None:
    """Collect the missing blocks of the first `num` rows into parts."""
    with keeping(parts, num), terminations_interrupt():
        report(min(parts.rows, num), num)
        with closing(origin.blocks(parts.missing(num), partial(pack, attributes=origin.attributes))) as blocks:
            for packed in blocks:
                parts.write(packed)
                report(min(parts.rows, num), num)


@contextmanager
def keeping(parts: Parts, num: int) -> Iterator[None]:
    """Mention the collected parts in every error, and raise `Stopped` on Ctrl-C."""
    try:
        yield
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


def _in_memory(origin: Origin, num: int, labelled: bool, report: Progress) -> Transitions | Labelled:
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
    fields |= {
        "episode": arrays.pop("episode", None),
        "attributes": origin.attributes | described(made[0].views, dropped),
    }
    arrays.pop(COMMAND, None)
    transitions = Transitions(**fields, layout="channel-first")
    if not labelled:
        return transitions
    truth = {name.removeprefix("truth/"): torch.from_numpy(x) for name, x in arrays.items()}
    return Labelled(transitions, Truth(**truth))
