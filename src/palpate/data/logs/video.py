"""Frames of a video file by their times, decoded once and in order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from palpate.data.logs.pictures import BLOCK_BYTES
from palpate.extras import demand

ADVICE = "copy or record it again"


def pictures(path: Path, times: np.ndarray, fps: float) -> Iterator[np.ndarray]:
    """Blocks `[b, h, w, 3]` of the frames nearest to rising `times` [T] in seconds, at most half a frame away."""
    block: list[np.ndarray] = []
    for frame in _nearest(path, times, 0.5 / fps):
        block.append(frame.to_ndarray(format="rgb24"))
        if len(block) * block[0].nbytes >= BLOCK_BYTES:
            yield np.stack(block)
            block = []
    if block:
        yield np.stack(block)


def _nearest(path: Path, times: np.ndarray, tolerance: float) -> Iterator[Any]:
    wanted, count, last, last_time = 0, 0, None, -np.inf
    for time, frame in _decoded(path):
        # For a time up to this frame's, the nearest frame is this one or the one before.
        while wanted < len(times) and times[wanted] <= time:
            near, at = (frame, time) if time - times[wanted] <= times[wanted] - last_time else (last, last_time)
            if abs(at - times[wanted]) > tolerance:
                raise ValueError(f"{path} has no frame at {times[wanted]:.3f} s, where a row needs one; {ADVICE}")
            yield near
            wanted += 1
        if wanted == len(times):
            return
        count, last, last_time = count + 1, frame, time
    if wanted == len(times) - 1 and times[wanted] - last_time <= tolerance:
        yield last
        return
    raise ValueError(
        f"{path} ends after {count} frames, but a row needs one at {times[wanted]:.3f} s; the file is cut or "
        f"unfinished: {ADVICE}"
    )


def _decoded(path: Path) -> Iterator[tuple[float, Any]]:
    """Frames with their times, counted from the first frame."""
    av = demand("av", library="av", extra="lerobot", needs=f"the video {path} needs PyAV")
    if not path.exists():
        raise FileNotFoundError(f"there is no video {path}; {ADVICE}")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise ValueError(f"{path} holds no video; {ADVICE}")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            start = None
            for frame in container.decode(stream):
                if frame.time is None:
                    raise ValueError(f"{path} has frames without times; {ADVICE}")
                start = frame.time if start is None else start
                yield frame.time - start, frame
    except av.FFmpegError as error:
        raise ValueError(f"{path} is cut or damaged: {error.strerror or error}; {ADVICE}") from error
