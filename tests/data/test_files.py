import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from palpate.data import files
from palpate.data.files import Writer
from palpate.data.transitions import Batch, Transitions


def vectors(count: int, f: int = 3) -> Batch:
    return Batch(torch.randn(count, f), torch.randn(count, 2), torch.randn(count, f))


def pictures(count: int, seed: int = 0) -> Batch:
    o, o_next = np.random.default_rng(seed).integers(0, 256, (2, count, 3, 8, 8), dtype=np.uint8)
    return Batch(torch.from_numpy(o), torch.randn(count, 2), torch.from_numpy(o_next))


def assert_equal(one: Batch, two: Batch) -> None:
    for x, y in zip(one, two, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x, y)


def write(path: Path, *batches: Batch) -> Path:
    with Writer(path) as writer:
        for batch in batches:
            writer.append(batch, {"agent": batch.a})
    return path


class TestWriter:
    def test_appends(self, tmp_path: Path) -> None:
        batches = [vectors(count) for count in (5, 1, 7)]
        with Writer(tmp_path / "log.h5", attributes={"seed": 1}) as writer:
            for batch in batches:
                writer.append(batch, {"agent": batch.a, "contact": batch.a[:, 0] > 0})
            assert not (tmp_path / "log.h5").exists()
        whole = Batch(*(torch.cat(x) for x in zip(*batches, strict=True)))
        with Transitions.open(tmp_path / "log.h5") as stored:
            assert_equal(stored.rows(slice(None)), whole)
            assert stored.attributes == {"seed": 1}
        with h5py.File(tmp_path / "log.h5") as file:
            np.testing.assert_array_equal(file["truth/agent"], whole.a)
            np.testing.assert_array_equal(file["truth/contact"], whole.a[:, 0] > 0)
            assert file["truth/contact"].dtype == bool

    @pytest.mark.parametrize("truth", [True, False])
    def test_batches_that_differ(self, tmp_path: Path, truth: bool) -> None:
        other = vectors(2, f=3 if truth else 1)
        with Writer(tmp_path / "log.h5") as writer:
            writer.append(vectors(2))
            with pytest.raises(ValueError, match=r"cannot follow batches with .* in .*log\.h5"):
                writer.append(other, {"agent": other.a} if truth else None)

    def test_nothing_appended(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="nothing to write"), Writer(tmp_path / "log.h5"):
            pass
        assert not os.listdir(tmp_path)


class TestCopy:
    """192 bytes a picture: chunks of 4 rows, so that parts of 8 rows end with one and parts of 6 do not."""

    @pytest.mark.parametrize("rows", [8, 6])
    def test_equals_appending(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
        monkeypatch.setattr(files, "CHUNK_BYTES", 4 * 192)
        batches = [pictures(rows, seed) for seed in range(3)]
        direct = write(tmp_path / "direct.h5", *batches)
        with Writer(tmp_path / "copied.h5") as writer:
            for number, batch in enumerate(batches):
                with h5py.File(write(tmp_path / f"{number}.h5", batch)) as part:
                    assert part["observation"].chunks[0] == 4
                    writer.copy(part, rows)
        with h5py.File(direct) as one, h5py.File(tmp_path / "copied.h5") as two:
            for name in ("observation", "action", "next_observation", "truth/agent"):
                assert one[name].dtype == two[name].dtype
                np.testing.assert_array_equal(one[name], two[name])

    @pytest.mark.parametrize("count", [1, 4, 7])
    def test_takes_the_first_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        monkeypatch.setattr(files, "CHUNK_BYTES", 4 * 192)
        batch = pictures(8)
        with h5py.File(write(tmp_path / "part.h5", batch)) as part, Writer(tmp_path / "log.h5") as writer:
            writer.copy(part, count)
        with Transitions.open(tmp_path / "log.h5") as stored:
            assert_equal(stored.rows(slice(None)), Batch(*(x[:count] for x in batch)))

    def test_whole_chunks_are_not_packed_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        part = write(tmp_path / "part.h5", pictures(8))

        def refuse(self: h5py.Dataset, rows: object, values: object) -> None:
            assert self.dtype != np.uint8

        with h5py.File(part) as file, Writer(tmp_path / "log.h5") as writer:
            monkeypatch.setattr(h5py.Dataset, "__setitem__", refuse)
            writer.copy(file, 8)
