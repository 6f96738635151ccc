"""Rows of encodings and true states, as the scores need them."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from palpate.data.labelled import Truth
from palpate.methods.base import Encoding

Rows = TypeVar("Rows", Encoding, Truth)


def mapped(rows: Rows, change: Callable[[Tensor], Tensor]) -> Rows:
    """Apply `change` to every field that is not None."""
    return type(rows)(*(None if x is None else change(x) for x in rows))  # type: ignore[arg-type]


def host(x: Any) -> Tensor:
    """Arrays and tensors of any device as float64, where sums over many rows stay exact enough."""
    return torch.as_tensor(x).detach().cpu().double()


def visible(encoding: Encoding, truth: Truth) -> tuple[Encoding, Truth]:
    """The rows in which all objects are visible; all rows if that is unknown."""
    if truth.visibles is None:
        return encoding, truth
    seen = (truth.visibles > 0).all(1)
    if not seen.any():
        raise ValueError("no row shows every object; give rows in which all objects are visible")
    return mapped(encoding, lambda x: x[seen]), mapped(truth, lambda x: x[seen])
