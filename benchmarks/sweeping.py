"""Error with robots whose path has corners, or whose body is a rod that turns with them, in vectors.

    python benchmarks/sweeping.py OUT [--jobs 2] [--seeds 0 1 2] [--cases disc rod ...] [--triples 20000] [--steps 600]

Each run is `palpate.fit` on one CPU thread. Observations are a smooth mixture of the robot's position, of the cosine
and sine of its heading, and of the object's position, in 96 numbers. The object lands elsewhere if the robot's swept
body meets it. Finished runs are kept in OUT/runs.json and not made again.
"""

import math
from itertools import product
from typing import Any, NamedTuple

import torch
from many import Settings, command_line, fitted, make
from torch import Tensor

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.driving import inside, random_moves, turned

NUMBERS, HIDDEN = 96, 192
TEST_TRIPLES, TEST_SEED, SOME = 5_000, 10**6, 4096
BORDER = (0.09, 0.91)  # of positions of the robot's reference point
PARTS = 16  # of a sub-step, whose chords are swept
LEG = (0.1, 0.4)  # lengths of the straight legs of a path with a corner


class Case(NamedTuple):
    """What differs from a disc that drives along arcs."""

    half_length: float = 0.0  # of the rod; 0: a disc
    reach: float = 0.15  # from the rod's middle line, or the disc's middle, to the middle of an object that it touches
    corner: bool = False  # drives straight, turns in place by 90 degrees, drives straight
    turns: bool = True  # otherwise headings are neither seen nor recorded
    arm: bool = False  # a base that moves along fixed axes, and an arm that turns on it
    middle: float = 0.0  # of the rod, ahead of the reference point
    recorded: bool = True  # sub-steps; otherwise the whole move alone
    body: str | None = None


CASES = {
    "disc": Case(),
    "disc, footprint": Case(body="footprint"),
    "rod": Case(half_length=0.15, reach=0.09),
    "rod, footprint": Case(half_length=0.15, reach=0.09, body="footprint"),
    "arm": Case(half_length=0.12, reach=0.09, middle=0.12, arm=True),
    "corner": Case(corner=True),
    "corner, whole move": Case(corner=True, recorded=False),
    "displacements with a corner": Case(corner=True, turns=False),
    "displacements with a corner, whole move": Case(corner=True, turns=False, recorded=False),
}


class Triples(NamedTuple):
    agent: Tensor  # [b, 2]
    heading: Tensor  # [b]
    object: Tensor  # [b, 2]
    move: Tensor  # [b, m, 3] sub-steps: forward, sideways, turn
    contact: Tensor  # [b] bool


def labelled(case: Case, count: int, seed: int) -> Labelled:
    """Triples, half of them in contact."""
    generator, found = torch.Generator().manual_seed(seed), []
    left = {True: count // 2, False: count - count // 2}
    while any(left.values()):
        drawn = sample(case, generator)
        for contact, missing in left.items():
            rows = (drawn.contact == contact).nonzero()[:missing, 0]
            found.append(Triples(*(x[rows] for x in drawn)))
            left[contact] -= len(rows)
    triples = Triples(*map(torch.cat, zip(*found, strict=True)))
    order = torch.randperm(count, generator=generator)
    return observed(case, Triples(*(x[order] for x in triples)), generator)


def sample(case: Case, generator: torch.Generator) -> Triples:
    """Moves inside the border, from places where robot and object are apart."""

    def rand(*shape: int) -> Tensor:
        return torch.rand(SOME, *shape, generator=generator)

    low, high = BORDER
    agent, heading = low + (high - low) * rand(2), math.pi * (2 * rand() - 1)
    thing, target = BORDER[0] + (high - low) * rand(2), low + (high - low) * rand(2)
    if case.corner:
        legs = LEG[0] + (LEG[1] - LEG[0]) * rand(2)
        side = torch.where(rand() < 0.5, 1.0, -1.0)
        zero = torch.zeros(SOME)
        parts = [(legs[:, 0], zero, zero), (zero, zero, side * math.pi / 2), (legs[:, 1], zero, zero)]
        move = torch.stack([torch.stack(part, 1) for part in parts], 1)
    else:
        move = random_moves(agent, heading, target, rand(2), BORDER, "arc")[:, None]
    places, headings = passed(case, agent, heading, move)
    apart = distance(case, agent, heading, thing) > case.reach
    kept = apart & inside(places, *BORDER).all(1)
    contact = swept(case, places, headings, thing)
    return Triples(*(x[kept] for x in (agent, heading, thing, move, contact)))


def passed(case: Case, agent: Tensor, heading: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
    """Positions [b, t, 2] and headings [b, t] along arcs [b, m, 3], one after the other; a base moves straight."""
    places, headings = [agent], [heading]
    for a in move.unbind(1):
        turn, start, facing = a[:, 2], places[-1], headings[-1]
        for i in range(1, PARTS + 1):
            share = i / PARTS
            bent = turn * (not case.arm)
            chord = share * torch.sinc(share * bent / (2 * math.pi)) / torch.sinc(bent / (2 * math.pi))
            ahead = turned(chord[:, None] * a[:, :2], (share - 1) * bent / 2)
            places.append(start + turned(ahead, facing))
            headings.append(facing + share * turn)
    return torch.stack(places, 1), torch.stack(headings, 1)


def distance(case: Case, agent: Tensor, heading: Tensor, thing: Tensor) -> Tensor:
    """From the rod's middle line to the object's middle, `[...]`."""
    seen = turned(thing - agent, -heading)
    beyond = ((seen[..., :1] - case.middle).abs() - case.half_length).clamp(min=0)
    return torch.cat((beyond, seen[..., 1:]), -1).norm(dim=-1)


def swept(case: Case, places: Tensor, headings: Tensor, thing: Tensor) -> Tensor:
    """Whether the rod meets the object at some time, `[b]`; it is looked for at four times on each chord."""
    shares = torch.arange(4)[:, None] / 4
    between = [x[:, :-1, None] + shares * x.diff(dim=1)[:, :, None] for x in (places, headings[..., None])]
    ends = places[:, -1:], headings[:, -1:, None]
    at, facing = (torch.cat((x.flatten(1, 2), end), 1) for x, end in zip(between, ends, strict=True))
    return (distance(case, at, facing[..., 0], thing[:, None]) < case.reach).any(1)


def observed(case: Case, triples: Triples, generator: torch.Generator) -> Labelled:
    """The triples as vectors; touched objects land at random, apart from the robot."""
    places, headings = passed(case, triples.agent, triples.heading, triples.move)
    agent_next, heading_next = places[:, -1], headings[:, -1]
    landed = BORDER[0] + (BORDER[1] - BORDER[0]) * torch.rand(len(agent_next), 64, 2, generator=generator)
    apart = distance(case, agent_next[:, None], heading_next[:, None], landed) > case.reach
    landed = landed[torch.arange(len(landed)), apart.int().argmax(1)]
    object_next = torch.where(triples.contact[:, None], landed, triples.object)
    o = mixed(case, triples.agent, triples.heading, triples.object)
    o_next = mixed(case, agent_next, heading_next, object_next)
    truth = Truth(triples.agent, triples.object, contact=triples.contact)
    if case.turns:
        truth, action = truth._replace(heading=triples.heading), triples.move
        if not case.recorded:
            ahead = turned(agent_next - triples.agent, -triples.heading)
            action = torch.cat((ahead, triples.move[..., 2].sum(1, keepdim=True)), 1)
        if case.arm:
            action = torch.cat((agent_next - triples.agent, triples.move[:, 0, 2:]), 1)
    else:
        corners = torch.cat((triples.agent[:, None], places[:, PARTS :: 2 * PARTS]), 1)
        action = corners.diff(dim=1) if case.recorded else agent_next - triples.agent
    return Labelled(Transitions(observation=o, action=action, next_observation=o_next), truth)


def mixed(case: Case, agent: Tensor, heading: Tensor, thing: Tensor) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    inner = torch.randn(6, HIDDEN, generator=draw) * (4 / 6) ** 0.5
    outer = torch.randn(HIDDEN, NUMBERS, generator=draw) / HIDDEN**0.5
    facing = torch.stack((heading.cos(), heading.sin()), 1) / 4 * case.turns
    return torch.tanh(torch.tanh(4 * torch.cat((agent - 0.5, facing, thing - 0.5), 1) @ inner) @ outer)


def run(settings: Settings) -> dict[str, Any]:
    case = CASES[settings["case"]]
    data = labelled(case, settings["triples"], settings["seed"]).transitions
    group = "arm" if case.arm else "se2" if case.turns else "translations"
    model, facts = fitted(data, group=group, body=case.body, steps=settings["steps"], seed=settings["seed"])
    scores = palpate.evaluate(model, labelled(case, TEST_TRIPLES, TEST_SEED))
    return {
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "heading_error": scores.heading_error,
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "object_bias": scores.object_bias,
        "contact_accuracy": scores.contact_accuracy,
        "would_touch_accuracy": scores.would_touch_accuracy,
        "body": model.model.vitals(),
        **facts,
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--triples", type=int, default=20_000)
    parser.add_argument("--steps", type=int, help="default: as `fit` chooses")
    arguments = parser.parse_args()
    asked = {"triples": arguments.triples, "steps": arguments.steps}
    cases = [{"case": case, "seed": seed, **asked} for seed, case in product(arguments.seeds, arguments.cases)]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
