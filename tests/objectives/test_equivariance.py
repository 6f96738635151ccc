import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from palpate.objectives.equivariance import equivariance

quick = settings(deadline=None, max_examples=30, derandomize=True, database=None)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand() -> None:
    z_int, a = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    z_int_next = torch.tensor([[4.0, 2.0], [4.0, 5.0]])
    assert equivariance(z_int, a, z_int_next).tolist() == [0, 25]


@quick
@given(seed=st.integers(0, 1000), b=st.integers(1, 5), n=st.integers(1, 4))
def test_agrees_with_a_double_loop(seed: int, b: int, n: int) -> None:
    z_int, a, z_int_next = (randn(b, n, seed=seed + i) for i in range(3))
    loss = equivariance(z_int, a, z_int_next)
    assert loss.shape == (b,)
    for i in range(b):
        twin = sum((z_int_next[i, j].item() - z_int[i, j].item() - a[i, j].item()) ** 2 for j in range(n))
        assert loss[i].item() == pytest.approx(twin)


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 4), size=st.floats(-100, 100))
def test_zero_for_the_true_state_plus_any_constant(seed: int, n: int, size: float) -> None:
    s_int, a, h = randn(4, n, seed=seed), randn(4, n, seed=seed + 1), size * randn(n, seed=seed + 2)
    assert equivariance(s_int + h, a, s_int + a + h).max() < 1e-20
    assert equivariance(s_int + h, a, s_int + a + h + 1).min() > 0.9


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 4))
def test_ignores_translation_and_rotation_and_follows_permutation(seed: int, n: int) -> None:
    z_int, a, z_int_next = (randn(5, n, seed=seed + i) for i in range(3))
    before = equivariance(z_int, a, z_int_next)
    h, turn = randn(n, seed=seed + 3), torch.linalg.qr(randn(n, n, seed=seed + 4)).Q
    torch.testing.assert_close(equivariance(z_int @ turn + h, a @ turn, z_int_next @ turn + h), before)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(equivariance(z_int[order], a[order], z_int_next[order]), before[order])


def test_zero_action_asks_for_the_same_place() -> None:
    z_int = randn(3, 2)
    assert equivariance(z_int, torch.zeros(3, 2), z_int).tolist() == [0, 0, 0]
    assert equivariance(z_int, torch.zeros(3, 2), z_int + 2).tolist() == pytest.approx([8, 8, 8])


def test_gradient() -> None:
    assert gradcheck(equivariance, [randn(4, 3, seed=seed).requires_grad_() for seed in range(3)])
