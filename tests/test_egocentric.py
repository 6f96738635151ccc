"""An agent that carries its camera: the world moves in its pictures, and only the object stands out."""

import pytest
import torch
from torch import Tensor

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.geometry import Segment

SIDE, REACH, STRIDE = 32, 0.1, 0.25  # pixels; lengths in units of the square that agent and object live in


def look(agent: Tensor, thing: Tensor) -> Tensor:
    """What is around the agent, from above [b, 2, h, w]: waves and a bright square that stand still, and a ball."""
    offset = ((torch.arange(SIDE) + 0.5) / SIDE - 0.5) * 2.2
    x, y = agent[:, :1, None] + offset, (agent[:, 1:] + offset)[:, :, None]
    inside = ((x - 0.5).abs() < 0.5) & ((y - 0.5).abs() < 0.5)
    scenery = torch.sin(7 * x + 3 * y) / 2 + torch.cos(5 * y - 9 * x) / 2 + 0.8 * inside
    ball = 2 * torch.exp(-((x - thing[:, :1, None]) ** 2 + (y - thing[:, 1:, None]) ** 2) / (2 * 0.06**2))
    return (80 + 40 * torch.stack((scenery, scenery / 2 + ball), 1)).round().clamp(0, 255).to(torch.uint8)


def collected(num: int, seed: int) -> Labelled:
    """Triples, a fifth of them contacts, after which the ball lies anywhere."""
    generator = torch.Generator().manual_seed(seed)
    agent, thing, thrown, step = torch.rand(4, 6 * num, 2, generator=generator)
    thing, thrown, step = 0.15 + 0.7 * thing, 0.15 + 0.7 * thrown, (2 * step - 1) * STRIDE
    agent_next = agent + step
    contact = Segment(agent, step).distance2(thing) < REACH**2
    thing_next = torch.where(contact[:, None], thrown, thing)
    apart = ((thing - agent).norm(dim=1) > REACH) & ((thing_next - agent_next).norm(dim=1) > REACH)
    good = ((agent_next > 0) & (agent_next < 1)).all(1) & apart
    rows = torch.cat(((good & contact).nonzero()[: num // 4, 0], (good & ~contact).nonzero()[:, 0]))[:num]
    agent, step, agent_next, thing, thing_next, contact = (
        x[rows] for x in (agent, step, agent_next, thing, thing_next, contact)
    )
    triples = palpate.Transitions(
        observation=look(agent, thing), action=step, next_observation=look(agent_next, thing_next)
    )
    return Labelled(triples, Truth(agent=agent, object=thing, contact=contact))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:touched and untouched triples do not separate")  # not sharply in 400 steps
def test_it_finds_the_object() -> None:
    learned = palpate.fit(
        collected(6000, 0).transitions,
        steps=400,
        seed=0,
        egocentric=True,
        progress=False,
        device="cpu",
    )
    scores = palpate.evaluate(learned, collected(1000, 1)).as_dict()
    assert scores["constant l_test"] > 0.15
    assert scores["l_test"] < 0.01  # with W, as elsewhere, it ended at 0.08
    assert scores["contact_auroc"] > 0.95
