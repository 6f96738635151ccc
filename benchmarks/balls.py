"""Two balls in a box of any dimension: the simplest world that meets the assumptions, for benchmarks and tests.

The agent moves along a straight line to a random position. If its swept ball touches the object, the object lands at a
random position, is pushed ahead or is nudged aside; otherwise it rests. Lengths are in the unit of `sides`.

Legend: N triples, n dimension of the box, h and w picture height and width.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.registration import world
from palpate.envs.sprites import Scene, Sprites, Triple
from palpate.geometry import Segment

AGENT_RADIUS, OBJECT_RADIUS = 0.05, 0.08  # of the shortest side
MARGIN = 0.2  # of a side, between object and walls, so that the agent can pass on all sides
TRIES = 4096  # candidates drawn at a time
SLIDE = 0.01  # of the shortest side: how far a pushed object slides on
MOVES = 64  # candidates for a move of an episode

View = Literal["mixture", "picture"]


class States(NamedTuple):
    """True states of N triples."""

    agent: Tensor  # [N, n]
    object: Tensor  # [N, n]
    agent_next: Tensor  # [N, n]
    object_next: Tensor  # [N, n]
    contact: Tensor  # [N] bool


def sample(
    num: int,
    sides: tuple[float, ...],
    contact_share: float | None,
    generator: torch.Generator,
    *,
    stride: float = 1.0,
    pushed: bool = False,
    nudge: float | None = None,
) -> States:
    """Random triples; the balls are apart before and after. `contact_share` None: as many as random moves give.

    `stride` is the longest move along an axis, in sides. A touched object lands anywhere unless it is `pushed`, or
    moves by `nudge` shortest sides away from the path.
    """
    box = torch.tensor(sides)
    reach = (AGENT_RADIUS + OBJECT_RADIUS) * min(sides)

    def anywhere(count: int, margin: float) -> Tensor:
        return box * (margin + (1 - 2 * margin) * torch.rand(count, len(sides), generator=generator))

    def near(agent: Tensor) -> Tensor:
        low, high = (agent / box - stride).clamp(min=0), (agent / box + stride).clamp(max=1)
        return box * (low + (high - low) * torch.rand(agent.shape, generator=generator))

    touching = round((contact_share or 0) * num)
    wanted = {None: num} if contact_share is None else {True: touching, False: num - touching}
    found: dict[bool | None, list[tuple[Tensor, ...]]] = {kind: [] for kind in wanted}
    while any(wanted.values()):
        agent = anywhere(TRIES, 0.0)
        target = near(agent)
        thing, landing = anywhere(TRIES, MARGIN), anywhere(TRIES, MARGIN)
        path = Segment(agent, target - agent)
        touched = path.distance2(thing) < reach**2
        apart = (thing - agent).norm(dim=1) > reach
        if pushed:
            landing = push(agent, target, thing, reach, SLIDE * min(sides))
            apart &= ~touched | ((landing - box / 2).abs() < (0.5 - MARGIN) * box).all(1)
        if nudge is not None:
            toward = path.offset(thing)  # the path
            landing = thing - nudge * min(sides) * toward / toward.norm(dim=1, keepdim=True).clamp(min=1e-12)
        landed = torch.where(touched[:, None], landing, thing)
        apart &= (landed - target).norm(dim=1) > reach
        for kind in wanted:
            rows = (apart if kind is None else apart & (touched == kind)).nonzero()[: wanted[kind], 0]
            wanted[kind] -= len(rows)
            found[kind].append((agent[rows], thing[rows], target[rows], landed[rows], touched[rows]))
    columns = [torch.cat(parts) for parts in zip(*chain.from_iterable(found.values()), strict=True)]
    order = torch.randperm(num, generator=generator)
    return States(*(column[order] for column in columns))


def push(agent: Tensor, target: Tensor, thing: Tensor, reach: float, slide: float) -> Tensor:
    """Positions [N, n] of touched objects that go ahead of the agent from the touch on, and slide on by `slide`."""
    length = (target - agent).norm(dim=1, keepdim=True).clamp(min=1e-12)
    way, ahead = (target - agent) / length, thing - agent
    along = (ahead * way).sum(1, keepdim=True)
    beside2 = (ahead - along * way).square().sum(1, keepdim=True)
    entry = along - (reach**2 - beside2).clamp(min=0).sqrt()  # of the path into the ball around the object
    return thing + (length - entry + slide) * way


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


def walks(
    sprites: Sprites, num: int, length: int, *, seed: int, seen: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Labelled:
    """Triples of episodes of `length` moves; each begins where the one before it ended.

    Of several random moves, the first one is taken that has or misses the contact which a coin demands. `seen` makes
    observations from positions; by default they are pictures. With a length of 1 there are no episodes.
    """
    generator = torch.Generator().manual_seed(seed)
    count = -(-num // length)
    scene, steps = sprites.reset(count, generator), []
    for _ in range(length):
        wanted = torch.rand(count, generator=generator) < (sprites.config.contact_share or 0.0)
        moves = sprites.moves(scene, MOVES, generator)
        copies = Scene(*(x.repeat_interleave(MOVES, 0) for x in scene))
        tried = sprites.step(copies, moves.flatten(0, 1), generator)
        fits = tried.contact.view(count, MOVES) == wanted[:, None]
        taken = fits.int().argmax(1) + torch.arange(count) * MOVES
        step = Triple(*(x[taken] for x in tried))
        steps.append(step)
        scene = Scene(step.agent_next, step.object_next, step.angle_next)
    walked = Triple(*(torch.stack(column, 1).flatten(0, 1)[:num] for column in zip(*steps, strict=True)))
    if seen is None:
        o, o_next = sprites.render_pair(walked)
    else:
        o, o_next = seen(walked.agent, walked.object), seen(walked.agent_next, walked.object_next)
    triples = Transitions(
        observation=o,
        action=walked.displacement,
        next_observation=o_next,
        episode=(torch.arange(num) // length).numpy() if length > 1 else None,
        layout="auto" if seen else "channel-first",
    )
    truth = Truth(
        walked.agent,
        walked.object,
        contact=walked.contact,
        agent_next=walked.agent_next,
        object_next=walked.object_next,
        visible=walked.visible,
    )
    return Labelled(triples, truth)


def balls(
    num: int,
    *,
    seed: int,
    sides: tuple[float, ...] = (1.0, 1.0),
    contact_share: float | None = 0.5,
    stride: float = 1.0,
    pushed: bool = False,
    nudge: float | None = None,
    view: View = "mixture",
    pixels: tuple[int, int] = (32, 32),
    mast: float = 0.0,
) -> Labelled:
    """Labelled triples; observations are 64 numbers or, in the plane, grey pictures of (height, width) pixels.

    `contact_share`, `stride`, `pushed` and `nudge` are those of `sample`. `mast` is half the width, in shortest sides,
    of the strip above the agent in which it hides the object.
    """
    states = sample(
        num,
        sides,
        contact_share,
        torch.Generator().manual_seed(seed),
        stride=stride,
        pushed=pushed,
        nudge=nudge,
    )

    box = torch.tensor(sides)

    def visible(agent: Tensor, thing: Tensor) -> Tensor:
        offset = thing - agent
        return (offset[:, 0].abs() >= mast * min(sides)) | (offset[:, -1] < 0)

    def seen(agent: Tensor, thing: Tensor) -> Tensor:
        thing = torch.where(visible(agent, thing)[:, None], thing, 1.5 * box)  # outside of the picture
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
        visible=visible(states.agent, states.object) if mast else None,
    )
    return Labelled(triples, truth)
