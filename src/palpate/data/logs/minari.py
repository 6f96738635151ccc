"""Minari's folders, read by Minari itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from palpate.data.logs.columns import Column
from palpate.data.logs.log import Log
from palpate.data.logs.pictures import Levels, blocks_of, is_picture
from palpate.data.minari import data_folder
from palpate.extras import demand

ADVICE = "copy or download it again"


@final
class Minari(Log):
    """Columns are the arrays of an episode: observations or observations/NAME, infos/NAME, and actions.

    One episode at a time is in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        minari = demand("minari", library="minari", extra="minari", needs=f"{path} needs Minari")
        folder = data_folder(path)
        if folder is None:
            raise FileNotFoundError(f"there is no {path / 'data' / 'metadata.json'}; {ADVICE}")
        try:
            self._data = minari.MinariDataset(folder)
            self.episodes = np.asarray(self._data.episode_indices, np.int64)
            steps = [int(one["total_steps"]) for one in self._data.storage.get_episode_metadata(self.episodes.tolist())]
        except Exception as error:  # of Minari, of its spaces and storages
            raise self._damaged(error) from error
        if not len(self.episodes):
            raise ValueError(f"{path} has no episodes; {ADVICE}")
        self._observations = self.lengths = np.array(steps, np.int64) + 1
        arrays = _arrays(next(self._each()))
        self.columns = {name: _column(name, array) for name, array in arrays.items()}

    def lengths_of(self, names: Sequence[str]) -> np.ndarray:
        """An episode has an action for each step, and one observation more."""
        actions = [name for name in names if name.startswith("actions")]
        if actions and len(actions) < len(names):
            raise ValueError(
                f"{actions[0]!r} has no row for the last observation of an episode; give a column of observations or "
                "infos"
            )
        return self._observations - bool(actions)

    def numbers(self, name: str) -> np.ndarray:
        parts = [array.reshape(len(array), -1) for array in self._column(name)]
        if len({part.shape[1] for part in parts}) > 1:
            raise ValueError(f"column {name!r} has rows of different lengths; all must have the same")
        return np.concatenate(parts)

    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        levels = None
        for array in self._column(name):
            levels = levels or Levels(name, [array[:: max(1, len(array) // 16)]])
            yield from map(levels.pictures, blocks_of(array, 0, len(array), stride))

    def close(self) -> None:
        """No file stays open."""

    def _each(self) -> Iterator[Any]:
        episodes = iter(self._data.iterate_episodes())
        while True:
            try:
                episode = next(episodes, None)
            except Exception as error:
                raise self._damaged(error) from error
            if episode is None:
                return
            yield episode

    def _column(self, name: str) -> Iterator[np.ndarray]:
        for episode, length in zip(self._each(), self.lengths_of([name]), strict=True):
            array = _arrays(episode).get(name)
            if array is None:
                raise ValueError(f"episode {episode.id} has no {name!r}, which other episodes have")
            if len(array) != length:
                raise ValueError(
                    f"column {name!r} has {len(array)} rows in episode {episode.id}, not {length}; {ADVICE}"
                )
            yield array

    def _damaged(self, error: Exception) -> ValueError:
        reason = " ".join(str(error).split()) or type(error).__name__
        return ValueError(f"{self.path} cannot be read by Minari: {reason}; {ADVICE}")


def _arrays(episode: Any) -> dict[str, np.ndarray]:
    """The arrays of numbers with a row for each moment, by name; `a/b` in nested dictionaries."""
    found = dict(_named("observations", episode.observations))
    found |= dict(_named("actions", episode.actions))
    return found | dict(_named("infos", episode.infos or {}))


def _named(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _named(f"{name}/{key}", value[key])
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from _named(f"{name}/{number}", each)
    elif (array := np.asarray(value)).dtype.kind in "iufb" and array.ndim:
        yield name, array


def _column(name: str, array: np.ndarray) -> Column:
    shape = array.shape[1:]
    picture = is_picture(shape)
    width = None if picture else math.prod(shape)
    return Column(f"{array.dtype} {list(shape)}", picture, name.startswith("observations"), width)
