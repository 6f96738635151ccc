"""Logs of episodes as triples, without copying the observations.

Legend: T observations of all episodes one after the other, e episodes, N triples, n dimension of the action.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

COMPARED = 256  # observations compared at once


class Episodes(NamedTuple):
    """What a reader of logs returns: the arguments of `Transitions.from_episodes`."""

    observation: np.ndarray  # [T, ...]
    action: np.ndarray  # [T, n], or [T - e, n] without those of last observations
    episode_end: np.ndarray  # [e]


def last_rows(episode_end: Any, count: int) -> np.ndarray:
    """Row numbers of the last observations, `[e]` rising, from a mask over `count` observations or from row numbers."""
    ends = np.asarray(episode_end)
    corrected = "rows[1:] - 1"
    if ends.shape == (0,):
        ends = ends.astype(np.int64)  # the whole log is one episode
    if ends.dtype == bool or (ends.shape == (count,) and ends.dtype.kind in "iuf" and np.isin(ends, (0, 1)).all()):
        if ends.shape != (count,):
            raise ValueError(
                f"episode_end is a mask of shape {ends.shape} for {count} observations; give one value for each, or "
                "the row numbers of the last observations"
            )
        ends, corrected = np.flatnonzero(ends), "np.append(mask[1:], True)"
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise ValueError(
            f"episode_end is {ends.dtype} of shape {ends.shape}; give a mask over the observations, or the row numbers "
            "of the episodes' last observations"
        )
    outside = (ends < 0) | (ends >= count)
    if outside.any():
        raise ValueError(f"episode_end holds row {ends[outside][0]}; allowed are 0 to {count - 1}")
    if len(ends) and ends.min() == 0 and ends.max() < count - 1:
        raise ValueError(
            f"episode_end holds row 0 and not row {count - 1}, the last: these look like first rows of episodes; give "
            f"the last ones, {corrected}. If the first episode has only one observation, add row {count - 1}"
        )
    # Rows after the last end are one more episode, which was not finished.
    return np.unique(np.append(ends, count - 1)).astype(np.int64)


def pair(ends: np.ndarray, actions: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each triple the row of o (o' is the next row), the row of its action, and its episode: `[N]` each.

    Actions have a row for every observation, or none for the last observations of episodes.
    """
    inside = np.ones(count, bool)
    inside[ends] = False
    rows = np.flatnonzero(inside)
    if not len(rows):
        raise ValueError(f"all {len(ends)} episodes have one observation; a triple needs two consecutive ones")
    episode = np.searchsorted(ends, rows)
    if actions == count:
        return rows, rows, episode
    if actions == len(rows):
        return rows, np.arange(actions), episode
    raise ValueError(
        f"there are {actions} actions for {count} observations in {len(ends)} episodes; give {len(rows)}, one between "
        f"two observations of an episode, or {count}, one for every observation"
    )


def chains(o: Tensor, o_next: Tensor, episode: Tensor | None) -> Tensor:
    """Rising numbers `[N]` of chains: a triple belongs to that of the row before it if it begins with the observation
    that ends that row, in the same `episode` [N], if that is known."""
    pairs = zip(o[1:].split(COMPARED), o_next[:-1].split(COMPARED), strict=True)
    first = torch.zeros(1, dtype=torch.bool, device=o.device)
    follows = torch.cat([first, *((begin == end).flatten(1).all(1) for begin, end in pairs)])
    if episode is not None:
        follows[1:] &= (episode[1:] == episode[:-1]).to(o.device)
    return (~follows).cumsum(0)


def split_episodes(episode: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint rows of random episodes; the first part has between half and one and a half times this fraction.

    Episodes stay whole, except that one of them is cut if all are too long for that.
    """
    _require_fraction(fraction)
    numbers, inverse = np.unique(episode, return_inverse=True)
    sizes = np.bincount(inverse)
    order = np.random.default_rng(seed).permutation(len(numbers))
    wanted = missing = fraction * len(episode)
    first = np.zeros(len(episode), bool)
    for number in order[:-1]:  # each part gets at least one episode
        # An episode that exceeds the fraction is used only if the result is nearer to it, and not much larger.
        if sizes[number] < 2 * missing and sizes[number] <= missing + wanted / 2:
            first[inverse == number] = True
            missing -= sizes[number]
    if missing > wanted / 2:
        longest = order[sizes[order].argmax()]
        first[np.flatnonzero(inverse == longest)[: max(1, round(missing))]] = True
    return np.flatnonzero(first), np.flatnonzero(~first)


def split_rows(length: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint random rows, in rising order so that reading from disk is sequential."""
    _require_fraction(fraction)
    if length < 2:
        raise ValueError(f"cannot split {length} row into two parts; at least 2 rows are needed")
    shuffled = np.random.default_rng(seed).permutation(length)
    count = min(max(round(fraction * length), 1), length - 1)
    return np.sort(shuffled[:count]), np.sort(shuffled[count:])


def _require_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}; allowed are numbers between 0 and 1, both excluded")
