"""HDF5 files of triples: written whole or not at all, and read in scattered rows.

A column is a dataset with a row per triple: `observation`, `action`, `next_observation`, `episode` if it is known, and
`truth/NAME` for true states, which only `data.labelled` reads.
"""

import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, final

import h5py
import numpy as np

from palpate import __version__
from palpate.disk import Disk, require_place
from palpate.interrupts import interrupts_wait

Columns: TypeAlias = Mapping[str, np.ndarray]
Layout: TypeAlias = Literal["auto", "channel-first", "channel-last"]

FORMAT = "palpate-transitions"
FORMAT_VERSION = 2  # no other version is read
OF_AGENT = ("agent", "heading", "rotation")  # beginnings of the names of the agent's true states
FIELDS = ("observation", "action", "next_observation")
RESERVED = ("format", "format_version", "palpate_version", "layout")

CHUNK_BYTES = 64 * 1024  # one random row costs one chunk; smaller chunks would cost more in calls than they save
CHUNK_ROWS = 1024  # of narrow columns: a chunk is stored whole, however few rows are in it
# Smaller than lzf, faster to read, and known to every HDF5.
COMPRESSION = {"compression": "gzip", "compression_opts": 1}
# This format has checksums of HDF5's own metadata; fletcher32 adds those of the rows.
LIBRARY = ("v110", "v110")
# HDF5 raises these errors for damaged files.
DAMAGE = (OSError, LookupError, RuntimeError, TypeError, AttributeError, ArithmeticError, MemoryError)


@final
class Table:
    """Columns that grow, in an HDF5 file object. The first rows determine names, shapes and dtypes."""

    def __init__(self, disk: io.IOBase | BinaryIO) -> None:
        self.rows = 0
        self.attributes: dict[str, Any] = {}
        self._fields: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._disk = disk
        self._file = h5py.File(disk, "w", libver=LIBRARY)

    def append(self, columns: Columns) -> None:
        count = len(columns["action"])
        with self._changing():
            self._grow(columns, count)
            for name, x in columns.items():
                self._file[name][self.rows :] = x
        self.rows += count

    def copy(self, part: h5py.File, count: int) -> None:
        """Append the first rows of a file that a table wrote; compressed chunks are copied as they are if they fit."""
        columns = {name: part[name] for name in column_names(part)}
        with self._changing():
            self._grow(columns, count)
            for name, x in columns.items():
                target, step, inner = self._file[name], x.chunks[0], (0,) * (x.ndim - 1)
                fits = x.chunks == target.chunks and len(x) == count and self.rows % step == 0
                if not fits or x.compression is None:
                    target[self.rows :] = x[:count]
                    continue
                for at in range(0, count, step):
                    mask, packed = x.id.read_direct_chunk((at, *inner))
                    target.id.write_direct_chunk((self.rows + at, *inner), packed, mask)
        self.rows += count

    def finish(self) -> None:
        """Write the attributes and close the file object."""
        ours = (FORMAT, FORMAT_VERSION, __version__, "channel-first")
        with self._changing():
            for name, value in {**self.attributes, **dict(zip(RESERVED, ours, strict=True))}.items():
                # No checksum covers strings of variable length, and HDF5 may hang if they are damaged.
                fixed = h5py.string_dtype("utf-8", max(1, len(value.encode()))) if isinstance(value, str) else None
                self._file.attrs.create(name, value, dtype=fixed)
        self.close()

    def close(self) -> None:
        with interrupts_wait():
            self._file.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            with interrupts_wait():
                yield
        finally:
            if isinstance(self._disk, Disk):
                self._disk.check()

    def _grow(self, columns: Mapping[str, Any], count: int) -> None:
        """Make room for `count` more rows of these arrays or datasets."""
        fields = {name: (str(x.dtype), x.shape[1:]) for name, x in columns.items()}
        if not self._fields:
            self._fields = fields
            for name, x in columns.items():
                self._create(name, x.dtype, x.shape[1:])
        if fields != self._fields:
            raise ValueError(f"a batch with {fields} cannot follow batches with {self._fields}")
        for name in columns:
            self._file[name].resize(self.rows + count, axis=0)

    def _create(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        per_row = math.prod(shape) * dtype.itemsize
        fitting = min(max(1, CHUNK_BYTES // per_row), CHUNK_ROWS)
        rows = 1 << (fitting.bit_length() - 1)  # a power of two, so that blocks end with a chunk
        packing = COMPRESSION if dtype == np.uint8 else {}
        self._file.create_dataset(
            name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(rows, *shape), fletcher32=True, **packing
        )


@contextmanager
def new_file(
    path: str | os.PathLike[str],
    attributes: Mapping[str, Any],
    *,
    overwrite: bool = False,
    aside: Path | None = None,  # folder for the file while it is incomplete
) -> Iterator[Table]:
    """A table that becomes the file `path` at the end of the block. An exception leaves `path` as it was."""
    path = Path(path)
    require_writable(path, attributes, overwrite)
    with Disk(path, aside) as disk:
        table = Table(disk)
        table.attributes |= attributes
        try:
            yield table
            if not table.rows:
                raise ValueError(f"nothing to write to {path}: append at least one row")
            table.finish()
        finally:
            table.close()
        disk.commit()


def require_writable(path: Path, attributes: Mapping[str, Any], overwrite: bool) -> None:
    require_place(path, overwrite)
    for name, value in attributes.items():
        if name in RESERVED or not isinstance(value, str | int | float | np.generic):
            raise ValueError(
                f"attribute {name} = {value!r} cannot be stored; use a string, number or boolean, under a name other "
                f"than {', '.join(RESERVED)}"
            )


def open_hdf5(path: Path) -> h5py.File:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        advice = "give the HDF5 file inside it"
        if path.suffix == ".parts":
            advice = "complete this collection with --resume; a smaller --num uses only the existing rows"
        raise ValueError(f"{path} is a folder; {advice}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno is not None:  # an error of the operating system (permission, a lock)
            raise
        advice = "copy or collect it again"
        if path.suffix in (".npz", ".npy"):
            advice = "palpate.Transitions(observation=..., action=..., next_observation=...).save(...) writes one"
        raise ValueError(f"{path} is not an HDF5 file, or is truncated: {error}; {advice}") from error


@contextmanager
def read_from(path: Path) -> Iterator[None]:
    """Add the file's name to errors, and report errors of HDF5 as damage."""
    try:
        yield
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the operating system
            raise
        raise ValueError(f"{path} is damaged: {_reason(error)}; copy or collect it again") from error


def read(array: Any, low: int, high: int) -> np.ndarray:
    """Consecutive rows of an array or of a dataset. HDF5 verifies the checksums of a dataset that has them."""
    try:
        rows: np.ndarray = array[low:high]
    except DAMAGE as error:
        raise ValueError(
            f"rows {low} to {high - 1} cannot be read from {array.file.filename}, which is damaged: "
            f"{_reason(error)}; copy or collect it again"
        ) from error
    return rows


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_header(file: h5py.File) -> Layout:
    """Refuse other formats and versions; returns the layout of the pictures."""
    layout: Layout = _plain(file.attrs.get("layout", "auto"))
    if "format" not in file.attrs:
        return layout
    found, version, writer = (_plain(file.attrs.get(name)) for name in RESERVED[:3])
    if found != FORMAT:
        raise ValueError(f"the format is {found!r}; allowed is {FORMAT!r}")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version!r}, but this palpate reads only {FORMAT_VERSION}: read the file with palpate "
            f"{writer}, which wrote it, or collect it again"
        )
    return layout


def attributes_of(file: h5py.File) -> dict[str, Any]:
    """The attributes that the file's writer gave, without those of the format."""
    return {name: _plain(value) for name, value in file.attrs.items() if name not in RESERVED}


def member(group: h5py.Group, name: str) -> Any:
    """A member of a group, or None. Unlike `get`, it raises an error for a damaged member."""
    return group[name] if name in set(group) else None


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    found = member(file, name)
    if not isinstance(found, h5py.Dataset):
        there = ", ".join(sorted(file)) or "nothing"
        raise ValueError(f"there is no dataset {name!r}; the file holds {there}, needed are {', '.join(FIELDS)}")
    return found


def column_names(file: h5py.File) -> list[str]:
    """The names of all columns."""
    plain = [name for name in file if name != "truth"]
    return [*plain, *(f"truth/{name}" for name in member(file, "truth") or ())]


def take(array: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of an array or of a dataset, in this order."""
    if isinstance(array, np.ndarray):
        return array[rows]
    # HDF5 selects scattered rows slowly, and only in rising order. So each needed chunk is read once.
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
    step = array.chunks[0] if array.chunks else max(1, CHUNK_BYTES * len(array) // array.nbytes)
    order = np.argsort(rows, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(rows[order] // step)) + 1):
        if len(places):
            wanted = rows[places]  # rising
            taken[places] = read(array, wanted[0], wanted[-1] + 1)[wanted - wanted[0]]
    return taken


def _plain(value: Any) -> Any:
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode() if isinstance(value, bytes) else value
