"""Random tensors for tests of the mathematics, in float64 and by seed, and how hypothesis tries them."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

quick = settings(deadline=None, max_examples=30, derandomize=True, database=None)
seeds = st.integers(0, 10_000)
dimensions = st.integers(1, 4)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(n: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(randn(n, n, seed=seed)).Q


def lower_root(*shape: int, seed: int = 0) -> Tensor:
    """Well-conditioned lower triangular roots of covariances, `[*shape[:-1], n, n]`."""
    root = 0.4 * randn(*shape, shape[-1], seed=seed).tril(-1)
    return root + torch.diag_embed(0.5 + randn(*shape, seed=seed + 1).abs())
