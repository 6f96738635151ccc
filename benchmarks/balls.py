"""Two balls in a box of any dimension: the simplest world that meets the assumptions, for benchmarks and tests.

The agent moves along a straight line to a random position. If its swept ball touches the object, the object lands at a
random position; otherwise it rests. Lengths are in the unit of `sides`.

Legend: N triples, n dimension of the box, h and w picture height and width.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.registration import world
from palpate.geometry import Segment

AGENT_RADIUS, OBJECT_RADIUS = 0.05, 0.08  # of the shortest side
MARGIN = 0.2  # of a side, between object and walls, so that the agent can pass on all sides
TRIES = 4096  # candidates drawn at a time

View = Literal["mixture", "picture"]


class States(NamedTuple):
    """True states of N triples."""

    agent: Tensor  # [N, n]
    object: Tensor  # [N, n]
    agent_next: Tensor  # [N, n]
    object_next: Tensor  # [N, n]
    contact: Tensor  # [N] bool


def sample(num: int, sides: tuple[float, ...], contact_share: float, generator: torch.Generator) -> States:
    """Random triples with this contact share; the balls are apart before and after."""
    box = torch.tensor(sides)
    reach = (AGENT_RADIUS + OBJECT_RADIUS) * min(sides)

    def anywhere(count: int, margin: float) -> Tensor:
        return box * (margin + (1 - 2 * margin) * torch.rand(count, len(sides), generator=generator))

    wanted = {True: round(contact_share * num), False: num - round(contact_share * num)}
    found: dict[bool, list[tuple[Tensor, ...]]] = {True: [], False: []}
    while any(wanted.values()):
        agent, target = anywhere(TRIES, 0.0), anywhere(TRIES, 0.0)
        thing, landing = anywhere(TRIES, MARGIN), anywhere(TRIES, MARGIN)
        touched = Segment(agent, target - agent).distance2(thing) < reach**2
        apart = (thing - agent).norm(dim=1) > reach
        landed = torch.where(touched[:, None], landing, thing)
        apart &= (landed - target).norm(dim=1) > reach
        for kind in (True, False):
            rows = (apart & (touched == kind)).nonzero()[: wanted[kind], 0]
            wanted[kind] -= len(rows)
            found[kind].append((agent[rows], thing[rows], target[rows], landed[rows], touched[rows]))
    columns = [torch.cat(parts) for parts in zip(*found[True], *found[False], strict=True)]
    order = torch.randperm(num, generator=generator)
    return States(*(column[order] for column in columns))


def picture(agent: Tensor, thing: Tensor, sides: tuple[float, ...], pixels: tuple[int, int]) -> Tensor:
    """Grey pictures `[N, h, w]` uint8 of the plane, y up; the object is darker than the agent, edges are smooth."""
    height, width = pixels
    x = (torch.arange(width) + 0.5) / width * sides[0]
    y = sides[1] * (1 - (torch.arange(height) + 0.5) / height)
    pixel = sides[1] / height
    image = torch.zeros(len(agent), height, width)
    for centre, radius, level in ((thing, OBJECT_RADIUS, 120.0), (agent, AGENT_RADIUS, 240.0)):
        across, up = x - centre[:, :1], y - centre[:, 1:]
        distance = torch.sqrt(across.square()[:, None, :] + up.square()[:, :, None])
        cover = ((radius * min(sides) - distance) / pixel + 0.5).clamp(0, 1)
        image = image * (1 - cover) + level * cover
    return image.round().to(torch.uint8)


def mixture(agent: Tensor, thing: Tensor) -> Tensor:
    """States [N, n] in the unit cube as 64 numbers, through two fixed random layers: `[N, 64]`."""
    layers = torch.Generator().manual_seed(0)
    inner = torch.randn(2 * agent.shape[1], 128, generator=layers)
    outer = torch.randn(128, 64, generator=layers) / 128**0.5
    return torch.tanh(torch.tanh(4 * (torch.cat((agent, thing), 1) - 0.5) @ inner) @ outer)


def mixtures(env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    """Triples whose observations are 64 numbers instead of pictures."""
    states = world(env, **options).sample(num, torch.Generator().manual_seed(seed))
    triples = Transitions(
        observation=mixture(states.agent, states.object),
        action=states.displacement,
        next_observation=mixture(states.agent_next, states.object_next),
    )
    return Labelled(triples, Truth(states.agent, states.object, contact=states.contact))


def balls(
    num: int,
    *,
    seed: int,
    sides: tuple[float, ...] = (1.0, 1.0),
    contact_share: float = 0.5,
    view: View = "mixture",
    pixels: tuple[int, int] = (32, 32),
) -> Labelled:
    """Labelled triples; observations are 64 numbers or, in the plane, grey pictures of (height, width) pixels."""
    states = sample(num, sides, contact_share, torch.Generator().manual_seed(seed))

    box = torch.tensor(sides)

    def seen(agent: Tensor, thing: Tensor) -> Tensor:
        return mixture(agent / box, thing / box) if view == "mixture" else picture(agent, thing, sides, pixels)

    triples = Transitions(
        observation=seen(states.agent, states.object),
        action=states.agent_next - states.agent,
        next_observation=seen(states.agent_next, states.object_next),
    )
    truth = Truth(
        states.agent,
        states.object,
        contact=states.contact,
        agent_next=states.agent_next,
        object_next=states.object_next,
    )
    return Labelled(triples, truth)
