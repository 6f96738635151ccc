"""The actions that a log itself holds, beside the values to which they may belong.

Legend: T rows of the episodes that are looked at, e episodes, k numbers.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from palpate.data.logs.columns import chosen, split_position
from palpate.data.logs.log import Log, kind_of, positions, reader
from palpate.data.logs.options import LogOptions
from palpate.data.transitions import Transitions

NAMES = ("action", "actions")  # LeRobot and zarr; robomimic and Minari
MOST_ROWS, MOST_COLUMNS = 20_000, 8


class Pair(NamedTuple):
    """Numbers of the actions, and the values of the same moments to which they may belong."""

    what: str  # "position", "joints", or a column's name
    action: np.ndarray  # [T, k]; NaN if an episode's last row has no action
    state: np.ndarray  # [T, k]


class OwnActions(NamedTuple):
    column: str
    pairs: list[Pair]
    lengths: np.ndarray  # [e] rows of each episode
    fps: float | None


def own_actions(triples: Transitions) -> OwnActions | None:
    """The actions of the log that the triples were read from; None if it has none, or is gone or damaged by now."""
    recipe = dict(triples.recipe)
    if "position" not in recipe:
        return None
    path = Path(recipe.pop("data"))
    try:
        log = reader(kind_of(path))(path)
        try:
            return _read(log, LogOptions.of_run(recipe))
        finally:
            log.close()
    except (ValueError, OSError):
        return None


def _read(log: Log, options: LogOptions) -> OwnActions | None:
    column = next((name for name in NAMES if name in log.columns and not log.columns[name].picture), None)
    assert options.position is not None
    name, part = split_position(options.position, log.columns)
    if column is None or column == name:
        return None
    lengths = log.lengths = log.lengths_of([name])
    lengths = lengths[: max(1, int((np.cumsum(lengths) <= MOST_ROWS).sum()))]
    rows = np.arange(lengths.sum())
    action = _aligned(log.numbers(column), log.lengths_of([column]), lengths)
    state = log.numbers(name)[rows].astype(np.float64)
    same = action.shape[1] == state.shape[1]

    def pair(what: str, values: np.ndarray) -> list[Pair]:
        """The numbers of the action in the same places, or else the first ones."""
        numbers = chosen(action, part, column) if same else action[:, : values.shape[1]]
        return [Pair(what, numbers, values)] if numbers.shape == values.shape else []

    pairs = pair("position", positions(log, name, part, rows, options))
    if options.kinematics is not None:
        pairs += pair("joints", chosen(state, part, name))
    for other, about in log.columns.items():
        if len(pairs) == MOST_COLUMNS or other in (name, column) or about.width != action.shape[1]:
            continue
        if log.lengths_of([other])[: len(lengths)].tolist() == lengths.tolist():
            values = log.numbers(other)[rows]
            if values.shape == action.shape and values.dtype.kind in "iuf":
                pairs.append(Pair(other, action, values.astype(np.float64)))
    return OwnActions(column, pairs, lengths, log.fps)


def _aligned(values: np.ndarray, there: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The first rows of each episode, filled up with NaN, `[T, d]`."""
    found = np.full((lengths.sum(), values.shape[1]), np.nan)
    at, start = 0, 0
    for count, length in zip(there, lengths, strict=False):
        some = min(count, length)
        found[start : start + some] = values[at : at + some]
        at, start = at + count, start + length
    return found
