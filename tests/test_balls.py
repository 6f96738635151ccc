"""Two balls in a box."""

import numpy as np
import pytest
import torch
from balls import AGENT_RADIUS, OBJECT_RADIUS, balls

from palpate.geometry import Segment


@pytest.mark.parametrize(
    ("sides", "share"), [((1.0, 1.0), 0.0), ((640.0, 480.0), 0.1), ((1.0, 1.0, 1.0), 0.9), ((2.0,), 0.5)]
)
def test_touched_if_and_only_if_moved(sides: tuple[float, ...], share: float) -> None:
    made = balls(400, seed=0, sides=sides, contact_share=share)
    truth, reach = made.truth, (AGENT_RADIUS + OBJECT_RADIUS) * min(sides)
    assert truth.contact is not None
    assert truth.object_next is not None
    assert truth.agent_next is not None
    assert float(truth.contact.double().mean()) == pytest.approx(share, abs=0.01)
    action = made.transitions.action
    torch.testing.assert_close(truth.agent + action, truth.agent_next, rtol=1e-5, atol=1e-3)
    near = Segment(truth.agent, action).distance2(truth.object) < reach**2
    assert torch.equal(near, truth.contact)
    assert torch.equal((truth.object_next != truth.object).any(1), truth.contact)
    for agent, thing in ((truth.agent, truth.object), (truth.agent_next, truth.object_next)):
        assert bool(((agent - thing).norm(dim=1) >= reach * (1 - 1e-6)).all())


def test_the_same_seed_gives_the_same_triples() -> None:
    one, two, other = (balls(50, seed=seed).transitions.rows(slice(None)) for seed in (0, 0, 1))
    assert torch.equal(one.o, two.o)
    assert not torch.equal(one.o, other.o)


def test_pictures_show_both() -> None:
    made = balls(50, seed=0, sides=(640.0, 480.0), view="picture", pixels=(48, 64))
    o = made.transitions.rows(slice(None)).o
    assert o.shape == (50, 1, 48, 64)
    assert o.dtype == torch.uint8
    for level, centre in ((240, made.truth.agent), (120, made.truth.object)):
        x, y = (centre / 10).unbind(1)  # pixels from the lower left
        inside = ((x > 3) & (x < 61) & (y > 3) & (y < 45)).nonzero()[:, 0]
        seen = o[inside, 0, (48 - y[inside]).long(), x[inside].long()].numpy()
        assert len(seen) > 20
        np.testing.assert_array_equal(seen, level)
