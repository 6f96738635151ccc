"""Diffusion policy's zarr groups: arrays data/NAME over all rows, and meta/episode_ends."""

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from palpate.data.logs.columns import Column
from palpate.data.logs.log import Log, kept_rows
from palpate.data.logs.pictures import BLOCK_BYTES, Levels, is_picture
from palpate.extras import demand

ADVICE = "copy or download it again"
SAMPLES = 16  # pictures, at least, from which the range of their values is found, if there are so many


@final
class Zarr(Log):
    """Columns are the arrays of the group `data`. A folder or a zip file, of zarr's format 2 or 3."""

    def __init__(self, path: Path) -> None:
        self.path = path
        zarr = demand("zarr", library="zarr", extra="zarr", needs=f"{path} needs zarr")
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}")
        if path.suffix == ".zip" and not zipfile.is_zipfile(path):
            raise ValueError(f"{path} is not a zip file, or is damaged; {ADVICE}")
        self._store = None
        try:
            if path.suffix == ".zip":
                self._store = zarr.storage.ZipStore(str(path), mode="r")
            group = zarr.open_group(str(path) if self._store is None else self._store, mode="r")
        except Exception as error:  # of zarr, of its stores and codecs
            self.close()
            raise ValueError(f"{path} is not a zarr group, or is damaged: {_reason(error)}; {ADVICE}") from error
        try:
            self._open(group)
        except BaseException:
            self.close()
            raise

    def _open(self, group: Any) -> None:
        there = ", ".join(sorted(group.keys())) or "nothing"
        for name in ("data", "meta/episode_ends"):
            if name not in group:
                raise ValueError(f"{self.path} has no {name}, but {there}; needed are data/NAME and meta/episode_ends")
        arrays = sorted(group["data"].arrays())
        if not arrays:
            raise ValueError(f"{self.path} has no arrays in the group data; {ADVICE}")
        ends = self._read(group["meta/episode_ends"])
        self.lengths = np.diff(ends, prepend=0).astype(np.int64)
        total = int(ends[-1]) if len(ends) else 0
        self._arrays = {name: array for name, array in arrays if array.ndim}
        if not len(ends) or (self.lengths <= 0).any():
            raise ValueError(f"{self.path}: meta/episode_ends is {ends[:5]}...; it must rise from 1")
        for name, array in self._arrays.items():
            if array.shape[0] < total:
                raise ValueError(
                    f"{self.path}: data/{name} has {array.shape[0]} rows, but meta/episode_ends needs {total}; it is "
                    f"unfinished or damaged: {ADVICE}"
                )
        self.episodes = np.arange(len(ends))
        self.columns = {name: _column(name, array.dtype, array.shape[1:]) for name, array in self._arrays.items()}

    def numbers(self, name: str) -> np.ndarray:
        values = self._read(self._arrays[name])[: self.lengths.sum()]
        return values.reshape(len(values), -1)

    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        """Whole chunks are read, because a compressed chunk is decoded as a whole; each once, after some samples."""
        array, total = self._arrays[name], int(self.lengths.sum())
        levels = Levels(name, self._samples(array, total))
        wanted = np.zeros(total, bool)
        wanted[kept_rows(self.lengths, stride)] = True
        fitting = max(1, BLOCK_BYTES // max(1, math.prod(array.shape[1:]) * array.dtype.itemsize))
        step = max(1, fitting // array.chunks[0]) * array.chunks[0]
        for low in range(0, total, step):
            rows = np.flatnonzero(wanted[low : low + step])
            if len(rows):
                block = self._read(array, slice(low, min(low + step, total)))
                for part in range(0, len(rows), fitting):
                    yield levels.pictures(block[rows[part : part + fitting]])

    def _samples(self, array: Any, total: int) -> Iterator[np.ndarray]:
        """Some rows, from all parts of the array and from few chunks."""
        chunk = array.chunks[0]
        starts = range(0, total, chunk)
        starts = starts[:: max(1, len(starts) // SAMPLES)]
        step = max(1, chunk * len(starts) // SAMPLES)
        for start in starts:
            yield self._read(array, slice(start, min(start + chunk, total), step))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _read(self, array: Any, part: Any = slice(None)) -> np.ndarray:
        try:
            return np.asarray(array[part])
        except Exception as error:  # of zarr, of its stores and codecs
            raise ValueError(f"{self.path}: {array.path} cannot be read: {_reason(error)}; {ADVICE}") from error


def _column(name: str, dtype: Any, shape: tuple[int, ...]) -> Column:
    picture = is_picture(shape)
    return Column(f"{dtype} {list(shape)}", picture, name != "action", None if picture else math.prod(shape))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
