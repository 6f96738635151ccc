import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palpate import __version__
from palpate.data import files
from palpate.data import transitions as module
from palpate.data.transitions import Batch, Transitions
from palpate.rotations import matrix_of


def pictures(count: int = 40, shape: tuple[int, ...] = (5, 6, 3)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "observation": rng.integers(0, 256, (count, *shape), dtype=np.uint8),
        "action": rng.normal(size=(count, 2)),
        "next_observation": rng.integers(0, 256, (count, *shape), dtype=np.uint8),
    }


def vectors(count: int = 40, dtype: str = "float64") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    o, o_next = rng.normal(size=(2, count, 7)).astype(dtype)
    return {"observation": o, "action": rng.normal(size=(count, 3)), "next_observation": o_next}


def assert_equal(one: Batch, two: Batch) -> None:
    for x, y in zip(one, two, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x, y)


def write_hdf5(path: Path, **fields: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            file[name] = values


class TestLayout:
    def test_channel_last_becomes_channel_first(self) -> None:
        arrays = pictures(shape=(5, 6, 3))
        data = Transitions(**arrays)
        batch = data.rows([3, 1])
        assert data.observation_shape == (3, 5, 6)
        assert batch.o.dtype == torch.uint8
        assert batch.o.is_contiguous()
        for place, row in enumerate((3, 1)):
            for channel in range(3):
                np.testing.assert_array_equal(batch.o[place, channel], arrays["observation"][row, ..., channel])
                np.testing.assert_array_equal(
                    batch.o_next[place, channel], arrays["next_observation"][row, ..., channel]
                )
        np.testing.assert_array_equal(batch.a, arrays["action"][[3, 1]].astype(np.float32))

    def test_grey_pictures_get_one_channel(self) -> None:
        arrays = pictures(shape=(5, 6))
        data = Transitions(**arrays)
        assert data.observation_shape == (1, 5, 6)
        np.testing.assert_array_equal(data.rows([2]).o[0, 0], arrays["observation"][2])

    def test_vectors_become_float32(self) -> None:
        arrays = vectors()
        data = Transitions(**arrays)
        assert (data.observation_shape, data.n) == ((7,), 3)
        assert data.rows([0]).o.dtype == torch.float32
        np.testing.assert_array_equal(data.rows([5]).o[0], arrays["observation"][5].astype(np.float32))

    @pytest.mark.parametrize(("said", "views"), [(3, 3), (np.int64(3), 3), (2, 1), (0, 1), ("front", 1), (True, 1)])
    def test_views_of_stacked_pictures_are_an_attribute(self, said: object, views: int) -> None:
        """An attribute of this name that can mean something else is ignored."""
        assert Transitions(**pictures(shape=(3, 5, 6)), attributes={"views": said}).views == views
        assert Transitions(**pictures(shape=(3, 5, 6))).views == 1

    @pytest.mark.parametrize("last", [True, False])
    def test_views_are_stacked_view_by_view(self, last: bool) -> None:
        arrays = pictures(shape=(4, 5, 6, 3) if last else (4, 3, 5, 6))
        data = Transitions(**arrays)
        assert data.observation_shape == (12, 5, 6)
        assert data.views == 4
        o = data.rows([7]).o[0]
        for view in range(4):
            for channel in range(3):
                picture = arrays["observation"][7, view]
                np.testing.assert_array_equal(
                    o[3 * view + channel], picture[..., channel] if last else picture[channel]
                )

    @given(st.integers(1, 4), st.integers(5, 9), st.integers(5, 9), st.booleans(), st.integers(0, 3))
    def test_auto_finds_the_smaller_axis(self, c: int, h: int, w: int, last: bool, v: int) -> None:
        views = (v,) if v else ()
        shape = (2, *views, h, w, c) if last else (2, *views, c, h, w)
        o = np.zeros(shape, np.uint8)
        data = Transitions(observation=o, action=np.ones((2, 2)), next_observation=o)
        assert data.observation_shape == (c * max(v, 1), h, w)

    def test_equal_axes_need_a_layout(self) -> None:
        arrays = pictures(shape=(4, 5, 4))
        with pytest.raises(ValueError, match=r"\(40, 4, 5, 4\).*pass layout='channel-first'"):
            Transitions(**arrays)
        assert Transitions(**arrays, layout="channel-first").observation_shape == (4, 5, 4)
        assert Transitions(**arrays, layout="channel-last").observation_shape == (4, 4, 5)


class TestInput:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_tensors(self, dtype: torch.dtype) -> None:
        o = torch.randn(5, 4, dtype=dtype)
        data = Transitions(observation=o, action=torch.ones(5, 2, requires_grad=True), next_observation=o + 1)
        assert torch.equal(data.rows(slice(None)).o, o.float())

    def test_actions_of_integers_in_one_dimension(self) -> None:
        data = Transitions(**{**vectors(4), "action": np.arange(4)})
        assert data.n == 1
        assert torch.equal(data.rows(slice(None)).a, torch.tensor([[0.0], [1.0], [2.0], [3.0]]))

    def test_read_only_arrays_and_copies(self) -> None:
        arrays = pictures(shape=(3, 5, 6))
        for array in arrays.values():
            array.flags.writeable = False
        data = Transitions(**arrays)
        data.rows(slice(None)).o.zero_()
        assert data.rows(slice(None)).o.any()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"action": np.ones((39, 2))}, "observation has 40 rows, action 39 and next_observation 40"),
            ({"action": np.ones((40, 2, 1, 1))}, r"action has shape \(40, 2, 1, 1\); allowed are \[N, n\]"),
            ({"action": np.ones((40, 0))}, r"action has shape \(40, 0\), which is empty"),
            ({"action": np.ones((40, 2), complex)}, "action has dtype complex128"),
            ({"action": [[1.0], [1.0, 2.0]]}, "action is not an array: .*same shape"),
            ({"observation": np.ones(40)}, r"observation has shape \(40,\); allowed are vectors"),
            (
                {"observation": np.ones((40, 1, 64)), "next_observation": np.ones((40, 1, 64))},
                r"pictures of 1 x 64 pixels; give vectors, such as a laser scan, as \[N, f\]",
            ),
            (
                {"next_observation": np.ones((40, 5, 6, 4), np.uint8)},
                r"next_observation is uint8 of shape \(40, 5, 6, 4",
            ),
            ({"next_observation": np.ones((40, 5, 6, 3))}, "next_observation is float64 .*, observation uint8"),
        ],
    )
    def test_wrong_shapes_and_dtypes(self, change: dict[str, np.ndarray], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Transitions(**(pictures() | change))

    @pytest.mark.parametrize("dtype", ["int64", "object"])
    def test_observations_of_other_dtypes(self, dtype: str) -> None:
        o = np.ones((3, 4)).astype(dtype)
        with pytest.raises(ValueError, match=rf"observation has dtype {dtype}; .*astype\('uint8'\)"):
            Transitions(observation=o, action=np.ones((3, 2)), next_observation=o)

    def test_no_rows(self) -> None:
        with pytest.raises(ValueError, match=r"observation has shape \(0, 7\).*at least one triple"):
            Transitions(**vectors(0))

    @pytest.mark.parametrize(
        ("field", "value", "shown"),
        [("observation", np.nan, "nan"), ("action", -np.inf, "-inf"), ("next_observation", 1e300, "inf")],
    )
    def test_values_that_are_not_finite(
        self, field: str, value: float, shown: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "palpate.data.arrays.BLOCK_BYTES", 4 * 7 * 8
        )  # four rows, so that row 17 is not in the first block
        arrays = vectors()
        arrays[field][17, 1] = arrays[field][30, 0] = value
        with pytest.raises(ValueError, match=f"^{field} has the value {shown} in row 17; .*drop the row"):
            Transitions(**arrays)


class TestRows:
    @pytest.fixture
    def data(self) -> Transitions:
        o = np.arange(10, dtype=np.float32)[:, None]
        return Transitions(observation=o, action=o, next_observation=o + 1)

    @pytest.mark.parametrize(
        ("index", "expected"),
        [
            (slice(2, 8, 3), [2, 5]),
            (slice(None, None, -4), [9, 5, 1]),
            ([3, 3, -1], [3, 3, 9]),
            (np.array([0], np.uint8), [0]),
            (torch.tensor([4, 2]), [4, 2]),
            (np.arange(10) % 5 == 1, [1, 6]),
            ([], []),
        ],
    )
    def test_indices(self, data: Transitions, index: object, expected: list[int]) -> None:
        assert data.rows(index).a[:, 0].tolist() == expected

    def test_rows_outside(self, data: Transitions) -> None:
        with pytest.raises(IndexError, match="row -11 does not exist; there are 10 rows"):
            data.rows([3, -11])

    @pytest.mark.parametrize("index", [[1.5], np.ones(9, bool), [[1]], 3])
    def test_indices_of_other_kinds(self, data: Transitions, index: object) -> None:
        with pytest.raises(ValueError, match="use a slice, a list of integers or a boolean mask"):
            data.rows(index)

    def test_subset_of_a_subset(self, data: Transitions) -> None:
        subset = data.subset([8, 6, 4, 2]).subset([3, -2])
        assert len(subset) == 2
        assert subset.rows(slice(None)).o[:, 0].tolist() == [2, 4]
        assert subset.nbytes == 2 * 2 * 4

    def test_empty_subset(self, data: Transitions) -> None:
        with pytest.raises(ValueError, match="subset is empty; choose at least one of the 10 rows"):
            data.subset(np.zeros(10, bool))

    def test_split_is_disjoint_complete_and_seeded(self, data: Transitions) -> None:
        first, second = data.split(0.7, seed=3)
        rows = [part.rows(slice(None)).a[:, 0].tolist() for part in (first, second)]
        assert [len(part) for part in rows] == [7, 3]
        assert sorted(rows[0] + rows[1]) == list(range(10))
        assert data.split(0.7, seed=3)[0].rows(slice(None)).a[:, 0].tolist() == rows[0]
        assert data.split(0.7, seed=4)[0].rows(slice(None)).a[:, 0].tolist() != rows[0]

    def test_split_leaves_no_part_empty(self, data: Transitions) -> None:
        assert [len(part) for part in data.split(0.001)] == [1, 9]
        assert [len(part) for part in data.split(0.999)] == [9, 1]

    @pytest.mark.parametrize("fraction", [1, float("nan")])
    def test_split_fraction(self, data: Transitions, fraction: float) -> None:
        with pytest.raises(ValueError, match=f"fraction is {fraction}; allowed are numbers between 0 and 1"):
            data.split(fraction)

    def test_split_of_one_row(self, data: Transitions) -> None:
        with pytest.raises(ValueError, match="cannot split 1 row"):
            data.subset([0]).split(0.5)

    def test_rows_that_are_in_another_set_too(self) -> None:
        few_alike = vectors(100) | {"action": np.repeat(vectors(20)["action"], 5, axis=0)}
        for fields in (pictures(100), vectors(100), few_alike):
            many = Transitions(**fields)
            some, others = many.subset(range(60)), many.subset(range(50, 100))
            assert some.shared_with(others) == pytest.approx(10 / 60)
            assert others.shared_with(many) == 1
            assert many.subset(range(50)).shared_with(others) == 0
        assert Transitions(**pictures()).shared_with(Transitions(**vectors())) == 0
        other_end = vectors() | {"next_observation": vectors()["next_observation"] + 1}
        assert Transitions(**vectors()).shared_with(Transitions(**other_end)) == 0
        one_action = Transitions(**vectors() | {"action": np.ones((40, 2))})
        assert one_action.shared_with(one_action) == 0  # not known

    def test_blocks_cover_the_set(self, data: Transitions, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 2 * 4)
        assert [len(data.rows(block).a) for block in data.blocks()] == [4, 4, 2]


class TestFile:
    @pytest.mark.parametrize("arrays", [pictures(shape=(2, 5, 6, 3)), vectors(dtype="float16")])
    def test_round_trip(self, tmp_path: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "BLOCK_BYTES", 1000)  # several appends
        monkeypatch.setattr(files, "CHUNK_BYTES", 500)  # several chunks
        data = Transitions(**arrays, attributes={"environment": "mine", "seed": 3, "share": 0.5, "flag": True})
        data.save(tmp_path / "log.h5")
        with Transitions.open(tmp_path / "log.h5") as stored:
            assert len(stored) == len(data)
            assert (stored.n, stored.observation_shape, stored.nbytes) == (data.n, data.observation_shape, data.nbytes)
            assert stored.attributes == data.attributes
            assert stored.attributes.items() >= {"environment": "mine", "seed": 3, "share": 0.5, "flag": True}.items()
            assert f"40 triples from {tmp_path / 'log.h5'}" in repr(stored)
            index = np.random.default_rng(2).integers(-40, 40, 100)  # unsorted, repeated
            assert_equal(stored.rows(index), data.rows(index))
            assert_equal(stored.rows(slice(None)), data.rows(slice(None)))
            assert len(stored.rows([]).o) == 0
            parts = zip(stored.split(0.3, seed=5), data.split(0.3, seed=5), strict=True)
            for on_disk, in_memory in parts:
                assert_equal(on_disk.rows(slice(None, None, -1)), in_memory.rows(slice(None, None, -1)))
        assert os.listdir(tmp_path) == ["log.h5"]

    def test_format(self, tmp_path: Path) -> None:
        Transitions(**pictures(20, (100, 100, 3))).save(tmp_path / "log.h5")
        with h5py.File(tmp_path / "log.h5") as file:
            assert file.attrs["format"] == b"palpate-transitions"
            assert file.attrs["format_version"] == 2
            assert file.attrs["layout"] == b"channel-first"
            assert file.attrs["palpate_version"].decode() == __version__
            assert sorted(file) == ["action", "next_observation", "observation"]
            for name in ("observation", "next_observation"):
                assert file[name].shape == (20, 3, 100, 100)
                assert 50e3 <= np.prod(file[name].chunks) <= 256e3
                assert file[name].compression == "gzip"

    def test_reads_no_more_than_the_chunks_of_the_rows(self, tmp_path: Path) -> None:
        data = Transitions(**pictures(50, (100, 100, 3)))
        data.save(tmp_path / "log.h5")
        read = []
        with Transitions.open(tmp_path / "log.h5") as stored:

            class Spy:
                def __init__(self, dataset: h5py.Dataset) -> None:
                    self.dataset = dataset

                def __getattr__(self, name: str) -> object:
                    return getattr(self.dataset, name)

                def __getitem__(self, rows: slice) -> np.ndarray:
                    read.append(rows.stop - rows.start)
                    return self.dataset[rows]

            stored._observation = Spy(stored._observation)
            batch = stored.rows([49, 0, 1, 48])
            assert torch.equal(batch.o, data.rows([49, 0, 1, 48]).o)
        assert sum(read) <= 4
        assert len(read) == 2

    def test_saving_over_the_open_file(self, tmp_path: Path) -> None:
        path = tmp_path / "log.h5"
        Transitions(**pictures()).save(path)
        with Transitions.open(path) as stored:
            stored.subset(slice(0, 5)).save(path, overwrite=True)
        with Transitions.open(path) as stored:
            assert len(stored) == 5

    def test_existing_file(self, tmp_path: Path) -> None:
        (tmp_path / "log.h5").write_text("mine")
        data = Transitions(**pictures())
        with pytest.raises(FileExistsError, match="exists; choose another name, or overwrite it"):
            data.save(tmp_path / "log.h5")
        assert (tmp_path / "log.h5").read_text() == "mine"
        data.save(tmp_path / "log.h5", overwrite=True)
        with Transitions.open(tmp_path / "log.h5") as stored:
            assert len(stored) == 40

    def test_places_that_cannot_be_written(self, tmp_path: Path) -> None:
        data = Transitions(**pictures())
        with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
            data.save(tmp_path, overwrite=True)
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; create it"):
            data.save(tmp_path / "nowhere" / "log.h5")

    @pytest.mark.parametrize("attributes", [{"format": "x"}, {"seed": None}, {"box": (1, 2)}])
    def test_attributes_that_cannot_be_stored(self, tmp_path: Path, attributes: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=f"attribute {next(iter(attributes))} = .* cannot be stored; use a string"):
            Transitions(**pictures(), attributes=attributes).save(tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize(
        ("error", "there_before"), [(OSError("no space left on device"), True), (KeyboardInterrupt(), False)]
    )
    def test_a_crash_while_writing_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, there_before: bool
    ) -> None:
        path = tmp_path / "log.h5"
        if there_before:
            path.write_text("mine")
        monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
        rows, calls = Transitions.rows, []

        def crash(self: Transitions, index: slice) -> Batch:
            calls.append(index)
            if len(calls) == 3:
                assert any(name.endswith(".tmp") for name in os.listdir(tmp_path))
                raise error
            return rows(self, index)

        monkeypatch.setattr(Transitions, "rows", crash)
        with pytest.raises(type(error)):
            Transitions(**pictures()).save(path, overwrite=True)
        assert os.listdir(tmp_path) == (["log.h5"] if there_before else [])
        assert not there_before or path.read_text() == "mine"

    def test_a_crash_while_renaming_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(source: Path, target: Path) -> None:
            raise OSError("disk failed")

        monkeypatch.setattr(module.os, "replace", crash)
        with pytest.raises(OSError, match="disk failed"):
            Transitions(**pictures()).save(tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    def test_closed(self, tmp_path: Path) -> None:
        Transitions(**pictures()).save(tmp_path / "log.h5")
        stored = Transitions.open(tmp_path / "log.h5")
        subset = stored.subset([1])
        stored.close()
        stored.close()
        for data in (stored, subset):
            with pytest.raises(ValueError, match="was closed; open it again with Transitions"):
                data.rows([0])


class TestOpenErrors:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        Transitions(**pictures()).save(tmp_path / "log.h5")
        return tmp_path / "log.h5"

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.h5"):
            Transitions.open(tmp_path / "none.h5")

    def test_folder(self, tmp_path: Path) -> None:
        (tmp_path / "log.h5.parts").mkdir()
        with pytest.raises(ValueError, match="is a folder; complete this collection with --resume; a smaller --num"):
            Transitions.open(tmp_path / "log.h5.parts")
        with pytest.raises(ValueError, match="is a folder; give the HDF5 file inside it"):
            Transitions.open(tmp_path)

    def test_not_hdf5(self, path: Path) -> None:
        path.write_bytes(b"time,x,y\n1,2,3\n")
        with pytest.raises(ValueError, match=r"log\.h5 is not an HDF5 file, or is truncated"):
            Transitions.open(path)

    def test_arrays_of_numpy(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "log.npz", action=np.ones(3))
        with pytest.raises(ValueError, match=r"not an HDF5 file.*Transitions\(.*\)\.save\(.*\) writes one"):
            Transitions.open(tmp_path / "log.npz")

    def test_truncated(self, path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match=r"log\.h5 is not an HDF5 file, or is truncated: .*truncated"):
            Transitions.open(path)

    def test_refused_by_the_system(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(module.h5py, "File", refuse)
        with pytest.raises(PermissionError):
            Transitions.open(path)

    def test_foreign(self, tmp_path: Path) -> None:
        write_hdf5(tmp_path / "log.h5", observation=np.ones((3, 2)), acts=np.ones((3, 2)))
        with pytest.raises(
            ValueError, match=r"log\.h5: there is no dataset 'action'; the file holds acts, observation"
        ):
            Transitions.open(tmp_path / "log.h5")

    def test_plain_files_of_others_are_read(self, tmp_path: Path) -> None:
        arrays = pictures()
        write_hdf5(tmp_path / "log.h5", **arrays)
        with Transitions.open(tmp_path / "log.h5") as stored:  # contiguous, channel-last
            assert_equal(stored.rows([9, 0]), Transitions(**arrays).rows([9, 0]))

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("format", "robomimic", "the format is 'robomimic'; allowed is 'palpate-transitions'"),
            (
                "format_version",
                3,
                r"format_version is 3, but this palpate reads only 2: .* palpate 0\..*, which wrote it",
            ),
            ("format_version", [2, 2], "format_version is "),
            ("layout", "NHWC", "layout is 'NHWC'; allowed are"),
        ],
    )
    def test_header(self, path: Path, name: str, value: object, message: str) -> None:
        with h5py.File(path, "a") as file:
            file.attrs[name] = value
        with pytest.raises(ValueError, match=rf"log\.h5: {message}"):
            Transitions.open(path)

    def test_an_error_closes_the_file(self, path: Path) -> None:
        with h5py.File(path, "a") as file:
            file["action"][0] = np.nan
        with pytest.raises(ValueError, match="row 0"):
            Transitions.open(path)
        with h5py.File(path, "a") as file:  # fails while a reader holds it
            file["action"][0] = 0
        Transitions.open(path).close()


class TestMatrices:
    def matrices(self, count: int = 30) -> tuple[np.ndarray, torch.Tensor]:
        moves = 0.5 * torch.randn(count, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        whole = np.tile(np.eye(4), (count, 1, 1))
        whole[:, :3, 3], whole[:, :3, :3] = moves[:, :3], matrix_of(moves[:, 3:])
        return whole, moves

    def test_a_rigid_motion_becomes_six_numbers(self) -> None:
        whole, moves = self.matrices()
        o = np.zeros((30, 5), np.float32)
        for matrices in (whole, torch.from_numpy(whole), whole.astype(np.float32)):
            made = Transitions(observation=o, action=matrices, next_observation=o)
            torch.testing.assert_close(made.action, moves.float(), atol=1e-5, rtol=0)
        log = Transitions.from_episodes(observation=o, action=whole, episode_end=[29])
        torch.testing.assert_close(log.action, moves[:-1].float(), atol=1e-6, rtol=0)

    def test_a_file_may_hold_them(self, tmp_path: Path) -> None:
        whole, moves = self.matrices()
        o = np.zeros((30, 5), np.float32)
        with h5py.File(tmp_path / "log.h5", "w") as file:
            file["observation"], file["action"], file["next_observation"] = o, whole, o
        with Transitions.open(tmp_path / "log.h5") as made:
            torch.testing.assert_close(made.action, moves.float(), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("change", ["scale", "mirror", "last row", "nan"])
    def test_other_matrices_are_refused(self, change: str) -> None:
        whole, _ = self.matrices()
        if change == "scale":
            whole[7, :3, :3] *= 1.01
        elif change == "mirror":
            whole[7, :3, 0] *= -1
        elif change == "last row":
            whole[7] = whole[7].T
        else:
            whole[7, 0, 0] = np.nan
        o = np.zeros((30, 5), np.float32)
        with pytest.raises(ValueError, match="in row 7, which is no rigid motion"):
            Transitions(observation=o, action=whole, next_observation=o)
