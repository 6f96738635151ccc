"""Triples (o, a, o') in memory or in an HDF5 file.

Legend: N triples, b rows of a batch, n dimension of the action, f features, v views, c channels, h height, w width.
"""

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, final

import h5py
import numpy as np
import torch
from torch import Tensor

from palpate.config import GroupName
from palpate.data import arrays, files
from palpate.data.arrays import BLOCK_BYTES, VIEWS, Array, as_array, as_float32
from palpate.data.episodes import last_rows, pair, split_episodes, split_rows
from palpate.data.files import FIELDS, Layout
from palpate.data.logs.frames import Frames
from palpate.data.logs.options import LogOptions

Kinematics: TypeAlias = str | os.PathLike[str] | Callable[[np.ndarray], Any]
Index: TypeAlias = slice | Sequence[int] | np.ndarray | Tensor

COMPARED = 64  # rows that `shared_with` compares
MOST_ALIKE = 8  # rows of the other set with the same action that it reads


class Batch(NamedTuple):
    """Rows of triples in the canonical layout: uint8 stays uint8, every other number is float32."""

    o: Tensor  # [b, c, h, w], views stacked on the channels; or [b, f]
    a: Tensor  # [b, n], or [b, m n] for m sub-steps
    o_next: Tensor  # as o

    @property
    def journey(self) -> tuple[Tensor, ...]:
        """Chain and travelled pose of each triple, as in `ChainedBatch`; empty, because the chains are unknown."""
        return ()


class ChainedBatch(NamedTuple):
    """A `Batch` with the chain of each triple: a triple begins with the observation that ends the one before it."""

    o: Tensor
    a: Tensor
    o_next: Tensor
    chain: Tensor  # [b] number of the chain
    travelled: Tensor  # [b, pose_width] pose before the action, relative to the first pose of the chain

    @property
    def journey(self) -> tuple[Tensor, ...]:
        return self.chain, self.travelled


@final
class Transitions:
    """Checked triples, read row by row in the canonical layout of `Batch`.

    Observations may be vectors [N, f], grey pictures [N, h, w], pictures [N, h, w, c] or [N, c, h, w], or views
    [N, v, h, w, c] or [N, v, c, h, w]. They are referred to, not copied, and converted when rows are read. Actions are
    [N, n]. For group="se3" they may be matrices [N, 4, 4], the agent's pose after a move seen from before; they become
    6 numbers. A move that was recorded in m parts has an action [N, m, n], or [N, m, 4, 4]: sub-steps, one after the
    other.
    """

    def __init__(
        self,
        *,
        observation: Array,
        action: Array,
        next_observation: Array,
        episode: Array | None = None,
        layout: Layout = "auto",
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        o, o_next = as_array("observation", observation), as_array("next_observation", next_observation)
        a = arrays.as_actions(action)
        arrays.require_shapes(o, a, o_next)
        self._observation, self._next_observation = o, o_next
        self._shift = 0  # row i + shift of next_observation belongs to row i
        self._channel_last = arrays.is_channel_last(o.shape, layout)
        self._dtype = np.uint8 if o.dtype == np.uint8 else np.float32
        self._action = as_float32(a[...]).reshape(len(a), -1)
        self.substeps = a.shape[1] if a.ndim == 3 else 1
        self._episode = None if episode is None else arrays.as_episodes(episode, len(a))
        self._index: np.ndarray | None = None  # the rows of a subset
        self._file: h5py.File | Frames | None = None
        self._log_rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self.recipe: dict[str, Any] = {}  # where they come from, by the options of `palpate train`
        self._source = "memory" if isinstance(o, np.ndarray) else os.path.abspath(o.file.filename)
        self.attributes = dict(attributes or {}) | ({VIEWS: o.shape[1]} if o.ndim == 5 else {})
        self.observation_shape: tuple[int, ...] = self._canonical(np.empty((0, *o.shape[1:]))).shape[1:]
        if len(self.observation_shape) == 3 and 1 in self.observation_shape[1:]:
            raise ValueError(
                f"observation has shape {o.shape}, pictures of {self.observation_shape[1]} x "
                f"{self.observation_shape[2]} pixels; give vectors, such as a laser scan, as [N, f]"
            )
        arrays.require_finite("action", self._action)
        if self._dtype == np.float32:
            arrays.require_finite("observation", o)
            arrays.require_finite("next_observation", o_next)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Triples in an HDF5 file. Only the actions are read into memory; `close` or a `with` block closes the file.

        The file needs the datasets `observation`, `action` and `next_observation` in shapes that the constructor
        accepts, and may have `episode`; or `observation`, `action` and `episode_end` as in `from_episodes`.
        """
        path = Path(path)
        with ExitStack() as on_error:
            file = on_error.enter_context(files.open_hdf5(path))
            with files.read_from(path):
                layout = files.check_header(file)
                options: Any = {"layout": layout, "attributes": files.attributes_of(file)}
                held = set(file)  # `in file` is false for damaged datasets
                if "episode_end" in held and "next_observation" not in held:
                    ends = files.dataset(file, "episode_end")[...]
                    datasets = {name: files.dataset(file, name) for name in FIELDS[:2]}
                    transitions = cls.from_episodes(**datasets, episode_end=ends, **options)
                else:
                    datasets = {name: files.dataset(file, name) for name in FIELDS}
                    episode = files.dataset(file, "episode") if "episode" in held else None
                    transitions = cls(**datasets, episode=episode, **options)
            on_error.pop_all()
        transitions._file = file
        return transitions

    @classmethod
    def from_episodes(
        cls,
        *,
        observation: Array,
        action: Array,
        episode_end: Any,
        layout: Layout = "auto",
        attributes: Mapping[str, Any] | None = None,
    ) -> Self:
        """Triples from a log of episodes, all observations in one array.

        `action` holds the displacement from each observation to the next. It may have a row for every observation (the
        last one of an episode is not used), or no rows for last observations. `episode_end` marks the last
        observations, by a mask or by row numbers. Nothing is copied, and `split` keeps episodes whole.
        """
        o, a = as_array("observation", observation), arrays.as_actions(action)
        if a.ndim not in (1, 2, 3) or o.ndim < 2 or len(o) < 2:
            raise ValueError(
                f"observation has shape {o.shape} and action {a.shape}; allowed are two or more observations, and "
                "actions [T, n] or [T, m, n]"
            )
        rows, actions, episode = pair(last_rows(episode_end, len(o)), len(a), len(o))
        moved = np.zeros((len(o), *a.shape[1:]), np.float32)
        moved[rows] = as_float32(a[...][actions])
        number = np.zeros(len(o), np.int64)
        number[rows] = episode
        whole = cls(
            observation=o, action=moved, next_observation=o, episode=number, layout=layout, attributes=attributes
        )
        whole._shift = 1
        return whole.subset(rows)

    @classmethod
    def from_minari(
        cls,
        dataset: Any,
        *,
        observation: str | None = None,
        displacement: Callable[[Any], Any] | None = None,
        download: bool = False,
        layout: Layout = "auto",
        position: str | None = None,
        stride: int = 1,
        substeps: int = 1,
        kinematics: Kinematics | None = None,
        site: str | None = None,
        group: GroupName = "translations",
    ) -> "Transitions":
        """Triples from a Minari data set, its name or its folder; needs the extra palpate[minari].

        `observation` selects one of several arrays, `a/b` in nested dictionaries. Minari's actions are often commands.
        Either give `position` as in `from_lerobot`, for instance "achieved_goal"; columns are named
        "observations/NAME" or "infos/NAME". Or give `displacement`, which computes displacements [T - 1, n] from a
        Minari episode with T observations. Without both the actions are used. `download` fetches a data set that is not
        on this machine.
        """
        from palpate.data.minari import folder_of, read_minari

        if position is None:
            if (stride, substeps) != (1, 1) or kinematics is not None or site is not None or group != "translations":
                raise ValueError(
                    "stride, substeps, kinematics, site and group need position, the columns of the agent's position"
                )
            return cls.from_episodes(
                **read_minari(dataset, observation, displacement, download)._asdict(), layout=layout
            )
        if displacement is not None:
            raise ValueError("give either position or displacement, not both")
        return _logged(
            folder_of(dataset, download),
            "minari",
            kinematics,
            observation=observation,
            position=position,
            stride=stride,
            substeps=substeps,
            site=site,
            group=group,
        )

    @classmethod
    def from_lerobot(
        cls,
        folder: str | os.PathLike[str],
        *,
        observation: str | None = None,
        position: str | None = None,
        stride: int = 1,
        substeps: int = 1,
        kinematics: Kinematics | None = None,
        site: str | None = None,
        group: GroupName = "translations",
    ) -> "Transitions":
        """Triples from a LeRobot data set, v3 or v2, on this machine; needs the extra palpate[lerobot].

        `observation` names a column, or several cameras "a,b", which become views; it may be left out if there is only
        one. `position` names the columns of the agent's position, for instance "observation.state[:2]"; the action is
        their difference over `stride` frames. With `substeps` the path also leads through the positions that divide the
        stride into so many equal parts. `kinematics`, a MuJoCo model, computes the position of `site`, a site or a
        body, from joint angles in the position columns. It may also be a function of these columns [T, d] that returns
        poses [T, 4, 4], or positions [T, 3] and rotations [T, 3, 3]. With `group` "se2" or "se3" the actions are moves
        along the agent's own axes. Without `kinematics` the columns are then x, y and heading, or x, y, z and a
        rotation vector.
        """
        return _logged(
            folder,
            "lerobot",
            kinematics,
            observation=observation,
            position=position,
            stride=stride,
            substeps=substeps,
            site=site,
            group=group,
        )

    @classmethod
    def from_robomimic(
        cls,
        path: str | os.PathLike[str],
        *,
        observation: str | None = None,
        position: str | None = None,
        stride: int = 1,
        substeps: int = 1,
        kinematics: Kinematics | None = None,
        site: str | None = None,
        group: GroupName = "translations",
    ) -> "Transitions":
        """Triples from an HDF5 file of robomimic, as in `from_lerobot`. Columns: "obs/robot0_eef_pos" and so on."""
        return _logged(
            path,
            "robomimic",
            kinematics,
            observation=observation,
            position=position,
            stride=stride,
            substeps=substeps,
            site=site,
            group=group,
        )

    @classmethod
    def from_zarr(
        cls,
        path: str | os.PathLike[str],
        *,
        observation: str | None = None,
        position: str | None = None,
        stride: int = 1,
        substeps: int = 1,
        kinematics: Kinematics | None = None,
        site: str | None = None,
        group: GroupName = "translations",
    ) -> "Transitions":
        """Triples from a zarr folder or zip in diffusion policy's layout, as in `from_lerobot`; needs palpate[zarr].

        Columns are the arrays of the group `data`, such as "img" and "state".
        """
        return _logged(
            path,
            "zarr",
            kinematics,
            observation=observation,
            position=position,
            stride=stride,
            substeps=substeps,
            site=site,
            group=group,
        )

    def come_from(
        self, recipe: Mapping[str, Any], log_rows: tuple[np.ndarray, np.ndarray, np.ndarray], frames: Frames | None
    ) -> None:
        """Record which rows of a log these triples are; `close` will close the frames. For readers of logs."""
        self.recipe, self._source, self._file = dict(recipe), recipe["data"], frames
        self._log_rows = log_rows

    @property
    def log_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The episode of each o, its row in the episode and its row in the log, `[N]` each; None if there is no log."""
        if self._log_rows is None:
            return None
        rows = slice(None) if self._index is None else self._index
        episode, frame, row = self._log_rows
        return episode[rows], frame[rows], row[rows]

    def close(self) -> None:
        """Close the file, for all subsets too; nothing can be read afterwards."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._action if self._index is None else self._index)

    def moves_to(self, path: Path) -> None:
        """Let runs name the file as `path`, to which it will be moved."""
        self._source = os.path.abspath(path)
        self.recipe = {"data": self._source}

    def __repr__(self) -> str:
        shape = list(self.observation_shape)
        return (
            f"Transitions({len(self):,} triples from {self._source}, observation {np.dtype(self._dtype)} {shape}, "
            f"action {list(self.action_shape)})"
        )

    @property
    def n(self) -> int:
        """Numbers of an action, or of each of its sub-steps."""
        return self._action.shape[1] // self.substeps

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action: (n,), or (m, n) with sub-steps."""
        return (self.n,) if self.substeps == 1 else (self.substeps, self.n)

    @property
    def action(self) -> Tensor:
        """All actions, [N, n]; sub-steps are one after the other, [N, m n]."""
        return torch.from_numpy(self._action if self._index is None else self._action[self._index])

    @property
    def episode(self) -> Tensor | None:
        """The episode of each row, [N]; None if unknown."""
        if self._episode is None:
            return None
        return torch.from_numpy(self._episode if self._index is None else self._episode[self._index])

    @property
    def views(self) -> int:
        """Number of cameras whose pictures are stacked on the channels; 1 if unknown."""
        return arrays.count_views(self.observation_shape, self.attributes)

    @property
    def nbytes(self) -> int:
        """Size of all observations, o and o', as rows of a `Batch`."""
        return 2 * len(self) * math.prod(self.observation_shape) * np.dtype(self._dtype).itemsize

    def rows(self, index: Index) -> Batch:
        """Copies of these rows, in this order, on the CPU."""
        if self._file is not None and not self._file:
            raise ValueError(f"{self._source} was closed; open it again with Transitions.open")
        rows = positions(index, len(self))
        if self._index is not None:
            rows = self._index[rows]
        o, o_next = (
            torch.from_numpy(np.ascontiguousarray(self._canonical(files.take(array, places)), dtype=self._dtype))
            for array, places in ((self._observation, rows), (self._next_observation, rows + self._shift))
        )
        return Batch(o, torch.from_numpy(self._action[rows]), o_next)

    def columns(self, index: Index) -> dict[str, np.ndarray]:
        """Copies of these rows as the columns of a file."""
        columns = {name: x.numpy() for name, x in zip(FIELDS, self.rows(index), strict=True)}
        columns["action"] = columns["action"].reshape(-1, *self.action_shape)
        return columns if self.episode is None else columns | {"episode": self.episode[index].numpy()}

    def shared_with(self, other: "Transitions") -> float:
        """Share of these rows that `other` holds too, estimated from some rows; 0 if actions often repeat."""
        if (self.observation_shape, self.action_shape) != (other.observation_shape, other.action_shape):
            return 0.0
        looked_at = range(0, len(self), -(-len(self) // COMPARED))
        mine, theirs, shared = self.action, other.action, 0
        for row in looked_at:
            alike = (theirs == mine[row]).all(1).nonzero()[:, 0]
            if 0 < len(alike) <= MOST_ALIKE:
                there, here = other.rows(alike), self.rows([row])
                same = [(x == y).flatten(1).all(1) for x, y in ((there.o, here.o), (there.o_next, here.o_next))]
                shared += int((same[0] & same[1]).any())
        return shared / len(looked_at)

    def blocks(self) -> Iterator[slice]:
        """Slices that cover the set in order, each of bounded size."""
        step = max(1, BLOCK_BYTES * len(self) // self.nbytes)
        return (slice(low, min(low + step, len(self))) for low in range(0, len(self), step))

    def subset(self, index: Index) -> Self:
        """A set of these rows; the observations are not copied."""
        rows = positions(index, len(self))
        if not len(rows):
            raise ValueError(f"the subset is empty; choose at least one of the {len(self)} rows")
        subset = copy.copy(self)
        subset.recipe = {}  # it gives the whole set
        subset._index = rows if self._index is None else self._index[rows]
        return subset

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Two disjoint random subsets, the first with this fraction of the rows; episodes stay whole."""
        first, second = self.split_rows(fraction, seed)
        return self.subset(first), self.subset(second)

    def split_rows(self, fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the two subsets that `split` makes."""
        episode = self.episode
        if episode is None or bool((episode == episode[0]).all()):  # one episode alone cannot stay whole
            return split_rows(len(self), fraction, seed)
        return split_episodes(episode.numpy(), fraction, seed)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write an HDF5 file that `open` reads."""
        with files.new_file(path, self.attributes, overwrite=overwrite) as table:
            for block in self.blocks():
                table.append(self.columns(block))

    def _canonical(self, rows: np.ndarray) -> np.ndarray:
        if rows.ndim == 3:
            return rows[:, None]
        if self._channel_last:
            rows = np.moveaxis(rows, -1, -3)
        if rows.ndim == 5:
            count, v, c, h, w = rows.shape
            return rows.reshape(count, v * c, h, w)
        return rows


def _logged(path: str | os.PathLike[str], kind: str, kinematics: Kinematics | None, **options: Any) -> Transitions:
    from palpate.data.logs.log import read_log

    forward, robot = (kinematics, None) if callable(kinematics) else (None, kinematics)
    return read_log(path, kind, LogOptions(**options, kinematics=robot), forward)  # type: ignore[arg-type]


def positions(index: Index, length: int) -> np.ndarray:
    """The row numbers of a slice, a boolean mask or integers. Negative integers count from the end."""
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
