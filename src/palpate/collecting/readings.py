"""Values read from an environment, given by a name such as "info:pos_agent" or by a function."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np


class Moment(NamedTuple):
    """An environment after a reset or a step; functions that read values receive it."""

    env: gymnasium.Env[Any, Any]
    observation: Any
    info: Mapping[str, Any]


Reader: TypeAlias = str | Callable[[Moment], Any]

FORM = re.compile(r"(info|observation)(?::([^\[\]]+))?(?:\[(-?\d+|)(?:(:)(-?\d+|))?\])?")
FORMS = "'info:KEY', 'observation:KEY' or 'observation', with [2] or [0:2] for a part of it"


def check_reader(what: str, reader: Any) -> None:
    if callable(reader):
        return
    form = FORM.fullmatch(reader) if isinstance(reader, str) else None
    if form is None or (form[1] == "info" and not form[2]) or form[3] == "" == (form[4] or ""):
        raise ValueError(f"{what} is {reader!r}; allowed are {FORMS}, and in Python a function of a Moment")


def described(reader: Any) -> Any:
    """A reader for the attributes of a file; a function is replaced by its name."""
    return getattr(reader, "__qualname__", type(reader).__name__) if callable(reader) else reader


def read(what: str, reader: Reader, now: Moment) -> np.ndarray:
    """The value as real numbers; a copy, because an environment may reuse its arrays."""
    value = _found(what, reader, now)
    try:
        numbers = np.array(value)
    except ValueError as error:
        raise ValueError(f"{what} is not an array: {error}") from error
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{what}, read from {described(reader)}, is {value!r}; allowed are real numbers")
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise ValueError(f"{what}, read from {described(reader)}, is {numbers}; all values must be finite")
    return numbers


def _found(what: str, reader: Reader, now: Moment) -> Any:
    if not isinstance(reader, str):
        return reader(now)
    form = FORM.fullmatch(reader)
    assert form is not None
    where, key, first, colon, last = form.groups()
    value: Any = getattr(now, where)
    if key is not None:
        if not isinstance(value, Mapping) or key not in value:
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else f"no keys: it is {type(value)}"
            raise ValueError(
                f"{what} is {reader!r}, but the environment's {where} has no {key!r}; it holds {there or 'nothing'}. "
                "Both reset and step must report it; a function of a Moment can read other values"
            )
        value = value[key]
    if first is None:
        return value
    part = slice(int(first) if first else None, int(last) if last else None) if colon else int(first)
    try:
        return np.asarray(value)[part]
    except IndexError as error:
        raise ValueError(f"{what} is {reader!r}, but the value is {value!r}: {error}") from error
