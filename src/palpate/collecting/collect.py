"""Collecting triples from a world, in memory or into a file."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, Literal, TypeAlias, final, overload

import gymnasium
import numpy as np
import torch

from palpate.collecting.blocks import (
    AnyWorld,
    Block,
    BlockWorld,
    Packed,
    RowWorld,
    Span,
    counted,
    make,
    pack,
    spans,
    unpack,
)
from palpate.collecting.parallel import Recipe, packed_blocks
from palpate.collecting.parts import Parts, Stopped, parts_of
from palpate.collecting.stepped import Shipped, Stepped
from palpate.collecting.stepping import NAMES as STEPPING
from palpate.collecting.stepping import Stepping
from palpate.data.files import FIELDS
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.disk import alone
from palpate.interrupts import terminations_interrupt

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
    progress: Progress | None = None,
    **options: Any,
) -> Transitions | Labelled:
    """Collect `num` triples of random motion in an environment: its id, a Gymnasium instance, or a function that makes
    one.

    The ids of palpate take their settings as options, such as `contact_share`. Any other environment is stepped, by
    default with random actions; `palpate.collecting.stepping.Stepping` lists the options: `agent_position`,
    `observation`, `aggregate`, `settle`, `approach`, `truth` and so on (docs/own-world.md). Further options of an id go
    to `gymnasium.make`; an id of a package that is not imported yet is written "module:id".

    The triples depend on the seed, not on `workers` or interruptions, and the first rows do not depend on `num` (for
    an environment that is stepped: if `reset(seed=)` makes it deterministic). The states of Soccer do not depend on the
    camera. Sprites use one process. A script with several workers needs `if __name__ == "__main__":`.

    With `out` the triples are written to that file, with the true states if they are known. Until then they lie in
    `OUT.parts`, which survives Ctrl-C (`parts.Stopped`) and failures. `resume` continues from there with the same
    settings; `num` may differ. `progress` is called with (done, num).
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
    with closing(_origin(env, seed, workers, labelled, options)) as origin:
        if out is None:
            return _in_memory(origin, num, labelled, report)
        place = parts_of(out)
        with alone(place) if place.parent.is_dir() else nullcontext():  # `Parts` refuses a missing folder
            parts = Parts(out, origin.attributes, resume=resume, overwrite=overwrite)
            with terminations_interrupt():
                _to_file(origin, num, parts, report)
    return Labelled.open(out) if labelled else Transitions.open(out)


def _origin(env: Source, seed: int, workers: int, labelled: bool, options: dict[str, Any]) -> "_Origin":
    from palpate.envs.registration import world  # its error names the nearest id

    stepped = not isinstance(env, str) or ":" in env or (env in gymnasium.registry and not env.startswith("palpate/"))
    if not stepped:
        assert isinstance(env, str)
        origin = _Origin(partial(world, env, **options), _attributes(env, seed, options), workers)
        if hasattr(origin.world, "settings"):  # all of them, so that two sets can be compared later
            origin.attributes |= _attributes(env, seed, origin.world.settings())
        return origin
    stepping = Stepping(**{name: options.pop(name) for name in STEPPING if name in options})
    if isinstance(env, str):
        if stepping.observation == "render":
            options.setdefault("render_mode", "rgb_array")
        # The id may be unknown in a worker: it receives the whole entry, or the module to import.
        entry = env if ":" in env else gymnasium.spec(env)
        make = partial(_made, entry, **options)
        attributes = _attributes(env.partition(":")[2] or env, seed, options)
        return _Origin(Shipped(make, stepping, labelled), attributes | stepping.attributes(), workers)
    if options:
        raise ValueError(
            f"options {sorted(options)} are for ids; set them on the environment instead. What can be said of how "
            f"it is stepped: {', '.join(STEPPING)}"
        )
    if isinstance(env, gymnasium.Env):
        if workers > 1:
            raise ValueError(
                f"workers is {workers}, but an environment that is made already stays in one process; give its id, or "
                "a function that makes it"
            )
        world_: Callable[[], AnyWorld] = partial(Stepped, env, stepping, labelled=labelled, ours=False)
    else:
        world_ = Shipped(env, stepping, labelled)
    origin = _Origin(world_, {"seed": seed}, workers)
    made = origin.world.env
    name = made.spec.id if made.spec else type(made.unwrapped).__name__
    origin.attributes |= {"environment": name} | stepping.attributes()
    return origin


def _attributes(name: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: x if isinstance(x, str | int | float) else str(x) for name, x in options.items()}
    return {**said, "environment": name, "seed": seed}


def _made(entry: Any, **options: Any) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(entry, **options)
    except ModuleNotFoundError as error:  # the module before the colon, or one that the environment needs
        advice = "pip install 'palpate[pusht]'" if "gym_pusht" in str(entry) else "install the package that holds it"
        raise ValueError(f"env is {entry!r}: {error}; {advice}") from error
    except TypeError as error:
        raise ValueError(f"{entry} does not take these options: {error}") from error


@final
class _Origin:
    """Makes blocks, in this process or in workers."""

    def __init__(self, world: Callable[[], AnyWorld], attributes: dict[str, Any], workers: int) -> None:
        self.attributes = attributes
        self._make = world
        self.world: Any = world()  # also with workers: bad settings raise here, before a worker starts
        self._workers = workers if isinstance(self.world, RowWorld | BlockWorld) else 1

    def blocks(self, wanted: Sequence[Span]) -> Generator[Block | Packed, None, None]:
        recipe = Recipe(self._make, self.attributes["seed"], self.attributes)
        if min(self._workers, len(wanted)) > 1:
            yield from packed_blocks(recipe, wanted, self._workers)
        else:
            yield from (make(self.world, recipe.seed, span) for span in wanted)

    def close(self) -> None:
        if isinstance(self.world, RowWorld | BlockWorld):
            self.world.close()


def _to_file(origin: _Origin, num: int, parts: Parts, report: Progress) -> None:
    missing = parts.missing(num)
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
        raise Stopped(f"stopped; {_kept(parts, num)}") from None
    except Exception as error:
        if parts.rows:
            error.add_note(f"{_kept(parts, num)}; go on with resume=True (--resume)")
        raise
    finally:
        parts.discard_if_empty()


def _kept(parts: Parts, num: int) -> str:
    return f"{parts.rows} of {num} triples are kept in {parts.folder}"


def _in_memory(origin: _Origin, num: int, labelled: bool, report: Progress) -> Transitions | Labelled:
    """Fill arrays of the final size; joining the blocks at the end would need twice the memory."""
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
