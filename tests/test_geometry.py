"""Points, segments and ellipsoids: by hand, against slow twins, by gradcheck, at the edges, under motions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal, kl_divergence

from palpate import geometry
from palpate.geometry import Segment

quick = settings(deadline=None, max_examples=40, derandomize=True, database=None)
seeds = st.integers(0, 10_000)
dimensions = st.integers(1, 4)


def _ellipse(axis: torch.Tensor, semi_axes: torch.Tensor, power: float = 2.0) -> torch.Tensor:
    """`geometry.ellipse` from two semi-axes, the first along `axis`."""
    first, second = semi_axes.unbind(-1)
    return geometry.ellipse(axis, (first * second).sqrt(), (first / second).log(), power)


def _root(axis: torch.Tensor, semi_axes: torch.Tensor) -> torch.Tensor:
    return _ellipse(axis, semi_axes, power=-1.0)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(n: int, seed: int) -> Tensor:
    return torch.linalg.qr(randn(n, n, seed=seed)).Q


def lower_root(*shape: int, seed: int = 0) -> Tensor:
    """Well-conditioned lower triangular roots, `[*shape[:-1], n, n]`."""
    n = shape[-1]
    root = 0.4 * randn(*shape, n, seed=seed).tril(-1)
    return root + torch.diag_embed(0.5 + randn(*shape, seed=seed + 1).abs())


def spd_root(*shape: int, seed: int = 0) -> Tensor:
    """Any invertible matrices: square roots of some precision."""
    n = shape[-1]
    return randn(*shape, n, seed=seed) + 3 * torch.eye(n, dtype=torch.float64)


# Segment


def test_segment_at_by_hand() -> None:
    path = Segment(torch.tensor([1.0, 2.0]), torch.tensor([4.0, -2.0]))
    assert path.at(torch.tensor(0.0)).tolist() == [1, 2]
    assert path.at(torch.tensor(0.5)).tolist() == [3, 1]
    assert path.at(torch.tensor(1.0)).tolist() == [5, 0]


def test_segment_at_takes_one_parameter_per_path() -> None:
    path = Segment(randn(3, 5, 2), randn(3, 5, 2, seed=1))
    t = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    points = path.at(t)
    for i in range(3):
        for j in range(5):
            torch.testing.assert_close(points[i, j], path.start[i, j] + t[i, j].item() * path.move[i, j])


# segment_distance2


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ((1.0, 3.0), 9.0),  # above the middle
        ((-3.0, 4.0), 25.0),  # behind the start
        ((4.0, -1.0), 5.0),  # beyond the end
        ((1.5, 0.0), 0.0),  # on it
        ((0.0, 0.0), 0.0),  # its start
        ((2.0, 0.0), 0.0),  # its end
    ],
)
def test_distance_by_hand(point: tuple[float, float], expected: float) -> None:
    path = Segment(torch.tensor([0.0, 0.0]), torch.tensor([2.0, 0.0]))
    assert geometry.segment_distance2(torch.tensor(point), path).item() == pytest.approx(expected)


def sampled_distance2(point: Tensor, path: Segment, matrix: Tensor | None = None) -> Tensor:
    """The slow twin: the nearest of many points of the path."""
    t = torch.linspace(0, 1, 4_001, dtype=torch.float64)
    gap = point[..., None, :] - (path.start[..., None, :] + t[:, None] * path.move[..., None, :])
    if matrix is not None:
        gap = torch.einsum("...ij,...tj->...ti", matrix, gap)
    return gap.square().sum(-1).amin(-1)


@quick
@given(seed=seeds, n=dimensions)
def test_distance_agrees_with_dense_sampling(seed: int, n: int) -> None:
    point, path = randn(6, n, seed=seed), Segment(randn(6, n, seed=seed + 1), randn(6, n, seed=seed + 2))
    exact, sampled = geometry.segment_distance2(point, path), sampled_distance2(point, path)
    assert (exact <= sampled + 1e-12).all()
    torch.testing.assert_close(exact, sampled, atol=1e-6, rtol=1e-6)


@quick
@given(seed=seeds, n=dimensions)
def test_distance_ignores_motions_and_follows_permutations(seed: int, n: int) -> None:
    point, start, move = randn(5, n, seed=seed), randn(5, n, seed=seed + 1), randn(5, n, seed=seed + 2)
    before = geometry.segment_distance2(point, Segment(start, move))
    turn, shift = rotation(n, seed + 3), 10 * randn(n, seed=seed + 4)
    moved = geometry.segment_distance2(point @ turn.T + shift, Segment(start @ turn.T + shift, move @ turn.T))
    torch.testing.assert_close(moved, before, atol=1e-10, rtol=1e-8)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    permuted = geometry.segment_distance2(point[order], Segment(start[order], move[order]))
    assert torch.equal(permuted, before[order])
    backwards = geometry.segment_distance2(point, Segment(start + move, -move))
    torch.testing.assert_close(backwards, before, atol=1e-10, rtol=1e-8)
    for scale in (3.0, 1e-3, 1e-6):  # short paths are paths too
        scaled = geometry.segment_distance2(scale * point, Segment(scale * start, scale * move))
        torch.testing.assert_close(scaled, scale**2 * before, atol=1e-12 * scale**2, rtol=1e-6)


@quick
@given(seed=seeds, n=dimensions, t=st.floats(0, 1))
def test_a_point_of_the_path_has_no_distance(seed: int, n: int, t: float) -> None:
    path = Segment(randn(4, n, seed=seed), randn(4, n, seed=seed + 1))
    point = path.at(torch.full((4,), t, dtype=torch.float64))
    assert geometry.segment_distance2(point, path).max() < 1e-20


def test_gradient_of_the_distance() -> None:
    inputs = [randn(6, 3, seed=seed).requires_grad_() for seed in range(3)]
    assert gradcheck(lambda point, start, move: geometry.segment_distance2(point, Segment(start, move)), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-20, 1e-10])
def test_a_path_that_is_a_point_has_the_points_distance_and_a_finite_gradient(
    length: float, dtype: torch.dtype
) -> None:
    point = torch.tensor([[30.0, 40.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    start = torch.zeros(2, 2, dtype=dtype, requires_grad=True)
    move = torch.tensor([[length, 0.0], [length, length]], dtype=dtype, requires_grad=True)
    distance2 = geometry.segment_distance2(point, Segment(start, move))
    torch.testing.assert_close(distance2, torch.tensor([2500.0, 0.0], dtype=dtype))
    distance2.sum().backward()
    torch.testing.assert_close(point.grad, torch.tensor([[60.0, 80.0], [0.0, 0.0]], dtype=dtype))
    assert move.grad is not None
    assert move.grad.isfinite().all()


def test_the_gradient_is_finite_on_the_path_itself() -> None:
    point = torch.tensor([0.5, 0.5], requires_grad=True)
    geometry.segment_distance2(point, Segment(torch.zeros(2), torch.ones(2))).backward()
    assert point.grad is not None
    assert point.grad.tolist() == [0, 0]


@pytest.mark.parametrize("function", ["plain", "mahalanobis"])
def test_distances_broadcast_over_objects(function: str) -> None:
    """k objects [b, k, n] against one path each [b, 1, n] give what a double loop gives."""
    b, k, n = 3, 4, 2
    point, path = randn(b, k, n), Segment(randn(b, 1, n, seed=1), randn(b, 1, n, seed=2))
    root = spd_root(b, k, n, seed=3)

    def distance2(point: Tensor, path: Segment, root: Tensor) -> Tensor:
        if function == "plain":
            return geometry.segment_distance2(point, path)
        return geometry.segment_mahalanobis2(point, path, root)

    together = distance2(point, path, root)
    assert together.shape == (b, k)
    for i in range(b):
        for j in range(k):
            alone = distance2(point[i, j], Segment(path.start[i, 0], path.move[i, 0]), root[i, j])
            torch.testing.assert_close(together[i, j], alone)
    one = distance2(point[:1, :1], Segment(path.start[:1], path.move[:1]), root[:1, :1])
    torch.testing.assert_close(one, together[:1, :1])


# segment_mahalanobis2


def test_mahalanobis_by_hand() -> None:
    """Semi-axes 2 and 1: (5, 3) is 3 from the path along y, and (6, 0) is (6 - 4) / 2 from it along x."""
    path = Segment(torch.tensor([-4.0, 0.0]), torch.tensor([8.0, 0.0]))
    root = torch.diag(torch.tensor([0.5, 1.0]))
    assert geometry.segment_mahalanobis2(torch.tensor([1.0, 3.0]), path, root).item() == pytest.approx(9)
    assert geometry.segment_mahalanobis2(torch.tensor([6.0, 0.0]), path, root).item() == pytest.approx(1)
    assert geometry.segment_mahalanobis2(torch.tensor([6.0, 2.0]), path, root).item() == pytest.approx(5)


@quick
@given(seed=seeds, n=dimensions)
def test_mahalanobis_agrees_with_dense_sampling_of_the_precision_form(seed: int, n: int) -> None:
    point, path = randn(4, n, seed=seed), Segment(randn(4, n, seed=seed + 1), randn(4, n, seed=seed + 2))
    root = spd_root(4, n, seed=seed + 3)
    exact = geometry.segment_mahalanobis2(point, path, root)
    covariance = np.linalg.inv(np.einsum("bki,bkj->bij", root.numpy(), root.numpy()))
    precision = torch.from_numpy(np.linalg.inv(covariance))
    t = torch.linspace(0, 1, 4_001, dtype=torch.float64)
    gap = point[:, None] - (path.start[:, None] + t[:, None] * path.move[:, None])
    sampled = torch.einsum("bti,bij,btj->bt", gap, precision, gap).amin(1)
    torch.testing.assert_close(exact, sampled, atol=1e-5, rtol=1e-5)


@quick
@given(seed=seeds, n=dimensions)
def test_mahalanobis_ignores_motions_of_everything_and_rotations_of_the_root(seed: int, n: int) -> None:
    point, start, move = randn(5, n, seed=seed), randn(5, n, seed=seed + 1), randn(5, n, seed=seed + 2)
    root = spd_root(5, n, seed=seed + 3)
    before = geometry.segment_mahalanobis2(point, Segment(start, move), root)
    turn, shift = rotation(n, seed + 4), randn(n, seed=seed + 5)
    moved = geometry.segment_mahalanobis2(
        point @ turn.T + shift, Segment(start @ turn.T + shift, move @ turn.T), root @ turn.T
    )
    torch.testing.assert_close(moved, before, atol=1e-9, rtol=1e-8)
    other_root = geometry.segment_mahalanobis2(point, Segment(start, move), rotation(n, seed + 6) @ root)
    torch.testing.assert_close(other_root, before, atol=1e-9, rtol=1e-8)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    permuted = geometry.segment_mahalanobis2(point[order], Segment(start[order], move[order]), root[order])
    torch.testing.assert_close(permuted, before[order])


def test_mahalanobis_in_a_round_body_is_the_distance_over_the_radius() -> None:
    point, path = randn(7, 3), Segment(randn(7, 3, seed=1), randn(7, 3, seed=2))
    root = torch.eye(3, dtype=torch.float64) / 0.2
    expected = geometry.segment_distance2(point, path) / 0.04
    torch.testing.assert_close(geometry.segment_mahalanobis2(point, path, root), expected)


def test_gradient_of_mahalanobis() -> None:
    point, start, move = (randn(5, 2, seed=seed).requires_grad_() for seed in range(3))
    root = spd_root(5, 2, seed=3).requires_grad_()
    assert gradcheck(
        lambda point, start, move, root: geometry.segment_mahalanobis2(point, Segment(start, move), root),
        (point, start, move, root),
    )


@pytest.mark.parametrize("thin", [1e-2, 1e-4])
def test_mahalanobis_of_a_very_thin_ellipse(thin: float) -> None:
    """In float32: what lies along the long axis is near however thin the body is, what lies beside it is far."""
    root = _root(geometry.double_angle(torch.tensor(math.pi / 6)), torch.tensor([1.0, thin]))
    along = torch.tensor([math.cos(math.pi / 6), math.sin(math.pi / 6)])
    beside = torch.tensor([-along[1], along[0]])
    nowhere = Segment(torch.zeros(2), torch.zeros(2))
    assert geometry.segment_mahalanobis2(beside, nowhere, root).item() == pytest.approx(thin**-2, rel=1e-3)
    # The point along the axis is only as exact as float32's rounding of the direction, magnified by 1 / thin.
    slack = (1e-7 / thin) ** 2 * 10 + 1e-3
    assert geometry.segment_mahalanobis2(along, nowhere, root).item() == pytest.approx(1.0, abs=slack)
    across = Segment(beside, -2 * beside)
    assert geometry.segment_mahalanobis2(0.1 * beside, across, root).item() == pytest.approx(0, abs=1e-2)


def test_mahalanobis_with_a_path_that_is_a_point() -> None:
    point = torch.tensor([[3.0, 4.0]], requires_grad=True)
    root = torch.diag(torch.tensor([1.0, 2.0])).requires_grad_()
    distance2 = geometry.segment_mahalanobis2(point, Segment(torch.zeros(1, 2), torch.zeros(1, 2)), root)
    assert distance2.tolist() == [9 + 64]
    distance2.sum().backward()
    assert point.grad is not None
    assert point.grad.tolist() == [[6, 32]]
    assert root.grad is not None
    assert root.grad.isfinite().all()


# double_angle, axis_angle


def test_double_angle_by_hand() -> None:
    angles = torch.tensor([0.0, math.pi / 4, math.pi / 2, 3 * math.pi / 4])
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    torch.testing.assert_close(geometry.double_angle(angles), expected, atol=1e-6, rtol=0)


@quick
@given(angle=st.floats(-20, 20))
def test_axis_angle_inverts_double_angle_modulo_pi(angle: float) -> None:
    there = torch.tensor(angle, dtype=torch.float64)
    back = geometry.axis_angle(geometry.double_angle(there)).item()
    assert 0 <= back <= math.pi
    assert math.sin(back - angle) == pytest.approx(0, abs=1e-9)
    front, behind = geometry.double_angle(there), geometry.double_angle(there + math.pi)
    torch.testing.assert_close(front, behind, atol=1e-12, rtol=0)
    assert front.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_axis_angle_lies_in_its_half_open_range(dtype: torch.dtype) -> None:
    sine = torch.tensor([0.0, -0.0, 1e-3, -1e-3, -1e-7, -1e-8, -1e-12, -1e-30], dtype=dtype)
    angle = geometry.axis_angle(torch.stack((torch.ones_like(sine), sine), -1))
    assert (angle >= 0).all()
    assert (angle < torch.tensor(math.pi, dtype=dtype)).all()


def test_axis_angle_forgets_the_vectors_length_and_broadcasts() -> None:
    angles = torch.linspace(0, 3, 12, dtype=torch.float64).view(3, 4)
    torch.testing.assert_close(geometry.axis_angle(5 * geometry.double_angle(angles)), angles)


def test_gradients_of_angles() -> None:
    angles = torch.tensor([0.3, 1.2, 2.9], dtype=torch.float64, requires_grad=True)
    assert gradcheck(geometry.double_angle, angles)
    assert gradcheck(geometry.axis_angle, geometry.double_angle(angles).detach().requires_grad_())


# ellipse, long_axis


def test_ellipse_by_hand() -> None:
    upright = _ellipse(geometry.double_angle(torch.tensor(math.pi / 2)), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(upright, torch.diag(torch.tensor([1.0, 9.0])), atol=1e-5, rtol=0)
    slanted = _ellipse(geometry.double_angle(torch.tensor(math.pi / 4)), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(slanted, torch.tensor([[5.0, 4.0], [4.0, 5.0]]), atol=1e-5, rtol=0)


axes = st.floats(1e-3, 10)


@quick
@given(angle=st.floats(0, 3.14), first=axes, second=axes)
def test_ellipse_is_rotated_diagonal_and_root_is_the_inverse_square_root(
    angle: float, first: float, second: float
) -> None:
    double = geometry.double_angle(torch.tensor(angle, dtype=torch.float64))
    semi_axes = torch.tensor([first, second], dtype=torch.float64)
    covariance, root = _ellipse(double, semi_axes), _root(double, semi_axes)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    twin = turn @ np.diag([first**2, second**2]) @ turn.T
    np.testing.assert_allclose(covariance.numpy(), twin, atol=1e-12 * max(first, second) ** 2)
    root_twin = turn @ np.diag([1 / first, 1 / second]) @ turn.T
    np.testing.assert_allclose(root.numpy(), root_twin, atol=1e-12 / min(first, second))
    torch.testing.assert_close(root, root.mT)
    condition = (max(first, second) / min(first, second)) ** 2
    product = (root.mT @ root @ covariance).numpy()
    np.testing.assert_allclose(product, np.eye(2), atol=1e-13 * condition)


@quick
@given(angle=st.floats(0, 3.14), by=st.floats(0, 3.14))
def test_ellipse_turns_with_its_angle(angle: float, by: float) -> None:
    semi_axes = torch.tensor([0.5, 0.1], dtype=torch.float64)
    here, there = (torch.tensor(value, dtype=torch.float64) for value in (angle, angle + by))
    turn = torch.tensor([[math.cos(by), -math.sin(by)], [math.sin(by), math.cos(by)]], dtype=torch.float64)
    turned = turn @ _ellipse(geometry.double_angle(here), semi_axes) @ turn.T
    torch.testing.assert_close(_ellipse(geometry.double_angle(there), semi_axes), turned)


def test_ellipse_broadcasts_shared_axes_over_batch_and_objects() -> None:
    angles, semi_axes = randn(3, 4), torch.tensor([0.7, 0.2], dtype=torch.float64)
    for function in (_ellipse, _root):
        together = function(geometry.double_angle(angles), semi_axes)
        assert together.shape == (3, 4, 2, 2)
        alone = function(geometry.double_angle(angles[1, 2]), semi_axes)
        torch.testing.assert_close(together[1, 2], alone)
        assert function(geometry.double_angle(angles[:1, :1]), semi_axes).shape == (1, 1, 2, 2)


def test_gradients_of_ellipses_also_at_a_round_one() -> None:
    angles = torch.tensor([0.0, 0.4, math.pi / 2], dtype=torch.float64)
    double = geometry.double_angle(angles).requires_grad_()
    semi_axes = torch.tensor([[0.5, 0.2], [0.3, 0.3], [0.1, 0.9]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(_ellipse, (double, semi_axes))
    assert gradcheck(_root, (double, semi_axes))


def test_long_axis_by_hand_in_three_dimensions() -> None:
    direction = geometry.long_axis(torch.diag(torch.tensor([1.0, 5.0, 2.0])))
    torch.testing.assert_close(direction.abs(), torch.tensor([0.0, 1.0, 0.0]))


@quick
@given(angle=st.floats(0, 3.14), thin=st.floats(1e-4, 0.9))
def test_long_axis_finds_the_angle_whichever_semi_axis_is_longer(angle: float, thin: float) -> None:
    double = geometry.double_angle(torch.tensor(angle, dtype=torch.float64))
    first = geometry.long_axis(_ellipse(double, torch.tensor([1.0, thin], dtype=torch.float64)))
    second = geometry.long_axis(_ellipse(double, torch.tensor([thin, 1.0], dtype=torch.float64)))
    assert abs(first[0].item() * math.sin(angle) - first[1].item() * math.cos(angle)) < 1e-6
    assert abs(second[0].item() * math.cos(angle) + second[1].item() * math.sin(angle)) < 1e-6
    assert first.norm().item() == pytest.approx(1)


@quick
@given(seed=seeds, n=st.integers(2, 4))
def test_long_axis_is_numpys_top_eigenvector_and_turns_along(seed: int, n: int) -> None:
    root = lower_root(3, 2, n, seed=seed)
    covariance = root @ root.mT
    axis = geometry.long_axis(covariance)
    assert axis.shape == (3, 2, n)
    values, vectors = np.linalg.eig(covariance.numpy())
    top = np.take_along_axis(vectors, values.argmax(-1)[..., None, None], -1)[..., 0]
    np.testing.assert_allclose(np.abs((axis.numpy() * top).sum(-1)), 1, atol=1e-6)
    turn = rotation(n, seed + 7)
    turned = geometry.long_axis(turn @ covariance @ turn.T)
    torch.testing.assert_close((turned * (axis @ turn.T)).sum(-1).abs(), torch.ones(3, 2, dtype=torch.float64))


def test_gradient_of_the_long_axis_up_to_its_sign() -> None:
    raw = (spd_root(3, 2, seed=5) + torch.diag(torch.tensor([2.0, 0.0]))).requires_grad_()

    def projector(raw: Tensor) -> Tensor:
        axis = geometry.long_axis(raw @ raw.mT)
        return axis[..., :, None] * axis[..., None, :]

    assert gradcheck(projector, raw)


# Gaussians


def test_kl_by_hand() -> None:
    one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    mean, other = torch.tensor([1.0]), torch.tensor([0.0])
    # KL(N(1, 1) || N(0, 4)) = log 2 + (1 + 1) / 8 - 1 / 2
    assert geometry.gaussian_kl(mean, one, other, two).item() == pytest.approx(math.log(2) - 0.25)
    assert geometry.gaussian_kl(mean, one, other, one).item() == pytest.approx(0.5)
    assert geometry.gaussian_kl(mean, two, mean, two).item() == pytest.approx(0)


@quick
@given(seed=seeds, n=dimensions)
def test_kl_agrees_with_the_formula_by_inverse_and_determinant(seed: int, n: int) -> None:
    mean, other = randn(5, n, seed=seed), randn(5, n, seed=seed + 1)
    root, root_other = lower_root(5, n, seed=seed + 2), lower_root(5, n, seed=seed + 3)
    kl = geometry.gaussian_kl(mean, root, other, root_other)
    assert (kl >= 0).all()
    for i in range(5):
        p, q = (root[i] @ root[i].T).numpy(), (root_other[i] @ root_other[i].T).numpy()
        gap = (mean - other)[i].numpy()
        inverse = np.linalg.inv(q)
        twin = np.trace(inverse @ p) + gap @ inverse @ gap - n + np.log(np.linalg.det(q) / np.linalg.det(p))
        assert kl[i].item() == pytest.approx(twin / 2, rel=1e-8, abs=1e-10)
    library = kl_divergence(MultivariateNormal(mean, scale_tril=root), MultivariateNormal(other, scale_tril=root_other))
    torch.testing.assert_close(kl, library)


@quick
@given(seed=seeds, n=dimensions)
def test_kl_and_nll_ignore_motions_and_follow_permutations(seed: int, n: int) -> None:
    mean, other, point = (randn(4, n, seed=seed + i) for i in range(3))
    root, root_other = lower_root(4, n, seed=seed + 3), lower_root(4, n, seed=seed + 4)
    turn, shift = rotation(n, seed + 5), randn(n, seed=seed + 6)

    def move(x: Tensor) -> Tensor:
        return x @ turn.T + shift

    def turn_root(root: Tensor) -> Tensor:
        return torch.linalg.cholesky(turn @ root @ root.mT @ turn.T)

    kl, nll = geometry.gaussian_kl(mean, root, other, root_other), geometry.gaussian_nll(point, mean, root)
    moved = geometry.gaussian_kl(move(mean), turn_root(root), move(other), turn_root(root_other))
    torch.testing.assert_close(moved, kl, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(geometry.gaussian_nll(move(point), move(mean), turn_root(root)), nll)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    permuted = geometry.gaussian_kl(mean[order], root[order], other[order], root_other[order])
    torch.testing.assert_close(permuted, kl[order])
    torch.testing.assert_close(geometry.gaussian_nll(point[order], mean[order], root[order]), nll[order])


def test_nll_by_hand() -> None:
    # N((0, 0), diag(4, 1)) at (2, 3): (1 + 9) / 2 + log 2 + log 2 pi
    nll = geometry.gaussian_nll(torch.tensor([2.0, 3.0]), torch.zeros(2), torch.diag(torch.tensor([2.0, 1.0])))
    assert nll.item() == pytest.approx(5 + math.log(2) + math.log(2 * math.pi))


@quick
@given(seed=seeds, n=dimensions)
def test_nll_agrees_with_torch_distributions(seed: int, n: int) -> None:
    point, mean, root = randn(3, 2, n, seed=seed), randn(3, 2, n, seed=seed + 1), lower_root(3, 2, n, seed=seed + 2)
    twin = -MultivariateNormal(mean, scale_tril=root).log_prob(point)
    torch.testing.assert_close(geometry.gaussian_nll(point, mean, root), twin)


def test_gradients_of_gaussians() -> None:
    mean, other = randn(3, 2).requires_grad_(), randn(3, 2, seed=1).requires_grad_()
    root, root_other = (lower_root(3, 2, seed=seed).requires_grad_() for seed in (2, 4))

    def kl(mean: Tensor, root: Tensor, other: Tensor, root_other: Tensor) -> Tensor:
        return geometry.gaussian_kl(mean, root.tril(), other, root_other.tril())

    def nll(point: Tensor, mean: Tensor, root: Tensor) -> Tensor:
        return geometry.gaussian_nll(point, mean, root.tril())

    assert gradcheck(kl, (mean, root, other, root_other))
    assert gradcheck(nll, (mean, other, root))


def test_gaussians_broadcast_and_take_a_batch_of_one() -> None:
    mean, root = randn(3, 4, 2), lower_root(3, 4, 2, seed=1)
    shared_mean, shared_root = randn(1, 1, 2, seed=2), lower_root(1, 1, 2, seed=3)
    kl = geometry.gaussian_kl(mean, root, shared_mean, shared_root)
    nll = geometry.gaussian_nll(shared_mean, mean, root)
    assert kl.shape == nll.shape == (3, 4)
    torch.testing.assert_close(kl[:1, :1], geometry.gaussian_kl(mean[:1, :1], root[:1, :1], shared_mean, shared_root))
    torch.testing.assert_close(nll[2, 3], geometry.gaussian_nll(shared_mean[0, 0], mean[2, 3], root[2, 3]))


@pytest.mark.parametrize("thin", [1e-3, 1e-6])
def test_gaussians_with_a_nearly_singular_covariance(thin: float) -> None:
    """Triangular solves never square the root, so float32 is exact where the covariance itself has lost its inverse."""
    root = torch.tensor([[1.0, 0.0], [1.0, thin]])
    point = torch.tensor([2.0, 2.0])  # twice the first column: two standard deviations, whatever the second one is
    nll = geometry.gaussian_nll(point, torch.zeros(2), root)
    assert nll.item() == pytest.approx(2 + math.log(thin) + math.log(2 * math.pi), rel=1e-4)
    assert geometry.gaussian_kl(point, root, point, root).item() == pytest.approx(0, abs=1e-4)
    wide = torch.tensor([[1.0, 0.0], [1.0, 2 * thin]])
    expected = math.log(2) - 0.375
    assert geometry.gaussian_kl(point, root, point, wide).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("length", [0.0, 1e-4, 0.3, 1.0])
def test_a_shorter_axis_is_a_rounder_ellipse(length: float) -> None:
    axis = length * geometry.double_angle(torch.tensor(0.4, dtype=torch.float64))
    squared = torch.linalg.eigvalsh(geometry.ellipse(axis, torch.tensor(0.7, dtype=torch.float64), math.log(3.0)))
    expected = 0.49 * torch.tensor([3.0**-length, 3.0**length], dtype=torch.float64)
    torch.testing.assert_close(squared, expected, atol=1e-5, rtol=0)


def test_gradient_of_a_disc_toward_an_ellipse() -> None:
    axis = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    radius = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a, r: geometry.ellipse(a, r, math.log(3.0), -1.0), (axis, radius))


def test_the_border_of_a_square() -> None:
    """It reaches |x| + |y| toward (x, y): its corners lie at the diagonals, its sides at 1."""
    square = geometry.border(geometry.around(720, torch.zeros(())).abs().sum(-1), 360)
    assert torch.allclose(square.abs().amax(-1), torch.ones(360), atol=1e-5)
    assert torch.allclose(square[45], torch.ones(2), atol=1e-5)


def test_a_reach_that_no_convex_body_has_is_cut() -> None:
    reach = torch.ones(2, 120)
    reach[0, 0] = 5.0  # one direction alone: its neighbours do not let it
    first, disc = geometry.border(reach, 120)
    assert first[0].norm() < 1.01
    assert torch.allclose(disc.norm(dim=-1), torch.ones(120))
    assert torch.allclose(disc, geometry.around(120, reach))
