"""Files that appear under their name whole or not at all, also when the disk is full or Ctrl-C comes in between; and
folders that one process at a time works in."""

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final


@final
class Disk(io.RawIOBase):
    """A file under a temporary name that never refuses a write: it remembers what went wrong and says so when asked.

    HDF5 does not survive a write that fails, as on a full disk: it goes on in disorder, and may crash the process at
    its end. So it is told that all is well, and whoever writes asks with `check`.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        self._error: OSError | None = None
        self._raw = open(self._temporary, "xb+", buffering=0)  # noqa: SIM115 - closed by `close`

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while len(left) and self._error is None:
                left = left[self._raw.write(left) :]  # a disk that fills up takes a part first
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._raw.truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def readinto(self, buffer: Any) -> int | None:
        return self._raw.readinto(buffer)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise OSError(self._error.errno, f"cannot write {self._target}: {self._error.strerror}")

    def commit(self) -> None:
        """Give the file its name; some file systems notice only when they are asked to settle that there is no room."""
        try:
            os.fsync(self._raw.fileno())
        except OSError as error:
            self._error = self._error or error
        self.check()
        os.replace(self._temporary, self._target)

    def close(self) -> None:
        """Let go of it; without `commit` before, it is gone."""
        if hasattr(self, "_raw"):  # not where the file could not even be made
            self._raw.close()
            self._temporary.unlink(missing_ok=True)
        super().close()


def write_whole(path: Path, content: bytes) -> None:
    disk = Disk(path)
    try:
        disk.write(content)
        disk.commit()
    finally:
        disk.close()


class Busy(OSError):  # noqa: N818 - reads as what it is
    """Another process is at it."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time at a folder, which need not be there yet, also from another machine with the same disk."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    lock = folder.with_name(f"{folder.name}.lock")
    try:
        opened = lock.open("w")
    except OSError as error:
        raise OSError(error.errno, f"cannot write {folder}: {error.strerror}") from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A file that someone removed in between locks nobody out.
            mine = lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat())
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            raise Busy(f"another process is at {folder.name}; wait for it, or choose another place")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
