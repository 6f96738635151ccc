"""Pictures in arrays of any dtype and layout, as uint8 with channels last."""

from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

BLOCK_BYTES = 16 * 1024**2
FEWEST_PIXELS = 8  # on a side of a picture


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether rows of this shape are pictures: [h, w], [h, w, c] or [c, h, w]."""
    if len(shape) == 3:
        return (shape[-1] in (1, 3, 4) and min(shape[:2]) >= FEWEST_PIXELS) or _channel_first(shape)
    return len(shape) == 2 and min(shape) >= FEWEST_PIXELS


def _channel_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3, 4) and min(shape[1:]) >= FEWEST_PIXELS and shape[-1] not in (1, 3, 4)


def blocks_of(array: Any, start: int, end: int, stride: int) -> Iterator[np.ndarray]:
    """Rows start, start + stride, ... below `end`, in blocks of bounded memory."""
    bytes_each = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    step = max(1, BLOCK_BYTES // bytes_each // stride) * stride
    for low in range(start, end, step):
        yield np.asarray(array[low : min(low + step, end) : stride])


@final
class Levels:
    """The range of a column's pictures, found from some of them: 0 to 255 in any dtype, or 0 to 1 in floats."""

    def __init__(self, name: str, some: Iterable[np.ndarray]) -> None:
        self._name, self._factor = name, 1
        looked_at = list(some)
        if looked_at[0].dtype.kind == "f" and max(float(block.max(initial=0)) for block in looked_at) <= 1:
            self._factor = 255

    def pictures(self, block: np.ndarray) -> np.ndarray:
        """The same pictures as uint8, `[b, h, w, c]`."""
        if block.ndim == 3:
            block = block[..., None]
        elif _channel_first(block.shape[1:]):
            block = np.moveaxis(block, 1, -1)
        if block.dtype == np.uint8:
            return block
        if block.dtype == bool:
            return block.astype(np.uint8) * 255
        scaled = block * self._factor
        if not ((scaled >= 0) & (scaled <= 255)).all():
            raise ValueError(
                f"column {self._name!r} has values from {block.min()} to {block.max()}; pictures need 0 to 255, or 0 "
                "to 1 as floats"
            )
        return np.rint(scaled).astype(np.uint8)
