"""A log of episodes in another project's format, and its triples.

Legend: T rows of all episodes one after the other, e episodes, d numbers, n dimension of a position, b rows of a block,
v views, h height, w width, c channels.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import torch

from palpate.config import ObjectiveConfig
from palpate.data import files
from palpate.data.logs.columns import Column, chosen, described, observed, split_position
from palpate.data.logs.frames import Frames
from palpate.data.logs.options import OF_LOG, LogOptions
from palpate.data.minari import data_folder
from palpate.data.transitions import Transitions
from palpate.groups import group_of_actions
from palpate.groups.base import Group

__all__ = ["Log", "LogOptions", "kind_of", "open_log", "read_log", "require_readable", "triples"]

Forward: TypeAlias = Callable[[np.ndarray], Any]  # from columns [T, d] to poses [T, 4, 4], or positions and rotations


class Log(ABC):
    """A log of episodes. A row is one moment of an episode, and every column that is read has a value in every row."""

    path: Path
    columns: Mapping[str, Column]
    lengths: np.ndarray  # [e] rows of each episode, in the columns that are read
    episodes: np.ndarray  # [e] the log's own numbers of its episodes
    fps: float | None = None

    @property
    def names(self) -> Mapping[str, str]:
        """The columns' names, each with a short description."""
        return {name: column.text for name, column in self.columns.items()}

    def lengths_of(self, names: Sequence[str]) -> np.ndarray:
        """Rows of each episode in these columns, `[e]`. In some formats other columns may have more or fewer."""
        return self.lengths

    @abstractmethod
    def numbers(self, name: str) -> np.ndarray:
        """All rows of a column of numbers, `[T, d]`."""

    @abstractmethod
    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        """The pictures of rows 0, stride, 2 stride... of each episode, in order, in uint8 blocks `[b, h, w, c]`."""

    @abstractmethod
    def close(self) -> None:
        """Close files; columns can no longer be read."""


def kept_rows(lengths: np.ndarray, stride: int) -> np.ndarray:
    """Rows 0, stride, 2 stride... of each episode, as rows of the whole log."""
    starts = np.cumsum(lengths) - lengths
    return np.concatenate([start + np.arange(0, length, stride) for start, length in zip(starts, lengths, strict=True)])


def open_log(path: str | os.PathLike[str], options: LogOptions | None = None) -> Transitions:
    """Open a file of triples, or a log of LeRobot, robomimic, diffusion policy (zarr) or Minari; the format is
    recognised."""
    path, options = Path(path), options or LogOptions()
    kind = kind_of(path)
    if kind == "triples":
        given = {name: value for name, value in options.given.items() if name in OF_LOG}
        if given and not path.exists():
            raise FileNotFoundError(f"there is no file or folder {path}")
        if given:
            name, value = next(iter(given.items()))
            raise ValueError(
                f"{name} is {value!r}, but {path} holds triples; {name} is only for logs of other projects"
            )
        return Transitions.open(path)
    return read_log(path, kind, options)


def read_log(
    path: str | os.PathLike[str], kind: str, options: LogOptions, forward: Forward | None = None
) -> Transitions:
    """Triples of a log of a known kind: lerobot, robomimic, zarr or minari. `forward` computes poses from the columns
    of `position`."""
    path = Path(path)
    with _naming(path):
        log = reader(kind)(path)
        try:
            return triples(log, options, forward)
        finally:
            log.close()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the log's name to errors that do not have it."""
    try:
        yield
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def reader(kind: str) -> Callable[[Path], Log]:
    """The reader of a format, imported only when it is used."""
    if kind == "lerobot":
        from palpate.data.logs.lerobot import LeRobot

        return LeRobot
    if kind == "zarr":
        from palpate.data.logs.zarr import Zarr

        return Zarr
    if kind == "minari":
        from palpate.data.logs.minari import Minari

        return Minari
    from palpate.data.logs.robomimic import Robomimic

    return Robomimic


def kind_of(path: Path) -> str:
    """triples, lerobot, robomimic, zarr or minari. Any other file counts as triples, and their reader refuses it."""
    if path.is_dir():
        if any((path / name).exists() for name in (".zgroup", ".zmetadata", "zarr.json")):
            return "zarr"
        if (path / "meta").is_dir() and any((path / "meta").glob("*.json*")):
            return "lerobot"
        if data_folder(path) is not None:
            return "minari"
        if path.suffix == ".zarr":
            return "zarr"
        if any((path / "data").glob("**/*.parquet")) or (path / "meta").is_dir() or (path / "videos").is_dir():
            return "lerobot"
        if path.suffix == ".parts":
            return "triples"
        raise ValueError(
            f"{path} is a folder without meta/info.json (LeRobot), a zarr group or data/metadata.json (Minari); give a "
            "log, or the file inside it"
        )
    if path.suffix == ".zip":
        return "zarr"
    if path.exists() and h5py.is_hdf5(path):
        with files.open_hdf5(path) as file, files.read_from(path):
            if "data" in set(file) and isinstance(file["data"], h5py.Group):
                return "robomimic"
        if data_folder(path) is not None:
            return "minari"
    return "triples"


def require_readable(path: Path, options: LogOptions) -> None:
    """Refuse a log of another project, or options, from which no triples can be made. No picture is decoded."""
    with _naming(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `open_log` gives them
        log = reader(kind_of(path))(path)
        try:
            _selected(log, options)
        finally:
            log.close()


def triples(log: Log, options: LogOptions, forward: Forward | None = None) -> Transitions:
    """Triples of a log: o and o' are `stride` rows apart, and the action is the change of the position between them, or
    the move along the agent's own axes from one pose to the other. Of several sub-steps each has an action."""
    seen, name, part = _selected(log, options)
    rows = kept_rows(log.lengths, options.step)
    kept = -(-log.lengths // options.step)  # rows of each episode
    last = np.cumsum(kept) - 1
    passed = np.arange(options.parts + 1) * (options.step // options.parts) + rows[:, None]
    passed[last] = rows[last, None]  # an episode's last row has no action
    needed, places = np.unique(passed, return_inverse=True)
    recorded = torch.from_numpy(positions(log, name, part, needed, options, forward))
    group = _group(recorded, options)
    pose = group.posed(recorded)[torch.from_numpy(places.reshape(passed.shape))]  # [k, m + 1, w]
    moved = group.between(pose[:, :-1], pose[:, 1:]).numpy()
    moved = moved[:, 0] if options.parts == 1 else moved
    if log.columns[seen[0]].picture:
        store, observation = _pictures(log, seen, options.step, len(rows))
        layout: files.Layout = "channel-last"
    else:
        store, observation, layout = None, _finite(log, seen[0], log.numbers(seen[0]))[rows].astype(np.float32), "auto"
    recipe = {
        "data": str(log.path.absolute()),
        **LogOptions(**{**vars(options), "observation": ",".join(seen)}).given,
    }
    facts = {"log": recipe["data"], "stride": options.step, **{k: v for k, v in recipe.items() if k != "data"}}
    transitions = Transitions.from_episodes(
        observation=observation,
        action=moved,
        episode_end=last,
        layout=layout,
        attributes=facts | ({} if log.fps is None else {"fps": log.fps}),
    )
    frame = np.concatenate([np.arange(0, length, options.step) for length in log.lengths])
    transitions.come_from(recipe, (np.repeat(log.episodes, kept), frame, rows), store)
    if forward is not None:  # no file can hold it
        transitions.recipe = {}
    return transitions


def _group(recorded: torch.Tensor, options: LogOptions) -> Group:
    """The group of the moves between recorded positions or poses [T, m]."""
    count = recorded.shape[1]
    group = group_of_actions((count,), ObjectiveConfig(group=options.group or "translations"))
    if group.turns and count != (needed := group.recorded_width):
        numbers = {6: "x, y, z and a rotation vector", 3: "x, y and the heading", 1: "the angle"}[needed]
        raise ValueError(f"position has {count} numbers; with group {options.group!r} it needs {needed}: {numbers}")
    return group


def _selected(log: Log, options: LogOptions) -> tuple[list[str], str, str]:
    """The columns of the observation, that of the position, and which of its numbers."""
    if options.position is None:
        raise ValueError(
            "give position, the columns that hold the agent's position, such as observation.state[:2]; the columns "
            f"are {described(log.columns)}"
        )
    if options.step % options.parts:
        divisors = [str(parts) for parts in range(1, options.step + 1) if options.step % parts == 0]
        raise ValueError(f"substeps is {options.parts}; allowed with stride {options.step} is {' or '.join(divisors)}")
    name, part = split_position(options.position, log.columns)
    seen = observed(options.observation, log.columns, name)
    log.lengths = log.lengths_of([*seen, name])
    _require_long(log, options.step)
    return seen, name, part


def _require_long(log: Log, stride: int) -> None:
    short = int((log.lengths <= stride).sum())
    if short == len(log.lengths):
        longest = f"the longest has {log.lengths.max()}" if short else "there are none"
        raise ValueError(f"with stride {stride} an episode needs {stride + 1} rows, but {longest}")
    if short:
        warnings.warn(
            f"{log.path}: {short} of {len(log.lengths)} episodes give no triples, because they have {stride} rows or "
            "fewer, the stride",
            stacklevel=5,
        )


def positions(
    log: Log, name: str, part: str, rows: np.ndarray, options: LogOptions, forward: Forward | None = None
) -> np.ndarray:
    """The agent's positions in these rows of the log, `[b, n]`; of an agent that turns, also its heading or rotation
    vector."""
    values = chosen(_finite(log, name, log.numbers(name)), part, name)[rows]
    if options.kinematics is None and forward is None:
        return values
    from palpate.data.logs.kinematics import poses, poses_by, recorded

    found = poses_by(forward, values) if forward is not None else poses(options.kinematics, values, options.site)  # type: ignore[arg-type]
    return recorded(found, options.group)


def _finite(log: Log, name: str, values: np.ndarray) -> np.ndarray:
    """The values in double precision, so that differences of large positions are exact."""
    if values.dtype.kind not in "iufb":
        raise ValueError(f"column {name!r} holds {values.dtype}, not numbers")
    values = values.astype(np.float64)
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        number = int(np.searchsorted(np.cumsum(log.lengths), row, side="right"))
        frame = row - int(log.lengths[:number].sum())
        value = values[row][~np.isfinite(values[row])][0]
        raise ValueError(
            f"column {name!r} has the value {value} in row {frame} of episode {log.episodes[number]}; repair or drop "
            "the episode"
        )
    return values


def _pictures(log: Log, names: list[str], stride: int, count: int) -> tuple[Frames, np.ndarray]:
    """The pictures of one camera `[T, h, w, c]`, or of several `[T, v, h, w, c]`."""
    store: Frames | None = None
    for name in names:
        done = 0
        for block in log.frames(name, stride):
            if store is None:
                store = Frames((len(names), count, *block.shape[1:]))
            if block.shape[1:] != store.shape[2:]:
                raise ValueError(
                    f"camera {name!r} has pictures of {_size(block.shape[1:])}, others of {_size(store.shape[2:])}; "
                    "the pictures of all views must have the same size"
                )
            store.append(block)
            done += len(block)
        if done != count:
            raise ValueError(f"column {name!r} has {done} pictures for {count} rows; the log is unfinished or damaged")
    assert store is not None
    array = store.array()
    return store, array[0] if len(names) == 1 else array.swapaxes(0, 1)


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
