"""Reader of Minari data sets, into memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from palpate.data.episodes import Episodes
from palpate.extras import demand


def read_minari(
    source: Any, observation: str | None, displacement: Callable[[Any], Any] | None, download: bool
) -> Episodes:
    """`source` is a data set or the name of one; see `Transitions.from_minari`."""
    if isinstance(source, str):
        minari = demand("minari", library="minari", extra="minari", needs="Minari data sets need minari")
        source = minari.load_dataset(source, download=download)
    seen, moved, length = [], [], []
    for episode in source.iterate_episodes():
        o = _chosen(episode.observations, observation)
        a = np.asarray(episode.actions if displacement is None else displacement(episode))
        if len(a) != len(o) - 1:
            raise ValueError(
                f"episode {episode.id} has {len(o)} observations and {len(a)} displacements; it needs {len(o) - 1}, "
                "one between two observations"
            )
        seen.append(o)
        moved.append(a)
        length.append(len(o))
    if not seen:
        raise ValueError("the data set has no episodes")
    return Episodes(np.concatenate(seen), np.concatenate(moved), np.cumsum(length) - 1)


def _chosen(observations: Any, name: str | None) -> np.ndarray:
    """The array of this name, `a/b` for a dictionary in a dictionary."""
    for part in name.split("/") if name else ():
        if not isinstance(observations, dict) or part not in observations:
            there = sorted(observations) if isinstance(observations, dict) else "one array"
            raise ValueError(f"observation is {name!r}; the data set's observations are {there}")
        observations = observations[part]
    if isinstance(observations, dict):
        raise ValueError(f"the data set's observations are {sorted(observations)}; select one with observation=")
    array = np.asarray(observations)
    return array if array.dtype == np.uint8 else array.astype(np.float32)
