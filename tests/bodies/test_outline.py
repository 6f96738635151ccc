"""The outline of a body that does not turn."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palpate.envs.sprites import Sprites
from palpate.geometry import Segment, segment_offset
from palpate.objectives.contact import DIRECTIONS, clearance, contact_logit, contact_nll, outline


def at(angle: float, length: float = 1.0) -> torch.Tensor:
    return length * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)


def test_by_hand() -> None:
    cosines, sines = torch.tensor([0.1, 0.0, 0.2]), torch.tensor([0.0, 0.3, 0.0])  # k = 2, 3, 4
    for angle in (0.0, 0.4, 2.0, -1.3):
        expected = 0.1 * math.cos(2 * angle) + 0.3 * math.sin(3 * angle) + 0.2 * math.cos(4 * angle)
        assert float(outline(at(angle, 2.0), cosines, sines)) == pytest.approx(expected, abs=1e-5)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.01, 5))
def test_how_far_the_path_is_does_not_matter(angle: float, turn: float, length: float) -> None:
    """Only the direction does; and to turn the body is to turn its waves."""
    cosines, sines = torch.tensor([0.1, -0.2], dtype=torch.float64), torch.tensor([0.05, 0.3], dtype=torch.float64)
    k = torch.tensor([2.0, 3.0], dtype=torch.float64)
    turned_cosines = cosines * torch.cos(k * turn) - sines * torch.sin(k * turn)
    turned_sines = cosines * torch.sin(k * turn) + sines * torch.cos(k * turn)
    plain = float(outline(at(angle, length), cosines, sines))
    assert plain == pytest.approx(float(outline(at(angle), cosines, sines)), abs=0.02)
    assert plain == pytest.approx(float(outline(at(angle + turn, length), turned_cosines, turned_sines)), abs=1e-9)


def test_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    offset = torch.randn(5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    waves = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda o, w: outline(o, *w), (offset, waves))


def test_a_path_through_the_centre() -> None:
    offset = torch.zeros(1, 2, requires_grad=True)
    value = outline(offset, torch.ones(3), torch.ones(3))
    value.sum().backward()
    assert float(value.detach()) == 0.0
    assert offset.grad is not None
    assert torch.isfinite(offset.grad).all()


def test_the_diamond_is_found() -> None:
    """Given the true positions, the likelihood finds the four corners and is the better for it."""
    triple = Sprites().sample(4000, torch.Generator().manual_seed(0))
    offset = segment_offset(triple.object, Segment(triple.agent, triple.displacement))

    def fitted(harmonics: int) -> tuple[float, torch.Tensor]:
        waves = torch.zeros(2, harmonics, requires_grad=True)
        body = torch.tensor([math.log(0.12), math.log(0.01)], requires_grad=True)
        optimizer = torch.optim.Adam([waves, body], lr=0.03)
        for _ in range(150):
            radius, softness = body.exp()
            logit = contact_logit(offset.square().sum(-1), radius * outline(offset, *waves).exp(), softness)
            loss = contact_nll(logit, triple.contact).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.detach()), waves.detach()

    disc, _ = fitted(0)
    diamond, waves = fitted(3)
    assert diamond < 0.6 * disc
    # The support function of disc and diamond is 0.045 + 0.085 max(|cos|, |sin|): 0.130 at a corner, 0.105 between two.
    assert float(waves[0, 2]) == pytest.approx(0.09, abs=0.03)
    assert waves[0, :2].abs().max() < 0.03
    assert waves[1].abs().max() < 0.03


# A path beside a body with an outline


WAVES = torch.tensor([[0.0, 0.02, 0.08], [0.03, 0.0, 0.0]], dtype=torch.float64)  # k = 2, 3, 4; convex


def paths(count: int, seed: int, length: float = 1.0) -> Segment:
    generator = torch.Generator().manual_seed(seed)
    start, move = (torch.randn(count, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return Segment(start, length * move)


def beside(
    centre: torch.Tensor, path: Segment, radius: torch.Tensor | float, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    return clearance(centre, path, lambda direction: radius * outline(direction, cosines, sines).exp())


def inside(points: torch.Tensor, radius: float) -> torch.Tensor:
    """Whether points [..., 2] lie in the body, by very many of the half planes whose intersection it is."""
    angle = torch.arange(720, dtype=torch.float64) * (2 * math.pi / 720)
    directions = torch.stack((angle.cos(), angle.sin()), -1)
    reach = radius * outline(directions, *WAVES).exp()
    return (points @ directions.T <= reach).all(-1)


def test_a_disc_is_cleared_by_the_distance_less_its_radius() -> None:
    path, centre = paths(200, 0), torch.full((200, 2), 0.3, dtype=torch.float64)
    none = torch.zeros(3, dtype=torch.float64)
    distance = segment_offset(centre, path).norm(dim=-1)
    cleared, apart = beside(centre, path, 0.5, none, none), distance > 0.1
    assert torch.allclose(cleared[apart], distance[apart] - 0.5, atol=1e-5)
    assert torch.allclose(cleared, distance - 0.5, atol=1.01e-3)  # at the very centre
    assert 100 < apart.sum() < 200


@pytest.mark.parametrize("length", [0.0, 0.2, 2.0])
def test_its_sign_says_whether_the_path_meets_the_body(length: float) -> None:
    """Against points all along each path; short ones end beside the body, long ones pass by it."""
    path, radius = paths(400, 1, length), 0.8
    cleared = beside(torch.zeros(400, 2, dtype=torch.float64), path, radius, *WAVES)
    along = torch.linspace(0, 1, 200, dtype=torch.float64)
    met = inside(path.start[:, None] + along[:, None] * path.move[:, None], radius).any(-1)
    sure = cleared.abs() > 2 * radius * (math.pi / DIRECTIONS) ** 2 + 0.005 * length
    assert sure.float().mean() > 0.97
    assert torch.equal(cleared[sure] < 0, met[sure])
    assert 0.1 < met.float().mean() < 0.9


def test_a_path_that_ends_beside_the_flat_of_a_side() -> None:
    """Between corner and middle a point is outside, though the body reaches further in its own direction."""
    corner, flat = 0.130, 0.105
    waves = torch.tensor([[0.0, 0.0, math.log(corner / flat) / 2], [0.0, 0.0, 0.0]], dtype=torch.float64)
    radius = math.sqrt(corner * flat)
    point = Segment(at(math.radians(22.5), 0.115), torch.zeros(1, 2, dtype=torch.float64))
    centre = torch.zeros(1, 2, dtype=torch.float64)
    offset = segment_offset(centre, point)
    by_its_own_direction = offset.norm() - radius * outline(offset, *waves).exp()
    assert float(by_its_own_direction) < -0.001
    assert float(beside(centre, point, radius, *waves)) > 0.001


@given(st.floats(-3, 3), st.floats(0.1, 3))
def test_moved_turned_and_scaled_with_its_path(turn: float, scale: float) -> None:
    path, centre = paths(20, 2), torch.randn(20, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    cos, sin = math.cos(turn), math.sin(turn)
    rotation = scale * torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    k = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64)
    cosines = WAVES[0] * torch.cos(k * turn) - WAVES[1] * torch.sin(k * turn)
    sines = WAVES[0] * torch.sin(k * turn) + WAVES[1] * torch.cos(k * turn)
    shift = torch.tensor([5.0, -2.0], dtype=torch.float64)
    moved = Segment(path.start @ rotation + shift, path.move @ rotation)
    plain = beside(centre, path, 0.7, *WAVES)
    turned = beside(centre @ rotation + shift, moved, 0.7 * scale, cosines, sines)
    assert torch.allclose(turned, scale * plain, atol=0.01 * scale)


def test_gradients_of_clearance() -> None:
    """Of paths that pass by, that end beside the body, and that do not move at all."""
    path = Segment(*(torch.cat(pair) for pair in zip(paths(6, 5), paths(6, 6, 0.0), strict=True)))
    centre = torch.full((12, 2), 0.05, dtype=torch.float64, requires_grad=True)
    radius = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    waves = WAVES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda c, r, w: beside(c, path, r, *w), (centre, radius, waves))


def test_clearance_has_a_gradient_of_length_one() -> None:
    """Toward the body it falls by as much as one goes, on whichever side the path is."""
    path = paths(100, 4)
    centre = torch.zeros(100, 2, dtype=torch.float64, requires_grad=True)
    beside(centre, path, 0.3, *(0 * WAVES)).sum().backward()
    assert centre.grad is not None
    assert torch.allclose(centre.grad.norm(dim=-1), torch.ones(100, dtype=torch.float64), atol=1e-3)
