"""Logs of all formats against what was written, row by row."""

import gc
import os
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from written import (
    CAMERAS,
    LENGTHS,
    LOSS,
    SIDE,
    Truth,
    truth,
    write_lerobot,
    write_minari,
    write_robomimic,
    write_video,
    write_zarr,
)

from palpate.data.logs import frames
from palpate.data.logs.log import LogOptions, open_log
from palpate.data.transitions import Transitions

POSITION = "observation.state[:2]"
AV1 = next((name for name in ("libsvtav1", "libaom-av1") if name in av.codec.codecs_available), None)


def compare(triples: Transitions, log: Truth, cameras: tuple[str, ...], stride: int, loss: float) -> None:
    """Every triple against the truth, and o against the next row to show that a shift would be seen."""
    episode, frame, row = log.pairs(stride)
    found = triples.log_rows
    assert found is not None
    np.testing.assert_array_equal(found[0], episode)
    np.testing.assert_array_equal(found[1], frame)
    np.testing.assert_array_equal(found[2], row)
    np.testing.assert_array_equal(triples.episode, episode)
    np.testing.assert_allclose(triples.action, log.state[row + stride, :2] - log.state[row, :2], atol=1e-6)
    true = np.concatenate([log.pictures[camera] for camera in cameras], -1).transpose(0, 3, 1, 2).astype(float)
    batch = triples.rows(slice(None))
    for pictures, rows in ((batch.o, row), (batch.o_next, row + stride)):
        off = np.abs(pictures.numpy() - true[rows]).mean((1, 2, 3))
        assert off.max() <= loss, off
    assert np.abs(batch.o.numpy() - true[row + 1]).mean() > 2 * LOSS
    assert triples.views == len(cameras)


@pytest.fixture(scope="module")
def log() -> Truth:
    return truth()


class TestLeRobot:
    @pytest.mark.parametrize("stride", [1, 3])
    @pytest.mark.parametrize("version", ["v3.0", "v2.1"])
    def test_videos(self, tmp_path: Path, log: Truth, version: str, stride: int) -> None:
        folder = write_lerobot(tmp_path / "log", log, version=version)
        with Transitions.from_lerobot(folder, observation=CAMERAS[1], position=POSITION, stride=stride) as triples:
            compare(triples, log, CAMERAS[1:], stride, LOSS)

    @pytest.mark.skipif(AV1 is None, reason="this PyAV cannot encode AV1")
    @pytest.mark.parametrize("version", ["v3.0", "v2.1"])
    def test_av1(self, tmp_path: Path, version: str) -> None:
        log = truth(side=64)
        folder = write_lerobot(tmp_path / "log", log, version=version, codec=str(AV1))
        compare(
            Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION, stride=2),
            log, CAMERAS[:1], 2, LOSS,
        )  # fmt: skip

    @pytest.mark.parametrize("stored", ["PNG", "JPEG"])
    @pytest.mark.parametrize("version", ["v3.0", "v2.1"])
    def test_pictures_in_tables(self, tmp_path: Path, log: Truth, version: str, stored: str) -> None:
        folder = write_lerobot(tmp_path / "log", log, version=version, stored=stored)
        for stride in (1, 3):
            compare(
                Transitions.from_lerobot(folder, observation=CAMERAS[1], position=POSITION, stride=stride),
                log, CAMERAS[1:], stride, 0 if stored == "PNG" else LOSS,
            )  # fmt: skip

    @pytest.mark.parametrize("names", [CAMERAS, CAMERAS[::-1]])
    def test_cameras_become_views(self, tmp_path: Path, log: Truth, names: tuple[str, ...]) -> None:
        folder = write_lerobot(tmp_path / "log", log)
        triples = Transitions.from_lerobot(folder, observation=", ".join(names), position=POSITION)
        assert triples.observation_shape == (6, 48, 48)
        compare(triples, log, names, 1, LOSS)

    def test_the_only_camera_needs_no_name(self, tmp_path: Path) -> None:
        log = truth(cameras=CAMERAS[:1])
        triples = Transitions.from_lerobot(write_lerobot(tmp_path / "log", log), position=POSITION)
        compare(triples, log, CAMERAS[:1], 1, LOSS)
        expected = {"observation": CAMERAS[0], "position": POSITION}
        assert triples.recipe == {"data": str(tmp_path / "log"), **expected}
        assert triples.attributes["fps"] == 10.0
        triples.save(tmp_path / "log.h5")
        with Transitions.open(tmp_path / "log.h5") as saved:
            assert saved.attributes["observation"] == CAMERAS[0]

    def test_each_frame_is_decoded_once(self, tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
        from palpate.data.logs import video

        decoded: list[float] = []
        keep = video._decoded

        def counted(path: Path) -> Any:
            for time, frame in keep(path):
                decoded.append(time)
                yield time, frame

        monkeypatch.setattr(video, "_decoded", counted)
        folder = write_lerobot(tmp_path / "log", log)
        Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION)
        assert len(decoded) == sum(LENGTHS)

    def test_episodes_in_another_order_than_their_videos(self, tmp_path: Path, log: Truth) -> None:
        """As after an edit: the clips of a file are read in several passes."""
        folder = write_lerobot(tmp_path / "log", log, files=(3,))
        import pyarrow as pa
        import pyarrow.parquet as parquet

        order = [2, 0, 1]
        path = folder / "meta/episodes/chunk-000/file-000.parquet"
        rows = parquet.read_table(path).to_pylist()
        rows = [{**rows[old], "episode_index": new} for new, old in enumerate(order)]
        parquet.write_table(pa.Table.from_pylist(rows), path)
        table = next((folder / "data").glob("*/*.parquet"))
        old = parquet.read_table(table)
        places = np.concatenate([log.starts[each] + np.arange(log.lengths[each]) for each in order])
        lengths = tuple(log.lengths[each] for each in order)
        moved = old.take(places).drop(["episode_index"]).append_column("episode_index", [np.repeat(range(3), lengths)])
        parquet.write_table(moved, table)
        shuffled = Truth(lengths, log.state[places], {name: each[places] for name, each in log.pictures.items()})
        triples = Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION)
        compare(triples, shuffled, CAMERAS[:1], 1, LOSS)

    def test_numbers_as_observation(self, tmp_path: Path, log: Truth) -> None:
        folder = write_lerobot(tmp_path / "log", log)
        triples = Transitions.from_lerobot(folder, observation="observation.state", position="action", stride=2)
        _, _, row = log.pairs(2)
        np.testing.assert_array_equal(triples.rows(slice(None)).o, log.state[row])
        np.testing.assert_allclose(triples.action, log.state[row + 2, :2] - log.state[row, :2], atol=1e-6)

    def test_subsets_know_their_rows(self, tmp_path: Path, log: Truth) -> None:
        folder = write_lerobot(tmp_path / "log", log, stored="PNG")
        triples = Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION)
        part = triples.subset([5, 3]).log_rows
        assert part is not None
        assert [each.tolist() for each in part] == [[0, 0], [5, 3], [5, 3]]
        assert triples.subset([5, 3]).recipe == {}  # its options give all triples


@pytest.mark.parametrize("stride", [1, 3])
def test_robomimic(tmp_path: Path, log: Truth, stride: int) -> None:
    path = write_robomimic(tmp_path / "demo.hdf5", log)
    options = {"observation": "side_image", "position": "obs/robot0_eef_pos[:2]", "stride": stride}
    compare(Transitions.from_robomimic(path, **options), log, CAMERAS[1:], stride, 0)
    compare(open_log(path, LogOptions(**(options | {"observation": "top_image,side_image"}))), log, CAMERAS, stride, 0)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["uint8", "float32", "first"])
@pytest.mark.parametrize("stride", [1, 3])
def test_zarr(tmp_path: Path, version: int, kind: str, stride: int) -> None:
    log = truth(cameras=CAMERAS[:1])
    path = write_zarr(tmp_path / "log.zarr", log, version, kind)
    compare(Transitions.from_zarr(path, position="state[0,1]", stride=stride), log, CAMERAS[:1], stride, 0)
    opened = open_log(path.rename(tmp_path / "log"), LogOptions(position="state[0,1]", stride=stride))
    compare(opened, log, CAMERAS[:1], stride, 0)


@pytest.mark.parametrize("chunks", ["v2", "v3", "shards", "all rows"])
@pytest.mark.parametrize("fitting", [1, 3, 12])  # rows that fit into a block
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_zarr_reads_each_chunk_once_in_blocks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: str, fitting: int, stride: int
) -> None:
    import zarr

    from palpate.data.logs import zarr as reader

    log = truth(cameras=CAMERAS[:1])
    path = write_zarr(tmp_path / "log.zarr", log, 2 if chunks == "v2" else 3, "uint8")
    size = {"all rows": 25}.get(chunks, 5)
    data = zarr.open_group(str(path), mode="a")["data"]
    del data["img"]
    shards = (10, SIDE, SIDE, 3) if chunks == "shards" else None
    data.create_array("img", data=log.pictures[CAMERAS[0]], chunks=(size, SIDE, SIDE, 3), shards=shards)
    read: list[range] = []
    largest = 0
    keep, pictures = reader.Zarr._read, reader.Levels.pictures

    def counted(self: Any, array: Any, part: Any = slice(None)) -> np.ndarray:
        if array.path == "data/img" and part.step is None:
            read.append(range(part.start, part.stop))
        return keep(self, array, part)

    def converted(self: Any, block: np.ndarray) -> np.ndarray:
        nonlocal largest
        largest = max(largest, len(block))
        return pictures(self, block)

    monkeypatch.setattr(reader.Zarr, "_read", counted)
    monkeypatch.setattr(reader.Levels, "pictures", converted)
    monkeypatch.setattr(reader, "BLOCK_BYTES", fitting * SIDE * SIDE * 3)
    options = LogOptions(position="state[:2]", stride=stride)
    with warnings.catch_warnings(action="ignore"):  # an episode is short
        compare(open_log(path, options), log, CAMERAS[:1], stride, 0)
    assert all(rows.start % size == 0 and (rows.stop % size == 0 or rows.stop == 25) for rows in read)
    assert all(one.stop <= two.start for one, two in pairwise(read))
    assert max(map(len, read)) <= max(size, fitting)
    assert 0 < largest <= fitting


def test_a_dark_first_picture_in_floats(tmp_path: Path) -> None:
    """The range of values is found from pictures of all chunks, and from several of a large one."""
    log = truth(cameras=CAMERAS[:1])
    dark = log.pictures[CAMERAS[0]].copy()
    dark[:2] = 0
    log = log._replace(pictures={CAMERAS[0]: dark})
    options = LogOptions(position="state[:2]")
    for kind in ("float32", "first"):
        compare(open_log(write_zarr(tmp_path / kind, log, 3, kind), options), log, CAMERAS[:1], 1, 0)


def test_zarr_in_a_zip(tmp_path: Path, log: Truth) -> None:
    import shutil

    path = write_zarr(tmp_path / "log.zarr", log, 2, "uint8")
    packed = Path(shutil.make_archive(str(path), "zip", path))
    triples = open_log(packed, LogOptions(observation="top,side", position="state[:2]"))
    compare(triples, log, CAMERAS, 1, 0)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
class TestMinari:
    @pytest.fixture
    def folder(self, tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        return write_minari(tmp_path / "push-v0", log)

    @pytest.mark.parametrize("stride", [1, 3])
    def test_a_folder(self, folder: Path, log: Truth, stride: int) -> None:
        options = {"observation": "side", "position": "place[:2]", "stride": stride}
        for path in (folder, folder / "data", folder / "data" / "main_data.hdf5"):
            compare(open_log(path, LogOptions(**options)), log, CAMERAS[1:], stride, LOSS)
        compare(Transitions.from_minari(folder, **options), log, CAMERAS[1:], stride, LOSS)
        triples = Transitions.from_minari("push-v0", **(options | {"observation": "top,side"}))
        compare(triples, log, CAMERAS, stride, LOSS)

    @pytest.mark.parametrize("kind", ["arrow", "parquet"])
    def test_other_storages(self, tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        folder = write_minari(tmp_path / "push-v0", log, kind)
        compare(open_log(folder, LogOptions(observation="side", position="place[:2]")), log, CAMERAS[1:], 1, LOSS)

    def test_its_own_actions(self, folder: Path, log: Truth) -> None:
        triples = Transitions.from_minari(folder, observation="top")
        assert torch.equal(triples.action, torch.full((22, 2), 0.5))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"observation": "top"}, r"give position, .*observations/place \(float32 \[3\]\), .*infos/time"),
            ({"position": "actions"}, "'actions' has no row for the last observation of an episode"),
            ({"position": "speed"}, "there is no column 'speed'"),
        ],
    )
    def test_mistakes(self, folder: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message) as raised:
            open_log(folder, LogOptions(**({"observation": "top"} | options)))
        assert str(folder) in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_mistakes_in_python(self, folder: Path) -> None:
        with pytest.raises(ValueError, match="stride, substeps, kinematics, site and group need position"):
            Transitions.from_minari(folder, observation="top", stride=2)
        with pytest.raises(ValueError, match="either position or displacement, not both"):
            Transitions.from_minari(folder, observation="top", position="place", displacement=lambda episode: None)
        with pytest.raises(ValueError, match="with position give the data set's name or folder"):
            Transitions.from_minari(object(), observation="top", position="place")

    @pytest.mark.parametrize("file", ["metadata.json", "main_data.hdf5"])
    def test_damage(self, folder: Path, file: str) -> None:
        path = folder / "data" / file
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(
            ValueError, match="push-v0 cannot be read by Minari: .*; copy or download it again"
        ) as raised:
            open_log(folder, LogOptions(observation="top", position="place"))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("cameras", [CAMERAS[:1], CAMERAS])
def test_memory_is_bounded_by_a_file_without_a_name(
    tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch, cameras: tuple[str, ...]
) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    monkeypatch.setattr(frames, "MEMORY", 1000)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    triples = Transitions.from_lerobot(folder, observation=",".join(cameras), position=POSITION)
    compare(triples, log, cameras, 1, LOSS)
    assert isinstance(triples._file, frames.Frames)
    file = triples._file._file
    assert file is not None
    if os.name == "posix":
        assert list(place.iterdir()) == []  # nothing is left behind, however this process ends
    part = triples.subset([0])
    triples.close()
    assert file.closed
    for each in (triples, part):
        with pytest.raises(ValueError, match="was closed"):
            each.rows([0])


def test_no_room_for_the_frames(tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    monkeypatch.setattr(frames, "MEMORY", 1000)
    monkeypatch.setattr(frames.shutil, "disk_usage", lambda folder: os.statvfs_result and type("Use", (), {"free": 9}))
    with pytest.raises(OSError, match="need 0.0 GB in .*TMPDIR"):
        Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION)


def test_in_memory_nothing_is_closed(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    triples = Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION)
    gc.collect()
    assert triples.rows([0]).o.shape == (1, 3, 48, 48)


def test_files_of_triples_take_no_options(tmp_path: Path, log: Truth) -> None:
    triples = Transitions(observation=log.state[:-1], action=log.state[:-1], next_observation=log.state[1:])
    triples.save(tmp_path / "log.h5")
    with open_log(tmp_path / "log.h5") as opened:
        assert len(opened) == len(triples)
        assert opened.recipe == {}
        assert opened.log_rows is None
    with pytest.raises(ValueError, match=r"stride is 3, but .*log.h5 holds triples"):
        open_log(tmp_path / "log.h5", LogOptions(stride=3))


def test_a_video_of_another_rate(tmp_path: Path) -> None:
    """The nearest frames are taken, each for as many rows as it is near to."""
    from palpate.data.logs.video import pictures

    log = truth((12,), CAMERAS[:1])
    write_video(tmp_path / "video.mp4", log.pictures[CAMERAS[0]], fps=30)
    taken = np.concatenate(list(pictures(tmp_path / "video.mp4", np.arange(4) / 10, 10)))
    np.testing.assert_allclose(taken.mean((1, 2)), log.pictures[CAMERAS[0]][::3].mean((1, 2)), atol=LOSS)
    # Frames are at 0.033 s, 0.067 s and so on.
    between = np.concatenate(list(pictures(tmp_path / "video.mp4", np.array([0.04, 0.06, 0.13]), 10)))
    np.testing.assert_allclose(between.mean((1, 2)), log.pictures[CAMERAS[0]][[1, 2, 4]].mean((1, 2)), atol=LOSS)
    with pytest.raises(ValueError, match="video.mp4 has no frame at 0.050 s"):
        list(pictures(tmp_path / "video.mp4", np.array([0.05, 0.1]), 60))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position": None}, r"give position, .*observation.state \(float32 \[3\]\), action"),
        (
            {"position": "observation.stat[:2]"},
            "position: there is no column 'observation.stat'; did you mean 'observation",
        ),
        ({"position": "gripper"}, "no column 'gripper'; the columns are observation.state, action"),
        ({"position": "observation.state[:9]"}, r"observation.state\[:9\], but observation.state has 3 numbers"),
        ({"position": "observation.state[3]"}, "but observation.state has 3 numbers"),
        ({"position": "observation.state[2:2]"}, "but observation.state has 3 numbers"),
        ({"position": "observation.state[x]"}, "allowed are a range such as"),
        ({"position": CAMERAS[0]}, "is video 48x48x3, 10 fps; give numbers"),
        (
            {"observation": None},
            "give observation: it may be observation.images.top, observation.images.side or several",
        ),
        ({"observation": "observation.images.tap"}, "did you mean 'observation.images.top'"),
        ({"observation": f"{CAMERAS[0]},observation.state"}, "'observation.state' is not a camera"),
        ({"observation": f"{CAMERAS[0]},{CAMERAS[0]}"}, "each camera is allowed once"),
        ({"stride": 12}, "with stride 12 an episode needs 13 rows, but the longest has 12"),
        ({"stride": 0}, "stride is 0; allowed are whole numbers from 1"),
        ({"stride": np.int64(0)}, "stride is .*0.*; allowed are whole numbers from 1"),
        ({"stride": 2.0}, "stride is 2.0; allowed are whole numbers from 1"),
        ({"stride": True}, "stride is True; allowed are whole numbers from 1"),
        ({"site": "hand"}, "site is 'hand', but there is no MuJoCo model"),
    ],
)
def test_mistakes(tmp_path_factory: pytest.TempPathFactory, log: Truth, changes: dict[str, Any], message: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "mistakes"
    if not folder.exists():
        write_lerobot(folder, log)
    with pytest.raises(ValueError, match=message) as raised:
        Transitions.from_lerobot(folder, **({"observation": CAMERAS[0], "position": POSITION} | changes))
    if "stride is" not in message and "site is" not in message:
        assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_stride_of_numpy(tmp_path: Path, log: Truth) -> None:
    path = write_robomimic(tmp_path / "demo.hdf5", log)
    options = {"observation": "side_image", "position": "robot0_eef_pos[:2]"}
    triples = Transitions.from_robomimic(path, **options, stride=np.int64(2))
    compare(triples, log, CAMERAS[1:], 2, 0)
    assert type(triples.recipe["stride"]) is int
    assert LogOptions(stride=np.int64(1)).given == {}


def test_short_episodes_are_left_out_with_a_warning(tmp_path: Path, log: Truth) -> None:
    folder = write_lerobot(tmp_path / "log", log)
    with pytest.warns(UserWarning, match="1 of 3 episodes give no triples"):
        triples = Transitions.from_lerobot(folder, observation=CAMERAS[0], position=POSITION, stride=5)
    compare(triples, log, CAMERAS[:1], 5, LOSS)


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder without meta/info.json"):
        open_log(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_log(tmp_path / "none.h5")
    with pytest.raises(FileNotFoundError, match="there is no file or folder .*none"):
        open_log(tmp_path / "none", LogOptions(position="observation.state[:2]"))


@pytest.mark.parametrize("library", ["pyarrow", "av", "zarr"])
def test_a_missing_extra(tmp_path: Path, log: Truth, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    write: Callable[..., Path] = write_zarr if library == "zarr" else write_lerobot
    path = write(tmp_path / "log.zarr", log)
    monkeypatch.setitem(__import__("sys").modules, library, None)
    extra = "zarr" if library == "zarr" else "lerobot"
    position = "state[:2]" if library == "zarr" else POSITION
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'palpate\[{extra}\]'"):
        open_log(path, LogOptions(observation="top" if library == "zarr" else CAMERAS[0], position=position))
