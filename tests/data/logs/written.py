"""Logs with known content, in the formats of other projects, written by these tests."""

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import av
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import zarr
from PIL import Image

FPS, SIDE = 10, 48
LENGTHS = (9, 4, 12)
CAMERAS = ("observation.images.top", "observation.images.side")
# Frames differ by about 10 grey levels, so a loss of 4 tells neighbours apart.
LOSS = 4.0


class Truth(NamedTuple):
    """Rows of all episodes."""

    lengths: tuple[int, ...]
    state: np.ndarray  # [T, 3]
    pictures: dict[str, np.ndarray]  # [T, h, w, 3] by camera
    action: np.ndarray | None = None  # [T, d] the log's own; by default the first two numbers of the state

    @property
    def actions(self) -> np.ndarray:
        return self.state[:, :2] if self.action is None else self.action

    @property
    def starts(self) -> np.ndarray:
        return np.cumsum(self.lengths) - self.lengths

    def pairs(self, stride: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Episode, frame in it, and row of o, for each triple; slow and plain."""
        found = [
            (episode, frame, start + frame)
            for episode, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True))
            for frame in range(0, length - stride, stride)
        ]
        episode, frame, row = np.array(found).T
        return episode, frame, row


def truth(lengths: Sequence[int] = LENGTHS, cameras: Sequence[str] = CAMERAS, seed: int = 0, side: int = SIDE) -> Truth:
    rng = np.random.default_rng(seed)
    state = rng.random((sum(lengths), 3)).astype(np.float32)
    y, x = np.mgrid[:side, :side] / side
    pictures = {}
    for number, camera in enumerate(cameras):
        bump = np.exp(-((x - state[:, 0, None, None]) ** 2 + (y - state[:, 1, None, None]) ** 2) * (8 + 8 * number))
        level = state[:, 2, None, None] + 0 * bump
        pictures[camera] = np.rint(255 * np.stack((bump, level, 1 - bump), -1)).astype(np.uint8)
    return Truth(tuple(lengths), state, pictures)


@contextmanager
def same_priority() -> Iterator[None]:
    """The AV1 encoder gives its process real-time priority, and everything else on the machine would wait."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def write_video(path: Path, frames: np.ndarray, codec: str = "libx264", fps: int = FPS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"crf": "12", "g": "2"} if codec == "libx264" else {"crf": "15", "g": "2", "preset": "10"}
    with same_priority(), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, Fraction(fps), options=options)
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def packed(picture: np.ndarray, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **({"quality": 97, "subsampling": 0} if kind == "JPEG" else {}))
    return file.getvalue()


def write_lerobot(
    folder: Path,
    log: Truth,
    *,
    version: str = "v3.0",
    codec: str = "libx264",
    stored: str | None = None,  # PNG or JPEG in the tables, instead of videos
    files: Sequence[int] = (2, 1),  # v3: episodes in each file of tables and videos
) -> Path:
    dtype = "video" if stored is None else "image"
    size = next(iter(log.pictures.values())).shape[1:]
    features = {
        "observation.state": {"dtype": "float32", "shape": [3], "names": ["x", "y", "level"]},
        "action": {"dtype": "float32", "shape": [log.actions.shape[1]], "names": None},
        **{
            name: {"dtype": dtype, "shape": list(size), "names": ["height", "width", "channel"]}
            for name in log.pictures
        },
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        **{name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index", "index")},
    }
    three = version.startswith("v3")
    parts = ("chunk-{chunk_index:03d}/file-{file_index:03d}", "chunk-{episode_chunk:03d}/episode_{episode_index:06d}")
    info = {
        "codebase_version": version,
        "fps": FPS,
        "features": features,
        "total_episodes": len(log.lengths),
        "total_frames": sum(log.lengths),
        "chunks_size": 1000,
        "data_path": f"data/{parts[0] if three else parts[1]}.parquet",
        "video_path": "videos/{video_key}/" + parts[0] + ".mp4"
        if three
        else "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    groups = (
        np.split(np.arange(len(log.lengths)), np.cumsum(files)[:-1]) if three else np.arange(len(log.lengths))[:, None]
    )
    rows = []
    for number, group in enumerate(groups):
        where = {"chunk_index": 0, "file_index": number, "episode_chunk": 0, "episode_index": number}
        low, high = log.starts[group[0]], log.starts[group[-1]] + log.lengths[group[-1]]
        _write_table(folder / info["data_path"].format(**where), log, group, low, high, stored)
        for name, pictures in log.pictures.items():
            if stored is None:
                path = folder / info["video_path"].format(video_key=name, **where)
                write_video(path, pictures[low:high], codec)
        for episode in group:
            row = {"episode_index": int(episode), "length": log.lengths[episode], "tasks": ["push"]}
            row |= {"data/chunk_index": 0, "data/file_index": number}
            for name in log.pictures if stored is None else ():
                row |= {f"videos/{name}/chunk_index": 0, f"videos/{name}/file_index": number}
                row[f"videos/{name}/from_timestamp"] = float(log.starts[episode] - low) / FPS
                row[f"videos/{name}/to_timestamp"] = float(log.starts[episode] - low + log.lengths[episode]) / FPS
            rows.append(row)
    if three:
        path = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = [json.dumps({name: row[name] for name in ("episode_index", "tasks", "length")}) for row in rows]
        (folder / "meta" / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _write_table(path: Path, log: Truth, group: np.ndarray, low: int, high: int, stored: str | None) -> None:
    lengths = [log.lengths[episode] for episode in group]
    columns = {
        "observation.state": pa.array(list(log.state[low:high]), pa.list_(pa.float32())),
        "action": pa.array(list(log.actions[low:high]), pa.list_(pa.float32(), log.actions.shape[1])),
        "next.done": pa.array([False] * (high - low)),
        "frame_index": pa.array(np.concatenate([np.arange(length) for length in lengths])),
        "episode_index": pa.array(np.repeat(group, lengths)),
        "index": pa.array(np.arange(low, high)),
    }
    for name, pictures in log.pictures.items() if stored else ():
        columns[name] = pa.array([{"bytes": packed(each, stored), "path": None} for each in pictures[low:high]])
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)


def write_robomimic(path: Path, log: Truth) -> Path:
    with h5py.File(path, "w") as file:
        for number in (2, 0, 1):
            rows = slice(log.starts[number], log.starts[number] + log.lengths[number])
            demo = file.create_group(f"data/demo_{number}")
            demo.attrs["num_samples"] = log.lengths[number]
            demo["actions"] = np.zeros((log.lengths[number], 7)) if log.action is None else log.action[rows]
            demo["obs/robot0_eef_pos"] = log.state[rows].astype(np.float64)
            demo["next_obs/robot0_eef_pos"] = log.state[rows].astype(np.float64)
            for name, pictures in log.pictures.items():
                demo[f"obs/{name.rpartition('.')[2]}_image"] = pictures[rows]
    return path


def write_zarr(path: Path, log: Truth, version: int = 2, kind: str = "float32") -> Path:
    """As in PushT's log: pictures from 0 to 255, in floats."""
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    data, meta = group.create_group("data"), group.create_group("meta")
    for name, pictures in log.pictures.items():
        values = np.moveaxis(pictures, -1, 1) / 255 if kind == "first" else pictures
        short = "img" if len(log.pictures) == 1 else name.rpartition(".")[2]
        data.create_array(
            short, data=values.astype("float32" if kind == "first" else kind), chunks=(5, *values.shape[1:])
        )
    data.create_array("state", data=log.state)
    data.create_array("action", data=log.actions)
    meta.create_array("episode_ends", data=np.cumsum(log.lengths))
    return path


def write_minari(folder: Path, log: Truth, kind: str = "hdf5") -> Path:
    """Minari writes it, into the folder that the variable MINARI_DATASETS_PATH names: its parent. Pictures are JPEG."""
    import minari
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for number, (start, length) in enumerate(zip(log.starts, log.lengths, strict=True)):
        rows = slice(start, start + length)
        cameras = {name.rpartition(".")[2]: pictures[rows] for name, pictures in log.pictures.items()}
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations={"place": log.state[rows], **cameras},
                actions=np.full((length - 1, 2), 0.5, np.float32) if log.action is None else log.action[rows][:-1],
                rewards=[0.0] * (length - 1),
                terminations=[False] * (length - 1),
                truncations=[False] * (length - 2) + [True],
                infos={"time": np.arange(length)[:, None] / FPS},
            )
        )
    seen = {"place": spaces.Box(-10, 10, (3,), np.float32)}
    for name, pictures in log.pictures.items():
        seen[name.rpartition(".")[2]] = spaces.Box(0, 255, pictures.shape[1:], np.uint8)
    minari.create_dataset_from_buffers(
        folder.name, buffers, observation_space=spaces.Dict(seen), action_space=spaces.Box(-1, 1, (2,), np.float32),
        algorithm_name="-", author="-", author_email="-", code_permalink="-", description="-", eval_env="CartPole-v1",
        data_format=kind,
    )  # fmt: skip
    return folder
