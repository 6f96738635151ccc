"""L_int (Eq. 3)."""

import torch
from drawn import quick, randn, seeds
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from palpate.groups import Translations
from palpate.objectives.equivariance import equivariance


def test_by_hand() -> None:
    z_int, a = torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    z_int_next = torch.tensor([[4.0, 2.0], [4.0, 5.0], [3.0, 1.0]])
    assert equivariance(Translations(2), z_int, a, z_int_next).tolist() == [0, 25, 4]


@quick
@given(seed=seeds, n=st.integers(1, 4), size=st.floats(-100, 100))
def test_zero_for_the_true_state_plus_any_constant(seed: int, n: int, size: float) -> None:
    s_int, a, h = randn(4, n, seed=seed), randn(4, n, seed=seed + 1), size * randn(n, seed=seed + 2)
    assert equivariance(Translations(n), s_int + h, a, s_int + a + h).max() < 1e-20
    assert equivariance(Translations(n), s_int + h, a, s_int + a + h + 1).min() > 0.9


def test_gradient() -> None:
    inputs = [randn(4, 3, seed=seed).requires_grad_() for seed in range(3)]
    assert gradcheck(lambda *x: equivariance(Translations(3), *x), inputs)
