"""Diffusion policy's zarr groups: arrays data/NAME over all rows, and meta/episode_ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from palpate.data.logs.columns import Column
from palpate.data.logs.log import Log, kept_rows
from palpate.data.logs.pictures import Levels, blocks_of, is_picture
from palpate.extras import demand

ADVICE = "copy or download it again"


@final
class Zarr(Log):
    """Columns are the arrays of the group `data`. A folder or a zip file, of zarr's format 2 or 3."""

    def __init__(self, path: Path) -> None:
        self.path = path
        zarr = demand("zarr", library="zarr", extra="zarr", needs=f"{path} needs zarr")
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}")
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
        self.columns = {
            name: Column(f"{array.dtype} {list(array.shape[1:])}", is_picture(array.shape[1:]), name != "action")
            for name, array in self._arrays.items()
        }

    def numbers(self, name: str) -> np.ndarray:
        values = self._read(self._arrays[name])[: self.lengths.sum()]
        return values.reshape(len(values), -1)

    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        array = _Readable(self._arrays[name], self._read)
        some = kept_rows(self.lengths, stride)
        levels = Levels(name, (array[row : row + 1] for row in some[:: max(1, len(some) // 16)]))
        if stride == 1:
            yield from map(levels.pictures, blocks_of(array, 0, int(self.lengths.sum()), 1))
            return
        # Whole blocks are read, because a compressed chunk is decoded as a whole.
        first = 0
        for block in blocks_of(array, 0, int(self.lengths.sum()), 1):
            wanted = some[(some >= first) & (some < first + len(block))] - first
            if len(wanted):
                yield levels.pictures(block[wanted])
            first += len(block)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _read(self, array: Any, part: Any = slice(None)) -> np.ndarray:
        try:
            return np.asarray(array[part])
        except Exception as error:  # of zarr, of its stores and codecs
            raise ValueError(f"{self.path}: {array.path} cannot be read: {_reason(error)}; {ADVICE}") from error


class _Readable:
    """An array whose reading errors name the log."""

    def __init__(self, array: Any, read: Any) -> None:
        self._array, self._read = array, read
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, part: Any) -> np.ndarray:
        return self._read(self._array, part)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
