"""Logs of whole episodes as triples: which rows follow each other, without copying the observations.

Legend: T observations of all episodes one after the other, e episodes, N triples, n dimension of the action.
"""

from typing import Any, final

import numpy as np


@final
class Shifted:
    """Rows of an array or of a dataset from `start` on, read as they are asked for."""

    def __init__(self, array: Any, start: int, count: int) -> None:
        self.array, self.start = array, start
        self.shape, self.ndim, self.dtype = (count, *array.shape[1:]), array.ndim, array.dtype
        self.chunks = None
        self.nbytes = count * array.nbytes // max(1, len(array))

    @property
    def file(self) -> Any:
        return self.array.file

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        low, high, _ = rows.indices(len(self))
        return self.array[low + self.start : max(low, high) + self.start]


def last_rows(episode_end: Any, count: int) -> np.ndarray:
    """Where episodes end: a mask over all `count` observations, or the row numbers of the last ones; `[e]` rising."""
    ends = np.asarray(episode_end)
    ended = "rows[1:] - 1 of rows of beginnings"
    if ends.shape == (0,):
        ends = ends.astype(np.int64)  # none has ended: all is one episode
    if ends.dtype == bool or (ends.shape == (count,) and ends.dtype.kind in "iuf" and np.isin(ends, (0, 1)).all()):
        if ends.shape != (count,):
            raise ValueError(
                f"episode_end is a mask of shape {ends.shape} for {count} observations; give one truth value for each, "
                "or the row numbers of the last observations"
            )
        ends, ended = np.flatnonzero(ends), "np.append(mask[1:], True) of a mask of beginnings"
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise ValueError(
            f"episode_end is {ends.dtype} of shape {ends.shape}; give a mask over the observations, or the row numbers "
            "of the last one of each episode"
        )
    outside = (ends < 0) | (ends >= count)
    if outside.any():
        raise ValueError(f"episode_end names row {ends[outside][0]}; there are observations 0 to {count - 1}")
    if len(ends) and ends.min() == 0 and ends.max() < count - 1:
        raise ValueError(
            f"episode_end names row 0 and not row {count - 1}, the last: these look like rows where episodes begin; "
            f"give those where they end, {ended}. Should the first episode be one observation long, name row "
            f"{count - 1} too"
        )
    # What follows the last end is an episode that is still going on.
    return np.unique(np.append(ends, count - 1)).astype(np.int64)


def pair(ends: np.ndarray, actions: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each triple the row of o (that of o' is the next), the row of its action, and its episode: `[N]` each.

    There is an action for every observation, that of an episode's last one leading nowhere; or none for last ones.
    """
    inside = np.ones(count, bool)
    inside[ends] = False
    rows = np.flatnonzero(inside)
    if not len(rows):
        raise ValueError(f"{len(ends)} episodes end after one observation each; a triple needs two that follow")
    episode = np.searchsorted(ends, rows)
    if actions == count:
        return rows, rows, episode
    if actions == len(rows):
        return rows, np.arange(actions), episode
    raise ValueError(
        f"there are {actions} actions for {count} observations in {len(ends)} episodes; give {len(rows)}, one between "
        f"every two observations of an episode, or {count}, one for every observation"
    )


def split_episodes(episode: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint rows of whole random episodes, the first part with about this fraction of the rows."""
    numbers, inverse = np.unique(episode, return_inverse=True)
    sizes = np.bincount(inverse)
    order = np.random.default_rng(seed).permutation(len(numbers))
    first, missing = np.zeros(len(numbers), bool), fraction * len(episode)
    for number in order[:-1]:  # at least one on either side
        # One that leads past the fraction is left out if that is nearer: a long one would take most of the rows.
        if abs(missing - sizes[number]) < missing:
            first[number] = True
            missing -= sizes[number]
    if not first.any():
        first[order[sizes[order].argmin()]] = True
    return np.flatnonzero(first[inverse]), np.flatnonzero(~first[inverse])


def split_rows(length: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint random rows, both parts in rising order: that keeps reading from disk sequential."""
    demand_fraction(fraction)
    if length < 2:
        raise ValueError(f"cannot split {length} row into two parts; at least 2 rows are needed")
    shuffled = np.random.default_rng(seed).permutation(length)
    count = min(max(round(fraction * length), 1), length - 1)
    return np.sort(shuffled[:count]), np.sort(shuffled[count:])


def demand_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}; it must lie between 0 and 1, both excluded")
