"""A new group is one file: `make_group` alone makes it, and nothing else in the package changes."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from drawn import randn
from tilted import Tilted
from torch.testing import assert_close

import palpate
from palpate.collecting.collect import collect
from palpate.control.wrapping import Reader
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Batch
from palpate.groups.translations import Translations
from palpate.methods.base import Encoding
from palpate.metrics.measure import measure
from palpate.metrics.reading import aligned
from palpate.quality import assess
from palpate.representation import Representation

SHORT: dict[str, Any] = {"steps": 3, "batch_size": 16, "encoder": "small", "device": "cpu", "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")  # not in a few steps


@pytest.fixture
def labelled() -> Labelled:
    return collect("palpate/Sprites-v0", 120, seed=0, labelled=True, size=20)


@pytest.fixture
def trained(labelled: Labelled, monkeypatch: pytest.MonkeyPatch) -> Representation:
    monkeypatch.setattr("palpate.methods.base.make_group", lambda config: Tilted(config.n))
    return palpate.fit(labelled.transitions, **SHORT)


def test_it_is_evaluated_and_examined(trained: Representation, labelled: Labelled) -> None:
    assert isinstance(trained.model.group, Tilted)
    quality, scores = trained.facts["quality"], palpate.evaluate(trained, labelled)
    assert all(np.isfinite(quality[name]) for name in ("equivariance", "error"))
    assert all(np.isfinite(score) for score in scores.as_dict().values())


@pytest.mark.filterwarnings("ignore:after the best motion")
def test_its_frame_is_fitted_saved_and_used(trained: Representation, labelled: Labelled, tmp_path: Path) -> None:
    """Twice, since a frame fitted to a moved representation replaces the old one."""
    o, group, motion = labelled.transitions.rows(slice(None)).o, trained.model.group, torch.tensor([0.7, 2.0, -3.0])
    before = trained.encode(o)
    wanted = [group.moved(x, motion) for x in (before.agent, before.object)]
    moved = trained.align({"observation": o, "agent": before.agent + 5.0})
    moved = moved.align({"observation": o, "agent": wanted[0]})
    assert_close(moved.frame.origin, motion, atol=1e-3, rtol=0)
    moved.save(tmp_path / "model")
    after = palpate.load(tmp_path / "model").encode(o)
    assert_close([after.agent, after.object], wanted, atol=1e-3, rtol=0)
    offset = moved.align({"observation": o, "agent": wanted[0], "object": wanted[1] + torch.tensor([0.1, 0.2])})
    assert_close(offset.frame.offset, torch.tensor([0.1, 0.2]), atol=1e-3, rtol=0)
    assert_close(offset.encode(o).object, wanted[1] + torch.tensor([0.1, 0.2]), atol=1e-3, rtol=0)
    read = Reader(moved, device="cpu")(o.numpy())
    assert_close(torch.from_numpy(read), torch.cat((after.agent, after.object), 1))


def test_scores_and_figures_fit_the_groups_own_motion() -> None:
    """A turned frame is free for this group and an error for translations."""
    truth, motion = Truth(randn(50, 2), randn(50, 2, seed=1)), torch.tensor([0.7, 2.0, -3.0]).double()
    agent, thing = (Tilted().moved(x, motion) for x in (truth.agent, truth.object))
    turned = Encoding(agent, thing[:, None])
    free, fixed = (measure(group, turned, truth) for group in (Tilted(), Translations(2)))
    assert max(free.l_test, free.agent_error, free.object_error) < 1e-6
    assert min(fixed.l_test, fixed.agent_error, fixed.object_error) > 0.1
    assert_close(aligned(Tilted(), turned, truth).object, truth.object)


def test_lengths_are_those_of_the_groups_difference(trained: Representation, labelled: Labelled) -> None:
    truth, learned = Truth(randn(50, 2), randn(50, 2, seed=1)), Encoding(randn(50, 2, seed=2), randn(50, 1, 2, seed=3))
    one, two = (measure(Tilted(length=length), learned, truth) for length in (1.0, 2.0))
    for name in ("agent_error", "object_error", "object_bias", "object_spread"):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name))
    assert two.l_test == pytest.approx(4 * one.l_test)
    batch = Batch(*labelled.transitions.rows(slice(None)))
    short = assess(trained.model, batch)
    trained.model.group.length = 2.0
    long = assess(trained.model, batch)
    assert short is not None
    assert long is not None
    assert long.stay == pytest.approx(2 * short.stay)
    assert long.equivariance == short.equivariance  # a distance of poses


def test_actions_that_are_recorded_are_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment reports poses of three numbers; an action has two."""

    class Walker(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed)
            self.pose = torch.zeros(3)
            return self.pose.numpy(), {"pose": self.pose.numpy()}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            self.pose = Tilted().act(self.pose, torch.from_numpy(action))
            return self.pose.numpy(), 0.0, False, False, {"pose": self.pose.numpy()}

    monkeypatch.setattr("palpate.collecting.sensing.group_of_records", lambda n, turn_width: Tilted(n - 1))
    triples = collect(Walker(), 20, agent_position="info:pose", progress=False)
    assert triples.action.shape == (20, 2)
    rows = triples.rows(slice(None))
    assert_close(Tilted().act(rows.o, rows.a), rows.o_next, atol=1e-5, rtol=0)
