"""Damaged and unfinished logs: one clear line that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zarr
from written import CAMERAS, Truth, packed, truth, write_lerobot, write_robomimic, write_video, write_zarr

from palpate.data.logs.log import LogOptions, open_log

VIDEO = f"videos/{CAMERAS[0]}/chunk-000/file-000.mp4"
TABLE = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
INFO = "meta/info.json"


@pytest.fixture(scope="module")
def log() -> Truth:
    return truth(cameras=CAMERAS[:1])


def refused(path: Path, message: str, *, position: str = "observation.state[:2]", names: str | None = None) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        open_log(path, LogOptions(position=position))
    assert str(path if names is None else path / names) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"not what it was")


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        (INFO, remove, "there is no .*info.json"),
        (INFO, cut, "info.json is cut or damaged"),
        (TABLE, remove, "there is no table .*file-000.parquet"),
        (TABLE, cut, "file-000.parquet is unfinished or damaged"),
        (TABLE, garbage, "file-000.parquet is unfinished or damaged"),
        (VIDEO, remove, "there is no video .*file-000.mp4"),
        (VIDEO, cut, "file-000.mp4 is cut or damaged"),
        (VIDEO, garbage, "file-000.mp4 is cut or damaged"),
        (EPISODES, remove, "there are no tables in .*episodes"),
        (EPISODES, cut, "is unfinished or damaged"),
    ],
    ids=lambda each: getattr(each, "__name__", str(each).replace("/", "-")),
)
def test_files(tmp_path: Path, log: Truth, file: str, damage: Callable[[Path], None], message: str) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    damage(folder / file)
    refused(folder, message, names=None if file == EPISODES else file)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_video_with_fewer_frames_than_rows(tmp_path: Path, log: Truth, version: str) -> None:
    folder = write_lerobot(tmp_path / "log", log, version=version)
    path = sorted((folder / "videos").rglob("*.mp4"))[-1]
    low = log.starts[2]
    write_video(path, log.pictures[CAMERAS[0]][low : low + 8])
    refused(folder, r"ends after 8 frames, but a row needs one at 0.800 s", names=str(path.relative_to(folder)))


def test_v2_files(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log, version="v2.1")
    list_of_episodes = folder / "meta" / "episodes.jsonl"
    whole = list_of_episodes.read_text()
    list_of_episodes.write_text(whole[:-20])
    refused(folder, "episodes.jsonl is cut or damaged in line 3")
    list_of_episodes.write_text("".join(whole.splitlines(keepends=True)[:2]))
    refused(folder, "is unfinished: meta/info.json has 3 episodes of 25 rows, .* has 2 of 13")
    list_of_episodes.unlink()
    refused(folder, "there is no .*episodes.jsonl")


def changed(folder: Path, **changes: Any) -> None:
    info = json.loads((folder / INFO).read_text())
    (folder / INFO).write_text(json.dumps(info | changes))


def test_settings(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    changed(folder, total_frames=26)
    refused(folder, "is unfinished: meta/info.json has 3 episodes of 26 rows")
    changed(folder, codebase_version="v1.6")
    refused(folder, "codebase_version 'v1.6'; allowed are v2.0, v2.1 and v3")
    changed(folder, codebase_version="v3.0", features=None)
    refused(folder, "info.json is damaged")


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("data_path", "../secret/file.parquet", "names the file '../secret/file.parquet', which is outside"),
        ("data_path", "data/../../secret/file.parquet", "which is outside of the folder"),
        ("video_path", "/secret/file.mp4", "names the file '/secret/file.mp4', which is outside"),
        ("video_path", "../log-2/{video_key}.mp4", "names the file '../log-2/observation.*.mp4', which is outside"),
        ("data_path", "data/{chunk}.parquet", "data_path is 'data/{chunk}.parquet', which is no pattern"),
        ("video_path", "{", "video_path is '{', which is no pattern"),
        ("video_path", None, "video_path is None, which is no pattern"),
        ("fps", 0, "fps is 0; allowed are numbers above 0"),
        ("fps", -30, "fps is -30; allowed are numbers above 0"),
        ("fps", "many", "fps is 'many'; allowed are numbers above 0"),
        ("fps", None, "fps is None; allowed are numbers above 0"),
    ],
)
def test_settings_that_a_folder_cannot_have(
    tmp_path: Path, log: Truth, version: str, setting: str, value: Any, message: str
) -> None:
    folder = write_lerobot(tmp_path / "log", log, version=version)
    changed(folder, **{setting: value})
    refused(folder, message)


@pytest.mark.parametrize("value", [0, -1, "all", float("nan")])
def test_chunks_of_no_size(tmp_path: Path, log: Truth, value: Any) -> None:
    folder = write_lerobot(tmp_path / "log", log, version="v2.1")
    changed(folder, chunks_size=value)
    refused(folder, f"chunks_size is {value!r}; allowed are numbers above 0")


def test_a_folder_named_with_dots_and_linked_files(tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names that lead out are refused: the hub's caches hold links to files elsewhere."""
    folder = write_lerobot(tmp_path / "log", log)
    (folder / VIDEO).rename(tmp_path / "blob")
    (folder / VIDEO).symlink_to(tmp_path / "blob")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert len(open_log(Path("../log"), LogOptions(position="observation.state[:2]"))) == 22


def test_pictures_outside_of_the_folder(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    (tmp_path / "secret.png").write_bytes(packed(log.pictures[CAMERAS[0]][0]))
    kind = pa.struct({"bytes": "binary", "path": "string"})
    with_column(folder, CAMERAS[0], [pa.array([{"bytes": None, "path": "../secret.png"}] * 13, kind)])
    refused(folder, "names the file '../secret.png', which is outside of the folder")


def with_column(folder: Path, name: str, values: Any) -> None:
    path = folder / TABLE
    table = parquet.read_table(path)
    table = table.drop([name])
    parquet.write_table(table if values is None else table.append_column(name, values), path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "file-000.parquet has no column 'observation.state'"),
        (pa.array([["a"] * 3] * 13), "'observation.state' holds string, not numbers"),
        (pa.array([[0.0] * 3] * 12 + [[0.0] * 2]), "has rows of different lengths"),
        (pa.array([[0.0] * 3] * 12 + [None]), "has rows of different lengths"),
        (pa.array([[0.0] * 2] * 13), "has 2 numbers in one table and 3 in another"),
        (pa.array([[0.0] * 3] * 10 + [[0.0, np.nan, 0.0]] * 3), "has the value nan in row 1 of episode 1"),
    ],
)
def test_positions(tmp_path: Path, log: Truth, values: Any, message: str) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    with_column(folder, "observation.state", None if values is None else [values])
    refused(folder, message)


def test_rows_that_do_not_follow_the_list(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    with_column(folder, "episode_index", [np.repeat([0, 1], [8, 5])])
    refused(folder, "25 rows that do not follow the list of episodes")


def test_pictures_in_tables(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    with_column(folder, CAMERAS[0], [pa.array([{"bytes": b"\x89PNG", "path": None}] * 13)])
    refused(folder, f"'{CAMERAS[0]}' has a picture that cannot be read", names=TABLE)
    with_column(
        folder,
        CAMERAS[0],
        [pa.array([{"bytes": None, "path": None}] * 13, pa.struct({"bytes": "binary", "path": "string"}))],
    )
    refused(folder, "has a row without a picture", names=TABLE)


def test_cameras_of_different_sizes(tmp_path: Path) -> None:
    small, large = truth(side=32), truth(side=64)
    mixed = small._replace(pictures={CAMERAS[0]: small.pictures[CAMERAS[0]], CAMERAS[1]: large.pictures[CAMERAS[1]]})
    folder = write_lerobot(tmp_path / "log", mixed)
    with pytest.raises(ValueError, match="has pictures of 64x64x3, others of 32x32x3"):
        open_log(folder, LogOptions(observation=",".join(CAMERAS), position="observation.state[:2]"))


def test_a_depth_camera(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    features = json.loads((folder / INFO).read_text())["features"]
    features[CAMERAS[0]]["info"] = {"video.is_depth_map": True}
    changed(folder, features=features)
    with pytest.raises(ValueError, match="is a depth camera, which is not read"):
        open_log(folder, LogOptions(observation=CAMERAS[0], position="observation.state[:2]"))


def test_robomimic(tmp_path: Path, log: Truth) -> None:
    path, position = write_robomimic(tmp_path / "demo.hdf5", log), "obs/robot0_eef_pos"
    with h5py.File(path, "a") as file:
        file["data/demo_1"].attrs["num_samples"] = 7
    refused(path, "data/demo_1 has 4 rows, but num_samples is 7", position=position)
    with h5py.File(path, "a") as file:
        del file["data/demo_1/obs/robot0_eef_pos"]
        file["data/demo_1"].attrs["num_samples"] = 4
    refused(path, "data/demo_1 has no dataset 'obs/robot0_eef_pos'", position=position)
    with h5py.File(path, "a") as file:
        file["data/demo_1/obs/robot0_eef_pos"] = np.zeros((4, 3))
        del file["data/demo_1/obs/top_image"]
        file["data/demo_1/obs/top_image"] = np.zeros((3, 48, 48, 3), np.uint8)
    refused(path, "data/demo_1 has datasets of different lengths", position=position)
    with h5py.File(path, "w") as file:
        file.create_group("data/other")
    refused(path, "there is no demonstration data/demo_0", position=position)


def test_robomimic_columns_that_are_not_used_may_have_other_lengths(tmp_path: Path, log: Truth) -> None:
    path, options = write_robomimic(tmp_path / "demo.hdf5", log), LogOptions(position="obs/robot0_eef_pos[:2]")
    whole = open_log(path, options)
    with h5py.File(path, "a") as file:
        for number, demo in enumerate(file["data"].values()):
            del demo["actions"]
            demo["actions"] = np.zeros((log.lengths[number] - 1, 7))
            demo["states"] = np.zeros((log.lengths[number] + 1, 40))
            demo["obs/touch"] = np.zeros((2, 3))
            demo.attrs["num_samples"] = log.lengths[number] - 1
    found = open_log(path, options)
    np.testing.assert_array_equal(found.action, whole.action)
    np.testing.assert_array_equal(found.rows(slice(None)).o, whole.rows(slice(None)).o)
    refused(path, "different lengths, {'obs/top_image': 9, 'obs/touch': 2}", position="touch[:2]")


def test_robomimic_cut(tmp_path: Path, log: Truth) -> None:
    path = write_robomimic(tmp_path / "demo.hdf5", log)
    cut(path)
    refused(path, "not an HDF5 file, or is truncated")


def test_zarr(tmp_path: Path, log: Truth) -> None:
    path, position = write_zarr(tmp_path / "log.zarr", log), "state[:2]"
    group = zarr.open_group(str(path), mode="a")
    del group["meta/episode_ends"]
    group["meta"].create_array("episode_ends", data=np.array([9, 13, 30]))
    refused(path, "data/action has 25 rows, but meta/episode_ends needs 30", position=position)
    del group["meta/episode_ends"]
    group["meta"].create_array("episode_ends", data=np.array([9, 9, 25]))
    refused(path, "it must rise from 1", position=position)
    del group["meta/episode_ends"]
    refused(path, "has no meta/episode_ends", position=position)


def test_a_damaged_chunk_of_zarr(tmp_path: Path, log: Truth) -> None:
    path = write_zarr(tmp_path / "log.zarr", log)
    chunk = next(each for each in sorted((path / "data" / "img").iterdir()) if each.name.startswith("1"))
    chunk.write_bytes(b"\x05\x00\x00 not a chunk")
    refused(path, "data/img cannot be read", position="state[:2]")


def test_pictures_of_a_wrong_range(tmp_path: Path, log: Truth) -> None:
    wrong = log._replace(pictures={CAMERAS[0]: log.pictures[CAMERAS[0]].astype(np.float32) * 3})
    refused(write_zarr(tmp_path / "log.zarr", wrong), "'img' has values from 0.0 to", position="state[:2]")
