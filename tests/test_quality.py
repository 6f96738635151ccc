"""The label-free account of a model: numbers worked out by hand, and an order that truth confirms."""

from typing import Any

import numpy as np
import pytest
import torch
from balls import balls

import palpate
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.geometry import Segment
from palpate.methods.interaction import Interaction
from palpate.quality import Quality, _along_axes, _closure, _rms, assess, border, judge, read
from palpate.quality import Reading as Read

GOOD: dict[str, Any] = {
    "triples": 100,
    "separation": 0.9,
    "contact_share": 0.3,
    "equivariance": 0.05,
    "stay": 0.02,
    "closure": None,
    "consistency": 0.95,
    "elongation": 2.0,
    "misplaced": 0.03,
    "error": 0.06,
    "unit": 1.0,
    "findings": (),
}


class TestBorder:
    def paths(self, count: int = 20_000) -> torch.Tensor:
        return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def test_exact_contacts(self) -> None:
        found = border(self.paths(), self.paths() < 0.25)
        assert found.radius == pytest.approx(0.25, abs=0.02)
        assert found.accuracy > 0.97
        assert found.spread < 0.02

    @pytest.mark.parametrize("spread", [0.02, 0.05, 0.08])
    def test_the_error_is_found_from_what_lies_behind(self, spread: float) -> None:
        """Distances measured with an error of a known spread."""
        true = self.paths()
        error = spread * torch.randn(len(true), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert border((true + error).abs(), true < 0.4).spread == pytest.approx(spread, rel=0.25)

    @pytest.mark.parametrize("seed", range(8))
    def test_paths_through_the_centre(self, seed: int) -> None:
        """As on a line: many distances are 0, and so may be the best border."""
        generator = torch.Generator().manual_seed(seed)
        distance = torch.rand(30, dtype=torch.float64, generator=generator)
        distance[torch.rand(30, generator=generator) < 0.6] = 0
        assert np.isfinite(border(distance, torch.rand(30, generator=generator) < 0.5)).all()

    def test_chance(self) -> None:
        coin = torch.rand(20_000, generator=torch.Generator().manual_seed(1)) < 0.3
        assert border(self.paths(), coin).accuracy == pytest.approx(0.5, abs=0.03)

    def test_rare_contacts_weigh_the_same(self) -> None:
        true = self.paths() ** 0.5  # few near 0
        assert border(true, true < 0.15).accuracy > 0.95


def reading(agent: torch.Tensor, action: torch.Tensor) -> Read:
    nothing = torch.zeros(len(action))
    return Read(agent[:-1], agent[1:], agent[:-1], agent[1:], nothing, nothing > 0, nothing, action, nothing)


class TestClosure:
    def test_exact_steps_close(self) -> None:
        agent = torch.rand(31, 2, dtype=torch.float64)
        found = _closure(reading(agent, agent.diff(dim=0)), torch.zeros(30, dtype=torch.long))
        assert found == pytest.approx(0, abs=1e-12)

    def test_a_constant_error_adds_up(self) -> None:
        agent = torch.rand(31, 2, dtype=torch.float64)
        action = agent.diff(dim=0) + torch.tensor([0.01, 0.0])
        assert _closure(reading(agent, action), torch.zeros(30, dtype=torch.long)) == pytest.approx(0.1)

    def test_never_across_episodes(self) -> None:
        agent = torch.rand(31, 2, dtype=torch.float64)
        action = agent.diff(dim=0)
        action[14] += 100  # from one to the next
        episode = torch.tensor([0] * 14 + [1] * 2 + [2] * 14)
        assert _closure(reading(agent, action), episode) == pytest.approx(0, abs=1e-12)
        assert _closure(reading(agent, action), torch.arange(30)) is None


@pytest.mark.parametrize("switches", [{}, {"outline": 4}, {"body": "axes"}, {"body": "axes", "rim": True}])
def test_a_body_is_judged_by_its_own_border(switches: dict[str, Any]) -> None:
    torch.manual_seed(0)
    objective = ObjectiveConfig(**switches)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).eval()
    batch = Batch(torch.randn(300, 6), torch.randn(300, 2), torch.randn(300, 6))
    with torch.no_grad():
        known = model.distance(batch.o, batch.o_next)
        model.split.update(known, known)
        assert torch.equal(read(model, batch).distance, model.passing(batch.o, batch.a).double())


@pytest.mark.parametrize("ratio", [1.0, 3.0, 1 / 3, 1e9])
def test_how_long_a_body_is(ratio: float) -> None:
    torch.manual_seed(0)
    objective = ObjectiveConfig(body="axes", rim=True)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).eval()
    batch = Batch(torch.randn(300, 6), torch.randn(300, 2), torch.randn(300, 6))
    with torch.no_grad():
        known = model.distance(batch.o, batch.o_next)
        model.split.update(known, known)
        model.body.log_ratio.fill_(ratio).log_()
        model.phi_ext.head.weight[2:] *= 1e3  # sure of its axis, whichever that is
        found = assess(model, batch).elongation
    assert found == pytest.approx(min(max(ratio, 1 / ratio), 1e4), rel=0.01)  # a needle is no thinner than that


class TestAlongAxes:
    def test_by_hand(self) -> None:
        """Semi-axes 4 and 1, path across the long one at 6 from the centre: as a disc of radius 2 at 3."""
        covariance = torch.diag(torch.tensor([16.0, 1.0]))[None]
        path = Segment(torch.tensor([[6.0, -1.0]]), torch.tensor([[0.0, 2.0]]))
        assert _along_axes(torch.zeros(1, 2), path, covariance).item() == pytest.approx(3)

    def test_a_body_that_is_next_to_flat(self) -> None:
        """As a Gaussian's may become: rounded, its covariance is singular."""
        root = torch.tensor([[[1000.0, 0.0], [1000.0, 1e-3]]])
        path = Segment(torch.ones(1, 2), torch.ones(1, 2))
        assert _along_axes(torch.zeros(1, 2), path, root @ root.mT).isfinite().all()


class TestFindings:
    def names(self, **changes: Any) -> list[str]:
        return [finding.name for finding in judge(Quality(**(GOOD | changes)))]

    def test_none(self) -> None:
        assert self.names() == []
        assert self.names(stay=None, consistency=None, elongation=None) == []

    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({"separation": 0.4}, "inseparable"),
            ({"equivariance": 0.3}, "agent-residual"),
            ({"stay": 0.3}, "restless-object"),
            ({"consistency": 0.7}, "unexplained-contacts"),
            ({"elongation": 1.05}, "no-angle"),
        ],
    )
    def test_each(self, changes: dict[str, Any], name: str) -> None:
        assert self.names(**changes) == [name]

    def test_lengths_are_seen_beside_the_action(self) -> None:
        assert self.names(equivariance=300.0, stay=20.0, unit=2000.0) == []

    def test_nothing_is_said_of_an_object_that_was_not_found(self) -> None:
        assert self.names(separation=0.1, equivariance=9.0, consistency=0.1) == ["inseparable"]


def test_rms() -> None:
    assert _rms(torch.tensor([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx((25 / 2) ** 0.5)


def test_a_longer_run_is_told_from_a_short_one() -> None:
    """Also in the right order of magnitude, in the action's unit."""
    train = balls(2000, seed=0, sides=(100.0, 100.0), contact_share=0.3)
    test = balls(2000, seed=1, sides=(100.0, 100.0))
    settings: dict[str, Any] = {"batch_size": 128, "learning_rate": 4e-3, "device": "cpu", "progress": False}
    with pytest.warns(UserWarning, match="touched and untouched triples do not separate"):
        short = palpate.fit(train.transitions, steps=15, **settings)
    long = palpate.fit(train.transitions, steps=250, evaluate_every=50, **settings)
    for model in (short, long):
        true = palpate.evaluate(model, test).l_test ** 0.5
        assert model.facts["quality"]["error"] == pytest.approx(true, rel=1.0)
    assert long.facts["quality"]["error"] < 0.7 * short.facts["quality"]["error"]
    assert long.facts["findings"] == []
    assert long.facts["quality"]["triples"] == 200


def test_a_supervised_model_has_no_such_account() -> None:
    model = palpate.fit(balls(300, seed=0), method="supervised", steps=2, batch_size=8, device="cpu", progress=False)
    assert "quality" not in model.facts
