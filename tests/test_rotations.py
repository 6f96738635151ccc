"""Rotations of space against matrix exponentials, at 0, near pi, and where columns have no area."""

import math

import pytest
import torch
from drawn import quick, randn, seeds
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

from palpate.geometry import unit
from palpate.rotations import (
    angle_between,
    attitude,
    best_rotation,
    completed,
    matrix_of,
    mean_rotation,
    nearest,
    turned_by,
    vector_of,
)

AXES = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.6, -0.8, 0.0), (-0.48, 0.6, 0.64)]


def skew(w: Tensor) -> Tensor:
    x, y, z = w.tolist()
    return torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)


@quick
@given(seed=seeds)
def test_a_rotation_vector_is_the_logarithm_of_its_matrix(seed: int) -> None:
    w, v = randn(7, 3, seed=seed), randn(7, 3, seed=seed + 1)
    exact = torch.stack([torch.linalg.matrix_exp(skew(each)) for each in w])
    assert_close(matrix_of(w), exact)
    assert_close(turned_by(v, w), (exact @ v[..., None])[..., 0])
    assert_close(matrix_of(vector_of(exact)), exact)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-6, 1e-3, 1.0, 2.0, math.pi - 1e-3, math.pi - 1e-7, math.pi])
def test_logarithms_at_all_angles(axis: tuple[float, ...], angle: float) -> None:
    w = angle * torch.tensor(axis, dtype=torch.float64)
    found = vector_of(matrix_of(w))
    # At pi both signs of the axis are the same rotation.
    assert_close(matrix_of(found), matrix_of(w), atol=1e-12, rtol=0)
    assert_close(found.norm(), torch.tensor(angle, dtype=torch.float64), atol=1e-9, rtol=0)
    if angle < math.pi:
        assert_close(found, w, atol=1e-9, rtol=1e-9)
    single = vector_of(matrix_of(w.float()))
    assert_close(matrix_of(single), matrix_of(w.float()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("angle", [0.0, 1e-8, 0.5, 3.0, math.pi - 1e-3])
def test_gradients(angle: float) -> None:
    w = (angle * torch.tensor(AXES, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(matrix_of, (w,))
    assert torch.autograd.gradcheck(lambda w: turned_by(torch.ones_like(w), w), (w,))
    if angle >= 0.5 or angle == 0:
        assert torch.autograd.gradcheck(lambda w: vector_of(matrix_of(w)), (w,))


@quick
@given(seed=seeds)
def test_the_nearest_columns_are_those_of_a_singular_value_decomposition(seed: int) -> None:
    columns = randn(7, 6, seed=seed)
    pair = columns.unflatten(-1, (2, 3)).mT
    left, _, right = torch.linalg.svd(pair, full_matrices=False)
    assert_close(nearest(columns).unflatten(-1, (2, 3)).mT, left @ right)
    axes = completed(nearest(columns))
    assert_close(axes.mT @ axes, torch.eye(3, dtype=torch.float64).expand(7, 3, 3))
    assert_close(torch.linalg.det(axes), torch.ones(7, dtype=torch.float64))


@pytest.mark.parametrize(
    "columns",
    [
        (0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 2, 0),
        (1, 1, 1, 0, 0, 0),
        (1, 2, 3, 2, 4, 6),
        (0, 0, 1, 0, 0, -1),
        (0, 0, -1, 0, 0, -1),
    ],
)
def test_columns_without_area_have_some_rotation(columns: tuple[float, ...]) -> None:
    given = torch.tensor(columns, dtype=torch.float64)
    axes = completed(nearest(given))
    assert_close(axes.mT @ axes, torch.eye(3, dtype=torch.float64))
    longest = max(given.split(3), key=lambda column: float(column.norm()))
    if longest.norm() > 0:  # it is kept in the plane of the two
        assert abs(axes[:, 2] @ longest) < 1e-9


def test_angles_between_rotations() -> None:
    w = randn(9, 3)
    w = w / w.norm(dim=1, keepdim=True) * torch.linspace(0, 3.1, 9)[:, None]
    start = matrix_of(randn(9, 3, seed=1))
    assert_close(angle_between(start, start @ matrix_of(w)), w.norm(dim=1))
    assert_close(angle_between(torch.eye(3), torch.diag(torch.tensor([1.0, -1, -1]))), torch.tensor(math.pi))
    plane = attitude(torch.tensor([0.3, 3.0]), None), attitude(torch.tensor([0.5, -3.0]), None)
    assert plane[0] is not None
    assert plane[1] is not None
    assert_close(plane[0][..., 0], unit(torch.tensor([0.3, 3.0])))
    assert_close(angle_between(*plane), torch.tensor([0.2, 2 * math.pi - 6]), atol=1e-5, rtol=0)
    assert attitude(None, None) is None


@quick
@given(seed=seeds)
def test_the_best_rotation_is_no_mirror(seed: int) -> None:
    points, w = randn(30, 3, seed=seed), randn(3, seed=seed + 1)
    points = points - points.mean(0)
    turn = matrix_of(w)
    assert_close(best_rotation(points, points @ turn.mT), turn)
    mirror = torch.tensor([1.0, 1, -1], dtype=torch.float64)
    assert_close(torch.linalg.det(best_rotation(points, mirror * points)), torch.ones((), dtype=torch.float64))
    near = matrix_of(0.2 * randn(50, 3, seed=seed))
    middle = mean_rotation(turn @ near)
    left = (turn @ near - middle).square().sum()
    for small in 1e-3 * randn(20, 3, seed=seed + 2):
        assert (turn @ near - middle @ matrix_of(small)).square().sum() >= left
