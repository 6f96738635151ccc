"""Files are written whole or not at all, even on a full disk or Ctrl-C. A lock lets one process work in a folder."""

import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

LOCK = ".lock"  # inside a folder


@final
class Disk(io.RawIOBase):
    """A file with a temporary name, in the folder `aside` if it is given. Writes never fail: the first error is stored,
    and `check` raises it.

    HDF5 does not recover from a failed write, for example on a full disk, and may crash the process later. So HDF5 sees
    no error, and the caller calls `check`.
    """

    def __init__(self, target: Path, aside: Path | None = None) -> None:
        self._target = target
        self._temporary = (aside or target.parent) / f".{target.name}.{uuid.uuid4().hex[:8]}.tmp"
        self._error: OSError | None = None
        with named(target):
            self._raw = open(self._temporary, "xb+", buffering=0)  # noqa: SIM115 - closed by `close`

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while len(left) and self._error is None:
                left = left[self._raw.write(left) :]  # a disk that fills up writes a part
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
        """Raise the stored error, if there is one."""
        if self._error is not None:
            with named(self._target):
                raise self._error

    def settle(self) -> None:
        """Wait until all is on the disk; only then do some file systems report that it is full."""
        try:
            os.fsync(self._raw.fileno())
        except OSError as error:
            self._error = self._error or error
        self.check()

    def commit(self) -> None:
        """Rename the file to its target."""
        self.settle()
        with named(self._target):
            os.replace(self._temporary, self._target)

    def close(self) -> None:
        """Close the file; without `commit` it is removed."""
        if hasattr(self, "_raw"):  # false if the file could not be created
            self._raw.close()
            self._temporary.unlink(missing_ok=True)
        super().close()


def write_whole(path: Path, content: bytes) -> None:
    with Disk(path) as disk:
        disk.write(content)
        disk.commit()


def as_json(value: Any) -> bytes:
    """JSON as in our files; numpy numbers become plain numbers."""
    return (json.dumps(value, indent=2, default=lambda number: number.item()) + "\n").encode()


def from_json(content: bytes | str) -> Any:
    """The value of a JSON text. All damage is a ValueError, also nesting that is too deep."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the name of the file to an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Busy(OSError):  # noqa: N818 - the name describes the state
    """Another process is working in the folder."""


@contextmanager
def alone(folder: Path, *, inside: bool = False) -> Iterator[None]:
    """Let one process at a time work in a folder, even across machines that share the disk.

    The lock is a file beside the folder, which need not exist yet, or `inside` it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    lock = folder / LOCK if inside else folder.with_name(f"{folder.name}.lock")
    with named(folder):
        opened = lock.open("w")
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock file that was removed in between locks nothing.
            mine = lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat())
        except (BlockingIOError, FileNotFoundError):
            mine = False
        except OSError:  # a file system without locks
            mine = True
        if not mine:
            raise Busy(f"another process is working in {folder.name}; wait for it, or choose another place")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def require_place(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or that exists and must not be overwritten."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another name, or overwrite it (overwrite=True, --force)")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; create it")
