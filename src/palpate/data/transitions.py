"""Triples (o, a, o'): what the agent saw, how it moved, what it saw then. In memory or in an HDF5 file.

Legend: N triples, b rows of a batch, n dimension of the action, f features, v views, c channels, h height, w width.
"""

import copy
import importlib.metadata
import math
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, final

import h5py
import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = np.ndarray | Tensor | h5py.Dataset
Index: TypeAlias = slice | Sequence[int] | np.ndarray | Tensor
Layout: TypeAlias = Literal["auto", "channel-first", "channel-last"]

FORMAT = "palpate-transitions"
FORMAT_VERSION = 1
FIELDS = ("observation", "action", "next_observation")
RESERVED = ("format", "format_version", "palpate_version", "layout")

CHUNK_BYTES = 64 * 1024  # one random row costs one chunk; smaller chunks would cost more in calls than they save
BLOCK_BYTES = 64 * 1024**2  # read at a time when a whole set passes through memory


class Batch(NamedTuple):
    """Rows of triples in the canonical layout: uint8 stays uint8, every other number is float32."""

    o: Tensor  # [b, c, h, w], views stacked on the channels; or [b, f]
    a: Tensor  # [b, n]
    o_next: Tensor  # as o


@final
class Transitions:
    """Checked triples, read row by row in the canonical layout of `Batch`.

    Observations may be vectors [N, f], grey pictures [N, h, w], pictures [N, h, w, c] or [N, c, h, w], or views
    [N, v, h, w, c] or [N, v, c, h, w]. They are referred to, not copied, and converted when rows are read.
    """

    def __init__(
        self,
        *,
        observation: Array,
        action: Array,
        next_observation: Array,
        layout: Layout = "auto",
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        o, a, o_next = map(_as_array, FIELDS, (observation, action, next_observation))
        _check_shapes(o, a, o_next)
        self._observation, self._next_observation = o, o_next
        self._channel_last = _is_channel_last(o.shape, layout)
        self._dtype = np.uint8 if o.dtype == np.uint8 else np.float32
        self._action = _float32(a[...]).reshape(len(a), -1)
        self._index: np.ndarray | None = None  # the rows of a subset
        self._file: h5py.File | None = None
        self._source = o.file.filename if isinstance(o, h5py.Dataset) else "memory"
        self.attributes = dict(attributes or {})
        self.observation_shape: tuple[int, ...] = self._canonical(np.empty((0, *o.shape[1:]))).shape[1:]
        _check_finite("action", self._action)
        if self._dtype == np.float32:
            _check_finite("observation", o)
            _check_finite("next_observation", o_next)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Triples in an HDF5 file. Only the actions are held in memory; `close` or a `with` block lets go of the file.

        Files by others are welcome if they hold the three datasets, in the shapes the constructor takes.
        """
        path = Path(path)
        with ExitStack() as on_error:
            file = on_error.enter_context(_open_hdf5(path))
            try:
                layout = _check_header(file)
                attributes = {name: _plain(value) for name, value in file.attrs.items() if name not in RESERVED}
                datasets = {name: _dataset(file, name) for name in FIELDS}
                transitions = cls(**datasets, layout=layout, attributes=attributes)
            except (ValueError, OSError) as error:  # OSError: a damaged chunk
                raise ValueError(f"{path}: {error}") from error
            on_error.pop_all()
        transitions._file = file
        return transitions

    def close(self) -> None:
        """Let go of the file, also for all subsets; nothing can be read afterwards."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._action if self._index is None else self._index)

    def __repr__(self) -> str:
        shape = list(self.observation_shape)
        return (
            f"Transitions({len(self):,} triples from {self._source}, observation {np.dtype(self._dtype)} {shape}, "
            f"action of dimension {self.n})"
        )

    @property
    def n(self) -> int:
        return self._action.shape[1]

    @property
    def action(self) -> Tensor:
        """All actions, [N, n]."""
        return torch.from_numpy(self._action if self._index is None else self._action[self._index])

    @property
    def nbytes(self) -> int:
        """What all observations, o and o', take as rows of a `Batch`."""
        return 2 * len(self) * math.prod(self.observation_shape) * np.dtype(self._dtype).itemsize

    def rows(self, index: Index) -> Batch:
        """Copies of these rows, in this order, on the CPU."""
        if self._file is not None and not self._file:
            raise ValueError(f"{self._source} was closed; open it again with Transitions.open")
        rows = positions(index, len(self))
        if self._index is not None:
            rows = self._index[rows]
        o, o_next = (
            torch.from_numpy(np.ascontiguousarray(self._canonical(_take(array, rows)), dtype=self._dtype))
            for array in (self._observation, self._next_observation)
        )
        return Batch(o, torch.from_numpy(self._action[rows]), o_next)

    def blocks(self) -> Iterator[slice]:
        """Slices that cover the set in order, each small enough to pass through memory."""
        step = max(1, BLOCK_BYTES * len(self) // self.nbytes)
        return (slice(low, min(low + step, len(self))) for low in range(0, len(self), step))

    def subset(self, index: Index) -> Self:
        """These rows as a set of its own; the observations are shared."""
        rows = positions(index, len(self))
        if not len(rows):
            raise ValueError(f"the subset is empty; choose at least one of the {len(self)} rows")
        subset = copy.copy(self)
        subset._index = rows if self._index is None else self._index[rows]
        return subset

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Two disjoint random subsets, the first with this fraction of the rows."""
        first, second = split_rows(len(self), fraction, seed)
        return self.subset(first), self.subset(second)

    def save(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Write an HDF5 file that `open` reads, these attributes added to one's own."""
        with Writer(path, attributes=self.attributes | dict(attributes or {}), overwrite=overwrite) as writer:
            for block in self.blocks():
                writer.append(self.rows(block))

    def _canonical(self, rows: np.ndarray) -> np.ndarray:
        if rows.ndim == 3:
            return rows[:, None]
        if self._channel_last:
            rows = np.moveaxis(rows, -1, -3)
        if rows.ndim == 5:
            count, v, c, h, w = rows.shape
            return rows.reshape(count, v * c, h, w)
        return rows


@final
class Writer:
    """Writes triples to HDF5 batch by batch; the file appears under its name only once it is complete.

    The first batch settles shapes, dtypes and which true states there are. An exception inside the `with` block, of
    whatever kind, leaves neither a partial file nor a changed one.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False
    ) -> None:
        self._path = Path(path)
        self._attributes = dict(attributes or {})
        self._rows = 0
        self._fields: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        if self._path.is_dir():
            raise IsADirectoryError(f"{self._path} is a folder; give the name of a file to write")
        if self._path.exists() and not overwrite:
            raise FileExistsError(
                f"{self._path} exists; choose another name, or overwrite it (overwrite=True, --force)"
            )
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"cannot write {self._path}: there is no folder {self._path.parent}; create it")
        for name, value in self._attributes.items():
            if name in RESERVED or not isinstance(value, str | int | float | np.generic):
                raise ValueError(
                    f"attribute {name} = {value!r} cannot be stored; use a string, number or boolean, under a name "
                    f"other than {', '.join(RESERVED)}"
                )

    def __enter__(self) -> Self:
        self._temporary = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex[:8]}.tmp")
        self._file = h5py.File(self._temporary, "w")
        return self

    def append(self, batch: Batch, truth: Mapping[str, Tensor] | None = None) -> None:
        """Add rows; `truth` holds the true states by name, each with as many rows, in every batch or in none."""
        columns = dict(zip(FIELDS, batch, strict=True)) | {f"truth/{name}": x for name, x in (truth or {}).items()}
        fields = {name: (x.dtype, tuple(x.shape[1:])) for name, x in columns.items()}
        if not self._fields:
            self._fields = fields
            for name, x in columns.items():
                self._create(name, x)
        if fields != self._fields:
            raise ValueError(f"a batch with {fields} cannot follow batches with {self._fields} in {self._path}")
        rows = self._rows + len(batch.a)
        for name, x in columns.items():
            self._file[name].resize(rows, axis=0)
            self._file[name][self._rows :] = x.numpy(force=True)
        self._rows = rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file:
                if kind is None:
                    self._finish()
            if kind is None:
                os.replace(self._temporary, self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _finish(self) -> None:
        if not self._rows:
            raise ValueError(f"nothing to write to {self._path}: append at least one row")
        version = importlib.metadata.version("palpate")
        self._file.attrs.update(self._attributes)
        self._file.attrs.update(
            format=FORMAT, format_version=FORMAT_VERSION, palpate_version=version, layout="channel-first"
        )

    def _create(self, name: str, rows: Tensor) -> None:
        values = rows[:0].numpy(force=True)
        per_row = math.prod(values.shape[1:]) * values.itemsize
        self._file.create_dataset(
            name,
            data=values,
            maxshape=(None, *values.shape[1:]),
            chunks=(max(1, CHUNK_BYTES // per_row), *values.shape[1:]),
            compression="lzf" if values.dtype == np.uint8 else None,
        )


def positions(index: Index, length: int) -> np.ndarray:
    """The row numbers meant by a slice, a boolean mask or integers, of which negative ones count from the end."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length))
    rows = np.asarray(index)
    if rows.size == 0 and rows.dtype != bool:
        return np.empty(0, dtype=np.int64)
    if rows.dtype == bool and rows.shape == (length,):
        return np.flatnonzero(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise ValueError(
            f"rows are given as {rows.dtype} of shape {rows.shape}; "
            f"use a slice, a list of integers or a boolean mask of shape ({length},)"
        )
    outside = (rows < -length) | (rows >= length)
    if outside.any():
        raise IndexError(f"row {rows[outside][0]} does not exist; there are {length} rows")
    return rows.astype(np.int64) % length


def split_rows(length: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint random rows, both parts in rising order: that keeps reading from disk sequential."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}; it must lie between 0 and 1, both excluded")
    if length < 2:
        raise ValueError(f"cannot split {length} row into two parts; at least 2 rows are needed")
    shuffled = np.random.default_rng(seed).permutation(length)
    count = min(max(round(fraction * length), 1), length - 1)
    return np.sort(shuffled[:count]), np.sort(shuffled[count:])


def _as_array(field: str, value: Array) -> Any:
    """A numpy array or an HDF5 dataset, without copying where that is possible."""
    if isinstance(value, h5py.Dataset):
        return value
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # numpy has no bfloat16
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{field} is not an array: {error}; all rows must have the same shape") from error


def _check_shapes(o: Any, a: Any, o_next: Any) -> None:
    if not 2 <= o.ndim <= 5:
        raise ValueError(
            f"observation has shape {o.shape}; allowed are vectors [N, f], pictures [N, h, w], [N, h, w, c] or "
            "[N, c, h, w], and views [N, v, h, w, c] or [N, v, c, h, w]"
        )
    if a.ndim not in (1, 2):
        raise ValueError(f"action has shape {a.shape}; allowed are [N, n], or [N] for n = 1")
    if o_next.shape[1:] != o.shape[1:] or o_next.dtype != o.dtype:
        raise ValueError(
            f"next_observation is {o_next.dtype} of shape {o_next.shape}, observation {o.dtype} of shape {o.shape}; "
            "both must have the same dtype and shape"
        )
    if not len(o) == len(a) == len(o_next):
        raise ValueError(
            f"observation has {len(o)} rows, action {len(a)} and next_observation {len(o_next)}; a triple needs one of "
            "each, so the lengths must be equal"
        )
    for field, array in (("observation", o), ("action", a)):
        if 0 in array.shape:
            raise ValueError(f"{field} has shape {array.shape}, which is empty; at least one triple is needed")
    if o.dtype != np.uint8 and o.dtype.kind != "f":
        raise ValueError(
            f"observation has dtype {o.dtype}; allowed are uint8 and floats: convert pictures with .astype('uint8') "
            "(values 0 to 255), anything else with .astype('float32')"
        )
    if a.dtype.kind not in "iuf":
        raise ValueError(f"action has dtype {a.dtype}; allowed are real numbers: convert it with .astype('float32')")


def _is_channel_last(shape: tuple[int, ...], layout: str) -> bool:
    """Vectors and grey pictures have no channel axis; elsewhere "auto" takes the smaller of the two candidates."""
    if layout not in ("auto", "channel-first", "channel-last"):
        raise ValueError(f"layout is {layout!r}; allowed are 'auto', 'channel-first' and 'channel-last'")
    if len(shape) < 4:
        return False
    if layout != "auto":
        return layout == "channel-last"
    first, last = shape[-3], shape[-1]
    if first == last:
        raise ValueError(
            f"observation has shape {shape}, where the channels may come first or last; "
            "pass layout='channel-first' or layout='channel-last'"
        )
    return last < first


def _check_finite(field: str, array: Any) -> None:
    """Find the first row with a value that float32 cannot hold as a number; block by block, to bound memory."""
    step = max(1, BLOCK_BYTES // (math.prod(array.shape[1:]) * array.dtype.itemsize))
    for low in range(0, len(array), step):
        block = _float32(array[low : low + step]).reshape(-1, math.prod(array.shape[1:]))
        bad = ~np.isfinite(block)
        if bad.any():
            row = int(bad.any(axis=1).argmax())
            raise ValueError(
                f"{field} has the value {block[row][bad[row]][0]} in row {low + row}; all values must be finite in "
                "float32: repair or drop the row"
            )


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what overflows becomes inf, which `_check_finite` reports
        return values.astype(np.float32)


def _take(array: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array[rows]
    # HDF5 selects scattered rows slowly, and in rising order only: read each touched chunk once and pick from it.
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
    step = array.chunks[0] if array.chunks else max(1, CHUNK_BYTES * len(array) // array.nbytes)
    order = np.argsort(rows, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(rows[order] // step)) + 1):
        if len(places):
            wanted = rows[places]  # rising
            taken[places] = array[wanted[0] : wanted[-1] + 1][wanted - wanted[0]]
    return taken


def _open_hdf5(path: Path) -> h5py.File:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the HDF5 file inside it")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno is not None:  # the system's reason (permission, a lock), not the content
            raise
        raise ValueError(f"{path} is not an HDF5 file, or is truncated: {error}; copy or collect it again") from error


def _check_header(file: h5py.File) -> Layout:
    if "format" not in file.attrs:
        return file.attrs.get("layout", "auto")
    if file.attrs["format"] != FORMAT:
        raise ValueError(f"the format is {file.attrs['format']!r}; allowed is {FORMAT!r}")
    version = _plain(file.attrs.get("format_version"))
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version}, written by palpate {file.attrs.get('palpate_version', '(unknown)')}; this "
            f"palpate reads versions up to {FORMAT_VERSION}: upgrade it"
        )
    return file.attrs.get("layout", "auto")


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        there = ", ".join(sorted(file)) or "nothing"
        raise ValueError(f"there is no dataset {name!r}; the file holds {there}, needed are {', '.join(FIELDS)}")
    return dataset


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
