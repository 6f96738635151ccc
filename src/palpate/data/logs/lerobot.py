"""LeRobot's folders, v3 and v2: tables of numbers in parquet, pictures in mp4 files or in the tables."""

import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from palpate.data.logs import video
from palpate.data.logs.columns import Column
from palpate.data.logs.log import Log
from palpate.extras import demand

BATCH = 64  # rows of pictures read at once
INDEXING = ("timestamp", "frame_index", "episode_index", "index", "task_index")  # columns that LeRobot adds itself
ADVICE = "finish the recording (dataset.finalize()), or copy or download the folder again"


class Clip(NamedTuple):
    """Where the pictures of an episode are."""

    path: Path
    start: float  # of its first frame in the file, in seconds


class Episode(NamedTuple):
    number: int
    length: int
    table: Path
    clips: dict[str, Clip]  # by camera


@final
class LeRobot(Log):
    """Columns are the features of meta/info.json, without those that only number the rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        demand("pyarrow", library="pyarrow", extra="lerobot", needs="LeRobot folders need pyarrow and PyAV")
        info = _info(path)
        try:
            self._features = {name: dict(each) for name, each in info["features"].items()}
            self.fps, self._version = _positive(path, info, "fps"), str(info["codebase_version"])
            videos = [name for name, each in self._features.items() if each["dtype"] == "video"]
            self.columns = {
                name: _column(name, each, self.fps)
                for name, each in self._features.items()
                if name not in INDEXING and _readable(each)
            }
            if self._version.startswith("v3."):
                self._episodes = _episodes_v3(path, info, videos)
            elif self._version.startswith("v2."):
                self._episodes = _episodes_v2(path, info, videos)
            else:
                raise ValueError(
                    f"{path} has codebase_version {self._version!r}; allowed are v2.0, v2.1 and v3: convert it with "
                    "lerobot's own script"
                )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{path / 'meta/info.json'} is damaged: {error!r}; {ADVICE}") from error
        self.lengths = np.array([each.length for each in self._episodes], np.int64)
        self.episodes = np.array([each.number for each in self._episodes], np.int64)
        self._tables = list(dict.fromkeys(each.table for each in self._episodes))
        self._require_complete(info)

    def _require_complete(self, info: dict[str, Any]) -> None:
        stated = info.get("total_episodes", len(self._episodes)), info.get("total_frames", self.lengths.sum())
        there = len(self._episodes), int(self.lengths.sum())
        if stated != there:
            raise ValueError(
                f"{self.path} is unfinished: meta/info.json has {stated[0]} episodes of {stated[1]} rows, and the list "
                f"of episodes has {there[0]} of {there[1]}; {ADVICE}"
            )
        if not self._episodes:
            raise ValueError(f"{self.path} has no episodes; {ADVICE}")
        found = np.concatenate([_numbers(table, "episode_index")[:, 0] for table in self._tables])
        if not np.array_equal(found, np.repeat(self.episodes, self.lengths)):
            raise ValueError(
                f"{self.path / 'data'} has {len(found)} rows that do not follow the list of episodes, which has "
                f"{there[1]}; {ADVICE}"
            )

    def close(self) -> None:
        """No file stays open."""

    def numbers(self, name: str) -> np.ndarray:
        parts = [_numbers(table, name) for table in self._tables]
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise ValueError(f"column {name!r} has {widths[0]} numbers in one table and {widths[1]} in another")
        return np.concatenate(parts)

    def frames(self, name: str, stride: int) -> Iterator[np.ndarray]:
        if _depth(self._features[name]):
            raise ValueError(f"column {name!r} is a depth camera, which is not read; choose one that sees colours")
        if self._features[name]["dtype"] == "image":
            yield from self._stored(name, stride)
            return
        assert self.fps is not None
        for path, times in self._passes(name, stride):
            yield from video.pictures(path, times, self.fps)

    def _passes(self, name: str, stride: int) -> Iterator[tuple[Path, np.ndarray]]:
        """Files, each with the rising times of its wanted frames. Consecutive episodes in one file share a pass."""
        assert self.fps is not None
        path: Path | None = None
        times: list[np.ndarray] = []
        for episode in self._episodes:
            clip = episode.clips[name]
            wanted = clip.start + np.arange(0, episode.length, stride) / self.fps
            if times and (clip.path != path or wanted[0] <= times[-1][-1]):
                assert path is not None
                yield path, np.concatenate(times)
                times = []
            path = clip.path
            times.append(wanted)
        if path is not None:
            yield path, np.concatenate(times)

    def _stored(self, name: str, stride: int) -> Iterator[np.ndarray]:
        """Pictures in the tables."""
        wanted = np.concatenate([np.arange(length) % stride == 0 for length in self.lengths])
        row = 0
        for table in self._tables:
            for batch in _batches(table, name):
                rows = np.flatnonzero(wanted[row : row + len(batch)])
                if len(rows):
                    found = [self._picture(batch[int(each)].as_py(), table, name) for each in rows]
                    if len({each.shape for each in found}) > 1:
                        raise ValueError(f"{table}: column {name!r} has pictures of different sizes or colours")
                    yield np.stack(found)
                row += len(batch)

    def _picture(self, value: Any, table: Path, name: str) -> np.ndarray:
        from PIL import Image

        where = f"{table}: column {name!r}"
        if not isinstance(value, dict) or not (value.get("bytes") or value.get("path")):
            raise ValueError(f"{where} has a row without a picture; {ADVICE}")
        try:
            data = value.get("bytes") or _inside(self.path, str(value["path"])).read_bytes()
            picture = Image.open(io.BytesIO(data))
            if picture.mode == "L":
                return np.asarray(picture)[..., None]
            if picture.mode not in ("RGB", "RGBA", "P"):
                raise ValueError(f"{where} has pictures of mode {picture.mode}; allowed are grey and RGB of 8 bits")
            return np.asarray(picture.convert("RGB"))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{where} has a picture that cannot be read: {error}; {ADVICE}") from error


def _info(path: Path) -> dict[str, Any]:
    file = path / "meta" / "info.json"
    if not file.exists():
        raise FileNotFoundError(f"there is no {file}, so this is not a complete LeRobot folder; {ADVICE}")
    try:
        info = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is cut or damaged: {error}; {ADVICE}") from error
    if not isinstance(info, dict):
        raise ValueError(f"{file} is damaged: it holds no settings; {ADVICE}")
    return info


def _positive(path: Path, info: dict[str, Any], name: str) -> float:
    """A number of meta/info.json that must be above 0."""
    try:
        value = float(info[name])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(
            f"{path / 'meta/info.json'} is damaged: {name} is {info[name]!r}; allowed are numbers above 0; {ADVICE}"
        )
    return value


def _file(path: Path, info: dict[str, Any], name: str, **where: Any) -> Path:
    """The file that a pattern of meta/info.json gives: data_path or video_path."""
    pattern: Any = info.get(name)
    try:
        found = pattern.format(**where)
    except (AttributeError, ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"{path / 'meta/info.json'} is damaged: {name} is {pattern!r}, which is no pattern of file names; {ADVICE}"
        ) from error
    return _inside(path, found)


def _inside(path: Path, name: str) -> Path:
    """A file of the folder. Names that lead out of it are refused; links are followed, as in the hub's caches."""
    place = Path(os.path.normpath(path.absolute() / name))
    if not place.is_relative_to(os.path.normpath(path.absolute())):
        raise ValueError(f"{path} names the file {name!r}, which is outside of the folder; a log must hold its files")
    return path / name


def _readable(feature: dict[str, Any]) -> bool:
    dtype = str(feature["dtype"])
    return dtype in ("video", "image", "bool") or dtype.startswith(("int", "uint", "float"))


def _column(name: str, feature: dict[str, Any], fps: float) -> Column:
    dtype, shape = feature["dtype"], list(feature["shape"])
    size = "x".join(map(str, shape))
    text = f"video {size}, {fps:g} fps" if dtype == "video" else f"{dtype} {size if dtype == 'image' else shape}"
    picture = dtype in ("video", "image")
    if _depth(feature):
        return Column(f"depth {text}", True, observed=False)
    return Column(text, picture, picture or name.startswith("observation"), None if picture else math.prod(shape))


def _depth(feature: dict[str, Any]) -> bool:
    infos = [feature.get(key) or {} for key in ("info", "video_info")]
    return any(info.get(name) for info in infos for name in ("is_depth_map", "video.is_depth_map"))


def _episodes_v2(path: Path, info: dict[str, Any], videos: list[str]) -> list[Episode]:
    """One file for each episode, and a line for it in meta/episodes.jsonl."""
    file = path / "meta" / "episodes.jsonl"
    if not file.exists():
        raise FileNotFoundError(f"there is no {file}; {ADVICE}")
    episodes = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            index, length = int(row["episode_index"]), int(row["length"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is cut or damaged in line {number}: {error!r}; {ADVICE}") from error
        where = {"episode_chunk": int(index // _positive(path, info, "chunks_size")), "episode_index": index}
        clips = {name: Clip(_file(path, info, "video_path", video_key=name, **where), 0.0) for name in videos}
        episodes.append(Episode(index, length, _file(path, info, "data_path", **where), clips))
    return sorted(episodes)


def _episodes_v3(path: Path, info: dict[str, Any], videos: list[str]) -> list[Episode]:
    """Files that hold several episodes; each episode has a row in the tables of meta/episodes."""
    files = sorted((path / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise FileNotFoundError(f"there are no tables in {path / 'meta' / 'episodes'}; {ADVICE}")
    parts = ("chunk_index", "file_index")
    names = ["episode_index", "length", *(f"data/{part}" for part in parts)]
    names += [f"videos/{name}/{part}" for name in videos for part in (*parts, "from_timestamp")]
    episodes = []
    for file in files:
        columns = {name: _values(file, name) for name in names}
        for row in range(len(columns["length"])):
            one = {name: values[row].as_py() for name, values in columns.items()}
            missing = [name for name, value in one.items() if value is None]
            if missing:
                raise ValueError(f"{file} has no {missing[0]} for episode {one['episode_index']}; {ADVICE}")

            def where(kind: str, one: dict[str, Any] = one) -> dict[str, int]:
                return {part: int(one[f"{kind}/{part}"]) for part in parts}

            clips = {
                name: Clip(
                    _file(path, info, "video_path", video_key=name, **where(f"videos/{name}")),
                    float(one[f"videos/{name}/from_timestamp"]),
                )
                for name in videos
            }
            table = _file(path, info, "data_path", **where("data"))
            episodes.append(Episode(int(one["episode_index"]), int(one["length"]), table, clips))
    return sorted(episodes, key=lambda each: each.number)


def _opened(file: Path, name: str) -> Any:
    """A parquet file that has this column."""
    import pyarrow.parquet as parquet

    if not file.exists():
        raise FileNotFoundError(f"there is no table {file}; {ADVICE}")
    try:
        table = parquet.ParquetFile(file)
    except (ValueError, OSError) as error:  # pyarrow's errors are these
        raise ValueError(f"{file} is unfinished or damaged: {_line(error)}; {ADVICE}") from error
    if name not in table.schema_arrow.names:
        raise ValueError(f"{file} has no column {name!r}; {ADVICE}")
    return table


def _values(file: Path, name: str) -> Any:
    """A column of a parquet file."""
    try:
        return _opened(file, name).read(columns=[name]).column(name)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{file} is damaged: {_line(error)}; {ADVICE}") from error


def _batches(file: Path, name: str) -> Iterator[Any]:
    try:
        for batch in _opened(file, name).iter_batches(BATCH, columns=[name]):
            yield batch.column(name)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{file} is damaged: {_line(error)}; {ADVICE}") from error


def _numbers(file: Path, name: str) -> np.ndarray:
    """A column of numbers or of lists of equal lengths, `[T, d]`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _values(file, name)
    count = len(column)
    if not count:
        raise ValueError(f"{file} has no rows; {ADVICE}")
    array = pa.concat_arrays(column.chunks)
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if not (
            pa.types.is_list(array.type)
            or pa.types.is_large_list(array.type)
            or pa.types.is_fixed_size_list(array.type)
        ):
            break
        if len(pc.unique(pc.list_value_length(array))) > 1:
            raise ValueError(f"{file}: column {name!r} has rows of different lengths; all must have the same")
        array = array.flatten()
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if not any(kind(array.type) for kind in kinds):
        raise ValueError(f"{file}: column {name!r} holds {array.type}, not numbers")
    return array.to_numpy(zero_copy_only=False).reshape(count, -1)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
