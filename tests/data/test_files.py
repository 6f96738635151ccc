import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from palpate.data import files
from palpate.data.files import Columns, new_file
from palpate.data.transitions import Transitions


def vectors(count: int, f: int = 3) -> Columns:
    o, o_next = np.random.default_rng(count).random((2, count, f), np.float32)
    return {"observation": o, "action": o[:, :1], "next_observation": o_next}


def pictures(count: int, seed: int = 0) -> Columns:
    o, o_next = np.random.default_rng(seed).integers(0, 256, (2, count, 3, 8, 8), dtype=np.uint8)
    a = o[:, 0, 0, :2].astype(np.float32)
    return {"observation": o, "action": a, "next_observation": o_next, "truth/agent": a}


def write(path: Path, *batches: Columns) -> Path:
    with new_file(path, {}) as table:
        for batch in batches:
            table.append(batch)
    return path


def assert_holds(path: Path, wanted: Columns) -> None:
    with h5py.File(path) as file:
        assert set(files.column_names(file)) == set(wanted)
        for name, x in wanted.items():
            assert file[name].dtype == x.dtype
            np.testing.assert_array_equal(file[name], x)


class TestNewFile:
    def test_joins_batches_and_appears_at_the_end(self, tmp_path: Path) -> None:
        batches = [vectors(count) | {"truth/contact": np.ones(count, bool)} for count in (5, 1, 7)]
        with new_file(tmp_path / "log.h5", {"seed": 1}) as table:
            for batch in batches:
                table.append(batch)
            assert not (tmp_path / "log.h5").exists()
        assert_holds(tmp_path / "log.h5", {name: np.concatenate([x[name] for x in batches]) for name in batches[0]})
        with Transitions.open(tmp_path / "log.h5") as stored:
            assert stored.attributes == {"seed": 1}

    def test_refuses_batches_that_differ(self, tmp_path: Path) -> None:
        with new_file(tmp_path / "log.h5", {}) as table:
            table.append(vectors(2))
            for other in (vectors(2, f=1), vectors(2) | {"truth/agent": np.ones(2)}):
                with pytest.raises(ValueError, match="cannot follow batches with"):
                    table.append(other)

    def test_refuses_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="nothing to write"), new_file(tmp_path / "log.h5", {}):
            pass
        assert not os.listdir(tmp_path)


class TestCopy:
    """192 bytes a picture: chunks of 4 rows, so that parts of 8 rows end with one and parts of 6 do not."""

    @pytest.mark.parametrize(("rows", "last"), [(8, 8), (6, 6), (8, 7)])
    def test_equals_appending(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, last: int) -> None:
        monkeypatch.setattr(files, "CHUNK_BYTES", 4 * 192)
        batches = [pictures(rows, seed) for seed in range(3)]
        with new_file(tmp_path / "copied.h5", {}) as table:
            for number, batch in enumerate(batches):
                with h5py.File(write(tmp_path / f"{number}.h5", batch)) as part:
                    assert part["observation"].chunks[0] == 4
                    table.copy(part, rows if number < 2 else last)
        whole = {name: np.concatenate([x[name] for x in batches])[: 2 * rows + last] for name in batches[0]}
        assert_holds(tmp_path / "copied.h5", whole)

    def test_whole_chunks_are_not_compressed_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        part = write(tmp_path / "part.h5", pictures(8))

        def refuse(self: h5py.Dataset, rows: object, values: object) -> None:
            assert self.dtype != np.uint8

        with h5py.File(part) as file, new_file(tmp_path / "log.h5", {}) as table:
            monkeypatch.setattr(h5py.Dataset, "__setitem__", refuse)
            table.copy(file, 8)
