"""An ellipse with a rim: what an agent that is a disc touches of a long object."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palpate.geometry import Segment, along_axis, ellipse, segment_distance2
from palpate.objectives.contact import rim_clearance, rimmed

RADIUS, LOG_RATIO = 0.4, math.log(4.0)
LONG, SHORT = 0.8, 0.2
tensor = partial(torch.tensor, dtype=torch.float64)
SEMI_AXES = tensor(LONG), tensor(SHORT)


def around(count: int) -> Tensor:
    angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    return torch.stack((angle.cos(), angle.sin()), -1)


def axes(angle: Tensor, length: float = 1.0) -> Tensor:
    return length * torch.stack(((2 * angle).cos(), (2 * angle).sin()), -1)


def some(count: int, seed: int, length: float = 1.0) -> tuple[Segment, Tensor]:
    """Paths, and angles of the bodies they meet."""
    generator = torch.Generator().manual_seed(seed)
    start, move = (torch.randn(count, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return Segment(start, length * move), torch.rand(count, generator=generator, dtype=torch.float64) * math.pi


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_it_reaches_as_far_as_its_farthest_point(share: float) -> None:
    """Points of the inner ellipse, each with a disc as large as the rim around it."""
    rim = share * SHORT
    points = around(4000) * tensor([LONG - rim, SHORT - rim])
    directions = around(37)
    expected = (directions @ points.T).amax(-1) + rim
    assert torch.allclose(rimmed(directions, *SEMI_AXES, tensor(share)), expected, atol=2e-6)


def test_either_axis_may_be_the_longer() -> None:
    directions, share = around(20), tensor(0.6)
    other = rimmed(directions.flip(-1), *reversed(SEMI_AXES), share)
    assert torch.allclose(rimmed(directions, *SEMI_AXES, share), other)


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(-5, 5), st.floats(0.01, 3))
def test_along_an_axis_and_across(x: float, y: float, angle: float, length: float) -> None:
    """Up to its sign, which a body without front and back does not tell."""
    axis = axes(tensor(angle), length)
    along, across = along_axis(tensor([x, y]), axis).tolist()
    assert abs(along) == pytest.approx(abs(math.cos(angle) * x + math.sin(angle) * y), abs=1e-6)
    assert abs(across) == pytest.approx(abs(math.cos(angle) * y - math.sin(angle) * x), abs=1e-6)
    assert along_axis(tensor([x, y]), 0 * axis).tolist() == [x, y]


@pytest.mark.parametrize("length", [0.0, 0.3, 2.0])
def test_all_rim_is_a_stadium(length: float) -> None:
    """Its clearance is the distance of two segments, one here by very many points, less the rim."""
    path, angle = some(300, 0, length)
    centre = tensor([0.1, -0.3]).expand(300, 2)
    cleared = rim_clearance(centre, path, axes(angle), RADIUS, tensor(LOG_RATIO), tensor(1.0))
    along = torch.stack((angle.cos(), angle.sin()), -1) * (LONG - SHORT)
    rod = centre[:, None] + along[:, None] * torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None]
    distance = segment_distance2(rod, Segment(path.start[:, None], path.move[:, None])).amin(-1).sqrt() - SHORT
    apart = distance > -0.15  # deeper it counts the way out, not to the rod
    assert torch.allclose(cleared[apart], distance[apart], atol=0.002)
    assert (cleared[~apart] < 0).all()
    assert 0.5 < apart.float().mean() < 0.999


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_without_a_rim_it_is_the_ellipse(length: float) -> None:
    """By its sign: mapped to where the ellipse is the unit disc, paths come nearer than 1 or do not."""
    path, angle = some(400, 1, 0.5)
    axis = axes(angle, length)
    cleared = rim_clearance(torch.zeros_like(axis), path, axis, RADIUS, tensor(LOG_RATIO), tensor(0.0))
    back = ellipse(axis, RADIUS, LOG_RATIO, power=-1.0)
    mapped = Segment(*((back @ v[..., None])[..., 0] for v in path))
    met = segment_distance2(torch.zeros_like(axis), mapped) < 1
    sure = cleared.abs() > 0.002
    assert sure.float().mean() > 0.97
    assert torch.equal(cleared[sure] < 0, met[sure])
    assert 0.1 < met.float().mean() < 0.9


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_where_no_angle_is_known_it_is_a_disc(share: float) -> None:
    path, _ = some(50, 2)
    centre = torch.zeros(50, 2, dtype=torch.float64)
    none = torch.zeros(50, 2, dtype=torch.float64, requires_grad=True)
    cleared = rim_clearance(centre, path, none, RADIUS, tensor(LOG_RATIO), tensor(share))
    assert torch.allclose(cleared, segment_distance2(centre, path).sqrt() - RADIUS, atol=1e-3)
    cleared.sum().backward()
    assert none.grad is not None
    assert none.grad.isfinite().all()


@given(st.floats(-3, 3))
def test_turned_with_its_path(turn: float) -> None:
    path, angle = some(20, 3)
    cos, sin = math.cos(turn), math.sin(turn)
    rotation = tensor([[cos, sin], [-sin, cos]])
    form = RADIUS, tensor(LOG_RATIO), tensor(0.7)
    centre = tensor([0.2, 0.1]).expand(20, 2)
    plain = rim_clearance(centre, path, axes(angle), *form)
    turned = rim_clearance(centre @ rotation, Segment(*(v @ rotation for v in path)), axes(angle + turn), *form)
    assert torch.allclose(turned, plain, atol=1e-5)


def test_gradients() -> None:
    """Of paths that pass by, that end beside the body, and that do not move at all."""
    path = Segment(*(torch.cat(pair) for pair in zip(some(6, 5)[0], some(6, 6, 0.0)[0], strict=True)))
    centre = torch.full((12, 2), 0.05, dtype=torch.float64, requires_grad=True)
    axis = axes(some(12, 7)[1], 0.8).requires_grad_()
    form = [tensor(x).requires_grad_() for x in (RADIUS, LOG_RATIO, 0.6)]
    assert torch.autograd.gradcheck(lambda c, a, *f: rim_clearance(c, path, a, *f), (centre, axis, *form))
