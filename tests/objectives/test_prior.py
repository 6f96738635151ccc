import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import Normal, kl_divergence

from palpate.objectives.prior import standard_kl

quick = settings(deadline=None, max_examples=30, derandomize=True, database=None)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def test_the_prior_itself_costs_nothing_and_all_else_something() -> None:
    zero = torch.zeros(1, 32)
    assert standard_kl(zero, zero).tolist() == [0]
    assert (standard_kl(0.1 * randn(50, 4), 0.1 * randn(50, 4, seed=1)) > 0).all()


def test_gradient() -> None:
    assert gradcheck(standard_kl, (randn(3, 4).requires_grad_(), randn(3, 4, seed=1).requires_grad_()))
