"""The object's losses as the paper prints them: points, and Gaussians with a volume."""

import pytest
import torch
from drawn import lower_root, quick, randn, seeds, uniform
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal, kl_divergence
from torch.testing import assert_close

from palpate.geometry import Segment
from palpate.objectives.paper import gaussian_stay, gaussian_touch, stay, touch


def test_points_by_hand() -> None:
    assert stay(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])).tolist() == [25, 0]
    z_ext, move = torch.tensor([[1.0, 3.0], [5.0, 4.0], [3.0, 4.0]]), torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert touch(z_ext, Segment(torch.zeros(3, 2), move)).tolist() == [9, 25, 25]


def test_gaussian_stay_by_hand() -> None:
    """Unit covariances a distance 3 apart: 9 / 2; the same body: 0. One of twice the width: 9/16 for each axis."""
    eye, zero = torch.eye(2)[None], torch.zeros(1, 2)
    assert gaussian_stay(zero, eye, torch.tensor([[0.0, 3.0]]), eye).item() == pytest.approx(4.5)
    assert gaussian_stay(zero, eye, zero, eye).item() == 0
    # (log 2 + 1/8 - 1/2 - log 2 + 4/2 - 1/2) / 2 = 9/16
    assert gaussian_stay(zero, eye, zero, 2 * eye).item() == pytest.approx(2 * 9 / 16)


@quick
@given(seed=seeds, n=st.integers(1, 3))
def test_gaussians_agree_with_torch_distributions(seed: int, n: int) -> None:
    mean, mean_next, start, move = (randn(4, n, seed=seed + i) for i in range(4))
    root, root_next = (lower_root(4, n, seed=seed + i) for i in (4, 6))
    before, after = MultivariateNormal(mean, scale_tril=root), MultivariateNormal(mean_next, scale_tril=root_next)
    twin = (kl_divergence(before, after) + kl_divergence(after, before)) / 2
    assert_close(gaussian_stay(mean, root, mean_next, root_next), twin)
    t = uniform(4, seed=seed)
    assert_close(gaussian_touch(mean, root, Segment(start, move), t), -before.log_prob(start + t[:, None] * move))


def test_gradients() -> None:
    z_ext, other, start, move = (randn(3, 2, seed=seed).requires_grad_() for seed in range(4))
    root, root_other = (lower_root(3, 2, seed=seed).requires_grad_() for seed in (4, 6))
    t = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    assert gradcheck(stay, (z_ext, other))
    assert gradcheck(lambda z, s, m: touch(z, Segment(s, m)), (z_ext, start, move))
    assert gradcheck(lambda z, r, y, q: gaussian_stay(z, r.tril(), y, q.tril()), (z_ext, root, other, root_other))
    assert gradcheck(lambda z, r, s, m: gaussian_touch(z, r.tril(), Segment(s, m), t), (z_ext, root, start, move))
