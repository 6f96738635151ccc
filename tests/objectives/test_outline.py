"""The outline of a body that does not turn."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palpate.envs.sprites import Sprites
from palpate.geometry import Segment, segment_offset
from palpate.objectives.contact import contact_logit, contact_nll, outline


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
