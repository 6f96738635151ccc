import errno
import io
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from palpate import disk
from palpate.data.files import Columns, new_file
from palpate.data.transitions import Transitions
from palpate.disk import Busy, alone, write_whole
from palpate.interrupts import interrupts_wait, terminations_interrupt


class Small(io.FileIO):
    """A file on a disk with room for so many bytes, which all such files share."""

    room = 0

    def write(self, data: memoryview) -> int:
        if not Small.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(data[: Small.room])
        Small.room -= written
        return written


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> type[Small]:
    monkeypatch.setattr(disk, "open", lambda path, mode, buffering: Small(path, "w+"), raising=False)
    return Small


def rows(count: int) -> Columns:
    o = np.random.default_rng(0).integers(0, 256, (count, 3, 9, 9), dtype=np.uint8)
    return {"observation": o, "action": np.ones((count, 2)), "next_observation": o}


def write_many(path: Path, appended: list[int]) -> None:
    with new_file(path, {}) as table:
        for number in range(100):
            table.append(rows(20))
            appended.append(number)


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 10, 100_000, 200_000])
    def test_a_new_file_fails_at_once_and_leaves_nothing(
        self, tmp_path: Path, small_disk: type[Small], room: int
    ) -> None:
        small_disk.room = room
        appended: list[int] = []
        with pytest.raises(OSError, match=r"cannot write .*log\.h5: No space left"):
            write_many(tmp_path / "log.h5", appended)
        assert len(appended) < 100  # at once, not in the end
        assert not os.listdir(tmp_path)

    def test_hdf5_works_afterwards(self, tmp_path: Path, small_disk: type[Small]) -> None:
        """If it saw the failure, it would print errors from destructors and crash the process at its end."""
        small_disk.room = 100_000
        with pytest.raises(OSError, match="No space left"):
            write_many(tmp_path / "log.h5", [])
        small_disk.room = 10**6
        with new_file(tmp_path / "log.h5", {}) as table:
            table.append(rows(20))
        with Transitions.open(tmp_path / "log.h5") as stored:
            np.testing.assert_array_equal(stored.rows(slice(None)).o, rows(20)["observation"])

    def test_an_error_of_fsync_is_raised(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(number: int) -> None:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        monkeypatch.setattr(disk.os, "fsync", refuse)
        with pytest.raises(OSError, match=r"cannot write .*note: Disk quota exceeded"):
            write_whole(tmp_path / "note", b"x")
        assert not os.listdir(tmp_path)

    def test_a_small_file_is_whole_or_not_there(self, tmp_path: Path, small_disk: type[Small]) -> None:
        small_disk.room = 15
        write_whole(tmp_path / "note", b"0123456789")
        with pytest.raises(OSError, match="No space left"):
            write_whole(tmp_path / "note", b"9876543210")
        assert os.listdir(tmp_path) == ["note"]
        assert (tmp_path / "note").read_bytes() == b"0123456789"


class TestInterrupts:
    def test_take_effect_afterwards(self) -> None:
        done: list[bool] = []

        def work() -> None:
            with interrupts_wait():
                os.kill(os.getpid(), signal.SIGINT)
                done.append(True)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert done

    def test_sigterm_is_treated_as_ctrl_c(self) -> None:
        before, done = signal.getsignal(signal.SIGTERM), []

        def work() -> None:
            with terminations_interrupt(), interrupts_wait():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append(True)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert done
        assert signal.getsignal(signal.SIGTERM) is before

    def test_sigterm_in_a_process_that_ignores_ctrl_c(self) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with pytest.raises(KeyboardInterrupt), terminations_interrupt():
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            signal.signal(signal.SIGINT, before)

    def test_the_callers_handler_is_kept(self) -> None:
        heard: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        try:
            with interrupts_wait():
                os.kill(os.getpid(), signal.SIGINT)
                assert not heard
            assert heard == [signal.SIGINT]
            os.kill(os.getpid(), signal.SIGINT)
            assert len(heard) == 2
        finally:
            signal.signal(signal.SIGINT, before)

    def test_while_a_batch_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write = disk.Disk.write

        def interrupted(self: disk.Disk, data: memoryview) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            return write(self, data)

        monkeypatch.setattr(disk.Disk, "write", interrupted)
        with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "log.h5", {}) as table:
            table.append(rows(2000))
        assert not os.listdir(tmp_path)


class TestAlone:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        with alone(folder), pytest.raises(Busy, match="another process is working in run; wait for it"), alone(folder):
            pytest.fail("two at once")
        with alone(folder):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        with (
            pytest.raises(FileNotFoundError, match=r"cannot write .*gone/run: No such file"),
            alone(tmp_path / "gone/run"),
        ):
            pytest.fail("there was no lock")

    def test_a_failure_leaves_no_lock(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), alone(tmp_path / "run"):
            1 / 0  # noqa: B018
        assert list(tmp_path.iterdir()) == []
