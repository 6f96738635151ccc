"""Vectors that are scans, and scanners that the agent carries, are found in the data."""

import math

import pytest
import torch
from torch import Tensor

import palpate
from palpate.envs.lidar import THING_RADIUS, WALLS, Lidar, LidarConfig, LidarTurning, _to_disc, _to_wall
from palpate.material import facts_of
from palpate.scans import direction_of_turns, is_carried, is_scan, turned_back


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("world", [Lidar, LidarTurning])
@pytest.mark.parametrize(("rays", "noise"), [(20, 0.0), (48, 0.0), (48, 0.05), (360, 0.0)])
def test_a_scanner_on_the_agent(world: type[Lidar], rays: int, noise: float, generator: torch.Generator) -> None:
    made = world(LidarConfig(rays=rays, noise=noise))
    o, o_next = made.render_pair(made.sample(500, generator))
    assert is_scan(o)
    assert is_carried(o, o_next)


@pytest.mark.parametrize("world", [Lidar, LidarTurning])
def test_short_moves_do_not_hide_it(world: type[Lidar], generator: torch.Generator) -> None:
    made = world(LidarConfig(noise=0.005))
    scene = made.reset(1000, generator)
    o, o_next = made.render_pair(made.step(scene, 0.05 * made.moves(scene, 1, generator)[:, 0], generator))
    assert is_carried(o, o_next)


def from_the_wall(agent: Tensor, thing: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Scans [b, 60] of a scanner in the room's east that looks west, where robot and thing move."""
    at, angle = torch.tensor([[1.2, 0.5]]).expand(len(agent), -1), math.pi * (0.5 + torch.arange(60) / 60)
    ray = torch.stack((angle.cos(), angle.sin()), -1).expand(len(agent), -1, -1)
    ranges = torch.full(ray.shape[:2], 2.5)
    for wall in torch.tensor(WALLS):
        ranges = torch.minimum(ranges, _to_wall(at, wall, ray))
    for place in (agent, thing):
        ranges = torch.minimum(ranges, _to_disc(place - at, THING_RADIUS, ray))
    return ranges + noise * torch.randn(ranges.shape, generator=generator)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_scanner_beside_the_agent_is_not_carried(noise: float, generator: torch.Generator) -> None:
    triple = Lidar().sample(1000, generator)
    o = from_the_wall(triple.agent, triple.object, noise, generator)
    assert not is_carried(o, from_the_wall(triple.agent_next, triple.object_next, noise, generator))


@pytest.mark.parametrize("rays", [20, 48, 360])
def test_whether_scans_turn_with_the_agent(rays: int, generator: torch.Generator) -> None:
    world = LidarTurning(LidarConfig(rays=rays, noise=0.02))
    triple = world.sample(1000, generator)
    (o, o_next), turn = world.render_pair(triple), triple.displacement[:, 2]
    assert direction_of_turns(o, turn, o_next) == 1
    assert direction_of_turns(o.flip(1), turn, o_next.flip(1)) == -1
    part = rays * 2 // 3  # of the circle: its ends see different things
    assert direction_of_turns(o[:, :part], turn, o_next[:, :part]) == 0
    fixed = Lidar(LidarConfig(rays=rays))
    o, o_next = fixed.render_pair(fixed.sample(1000, generator))
    assert direction_of_turns(o, turn, o_next) == 0


def test_scans_are_turned_back() -> None:
    scans = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).expand(3, -1)
    turned = turned_back(scans, torch.tensor([0.0, 1.0, -1.0]))
    assert turned.tolist() == [[1, 2, 3, 4], [4, 1, 2, 3], [2, 3, 4, 1]]


def test_other_vectors_are_no_scans(generator: torch.Generator) -> None:
    state = torch.randn(1000, 4, generator=generator)
    mixture = torch.tanh(state @ torch.randn(4, 64, generator=generator))
    assert not is_scan(mixture)
    assert not is_scan(torch.randn(1000, 64, generator=generator))
    one = torch.randn(1000, 1, generator=generator)  # all numbers are alike, not only neighbours
    assert not is_scan(one + 0.1 * torch.randn(1000, 64, generator=generator))
    assert not is_scan(torch.zeros(1000, 64))
    assert not is_scan(torch.cumsum(mixture, 1)[:, :10])  # too few numbers
    assert not is_scan(mixture[:20].repeat_interleave(40, 1))  # too many


def test_fit_looks_at_a_set_and_at_a_world() -> None:
    cpu = torch.device("cpu")
    world = Lidar()
    rows = world.render_pair(triple := world.sample(300, torch.Generator().manual_seed(0)))
    scans = palpate.Transitions(observation=rows[0], action=triple.displacement, next_observation=rows[1])
    for data in (scans, world):
        facts = facts_of(data, cpu)
        assert (facts.scan, facts.carried) == (True, True)
    numbers = torch.randn(2, 300, 20)
    others = facts_of(
        palpate.Transitions(observation=numbers[0], action=triple.displacement, next_observation=numbers[1]), cpu
    )
    assert (others.scan, others.carried) == (False, False)


@pytest.mark.filterwarnings("ignore::UserWarning")  # findings after so short a run
def test_fit_says_that_the_agent_carries_the_scanner(capsys: pytest.CaptureFixture[str]) -> None:
    short = {"steps": 2, "batch_size": 32, "device": "cpu", "progress": True}
    data = palpate.collect("palpate/Lidar-v0", 300, seed=0)
    model = palpate.fit(data, **short)  # type: ignore[arg-type]
    assert model.model.config.method == "carried"
    assert model.model.config.encoder == "scan"
    assert "egocentric True: each move changes the whole scan" in capsys.readouterr().err
    assert "egocentric" in {choice["name"] for choice in model.facts["choices"]}
    assert palpate.fit(data, egocentric=False, **short).model.config.method == "contact"  # type: ignore[arg-type]
