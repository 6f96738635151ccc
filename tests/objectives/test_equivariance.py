"""L_int (Eq. 3)."""

import torch
from drawn import quick, randn, seeds
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from palpate.groups.translations import Translations
from palpate.objectives.equivariance import chain_equivariance, equivariance


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


def chains(seed: int, n: int) -> tuple[Translations, list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Positions before and after 6 actions of two chains, and one triple alone."""
    group, chain = Translations(n), torch.tensor([0, 0, 0, 1, 1, 1, 2])
    a = randn(7, n, seed=seed)
    travelled = group.travelled(a, chain)
    s_int = travelled + randn(3, n, seed=seed + 1)[chain]  # each chain begins elsewhere
    return group, [s_int, a, s_int + a], chain, travelled


@quick
@given(seed=seeds, n=st.integers(1, 4))
def test_true_states_explain_a_chain_whatever_the_order(seed: int, n: int) -> None:
    group, (s_int, a, s_next), chain, travelled = chains(seed, n)
    h = randn(n, seed=seed + 2)
    mixed = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    rows = [x[mixed] for x in (s_int + h, a, s_next + h, chain, travelled)]
    assert chain_equivariance(group, *rows).max() < 1e-20


def test_a_chain_notices_an_object_that_moves_slowly() -> None:
    """z_int shifted with an object that moves by 0.01 in a triple: L_int of a triple is 1e-4, of the ends 9e-4."""
    group, (s_int, a, s_next), chain, travelled = chains(0, 2)
    shift = 0.01 * torch.tensor([0, 1, 2, 0, 1, 2, 0.0])[:, None] * torch.tensor([1.0, 0.0])
    after = shift + 0.01 * torch.tensor([1.0, 0.0])
    z, z_next = s_int + shift, s_next + after
    torch.testing.assert_close(equivariance(group, z, a, z_next), torch.full((7,), 1e-4).double(), rtol=1e-3, atol=0)
    found = chain_equivariance(group, z, a, z_next, chain, travelled)
    # From o of row i to o' of row j the object moves j + 1 - i times.
    expected = torch.tensor([(4 + 9) / 2, (0 + 4) / 2, (1 + 0) / 2]) * 1e-4
    torch.testing.assert_close(found, torch.cat((expected, expected, torch.zeros(1))).double(), rtol=1e-3, atol=1e-9)
