"""A new shape is one class and one name: nothing else in the package needs to know it."""

from pathlib import Path
from typing import Any, NamedTuple, final

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import palpate
from palpate.bodies import BODIES
from palpate.bodies.planar import PlanarBody
from palpate.collecting.collect import collect
from palpate.envs.registration import world


@final
class Square(PlanarBody):
    """Its sides face the axes, a radius away."""

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius * direction.abs().sum(-1)


REACH = 0.15  # half a side of the square that `Square` has to find
BOUND = 6e-3  # seed 0 ends at 2e-3


class States(NamedTuple):
    agent: Tensor
    object: Tensor
    displacement: Tensor
    object_next: Tensor


class Squares:
    """A point and a square in the plane, seen as 16 numbers; the square lands anywhere if the path enters it."""

    device, observation_shape, n = torch.device("cpu"), (16,), 2

    def sample(self, count: int, generator: torch.Generator) -> States:
        agent, target, thing, landed = torch.rand(4, count, 2, generator=generator)
        thing, landed = 0.2 + 0.6 * thing, 0.2 + 0.6 * landed
        along = torch.linspace(0, 1, 40)[:, None, None]
        inside = ((agent + along * (target - agent) - thing).abs().amax(-1) < REACH).any(0)
        return States(agent, thing, target - agent, torch.where(inside[:, None], landed, thing))

    def see(self, agent: Tensor, thing: Tensor) -> Tensor:
        mixing = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
        return torch.sin(2 * torch.cat((agent, thing), 1) @ mixing)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        after = states.agent + states.displacement, states.object_next
        return self.see(states.agent, states.object), self.see(*after)


@pytest.mark.slow
def test_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions and the side of the square, which an untrained model and a constant answer miss by far."""
    monkeypatch.setitem(BODIES, "square", Square)
    states = Squares().sample(1000, torch.Generator().manual_seed(9))
    o, o_next = Squares().render_pair(states)
    triples = palpate.Transitions(observation=o, action=states.displacement, next_observation=o_next)
    test = palpate.Labelled(triples, palpate.Truth(states.agent, states.object))

    def trained(steps: int) -> palpate.Representation:
        settings: dict[str, Any] = {"optimizer": "adamw", "batch_size": 64, "device": "cpu", "progress": False}
        return palpate.fit(Squares(), body="square", steps=steps, **settings)

    with pytest.warns(UserWarning, match="triples with and without contact do not separate"):
        before = palpate.evaluate(trained(1), test)
    model = trained(250)
    after = palpate.evaluate(model, test)
    assert min(before.l_test, after.constant["l_test"]) > 10 * BOUND
    assert after.l_test < BOUND
    assert after.object_error < 0.06
    assert model.border(o[:5]).abs().amax(-1).mean() == pytest.approx(REACH, rel=0.2)


@pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")  # not in a few steps
def test_it_trains_and_encodes_as_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(BODIES, "square", Square)
    trained = palpate.fit(
        world("palpate/Sprites-v0", size=32),
        body="square",
        encoder="small",
        steps=3,
        batch_size=16,
        device="cpu",
        progress=False,
    )
    trained.save(tmp_path / "model")
    loaded = palpate.load(tmp_path / "model", device="cpu")
    o = collect("palpate/Sprites-v0", 5, seed=9, size=32).rows(slice(5)).o
    line = loaded.border(o)
    assert_close(line, trained.border(o))
    side = line.abs().amax(-1)  # of each point of the border, the larger coordinate
    assert_close(side, side[:1, :1].expand_as(side), rtol=0.01, atol=0)
    assert side.mean() > 0.05

    found = loaded.encode(o)
    aim = found.object - found.agent
    assert (loaded.would_touch(o, aim) > 0.5).all()
    assert (loaded.would_touch(o, torch.as_tensor(-aim)) < loaded.would_touch(o, aim)).all()
