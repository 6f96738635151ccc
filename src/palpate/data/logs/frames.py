"""Storage for the frames of a log: memory, or a temporary file if they need more than `MEMORY`."""

import math
import os
import shutil
import tempfile
from typing import BinaryIO, cast, final

import numpy as np

MEMORY = 1024**3  # bytes of frames that are kept in memory


@final
class Frames:
    """uint8 frames of several cameras, `[v, T, h, w, c]`, filled in order and then read in any order.

    The file has no name, so the system frees its space when this process ends, also after a kill. Until the file is
    complete it is written, not mapped, because written pages of a mapping count as this process's memory.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._open, self._at = True, 0
        self._bytes = math.prod(shape)
        self._file = None if self._bytes <= MEMORY else _room(self._bytes)
        self._array = np.empty(shape, np.uint8) if self._file is None else None

    def append(self, block: np.ndarray) -> None:
        """Add the next frames, `[b, h, w, c]`. All frames of one camera come before those of the next camera."""
        if self._file is not None:
            self._file.write(np.ascontiguousarray(block).data)
        else:
            assert self._array is not None
            self._array.reshape(-1, *self.shape[2:])[self._at : self._at + len(block)] = block
        self._at += len(block)

    def array(self) -> np.ndarray:
        """All frames. Frames in a file are read when they are used."""
        if self._file is None:
            assert self._array is not None
            return self._array
        self._file.flush()
        return np.memmap(self._file, np.uint8, "r", shape=self.shape)

    def __bool__(self) -> bool:
        return self._open

    def close(self) -> None:
        """Close the file. Its space is freed once no triples use it."""
        self._open = False
        if self._file is not None:
            self._file.close()


def _room(size: int) -> BinaryIO:
    """A temporary file of this size. Its blocks are reserved: a mapping on a full disk would kill the process."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(
            f"the frames need {size / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f} GB free; make room, choose "
            "another folder with the variable TMPDIR, or use a larger stride"
        )
    file = tempfile.TemporaryFile(prefix="palpate-")  # noqa: SIM115
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    return cast(BinaryIO, file)
