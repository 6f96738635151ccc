"""Columns of a log by name, and the grammar of `position`: NAME, NAME[:2], NAME[0,2]."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from palpate.spelling import did_you_mean

LISTED = 12  # columns in one message


class Column(NamedTuple):
    """One column of a log."""

    text: str  # for messages: "video 96x96x3, 10 fps", "float32 [2]"
    picture: bool  # whether it holds pictures
    observed: bool = True  # whether it may be the observation without being named
    width: int | None = None  # numbers in a row, if it holds numbers


def found(name: str, columns: Mapping[str, object], asked: str) -> str:
    """The full name of a column. The part after the last `/` suffices if only one column has it."""
    if name in columns:
        return name
    ends = [each for each in columns if each.rpartition("/")[2] == name]
    if len(ends) == 1:
        return ends[0]
    meant = did_you_mean(name, columns, f"the columns are {listed(list(columns))}")
    raise ValueError(f"{asked}: there is no column {name!r}{meant}")


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def observed(asked: str | None, columns: Mapping[str, Column], position: str) -> list[str]:
    """The columns of the observation: the given ones, else the only camera, else the only other column."""
    if asked is not None:
        names = [found(each.strip(), columns, "observation") for each in asked.split(",")]
        numbers = [each for each in names if not columns[each].picture]
        if len(names) > 1 and numbers:
            raise ValueError(f"observation: {numbers[0]!r} is not a camera; several columns must all be cameras")
        if len(set(names)) < len(names):
            raise ValueError(f"observation is {asked!r}; each camera is allowed once")
        return names
    pictures = [name for name, column in columns.items() if column.picture and column.observed]
    others = [name for name, column in columns.items() if column.observed and not column.picture and name != position]
    candidates = pictures or others
    if len(candidates) == 1:
        return candidates
    if not candidates:
        raise ValueError(f"give observation: the columns are {described(columns)}")
    several = " or several, separated by commas, as views" if pictures else ""
    raise ValueError(f"give observation: it may be {listed(candidates)}{several}")


def described(columns: Mapping[str, Column]) -> str:
    return listed([f"{name} ({column.text})" for name, column in columns.items()])


def split_position(position: str, columns: Mapping[str, Column]) -> tuple[str, str]:
    """Name of the column and the text in its brackets; empty without brackets. Pictures are refused."""
    match = re.fullmatch(r"(.*?)(?:\[([^\[\]]*)\])?", position.strip(), re.DOTALL)
    assert match is not None
    name = found(match[1], columns, "position")
    if columns[name].picture:
        raise ValueError(f"position: {name!r} is {columns[name].text}; give numbers, such as observation.state[:2]")
    return name, match[2] or ""


def chosen(values: np.ndarray, part: str, name: str) -> np.ndarray:
    """The columns of `values` [T, d] that `part` selects: all, a range `a:b`, or single ones `0,2`."""
    width = values.shape[1]
    if not part:
        return values
    sliced = re.fullmatch(r"\s*(-?\d*)\s*:\s*(-?\d*)\s*", part)
    if sliced:
        index = np.arange(width)[slice(*(int(each) if each else None for each in sliced.groups()))]
        ends = [int(each) for each in sliced.groups() if each]
    elif re.fullmatch(r"\s*-?\d+\s*(,\s*-?\d+\s*)*", part):
        ends = [int(each) for each in part.split(",")]
        index = np.array(ends)
        ends = [each + (each >= 0) for each in ends]
    else:
        raise ValueError(f"position is {name}[{part}]; allowed are a range such as [:2], or numbers such as [0,2]")
    if not len(index) or max(map(abs, ends), default=0) > width:
        raise ValueError(f"position is {name}[{part}], but {name} has {width} numbers")
    return values[:, index]
