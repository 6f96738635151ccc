"""Lidar: ranges are those of the room, what the robot's disc touches moves, and scans turn with a robot that turns."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch import Tensor
from torch.testing import assert_close

import palpate
from palpate.data.stream import first_triples
from palpate.envs.driving import MOST_TURN
from palpate.envs.lidar import (
    FARTHEST,
    FEWEST_RAYS,
    MOST_RAYS,
    MOVED_EPSILON,
    PILLARS,
    REACH,
    ROBOT_RADIUS,
    ROBOT_RANGE,
    THING_RADIUS,
    THING_RANGE,
    WALLS,
    Lidar,
    LidarConfig,
    LidarTurning,
    Scene,
    Triple,
)
from palpate.envs.registration import stream_world, world
from palpate.groups.se2 import SE2
from palpate.groups.translations import Translations

B = 500
KINDS = [Lidar, LidarTurning]
NAMES = {Lidar: "palpate/Lidar-v0", LidarTurning: "palpate/LidarTurning-v0"}
Kind = type[Lidar]


def triples(kind: Kind, seed: int = 0, count: int = B, **options: object) -> Triple:
    made = kind(LidarConfig(rays=20, **options))  # type: ignore[arg-type]
    return made.sample(count, torch.Generator().manual_seed(seed))


def scene(
    agent: tuple[float, float], thing: tuple[float, float] = (0.2, 0.2), heading: float = 0.0, rays: int = 20
) -> Scene:
    return Scene(torch.tensor([agent]), torch.tensor([heading]), torch.tensor([thing]), torch.zeros(1, rays))


def scan(at: Scene, kind: Kind = Lidar) -> Tensor:
    return kind(LidarConfig(rays=at.noise.shape[1])).render(at)[0]


def stepped(at: Scene, rays: int, step: float = 2e-4) -> Tensor:
    """A slow twin: walk along each ray until the point is outside the room, or in a pillar or in the thing."""
    distance = torch.arange(0, 2.2, step, dtype=torch.float64)
    outwards, limits = torch.tensor(WALLS, dtype=torch.float64).T.split([2, 1])
    found = []
    for b in range(len(at.agent)):
        angle = at.heading[b].double() + 2 * math.pi * torch.arange(rays, dtype=torch.float64) / rays
        ray = torch.stack((angle.cos(), angle.sin()), 1)
        points = at.agent[b].double() + distance[:, None, None] * ray  # [t, r, 2]
        blocked = (points @ outwards > limits).any(-1)
        blocked |= (points - at.object[b].double()).norm(dim=-1) < THING_RADIUS
        for x, y, radius in PILLARS:
            blocked |= (points - torch.tensor([x, y], dtype=torch.float64)).norm(dim=-1) < radius
        found.append(distance[blocked.long().argmax(0)])
    return torch.stack(found).float()


# Scans


def test_ranges_solved_by_hand() -> None:
    """Rays 0, 5, 10 and 15 of 20 lead east, north, west and south."""
    ranges = scan(scene((0.3, 0.4), thing=(0.7, 0.4)))
    assert_close(ranges[0], torch.tensor(0.4 - THING_RADIUS))
    assert_close(ranges[5], torch.tensor(0.6))
    assert_close(ranges[10], torch.tensor(0.3))
    assert_close(ranges[15], torch.tensor(0.4))
    assert_close(scan(scene((0.3, 0.4)))[0], torch.tensor(1.3), atol=1e-3, rtol=0)  # x - y / 2 = 1.4 at the east wall
    x, y, radius = PILLARS[0]
    assert_close(scan(scene((0.3, y)))[10], torch.tensor(0.3 - x - radius))
    off = radius / 2  # the ray passes the pillar's centre at half of its radius
    expected = 0.3 - x - radius * math.sqrt(3) / 2
    assert_close(scan(scene((0.3, y + off)))[10], torch.tensor(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_agree_with_a_slow_twin(kind: Kind) -> None:
    made = kind(LidarConfig(rays=36))
    scenes = made.reset(20, torch.Generator().manual_seed(0))
    ranges, slow = made.render(scenes), stepped(scenes, 36)
    off = (ranges - slow).abs()
    assert (off < 1e-3).float().mean() > 0.995  # a ray that grazes a disc may pass between two points of the twin
    assert off.median() < 2e-4
    assert ranges.min() > ROBOT_RADIUS - 0.01


@pytest.mark.parametrize("behind", [(0.8, 0.5), (0.2, 0.5), (0.5, 0.2)])
def test_only_the_nearest_surface_is_seen(behind: tuple[float, float]) -> None:
    """A thing shortens the rays that meet it and no others, on whatever side of the robot it is."""
    empty = scan(scene((0.5, 0.5), thing=(9.0, 9.0), rays=360))
    seen = scan(scene((0.5, 0.5), thing=behind, rays=360))
    changed = (seen != empty).sum().item()
    width = 2 * math.degrees(math.asin(THING_RADIUS / 0.3))
    assert changed == pytest.approx(width, abs=2)
    assert (seen <= empty).all()


def test_a_scan_turns_with_the_robot() -> None:
    """A turn to the left by one ray shifts the scan by one ray."""
    straight = scan(scene((0.4, 0.6), (0.7, 0.3)), LidarTurning)
    for steps in (1, 7):
        left = scan(scene((0.4, 0.6), (0.7, 0.3), heading=2 * math.pi * steps / 20), LidarTurning)
        assert_close(left, straight.roll(-steps), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_as_asked_and_no_part_of_the_world(kind: Kind) -> None:
    noisy, clean = kind(LidarConfig(rays=60, noise=0.01)), kind(LidarConfig(rays=60))
    triple = noisy.sample(500, torch.Generator().manual_seed(0))
    ranges, ranges_next = noisy.render_pair(triple)
    still = triple._replace(noise=0 * triple.noise, noise_next=0 * triple.noise_next)
    for one, other in zip((ranges, ranges_next), clean.render_pair(still), strict=True):
        assert (one - other).std().item() == pytest.approx(0.01, rel=0.05)
        assert abs((one - other).mean().item()) < 5e-4
        assert one.min() >= 0
        assert one.max() <= FARTHEST
    assert not torch.equal(triple.noise, triple.noise_next)


# Triples


def positions(triple: Triple, points: int = 400) -> Tensor:
    """A slow twin of the path, `[points + 1, b, 2]`: small moves at a constant velocity, one after the other."""
    turns = triple.displacement.shape[1] == 3
    forward, sideways = triple.displacement[:, :2].double().unbind(1)
    turn = triple.displacement[:, 2].double() if turns else torch.zeros_like(forward)
    half = turn / 2  # the velocity in the robot's frame that ends at the displacement
    grows = torch.where(half.abs() < 1e-6, 1.0, half / torch.tan(half))
    x, y = grows * forward + half * sideways, grows * sideways - half * forward
    place, heading = triple.agent.double(), triple.heading.double()
    passed = [place]
    for _ in range(points):
        middle = heading + turn / points / 2
        place = place + torch.stack((middle.cos() * x - middle.sin() * y, middle.sin() * x + middle.cos() * y), 1) / (
            points
        )
        heading = heading + turn / points
        passed.append(place)
    return torch.stack(passed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_thing_moves_if_and_only_if_the_swept_disc_touches_it(kind: Kind) -> None:
    triple = triples(kind)
    path = positions(triple)
    assert_close(path[-1].float(), triple.agent_next, atol=1e-5, rtol=0)
    jump = (triple.object_next - triple.object).norm(dim=1)
    assert torch.equal(jump > 0, triple.contact)
    assert jump[triple.contact].min() > MOVED_EPSILON
    distance = (path - triple.object.double()).norm(dim=-1).amin(0)
    assert not triple.contact[distance > REACH + 3e-3].any()
    assert triple.contact[distance < REACH - 3e-3].all()
    for agent, thing in ((triple.agent, triple.object), (triple.agent_next, triple.object_next)):
        assert (agent - thing).norm(dim=1).min() > REACH


@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_those_of_the_group(kind: Kind) -> None:
    triple = triples(kind)
    if kind is Lidar:
        group: SE2 | Translations = Translations(2)
        z, z_next = triple.agent, triple.agent_next
        assert not triple.heading_next.any()
    else:
        group = SE2(3, "arc")
        z, z_next = (
            group.posed(torch.cat((place, angle[:, None]), 1))
            for place, angle in ((triple.agent, triple.heading), (triple.agent_next, triple.heading_next))
        )
        assert triple.heading_next.abs().max() <= math.pi
        assert triple.displacement[:, 2].abs().max() <= MOST_TURN
        assert triple.displacement[:, 2].abs().mean() > 0.4
    assert_close(group.act(z, triple.displacement), z_next, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_robot_and_thing_stay_in_their_ranges_apart_from_pillars(kind: Kind) -> None:
    triple, (low, high) = triples(kind), ROBOT_RANGE
    path = positions(triple)
    assert path.min() > low - 2e-3
    assert path.max() < high + 2e-3
    for thing in (triple.object, triple.object_next):
        assert thing.min() >= THING_RANGE[0]
        assert thing.max() <= THING_RANGE[1]
    for x, y, radius in PILLARS:  # distance from the square that the robot's centre may reach
        gap = math.hypot(*(max(low - c, c - high, 0) for c in (x, y)))
        assert gap >= radius + ROBOT_RADIUS - 1e-9
        inside = [c - a * x - b * y for a, b, c in WALLS]
        assert min(inside) > radius
    for a, b, c in WALLS:  # the robot does not touch the walls
        assert max(a * x + b * y for x in ROBOT_RANGE for y in ROBOT_RANGE) + ROBOT_RADIUS < c


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_of_contacts_is_as_asked(kind: Kind, share: float) -> None:
    assert triples(kind, contact_share=share).contact.float().mean().item() == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_natural_share_of_contacts(kind: Kind) -> None:
    assert 0.1 < triples(kind, contact_share=None).contact.float().mean().item() < 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_moves_are_possible_and_the_border_stops_others(kind: Kind) -> None:
    made, generator = kind(LidarConfig(rays=20)), torch.Generator().manual_seed(0)
    at = made.reset(200, generator)
    moves = made.moves(at, 4, generator)
    assert moves.shape == (200, 4, made.n)
    done = torch.stack([made.step(at, move, generator).displacement for move in moves.unbind(1)], 1)
    assert ((done - moves).abs().amax(-1) < 1e-5).float().mean() > 0.98  # a few arcs leave the range by a hair
    asked = torch.tensor([0.8, 0.3, 1.0])[: made.n].expand(200, -1)
    triple = made.step(at, asked, generator)
    assert ((triple.displacement - asked).abs().amax(1) > 1e-3).float().mean() > 0.5
    path = positions(triple)
    assert path.min() > ROBOT_RANGE[0] - 3e-3
    assert path.max() < ROBOT_RANGE[1] + 3e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_triples_and_a_stream_is_well_formed(kind: Kind) -> None:
    one, same, other = (triples(kind, seed=seed, noise=0.01) for seed in (1, 1, 2))
    for field in Triple._fields:
        assert torch.equal(getattr(one, field), getattr(same, field))
    assert not torch.equal(one.agent, other.agent)
    made = stream_world(NAMES[kind], rays=24)
    assert type(made) is kind
    batch = first_triples(made, 16, torch.Generator().manual_seed(0))
    assert batch.o.shape == (16, 24)
    assert batch.a.shape == (16, kind.n)
    assert made.recipe == {"env": NAMES[kind], "rays": 24}


# Outside


@pytest.mark.parametrize("kind", KINDS)
def test_collected_triples_have_true_states(kind: Kind) -> None:
    labelled = palpate.collect(NAMES[kind], 150, seed=3, labelled=True, rays=20, progress=False)
    truth, rows = labelled.truth, labelled.transitions.rows(slice(None))
    assert rows.o.shape == (150, 20)
    assert rows.a.shape == (150, kind.n)
    assert truth.heading is not None
    at = Scene(truth.agent, truth.heading, truth.object, torch.zeros_like(rows.o))
    assert_close(kind(LidarConfig(rays=20)).render(at), rows.o)


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # a turn is larger than a step
def test_the_environment_of_a_robot_that_turns() -> None:
    env = gymnasium.make(NAMES[LidarTurning], rays=20, render_mode="rgb_array")
    check_env(env.unwrapped)
    o, info = env.reset(seed=0)
    assert set(info) == {"agent", "heading", "object"}
    before = info
    o_next, reward, terminated, truncated, info = env.step(np.array([0.0, 0.0, 2 * math.pi / 20], np.float32))
    assert (reward, terminated, truncated, info["contact"]) == (0.0, False, False, False)
    np.testing.assert_array_equal(info["agent"], before["agent"])
    np.testing.assert_allclose(o_next, np.roll(o, -1), atol=1e-5)
    picture: Any = env.render()
    assert picture.shape == (256, 256, 3)
    with pytest.raises(ValueError, match="allowed are 3 finite numbers"):
        env.step(np.zeros(2, np.float32))
    env.close()


def test_the_picture_from_above_shows_robot_thing_and_pillars() -> None:
    picture = Lidar().above(scene((0.3, 0.4), (0.7, 0.6)))[0]
    for x, y in ((0.3, 0.4), (0.7, 0.6), PILLARS[0][:2]):
        assert picture[:, round(256 * (1 - y)), round(256 * x)].any()
    assert not picture[:, 128, 128].any()


def test_wrong_options() -> None:
    for rays in (FEWEST_RAYS - 1, MOST_RAYS + 1, 20.5):
        with pytest.raises(ValueError, match=f"rays is {rays}; allowed is 20 to 360"):
            world("palpate/Lidar-v0", rays=rays)
    with pytest.raises(ValueError, match=r"noise is -0.1; allowed is 0 to 0.1"):
        world("palpate/Lidar-v0", noise=-0.1)
    with pytest.raises(ValueError, match="there is no option 'size'; this world has rays, noise, contact_share"):
        world("palpate/Lidar-v0", size=32)
    with pytest.raises(ValueError, match="the actions are moves along the agent's own axes: give group='se2'"):
        palpate.fit("palpate/LidarTurning-v0", steps=1)
