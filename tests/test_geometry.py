"""Points, segments and ellipsoids: by hand, against slow twins, by gradcheck, at the edges, under motions."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn import dimensions, lower_root, quick, randn, rotation, seeds, uniform
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal, kl_divergence
from torch.testing import assert_close

from palpate import geometry
from palpate.geometry import Segment

# Segment


@pytest.mark.parametrize(
    ("point", "offset"),
    [
        ((1.0, 3.0), (0.0, -3.0)),  # above the middle
        ((-3.0, 4.0), (3.0, -4.0)),  # behind the start
        ((4.0, -1.0), (-2.0, 1.0)),  # beyond the end
        ((1.5, 0.0), (0.0, 0.0)),  # on it
        ((2.0, 0.0), (0.0, 0.0)),  # its end
    ],
)
def test_offset_by_hand(point: tuple[float, float], offset: tuple[float, float]) -> None:
    path = Segment(torch.tensor([0.0, 0.0]), torch.tensor([2.0, 0.0]))
    assert path.offset(torch.tensor(point)).tolist() == list(offset)
    assert path.distance2(torch.tensor(point)).item() == offset[0] ** 2 + offset[1] ** 2


@quick
@given(seed=seeds, n=dimensions)
def test_a_path_agrees_with_very_many_of_its_points(seed: int, n: int) -> None:
    """For k = 3 objects beside each path and 5 directions."""
    point, path = randn(6, 3, n, seed=seed), Segment(randn(6, 1, n, seed=seed + 1), randn(6, 1, n, seed=seed + 2))
    t = torch.linspace(0, 1, 4001, dtype=torch.float64)
    gap = path.start[..., None, :] + t[:, None] * path.move[..., None, :] - point[..., None, :]  # [6, 3, t, n]
    assert_close(path.distance2(point), gap.square().sum(-1).amin(-1), atol=1e-6, rtol=1e-6)
    direction = randn(5, n, seed=seed + 3)
    assert_close(path.least_along(direction, point), (gap @ direction.T).amin(-2))
    assert_close(path.least_along(direction.expand(6, 3, 5, n), point), (gap @ direction.T).amin(-2))
    u = uniform(6, 1, seed=seed)
    assert path.distance2(path.at(u)).max() < 1e-20


@quick
@given(seed=seeds, n=dimensions)
def test_distance_under_motions_scales_and_reversal(seed: int, n: int) -> None:
    point, start, move = (randn(5, n, seed=seed + i) for i in range(3))
    before, turn, shift = Segment(start, move).distance2(point), rotation(n, seed + 3), 10 * randn(n, seed=seed + 4)
    moved = Segment(start @ turn.T + shift, move @ turn.T).distance2(point @ turn.T + shift)
    assert_close(moved, before, atol=1e-10, rtol=1e-8)
    assert_close(Segment(start + move, -move).distance2(point), before, atol=1e-10, rtol=1e-8)
    for scale in (1e-3, 1e-6):  # short paths are paths too
        scaled = Segment(scale * start, scale * move).distance2(scale * point)
        assert_close(scaled, scale**2 * before, atol=1e-12 * scale**2, rtol=1e-6)


def test_gradients_of_segments() -> None:
    inputs = [randn(6, 3, seed=seed).requires_grad_() for seed in range(3)]
    assert gradcheck(lambda start, move, point: Segment(start, move).offset(point), inputs)
    direction = randn(6, 4, 3, seed=3).requires_grad_()
    assert gradcheck(lambda s, m, p, d: Segment(s, m).least_along(d, p), (*inputs, direction))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-10])
def test_a_path_that_is_a_point_has_the_points_distance_and_a_finite_gradient(
    length: float, dtype: torch.dtype
) -> None:
    point = torch.tensor([[30.0, 40.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    move = torch.tensor([[length, 0.0], [length, length]], dtype=dtype, requires_grad=True)
    distance2 = Segment(torch.zeros(2, 2, dtype=dtype), move).distance2(point)
    assert_close(distance2, torch.tensor([2500.0, 0.0], dtype=dtype))
    toward, along = torch.autograd.grad(distance2.sum(), (point, move))
    assert_close(toward, torch.tensor([[60.0, 80.0], [0.0, 0.0]], dtype=dtype))
    assert along.isfinite().all()


# Angles


def test_double_angle_by_hand() -> None:
    angles = torch.tensor([0.0, math.pi / 4, math.pi / 2, 3 * math.pi / 4])
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    assert_close(geometry.double_angle(angles), expected, atol=1e-6, rtol=0)


@quick
@given(angle=st.floats(-20, 20), length=st.floats(0.1, 5))
def test_axis_angle_inverts_double_angle_modulo_pi(angle: float, length: float) -> None:
    back = geometry.axis_angle(length * geometry.double_angle(torch.tensor(angle, dtype=torch.float64))).item()
    assert 0 <= back < math.pi
    assert math.sin(back - angle) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_axis_angle_lies_in_its_half_open_range(dtype: torch.dtype) -> None:
    sine = torch.tensor([0.0, -0.0, 1e-3, -1e-3, -1e-7, -1e-8, -1e-12, -1e-30], dtype=dtype)
    angle = geometry.axis_angle(torch.stack((torch.ones_like(sine), sine), -1))
    assert ((angle >= 0) & (angle < torch.tensor(math.pi, dtype=dtype))).all()


def test_gradients_of_angles() -> None:
    angles = torch.tensor([0.3, 1.2, 2.9], dtype=torch.float64, requires_grad=True)
    assert gradcheck(geometry.double_angle, angles)
    assert gradcheck(geometry.axis_angle, geometry.double_angle(angles).detach().requires_grad_())


# ellipse, long_axis


@quick
@given(angle=st.floats(0, 3.14), ratio=st.floats(0.01, 100), length=st.floats(0, 1))
def test_an_ellipse_is_a_turned_diagonal_and_rounder_for_a_shorter_axis(
    angle: float, ratio: float, length: float
) -> None:
    axis = length * geometry.double_angle(torch.tensor(angle, dtype=torch.float64))
    covariance = geometry.ellipse(axis, torch.tensor(0.7, dtype=torch.float64), math.log(ratio))
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    twin = 0.49 * turn @ np.diag([ratio**length, ratio**-length]) @ turn.T
    np.testing.assert_allclose(covariance.numpy(), twin, atol=1e-10 * max(ratio, 1 / ratio))


def test_ellipse_broadcasts_over_batch_and_objects_and_has_a_gradient_where_it_is_a_disc() -> None:
    axis = torch.cat((torch.zeros(1, 4, 2, dtype=torch.float64), 0.3 * randn(2, 4, 2))).requires_grad_()
    form = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.5, math.log(3.0))]
    assert_close(geometry.ellipse(axis, *form)[1, 2], geometry.ellipse(axis[1, 2], *form))
    assert gradcheck(geometry.ellipse, (axis, *form))


# border


def test_the_border_of_a_square() -> None:
    """It extends to |x| + |y| toward (x, y): its corners lie at the diagonals, its sides at 1."""
    square = geometry.border(geometry.around(720, torch.zeros(())).abs().sum(-1), 360)
    assert_close(square.abs().amax(-1), torch.ones(360), atol=1e-5, rtol=0)
    assert_close(square[45], torch.ones(2), atol=1e-5, rtol=0)


def test_a_support_that_no_convex_body_has_is_cut() -> None:
    support = torch.ones(2, 120)
    support[0, 0] = 5.0  # one direction alone: its neighbours do not let it
    cut, disc = geometry.border(support, 120)
    assert cut[0].norm() < 1.01
    assert_close(disc, geometry.around(120, support))


# Gaussians


def test_gaussians_by_hand() -> None:
    one, two, mean, other = (torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([1.0]), torch.tensor([0.0]))
    # KL(N(1, 1) || N(0, 4)) = log 2 + (1 + 1) / 8 - 1 / 2
    assert geometry.gaussian_kl(mean, one, other, two).item() == pytest.approx(math.log(2) - 0.25)
    # N((0, 0), diag(4, 1)) at (2, 3): (1 + 9) / 2 + log 2 + log 2 pi
    nll = geometry.gaussian_nll(torch.tensor([2.0, 3.0]), torch.zeros(2), torch.diag(torch.tensor([2.0, 1.0])))
    assert nll.item() == pytest.approx(5 + math.log(2) + math.log(2 * math.pi))


@quick
@given(seed=seeds, n=dimensions)
def test_gaussians_agree_with_torch_distributions(seed: int, n: int) -> None:
    """Over [b, k], the other one shared by all."""
    mean, root = randn(3, 2, n, seed=seed), lower_root(3, 2, n, seed=seed + 1)
    other, root_other = randn(1, 1, n, seed=seed + 3), lower_root(1, 1, n, seed=seed + 4)
    this, that = MultivariateNormal(mean, scale_tril=root), MultivariateNormal(other, scale_tril=root_other)
    expanded = that.expand(torch.Size((3, 2)))
    assert_close(geometry.gaussian_kl(mean, root, other, root_other), kl_divergence(this, expanded))
    assert_close(geometry.gaussian_nll(other, mean, root), -this.log_prob(other))


def test_gradients_of_gaussians() -> None:
    mean, other = randn(3, 2).requires_grad_(), randn(3, 2, seed=1).requires_grad_()
    root, root_other = (lower_root(3, 2, seed=seed).requires_grad_() for seed in (2, 4))

    def lower(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *inputs: function(*(x.tril() if x.dim() == 3 else x for x in inputs))

    assert gradcheck(lower(geometry.gaussian_kl), (mean, root, other, root_other))
    assert gradcheck(lower(geometry.gaussian_nll), (mean, other, root))


@pytest.mark.parametrize("thin", [1e-3, 1e-6])
def test_gaussians_with_a_nearly_singular_covariance(thin: float) -> None:
    """Triangular solves never square the root, so float32 is exact where the covariance itself has lost its inverse."""
    root, wide = torch.tensor([[1.0, 0.0], [1.0, thin]]), torch.tensor([[1.0, 0.0], [1.0, 2 * thin]])
    point = torch.tensor([2.0, 2.0])  # twice the first column: two standard deviations, whatever the second one is
    nll = geometry.gaussian_nll(point, torch.zeros(2), root)
    assert nll.item() == pytest.approx(2 + math.log(thin) + math.log(2 * math.pi), rel=1e-4)
    assert geometry.gaussian_kl(point, root, point, wide).item() == pytest.approx(math.log(2) - 0.375, rel=1e-4)
