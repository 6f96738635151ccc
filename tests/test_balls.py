"""Two balls in a box."""

import numpy as np
import pytest
import torch
from balls import AGENT_RADIUS, OBJECT_RADIUS, SLIDE, balls

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


def test_moves_are_no_longer_than_a_stride() -> None:
    sides, stride = (640.0, 480.0), 0.1
    made = balls(2000, seed=0, sides=sides, contact_share=None, stride=stride)
    longest = made.transitions.action.abs().amax(0) / torch.tensor(sides)
    assert bool(((longest > 0.95 * stride) & (longest < stride * (1 + 1e-5))).all())
    assert bool(((made.truth.agent + made.transitions.action) <= torch.tensor(sides) * (1 + 1e-6)).all())


def test_contacts_as_they_come_are_rarer_with_shorter_moves() -> None:
    shares = [balls(4000, seed=0, contact_share=None, stride=stride).truth.contact for stride in (0.05, 0.2, 1.0)]
    short, medium, long = (float(contact.double().mean()) for contact in shares if contact is not None)
    # A short move sweeps 2 * reach * length of the square; its mean length is 0.765 of the stride.
    assert short == pytest.approx(2 * (AGENT_RADIUS + OBJECT_RADIUS) * 0.765 * 0.05, rel=0.3)
    assert short < medium / 2 < long / 2


def test_a_pushed_object_goes_ahead_of_the_agent() -> None:
    made = balls(400, seed=0, contact_share=0.5, stride=0.3, pushed=True)
    truth, contact = made.truth, made.truth.contact
    assert contact is not None
    assert truth.object_next is not None
    assert truth.agent_next is not None
    pushed, move = (truth.object_next - truth.object)[contact], made.transitions.action[contact]
    way = move / move.norm(dim=1, keepdim=True)
    torch.testing.assert_close((pushed * way).sum(1), pushed.norm(dim=1))  # straight ahead
    gap = (truth.object_next - truth.agent_next)[contact].norm(dim=1) - (AGENT_RADIUS + OBJECT_RADIUS)
    assert bool(((gap > 0) & (gap < SLIDE + 1e-6)).all())  # at the agent's side
    assert bool(((truth.object_next - 0.5).abs() <= 0.3 + 1e-6).all())


def test_a_nudge_moves_the_object_a_little_away_from_the_path() -> None:
    made = balls(400, seed=0, sides=(2.0, 1.0), contact_share=0.5, nudge=0.02)
    truth, contact = made.truth, made.truth.contact
    assert contact is not None
    assert truth.object_next is not None
    moved = (truth.object_next - truth.object).norm(dim=1)
    torch.testing.assert_close(moved, 0.02 * contact.float(), atol=1e-5, rtol=0)
    path = Segment(truth.agent, made.transitions.action)
    farther = path.distance2(truth.object_next).sqrt() - path.distance2(truth.object).sqrt()
    torch.testing.assert_close(farther, moved, atol=1e-4, rtol=0)


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
