"""robomimic's HDF5 files: data/demo_N with obs/NAME, actions and more, a row per moment."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import h5py
import numpy as np

from palpate.data import files
from palpate.data.logs.columns import Column
from palpate.data.logs.log import Log
from palpate.data.logs.pictures import Levels, blocks_of, is_picture

SKIPPED = ("next_obs", "mask")


@final
class Robomimic(Log):
    """Columns are named by their path in a demonstration: obs/NAME, actions, states."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = files.open_hdf5(path)
        try:
            with files.read_from(path):
                self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        data = files.member(self._file, "data")
        numbered = {int(name[5:]): name for name in (data or ()) if re.fullmatch(r"demo_\d+", name)}
        if not numbered:
            raise ValueError("there is no demonstration data/demo_0; robomimic writes one group per demonstration")
        self.episodes = np.array(sorted(numbered))
        self._demos = [data[numbered[number]] for number in self.episodes]
        first = self._demos[0]
        self.columns = {
            name: _column(name, dataset) for name, dataset in _datasets(first) if dataset.ndim and len(dataset)
        }
        if not self.columns:
            raise ValueError(
                f"{first.name} holds no datasets; extract observations with robomimic's dataset_states_to_obs.py"
            )

    def lengths_of(self, names: Sequence[str]) -> np.ndarray:
        with files.read_from(self.path):
            return np.array(
                [_length(demo, {name: self._dataset(demo, name) for name in names}) for demo in self._demos]
            )

    def numbers(self, name: str) -> np.ndarray:
        with files.read_from(self.path):
            parts = [self._dataset(demo, name)[...] for demo in self._demos]
        return np.concatenate([part.reshape(len(part), -1) for part in parts])

    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        arrays = [self._dataset(demo, name) for demo in self._demos]
        with files.read_from(self.path):
            levels = Levels(name, (array[:1] for array in arrays[:: max(1, len(arrays) // 16)]))
            for array in arrays:
                yield from map(levels.pictures, blocks_of(array, 0, len(array), stride))

    def close(self) -> None:
        self._file.close()

    def _dataset(self, demo: Any, name: str) -> h5py.Dataset:
        if name not in demo or not isinstance(demo[name], h5py.Dataset):
            raise ValueError(f"{demo.name} has no dataset {name!r}, which other demonstrations have")
        return demo[name]


def _datasets(demo: h5py.Group) -> list[tuple[str, h5py.Dataset]]:
    found = []
    for name in sorted(demo):
        if name in SKIPPED:
            continue
        inner = demo[name]
        if isinstance(inner, h5py.Dataset):
            found.append((name, inner))
        else:
            found += [
                (f"{name}/{each}", inner[each]) for each in sorted(inner) if isinstance(inner[each], h5py.Dataset)
            ]
    return sorted(found, key=lambda pair: not pair[0].startswith("obs/"))


def _column(name: str, dataset: h5py.Dataset) -> Column:
    shape = dataset.shape[1:]
    picture = is_picture(shape)
    observed = name.startswith("obs/") and not name.endswith("_depth")
    return Column(f"{dataset.dtype} {list(shape)}", picture, observed, None if picture else math.prod(shape))


def _length(demo: h5py.Group, selected: Mapping[str, h5py.Dataset]) -> int:
    """Rows of the selected columns. Others may have more or fewer: some files hold an observation after the last
    action."""
    lengths = {name: len(dataset) for name, dataset in selected.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{demo.name} has datasets of different lengths, {lengths}; it is unfinished or damaged")
    length = next(iter(lengths.values()))
    stated = int(demo.attrs.get("num_samples", length))
    if stated > length:
        raise ValueError(f"{demo.name} has {length} rows, but num_samples is {stated}; it is unfinished or damaged")
    return length
