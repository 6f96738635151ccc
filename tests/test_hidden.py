"""Objects that the agent hides: positions are right where the object is visible, and the confidence shows where."""

import pytest
import torch
from torch import Tensor

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.geometry import Segment

REACH = 0.12


def hidden(agent: Tensor, thing: Tensor, half: float) -> Tensor:
    """The object is behind the agent, as seen from a camera below."""
    offset = thing - agent
    return (offset[:, 0].abs() < half) & (offset[:, 1] > 0)


def look(agent: Tensor, thing: Tensor, half: float) -> Tensor:
    """Numbers [N, 96] in which a hidden object leaves no trace."""
    generator = torch.Generator().manual_seed(7)
    centres = 1.2 * torch.rand(2, 48, 2, generator=generator) - 0.1
    bumps = [
        torch.exp(-(x[:, None] - c).square().sum(-1) / 0.065) for x, c in zip((agent, thing), centres, strict=True)
    ]
    bumps[1] = torch.where(hidden(agent, thing, half)[:, None], 0.0, bumps[1])
    return torch.tanh(torch.cat(bumps, 1) @ torch.randn(96, 96, generator=generator) / 3.5)


def collected(count: int, half: float, seed: int) -> Labelled:
    """Three in ten are contacts, after which the object lies anywhere."""
    generator = torch.Generator().manual_seed(seed)
    agent, target, thing, landing = torch.rand(4, 12 * count, 2, generator=generator)
    thing, landing = 0.15 + 0.7 * thing, 0.15 + 0.7 * landing
    contact = Segment(agent, target - agent).distance2(thing).sqrt() < REACH
    thing_next = torch.where(contact[:, None], landing, thing)
    apart = ((agent - thing).norm(dim=1) > REACH) & ((target - thing_next).norm(dim=1) > REACH)
    touched = (apart & contact).nonzero()[: int(0.3 * count), 0]
    others = (apart & ~contact).nonzero()[: count - len(touched), 0]
    rows = torch.cat((touched, others))[torch.randperm(count, generator=generator)]
    agent, target, thing, thing_next, contact = (x[rows] for x in (agent, target, thing, thing_next, contact))
    triples = palpate.Transitions(
        observation=look(agent, thing, half), action=target - agent, next_observation=look(target, thing_next, half)
    )
    return Labelled(triples, Truth(agent, thing, contact=contact, visible=~hidden(agent, thing, half)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the object is hidden in some observations")
def test_a_hidden_object_does_not_bias_the_others() -> None:
    data = collected(6000, 0.1, seed=0)
    model = palpate.fit(data.transitions, steps=350, seed=0, device="cpu", progress=False)
    scores = palpate.evaluate(model, collected(2000, 0.1, seed=1))
    assert scores.hidden_rows > 50
    assert scores.confidence_auroc is not None
    assert scores.confidence_auroc > 0.97
    assert scores.l_test < 0.01 * scores.constant["l_test"]
    assert scores.object_bias < 0.025
    assert [finding["what"] for finding in model.facts["findings"]] == ["the object is hidden in some observations"]
    assert 0.05 < model.facts["quality"]["hidden"] < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("half", "found"), [(0.1, ["hidden-object"]), (0.0, [])])
def test_the_check_names_it(half: float, found: list[str]) -> None:
    assert [finding.name for finding in palpate.check(collected(3000, half, seed=0).transitions).findings] == found
