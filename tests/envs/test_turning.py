"""SpritesTurning: the robot moves along its own axes, what its disc touches moves, and pictures show where it faces."""

import math

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
from palpate.envs.registration import stream_world, world
from palpate.envs.sprites import AGENT_COLOUR, HALF_SIDES
from palpate.envs.turning import (
    NOSE_COLOUR,
    ROBOT_RADIUS,
    ROBOT_RANGE,
    Scene,
    SpritesTurning,
    Triple,
    TurningConfig,
)
from palpate.groups.se2 import SE2

B = 2000
NAME = "palpate/SpritesTurning-v0"
MOTIONS = ("arc", "straight")


def triples(motion: str = "arc", seed: int = 0, count: int = B, **options: object) -> Triple:
    made = SpritesTurning(TurningConfig(motion=motion, **options))  # type: ignore[arg-type]
    return made.sample(count, torch.Generator().manual_seed(seed))


def positions(triple: Triple, motion: str, points: int = 400) -> Tensor:
    """A slow twin of the path, `[points, b, 2]`: small moves at a constant velocity, one after the other."""
    forward, sideways, turn = triple.displacement.double().unbind(1)
    if motion == "straight":
        velocity, rate = torch.stack((forward, sideways), 1), torch.zeros_like(turn)
    else:  # the velocity in the robot's frame that ends at the displacement: V(turn)^-1 applied to it
        half = turn / 2
        grows = torch.where(half.abs() < 1e-6, 1.0, half / torch.tan(half))
        velocity = torch.stack((grows * forward + half * sideways, grows * sideways - half * forward), 1)
        rate = turn
    place, heading, passed = triple.agent.double(), triple.heading.double(), []
    for _ in range(points):
        middle = heading + rate / points / 2
        cos, sin = middle.cos(), middle.sin()
        x, y = velocity.unbind(1)
        place = place + torch.stack((cos * x - sin * y, sin * x + cos * y), 1) / points
        heading = heading + rate / points
        passed.append(place)
    return torch.stack([triple.agent.double(), *passed])


def gap(place: Tensor, thing: Tensor) -> Tensor:
    """Distance from points to the diamond, which is a square on its corner."""
    x, y = (place - thing).unbind(-1)
    along, across = (x + y).abs() / math.sqrt(2), (x - y).abs() / math.sqrt(2)
    half = HALF_SIDES["diamond"][0]
    return torch.stack(((along - half).clamp(min=0), (across - half).clamp(min=0)), -1).norm(dim=-1)


@pytest.mark.parametrize("motion", MOTIONS)
def test_an_object_moves_if_and_only_if_the_swept_disc_touches_it(motion: str) -> None:
    triple = triples(motion)
    path = positions(triple, motion)
    assert_close(path[-1].float(), triple.agent_next, atol=1e-5, rtol=0)
    assert torch.equal((triple.object_next != triple.object).any(1), triple.contact)
    distance = gap(path, triple.object.double()).amin(0)
    assert not triple.contact[distance > ROBOT_RADIUS + 3e-3].any()
    assert triple.contact[distance < ROBOT_RADIUS - 3e-3].all()
    assert gap(triple.agent_next, triple.object_next).min() > ROBOT_RADIUS


@pytest.mark.parametrize("motion", MOTIONS)
def test_actions_are_those_of_the_group(motion: str) -> None:
    triple, group = triples(motion), SE2(3, motion)  # type: ignore[arg-type]
    z, z_next = (
        group.posed(torch.cat((place, angle[:, None]), 1))
        for place, angle in ((triple.agent, triple.heading), (triple.agent_next, triple.heading_next))
    )
    assert_close(group.act(z, triple.displacement), z_next, atol=1e-6, rtol=0)
    assert triple.heading_next.abs().max() <= math.pi
    assert triple.displacement[:, 2].abs().max() <= MOST_TURN


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_robot_stays_inside_and_drives_every_way(motion: str) -> None:
    triple = triples(motion)
    path, (low, high) = positions(triple, motion), ROBOT_RANGE
    assert path.min() > low - 2e-3
    assert path.max() < high + 2e-3
    forward, sideways, turn = triple.displacement.T
    for x in (forward, sideways, turn):
        assert (x > 0.01).float().mean() > 0.3
        assert (x < -0.01).float().mean() > 0.3
    in_place = (forward == 0) & (sideways == 0)
    assert 0.03 < in_place.float().mean() < 0.15
    assert (turn[in_place].abs() > 0.1).float().mean() > 0.8


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_of_contacts_is_as_asked(share: float) -> None:
    assert triples(contact_share=share).contact.float().mean().item() == pytest.approx(share, abs=0.04)
    natural = triples(contact_share=None).contact.float().mean().item()
    assert 0.1 < natural < 0.4


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_border_stops_the_robot_on_its_path(motion: str) -> None:
    made, generator = SpritesTurning(TurningConfig(motion=motion)), torch.Generator().manual_seed(0)  # type: ignore[arg-type]
    scene = made.reset(B, generator)
    asked = torch.tensor([0.8, 0.3, 1.0]).expand(B, -1)
    triple = made.step(scene, asked, generator)
    stopped = (triple.displacement - asked).abs().amax(1) > 1e-3
    assert stopped.float().mean() > 0.5
    whole = positions(triple._replace(displacement=asked), motion)
    nearest = (whole - triple.agent_next).norm(dim=-1).amin(0)
    assert nearest.max() < 4e-3  # it stops at a point of the path that was asked
    left = positions(triple, motion)
    assert left.min() > ROBOT_RANGE[0] - 3e-3
    assert left.max() < ROBOT_RANGE[1] + 3e-3
    share = triple.displacement[:, 2] / asked[:, 2]
    assert ((share >= 0) & (share <= 1)).all()


def test_moves_are_possible() -> None:
    made, generator = SpritesTurning(), torch.Generator().manual_seed(0)
    scene = made.reset(50, generator)
    moves = made.moves(scene, 8, generator)
    assert moves.shape == (50, 8, 3)
    for move in moves.unbind(1):
        assert_close(made.step(scene, move, generator).displacement, move, atol=1e-5, rtol=0)


def drawn(heading: float, at: tuple[float, float] = (0.5, 0.5)) -> Tensor:
    made = SpritesTurning()
    scene = Scene(torch.tensor([at]), torch.tensor([heading]), torch.tensor([[0.8, 0.8]]))
    return made.render(scene)[0].double()


@pytest.mark.parametrize("heading", [0.0, 0.7, 2.0, -2.5])
def test_the_nose_points_ahead(heading: float) -> None:
    picture = drawn(heading)
    nose = picture[2] * 0 + ((picture.permute(1, 2, 0) - torch.tensor(NOSE_COLOUR)).norm(dim=-1) < 60)
    y, x = nose.nonzero().double().mean(0).tolist()
    found = math.atan2(50 - (y + 0.5), x + 0.5 - 50)
    assert found == pytest.approx(heading, abs=0.06)
    assert math.hypot(y + 0.5 - 50, x + 0.5 - 50) < 100 * ROBOT_RADIUS
    behind = picture[:, round(50 + 2 * math.sin(heading) - 0.5), round(50 - 2 * math.cos(heading) - 0.5)]
    assert tuple(behind.tolist()) == AGENT_COLOUR


def test_pictures_differ_by_tiny_turns() -> None:
    assert (drawn(0.0) - drawn(0.02)).abs().max() > 1


def test_a_seed_gives_the_same_triples_and_a_stream_is_well_formed() -> None:
    one, same, other = triples(seed=1), triples(seed=1), triples(seed=2)
    for field in Triple._fields:
        assert torch.equal(getattr(one, field), getattr(same, field))
    assert not torch.equal(one.agent, other.agent)
    made = stream_world(NAME, size=24)
    batch = first_triples(made, 16, torch.Generator().manual_seed(0))
    assert batch.o.shape == (16, 3, 24, 24)
    assert batch.a.shape == (16, 3)
    assert made.recipe == {"env": NAME, "size": 24}


def test_collected_triples_have_headings() -> None:
    labelled = palpate.collect(NAME, 150, seed=3, labelled=True, size=20, progress=False)
    truth, rows = labelled.truth, labelled.transitions.rows(slice(None))
    assert rows.a.shape == (150, 3)
    assert truth.heading is not None
    assert truth.heading_next is not None
    turned = torch.remainder(truth.heading_next - truth.heading - rows.a[:, 2] + math.pi, 2 * math.pi) - math.pi
    assert turned.abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # a turn is larger than a step
def test_the_environment() -> None:
    env = gymnasium.make(NAME, size=32, render_mode="rgb_array")
    check_env(env.unwrapped)
    o, info = env.reset(seed=0)
    assert set(info) == {"agent", "heading", "object"}
    before = info
    o, reward, terminated, truncated, info = env.step(np.array([0.0, 0.0, 0.5], np.float32))
    assert (reward, terminated, truncated, info["contact"]) == (0.0, False, False, False)
    assert_close(info["displacement"], np.array([0, 0, 0.5], np.float32))
    np.testing.assert_array_equal(info["agent"], before["agent"])
    assert float(info["heading"]) == pytest.approx(
        math.remainder(float(before["heading"]) + 0.5, 2 * math.pi), abs=1e-6
    )
    assert np.array_equal(env.render(), o)
    with pytest.raises(ValueError, match="allowed are 3 finite numbers"):
        env.step(np.zeros(2, np.float32))
    env.close()
    with pytest.raises(ValueError, match="motion is 'sideways'; allowed are 'arc' and 'straight'"):
        world(NAME, motion="sideways")
    with pytest.raises(ValueError, match="there is no option 'bend'"):
        world(NAME, bend=1)
