"""Validation of the arrays that a user gives as triples."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import h5py
import numpy as np
import torch
from torch import Tensor

from palpate.data.files import read
from palpate.rotations import vector_of

Array: TypeAlias = np.ndarray | Tensor | h5py.Dataset

VIEWS = "views"  # attribute of a set: number of cameras whose pictures are stacked on the channels
UNEVEN = 1e-3  # of rotation matrices: largest error of a product with the own transpose
BLOCK_BYTES = 64 * 1024**2  # read at a time in a pass over a whole set


def as_episodes(episode: Array, count: int) -> np.ndarray:
    numbers = np.asarray(as_array("episode", episode)[...])
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"episode is {numbers.dtype} of shape {numbers.shape}; give one integer for each of the {count} triples"
        )
    return numbers.astype(np.int64)


def as_array(field: str, value: Array) -> Any:
    """A numpy array or an HDF5 dataset, not copied if possible."""
    if isinstance(value, h5py.Dataset):
        return value
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # numpy has no bfloat16
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{field} is not an array: {error}; all rows must have the same shape") from error


def as_actions(value: Array) -> Any:
    """Actions as an array; rigid motions [N, 4, 4] or [N, m, 4, 4] become 6 numbers each, a displacement and a rotation
    vector.

    The matrix of an action is the agent's pose after the move, seen from its pose before.
    """
    a = as_array("action", value)
    if a.shape[-2:] != (4, 4) or a.ndim not in (3, 4):
        return a
    matrices = np.asarray(a[...]).astype(np.float64).reshape(-1, 4, 4)
    require_rigid("action", matrices, math.prod(a.shape[1:-2]))
    turn = vector_of(torch.from_numpy(matrices[:, :3, :3])).numpy()
    return np.concatenate((matrices[:, :3, 3], turn), 1).reshape(*a.shape[:-2], 6)


def require_rigid(field: str, matrices: np.ndarray, each: int = 1) -> None:
    """Refuse matrices [N, 4, 4] that are no rigid motions; a row has so many of them."""
    rotation = matrices[:, :3, :3]
    off = np.abs(rotation @ rotation.swapaxes(1, 2) - np.eye(3)).max((1, 2))
    off = np.maximum(off, np.abs(matrices[:, 3] - (0, 0, 0, 1)).max(1))
    bad = ~(off <= UNEVEN) | (np.linalg.det(np.nan_to_num(rotation)) < 0)  # also for NaN
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"{field} is {matrices[row].round(3).tolist()} in row {row // each}, which is no rigid motion; allowed are "
            "matrices of a rotation and a displacement, with the last row 0, 0, 0, 1"
        )


def require_shapes(o: Any, a: Any, o_next: Any) -> None:
    if not 2 <= o.ndim <= 5:
        raise ValueError(
            f"observation has shape {o.shape}; allowed are vectors [N, f], pictures [N, h, w], [N, h, w, c] or "
            "[N, c, h, w], and views [N, v, h, w, c] or [N, v, c, h, w]"
        )
    if a.ndim not in (1, 2, 3):
        raise ValueError(
            f"action has shape {a.shape}; allowed are [N, n], [N] for n = 1, or matrices [N, 4, 4]; with m sub-steps "
            "each [N, m, n] or [N, m, 4, 4]"
        )
    if o_next.shape[1:] != o.shape[1:] or o_next.dtype != o.dtype:
        raise ValueError(
            f"next_observation is {o_next.dtype} of shape {o_next.shape}, observation {o.dtype} of shape {o.shape}; "
            "both must have the same dtype and shape"
        )
    if not len(o) == len(a) == len(o_next):
        raise ValueError(
            f"observation has {len(o)} rows, action {len(a)} and next_observation {len(o_next)}; the numbers of rows "
            "must be equal"
        )
    for field, array in (("observation", o), ("action", a)):
        if 0 in array.shape:
            raise ValueError(f"{field} has shape {array.shape}, which is empty; at least one triple is needed")
    if o.dtype != np.uint8 and o.dtype.kind != "f":
        raise ValueError(
            f"observation has dtype {o.dtype}; allowed are uint8 and floats: convert pictures with .astype('uint8') "
            "(values 0 to 255), anything else with .astype('float32')"
        )
    if a.dtype.kind not in "iuf":
        raise ValueError(f"action has dtype {a.dtype}; allowed are real numbers: convert it with .astype('float32')")


def is_channel_last(shape: tuple[int, ...], layout: str) -> bool:
    """Whether the last axis holds the channels. "auto" takes the smaller axis of the two candidates."""
    if layout not in ("auto", "channel-first", "channel-last"):
        raise ValueError(f"layout is {layout!r}; allowed are 'auto', 'channel-first' and 'channel-last'")
    if len(shape) < 4:  # vectors and grey pictures have no channel axis
        return False
    if layout != "auto":
        return layout == "channel-last"
    first, last = shape[-3], shape[-1]
    if first == last:
        raise ValueError(
            f"observation has shape {shape}, so channels may be first or last; pass layout='channel-first' or "
            "layout='channel-last'"
        )
    return last < first


def count_views(shape: tuple[int, ...], attributes: Mapping[str, Any]) -> int:
    """Number of cameras for observations of a canonical shape [c, h, w], from a set's attributes; 1 if unknown."""
    found = attributes.get(VIEWS, 1)
    whole = isinstance(found, int | np.integer) and not isinstance(found, bool) and found >= 1
    return int(found) if whole and len(shape) == 3 and shape[0] % int(found) == 0 else 1


def require_finite(field: str, array: Any) -> None:
    """Refuse values that are not finite in float32; reads block by block, with bounded memory."""
    step = max(1, BLOCK_BYTES // (math.prod(array.shape[1:]) * array.dtype.itemsize))
    for low in range(0, len(array), step):
        block = as_float32(read(array, low, min(low + step, len(array)))).reshape(-1, math.prod(array.shape[1:]))
        bad = ~np.isfinite(block)
        if bad.any():
            row = int(bad.any(axis=1).argmax())
            raise ValueError(
                f"{field} has the value {block[row][bad[row]][0]} in row {low + row}; all values must be finite in "
                "float32: repair or drop the row"
            )


def as_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # an overflow becomes inf, which `require_finite` reports
        return values.astype(np.float32)
