"""Triples in HDF5: files that appear only once they are complete, and reading scattered rows from them.

A column is a dataset with one row per triple: `observation`, `action`, `next_observation`, `episode` where it is known,
and `truth/NAME` for the true states, which nothing but `data.labelled` reads.
"""

import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, TypeAlias, final

import h5py
import numpy as np
from torch import Tensor

from palpate import __version__
from palpate.disk import Disk
from palpate.interrupts import interrupts_wait

Columns: TypeAlias = Mapping[str, np.ndarray]
Layout: TypeAlias = Literal["auto", "channel-first", "channel-last"]

FORMAT = "palpate-transitions"
FORMAT_VERSION = 2  # no other is read
FIELDS = ("observation", "action", "next_observation")
RESERVED = ("format", "format_version", "palpate_version", "layout")

CHUNK_BYTES = 64 * 1024  # one random row costs one chunk; smaller chunks would cost more in calls than they save
CHUNK_ROWS = 1024  # of narrow columns: a chunk is stored whole, however few rows are in it
# Smaller than lzf, faster to read, and known to every HDF5.
COMPRESSION = {"compression": "gzip", "compression_opts": 1}
# With checksums of all that HDF5 itself notes; those of the rows come from fletcher32.
LIBRARY = ("v110", "v110")
DAMAGE = (
    OSError,
    LookupError,
    RuntimeError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)  # what HDF5 raises


@final
class Table:
    """Columns that grow, in an HDF5 file object; the first rows settle names, shapes and dtypes."""

    def __init__(self, disk: io.IOBase | BinaryIO) -> None:
        self.rows = 0
        self._fields: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._file = h5py.File(disk, "w", libver=LIBRARY)

    def append(self, columns: Columns) -> None:
        rows = self._grow(columns, len(columns["action"]))
        for name, x in columns.items():
            self._file[name][self.rows :] = x
        self.rows = rows

    def copy(self, part: h5py.File, count: int) -> None:
        """Append the first rows of a file; packed chunks are taken as they are where they fit."""
        columns = {name: part[name] for name in column_names(part)}
        rows = self._grow(columns, count)
        for name, x in columns.items():
            target, step, inner = self._file[name], x.chunks[0], (0,) * (x.ndim - 1)
            kinds = [(each.chunks, each.compression, each.fletcher32) for each in (x, target)]
            alike = kinds[0] == kinds[1] and len(x) == count
            if not alike or x.compression is None or self.rows % step:
                target[self.rows :] = x[:count]
                continue
            for at in range(0, count, step):
                mask, packed = x.id.read_direct_chunk((at, *inner))
                target.id.write_direct_chunk((self.rows + at, *inner), packed, mask)
        self.rows = rows

    def finish(self, attributes: Mapping[str, Any]) -> None:
        ours = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "palpate_version": __version__,
            "layout": "channel-first",
        }
        for name, value in {**attributes, **ours}.items():
            # Strings of a fixed length: no checksum covers others, and HDF5 may hang where they are damaged.
            fixed = h5py.string_dtype("utf-8", max(1, len(value.encode()))) if isinstance(value, str) else None
            self._file.attrs.create(name, value, dtype=fixed)

    def close(self) -> None:
        self._file.close()

    def _grow(self, columns: Mapping[str, Any], count: int) -> int:
        """Room for `count` more rows of these arrays or datasets; how many there are then."""
        fields = {name: (str(x.dtype), x.shape[1:]) for name, x in columns.items()}
        if not self._fields:
            self._fields = fields
            for name, x in columns.items():
                self._create(name, x.dtype, x.shape[1:])
        if fields != self._fields:
            raise ValueError(f"a batch with {fields} cannot follow batches with {self._fields}")
        for name in columns:
            self._file[name].resize(self.rows + count, axis=0)
        return self.rows + count

    def _create(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        per_row = math.prod(shape) * dtype.itemsize
        fitting = min(max(1, CHUNK_BYTES // per_row), CHUNK_ROWS)
        rows = 1 << (fitting.bit_length() - 1)  # a power of two, so that parts end with a chunk
        packing = COMPRESSION if dtype == np.uint8 else {}
        self._file.create_dataset(
            name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(rows, *shape), fletcher32=True, **packing
        )


@final
class Writer:
    """Writes triples to HDF5 batch by batch; the file appears under its name only once it is complete.

    The first batch settles shapes, dtypes and which true states there are. An exception inside the `with` block, of
    whatever kind, leaves neither a partial file nor a changed one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        attributes: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        aside: Path | None = None,  # folder for the file while it is not complete
    ) -> None:
        self._path, self._aside = Path(path), aside
        self.attributes = dict(attributes or {})
        if self._path.is_dir():
            raise IsADirectoryError(f"{self._path} is a folder; give the name of a file to write")
        if self._path.exists() and not overwrite:
            raise FileExistsError(
                f"{self._path} exists; choose another name, or overwrite it (overwrite=True, --force)"
            )
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"cannot write {self._path}: there is no folder {self._path.parent}; create it")
        for name, value in self.attributes.items():
            if name in RESERVED or not isinstance(value, str | int | float | np.generic):
                raise ValueError(
                    f"attribute {name} = {value!r} cannot be stored; use a string, number or boolean, under a name "
                    f"other than {', '.join(RESERVED)}"
                )

    def __enter__(self) -> Self:
        self._disk = Disk(self._path, self._aside)
        self._table = Table(self._disk)
        return self

    def append(
        self,
        triples: tuple[Tensor, Tensor, Tensor],
        truth: Mapping[str, Tensor] | None = None,
        episode: Tensor | None = None,
    ) -> None:
        """Add rows of o, a, o'; `truth` holds the true states by name, as many rows, in every batch or in none."""
        tensors = dict(zip(FIELDS, triples, strict=True)) | {f"truth/{name}": x for name, x in (truth or {}).items()}
        tensors |= {} if episode is None else {"episode": episode}
        with self._writing():
            self._table.append({name: x.numpy(force=True) for name, x in tensors.items()})

    def copy(self, part: h5py.File, count: int) -> None:
        """Add the first rows of a file that another writer made."""
        with self._writing():
            self._table.copy(part, count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with interrupts_wait():
                if kind is None and self._table.rows:
                    self._table.finish(self.attributes)
                self._table.close()
            if kind is None:
                if not self._table.rows:
                    raise ValueError(f"nothing to write to {self._path}: append at least one row")
                self._disk.commit()
        finally:
            self._disk.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with interrupts_wait():
                yield
        except ValueError as error:
            raise ValueError(f"{error} in {self._path}") from error
        finally:
            self._disk.check()


def open_hdf5(path: Path) -> h5py.File:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        advice = "give the HDF5 file inside it"
        if path.suffix == ".parts":
            advice = "finish this collection with --resume; a smaller --num takes what there is"
        raise ValueError(f"{path} is a folder; {advice}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno is not None:  # the system's reason (permission, a lock), not the content
            raise
        advice = "copy or collect it again"
        if path.suffix in (".npz", ".npy"):
            advice = (
                "palpate.Transitions(observation=..., action=..., next_observation=...).save(...) makes one of arrays"
            )
        raise ValueError(f"{path} is not an HDF5 file, or is truncated: {error}; {advice}") from error


@contextmanager
def read_from(path: Path) -> Iterator[None]:
    """Let errors name the file; those of HDF5 come from what the file holds."""
    try:
        yield
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's reason, not the content
            raise
        raise ValueError(f"{path} is damaged: {_reason(error)}; copy or collect it again") from error


def read(array: Any, low: int, high: int) -> np.ndarray:
    """Consecutive rows of an array or of a dataset, whose checksums are verified where it has any."""
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
    """Whether this is a file we can read, and how its pictures are laid out."""
    layout: Layout = _plain(file.attrs.get("layout", "auto"))
    if "format" not in file.attrs:
        return layout
    found, version, writer = (_plain(file.attrs.get(name)) for name in RESERVED[:3])
    if found != FORMAT:
        raise ValueError(f"the format is {found!r}; allowed is {FORMAT!r}")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version!r}, this palpate reads {FORMAT_VERSION} alone: read it with the palpate that "
            f"wrote it ({writer}), or collect it again"
        )
    return layout


def attributes_of(file: h5py.File) -> dict[str, Any]:
    """What the writer of the file noted, without what the format itself notes."""
    return {name: _plain(value) for name, value in file.attrs.items() if name not in RESERVED}


def member(group: h5py.Group, name: str) -> Any:
    """What a group holds under a name, None where nothing; `get` takes what is damaged for nothing."""
    return group[name] if name in set(group) else None


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    found = member(file, name)
    if not isinstance(found, h5py.Dataset):
        there = ", ".join(sorted(file)) or "nothing"
        raise ValueError(f"there is no dataset {name!r}; the file holds {there}, needed are {', '.join(FIELDS)}")
    return found


def column_names(file: h5py.File) -> list[str]:
    return [*FIELDS, *(f"truth/{name}" for name in member(file, "truth") or ())]


def take(array: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of an array or of a dataset, in this order."""
    if isinstance(array, np.ndarray):
        return array[rows]
    # HDF5 selects scattered rows slowly, and in rising order only: read each touched chunk once and pick from it.
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
