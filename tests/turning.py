"""SpritesTurning as a vector of 48 numbers, for tests."""

import math

import torch
from torch import Tensor

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.turning import SpritesTurning, Triple

COUNT = 2500


def seen(agent: Tensor, heading: Tensor, thing: Tensor) -> Tensor:
    """A smooth mixture of both positions and of the heading's cosine and sine."""
    layers = torch.Generator().manual_seed(0)
    inner = torch.randn(6, 96, generator=layers) * (4 / 6) ** 0.5
    outer = torch.randn(96, 48, generator=layers) / 96**0.5
    facing = torch.stack((heading.cos(), heading.sin()), 1) / 4
    return torch.tanh(torch.tanh(4 * torch.cat((agent - 0.5, facing, thing - 0.5), 1) @ inner) @ outer)


def labelled(count: int, seed: int = 0, *, sideways: bool = True) -> Labelled:
    """Triples of the world; without `sideways`, of a robot that drives along an arc to the same places."""
    triple = SpritesTurning().sample(count, torch.Generator().manual_seed(seed))
    if not sideways:
        triple = ahead(triple)
    o = seen(triple.agent, triple.heading, triple.object)
    o_next = seen(triple.agent_next, triple.heading_next, triple.object_next)
    truth = Truth(
        agent=triple.agent,
        object=triple.object,
        contact=triple.contact,
        agent_next=triple.agent_next,
        object_next=triple.object_next,
        heading=triple.heading,
    )
    return Labelled(Transitions(observation=o, action=triple.displacement, next_observation=o_next), truth)


def ahead(triple: Triple) -> Triple:
    """The same path of a robot that always faces along it: it begins in that direction, and ends in it."""
    forward, sideways, turn = triple.displacement.unbind(1)
    start = torch.atan2(sideways, forward) - turn / 2  # of an arc, relative to the heading
    heading = triple.heading + start
    chord = torch.sinc(turn / (2 * math.pi))
    length = torch.hypot(forward, sideways) / chord
    a = torch.stack((length, torch.zeros_like(turn), turn), 1)
    return triple._replace(heading=heading, heading_next=heading + turn, displacement=a)
