"""The prior of a variational autoencoder."""

import pytest
import torch
from drawn import quick, randn
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.distributions import Normal, kl_divergence

from palpate.objectives.prior import standard_kl


def test_by_hand() -> None:
    """A mean of 3 costs 9/2 nats; a variance of e costs (e - 2)/2."""
    kl = standard_kl(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    assert kl.tolist() == pytest.approx([4.5, (torch.e - 2) / 2])


@quick
@given(seed=st.integers(0, 1000), b=st.integers(1, 4), k=st.integers(1, 40))
def test_agrees_with_torch(seed: int, b: int, k: int) -> None:
    mean, log_variance = 3 * randn(b, k, seed=seed), 3 * randn(b, k, seed=seed + 1)
    posterior = Normal(mean, (log_variance / 2).exp())
    twin = kl_divergence(posterior, Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum(-1)
    torch.testing.assert_close(standard_kl(mean, log_variance), twin)


def test_gradient() -> None:
    assert gradcheck(standard_kl, (randn(3, 4).requires_grad_(), randn(3, 4, seed=1).requires_grad_()))
