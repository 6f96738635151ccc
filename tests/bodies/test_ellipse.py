"""An ellipse with a rim: what an agent that is a disc touches of a long object."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palpate.geometry import Segment, ellipse, segment_distance2
from palpate.objectives.contact import DIRECTIONS, clearance, rimmed

RADIUS, LOG_RATIO = 0.4, math.log(4.0)
LONG, SHORT = 0.8, 0.2
tensor = partial(torch.tensor, dtype=torch.float64)


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


def reach(direction: Tensor, axis: Tensor, share: float) -> Tensor:
    return rimmed(direction, axis, RADIUS, tensor(LOG_RATIO), tensor(share))


def cleared_by(centre: Tensor, path: Segment, axis: Tensor, share: float) -> Tensor:
    return clearance(centre, path, lambda direction: reach(direction, axis[:, None], share))


@given(st.floats(-3, 3), st.floats(0, 1))
def test_its_semi_axes_are_those_of_the_ellipse_whatever_the_rim(angle: float, share: float) -> None:
    along = tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    assert reach(along, axes(tensor(angle)), share).tolist() == pytest.approx([LONG, SHORT], abs=2e-6)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_it_reaches_as_far_as_its_farthest_point(share: float) -> None:
    """Points of the inner ellipse, each with a disc as large as the rim around it."""
    rim = share * SHORT
    points = around(4000) * tensor([LONG - rim, SHORT - rim])
    directions = around(37)
    expected = (directions @ points.T).amax(-1) + rim
    assert torch.allclose(reach(directions, axes(tensor(0.0)), share), expected, atol=2e-6)


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_without_a_rim_it_is_the_ellipse(length: float) -> None:
    directions, axis = around(50), axes(tensor(0.3), length)
    expected = (directions @ ellipse(axis, RADIUS, LOG_RATIO) * directions).sum(-1).sqrt()
    assert torch.allclose(reach(directions, axis, 0.0), expected, atol=1e-6)


def test_a_ratio_below_one_is_the_other_axis() -> None:
    directions, share = around(20), tensor(0.6)
    assert torch.allclose(
        rimmed(directions, axes(tensor(0.4)), RADIUS, tensor(-LOG_RATIO), share),
        rimmed(directions, axes(tensor(0.4 + math.pi / 2)), RADIUS, tensor(LOG_RATIO), share),
    )


@pytest.mark.parametrize("length", [0.0, 0.3, 2.0])
def test_all_rim_is_a_stadium(length: float) -> None:
    """Its clearance is the distance of two segments, one here by very many points, less the rim."""
    path, angle = some(300, 0, length)
    centre = tensor([0.1, -0.3]).expand(300, 2)
    cleared = cleared_by(centre, path, axes(angle), 1.0)
    along = torch.stack((angle.cos(), angle.sin()), -1) * (LONG - SHORT)
    rod = centre[:, None] + along[:, None] * torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None]
    distance = segment_distance2(rod, Segment(path.start[:, None], path.move[:, None])).amin(-1).sqrt() - SHORT
    apart = distance > -0.15  # deeper it counts the way out, not to the rod
    lost = distance - cleared
    most = (LONG - SHORT + path.move.norm(dim=-1)) * math.pi / DIRECTIONS + 0.001
    assert (lost > -1e-4)[apart].all()
    assert (lost < most)[apart].all()
    assert lost[apart].mean() < 0.005
    assert (cleared[~apart] < 0).all()
    assert 0.5 < apart.float().mean() < 0.999


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_where_no_angle_is_known_it_is_a_disc(share: float) -> None:
    path, _ = some(50, 2)
    centre = torch.zeros(50, 2, dtype=torch.float64)
    none = torch.zeros(50, 2, dtype=torch.float64, requires_grad=True)
    cleared = cleared_by(centre, path, none, share)
    assert torch.allclose(cleared, segment_distance2(centre, path).sqrt() - RADIUS, atol=1e-3)
    cleared.sum().backward()
    assert none.grad is not None
    assert none.grad.isfinite().all()


@pytest.mark.parametrize("length", [0.0, 1e-8, 1e-6, 1e-3])
def test_an_angle_begins_to_be_learned_where_none_is_known(length: float) -> None:
    """As of the ellipse, in the precision of training."""
    directions, given_axis = around(7).float(), axes(tensor(0.2), length).float()
    grown = []
    for share in (None, torch.tensor(0.0)):
        axis = given_axis.clone().requires_grad_()
        if share is None:
            reached = (directions @ ellipse(axis, RADIUS, LOG_RATIO) * directions).sum(-1).sqrt()
        else:
            reached = rimmed(directions, axis, RADIUS, torch.tensor(LOG_RATIO), share)
        reached[1].backward()
        assert axis.grad is not None
        grown.append(axis.grad)
    assert torch.allclose(*grown, rtol=1e-3)
    assert grown[0].norm() > 0.1


@pytest.mark.parametrize("ratio", [1.0, 10.0, 1000.0])
def test_however_long_it_is_numbers_and_gradients_are_finite(ratio: float) -> None:
    angle = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) * math.pi
    across = torch.stack((-angle.sin(), angle.cos()), -1)
    axis = axes(angle).requires_grad_()
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    reached = rimmed(across, axis, RADIUS, log_ratio, torch.tensor(0.98))
    assert torch.allclose(reached, torch.full_like(reached, RADIUS / ratio**0.5), atol=2e-4 * ratio**0.5)
    reached.sum().backward()
    assert axis.grad is not None
    assert log_ratio.grad is not None
    assert axis.grad.isfinite().all()
    assert log_ratio.grad.isfinite()


@given(st.floats(-3, 3))
def test_turned_with_its_path(turn: float) -> None:
    path, angle = some(20, 3)
    cos, sin = math.cos(turn), math.sin(turn)
    rotation = tensor([[cos, sin], [-sin, cos]])
    centre = tensor([0.2, 0.1]).expand(20, 2)
    plain = cleared_by(centre, path, axes(angle), 0.7)
    turned = cleared_by(centre @ rotation, Segment(*(v @ rotation for v in path)), axes(angle + turn), 0.7)
    most = (LONG - SHORT + path.move.norm(dim=-1)) * math.pi / DIRECTIONS + 0.001
    assert ((turned - plain).abs() < most).all()


def test_gradients() -> None:
    """Of paths that pass by, that end beside the body, and that do not move at all."""
    path = Segment(*(torch.cat(pair) for pair in zip(some(6, 5)[0], some(6, 6, 0.0)[0], strict=True)))
    centre = torch.full((12, 2), 0.05, dtype=torch.float64, requires_grad=True)
    axis = axes(some(12, 7)[1], 0.8).requires_grad_()
    form = [tensor(x).requires_grad_() for x in (RADIUS, LOG_RATIO, 0.6)]

    def cleared(c: Tensor, a: Tensor, *f: Tensor) -> Tensor:
        return clearance(c, path, lambda direction: rimmed(direction, a[:, None], *f))

    assert torch.autograd.gradcheck(cleared, (centre, axis, *form))
