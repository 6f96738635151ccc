"""An ellipse with a rim: what a disc-shaped agent touches of a long object."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from palpate.bodies.ellipse import Ellipse, rimmed
from palpate.geometry import around, double_angle, ellipse

RADIUS, LOG_RATIO = 0.4, math.log(4.0)
LONG, SHORT = 0.8, 0.2
tensor = partial(torch.tensor, dtype=torch.float64)


def support(direction: Tensor, axis: Tensor, share: float) -> Tensor:
    return rimmed(direction, axis, RADIUS, tensor(LOG_RATIO), tensor(share))


@given(st.floats(-3, 3), st.floats(0, 1))
def test_its_semi_axes_are_those_of_the_ellipse_whatever_the_rim(angle: float, share: float) -> None:
    along = tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    assert support(along, double_angle(tensor(angle)), share).tolist() == pytest.approx([LONG, SHORT], abs=2e-6)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_it_extends_to_its_farthest_point(share: float) -> None:
    """Points of the inner ellipse, each with a disc as large as the rim around it; all rim is a stadium."""
    rim = share * SHORT
    points = around(4000, tensor(0.0)) * tensor([LONG - rim, SHORT - rim])
    directions = around(37, tensor(0.0))
    expected = (directions @ points.T).amax(-1) + rim
    assert_close(support(directions, double_angle(tensor(0.0)), share), expected, atol=2e-6, rtol=0)


def test_a_ratio_below_one_is_the_other_axis() -> None:
    one, other = Ellipse(2), Ellipse(2)
    other.log_ratio.data.neg_()
    pose, directions = double_angle(torch.tensor([0.4, 2.0])), around(20, torch.zeros(()))
    assert_close(other.support(directions, -pose), one.support(directions, pose))
    assert_close(other.covariance(-pose), one.covariance(pose))
    assert_close(other.orientation(-pose), torch.tensor([0.4, 2.0]))


def test_a_rim_never_takes_all_of_the_short_axis() -> None:
    """Around a line the support would have a corner."""
    body = Ellipse(2)
    body.raw_rim.data.fill_(100.0)
    assert body.rim.item() == pytest.approx(0.98)


def test_turning_moves_the_tips() -> None:
    """A little turn moves them by the angle times the long semi-axis, and there is no gradient that shortens it."""
    body, angle = Ellipse(2), torch.tensor([0.3, 0.31])
    one, two = double_angle(angle).requires_grad_()
    tip = torch.linalg.eigvalsh(body.covariance(one))[1].sqrt().item()
    turned2 = body.turned2(one, two)
    assert turned2.item() == pytest.approx((0.01 * tip) ** 2, rel=1e-3)
    turned2.backward()
    assert body.log_radius.grad is None
    assert body.log_ratio.grad is None


@pytest.mark.parametrize("length", [0.0, 1e-8, 1e-6, 1e-3])
def test_an_angle_begins_to_be_learned_where_none_is_known(length: float) -> None:
    """As of the plain ellipse, in the precision of training."""
    axis = (length * double_angle(torch.tensor(0.2))).requires_grad_()
    direction = around(7, axis.detach())[1]
    plain = (direction @ ellipse(axis, RADIUS, LOG_RATIO) @ direction).sqrt()
    without_rim = rimmed(direction, axis, RADIUS, torch.tensor(LOG_RATIO), torch.tensor(0.0))
    grown = [torch.autograd.grad(x, axis)[0] for x in (plain, without_rim)]
    assert_close(*grown, rtol=1e-3, atol=0)
    assert grown[0].norm() > 0.1


@pytest.mark.parametrize("ratio", [1.0, 10.0, 1000.0])
def test_however_long_it_is_numbers_and_gradients_are_finite(ratio: float) -> None:
    angle = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) * math.pi
    across = torch.stack((-angle.sin(), angle.cos()), -1)
    axis, log_ratio = double_angle(angle).requires_grad_(), torch.tensor(math.log(ratio), requires_grad=True)
    found = rimmed(across, axis, RADIUS, log_ratio, torch.tensor(0.98))
    assert_close(found, torch.full_like(found, RADIUS / ratio**0.5), atol=2e-4 * ratio**0.5, rtol=0)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), (axis, log_ratio)))


def test_a_network_that_is_not_sure_of_the_angle_gives_a_rounder_body() -> None:
    body = Ellipse(2)
    pose = body.pose(torch.tensor([[0.0, 0.0], [0.5, 0.0], [1e3, 0.0]]))
    short, long = torch.linalg.eigvalsh(body.covariance(pose)).sqrt().unbind(-1)
    assert (long / short).tolist() == pytest.approx([1.0, 3.0 ** (0.5 / 1.25**0.5), 3.0], rel=1e-4)
