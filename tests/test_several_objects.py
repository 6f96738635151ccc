"""Several objects, end to end: each is found, with its body and its contacts."""

import warnings
from typing import NamedTuple

import pytest
import torch
from several import Mixed

import palpate
from palpate.data.labelled import Labelled
from palpate.envs.many import REACH


class Fitted(NamedTuple):
    model: palpate.Representation
    test: Labelled


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    world = Mixed(2)
    with warnings.catch_warnings(action="ignore"):  # findings: the run is short
        model = palpate.fit(world, objects=2, steps=220, batch_size=128, device="cpu", progress=False)
    return Fitted(model, world.labelled(2000, seed=1))


def test_each_object_is_found(fitted: Fitted) -> None:
    scores = palpate.evaluate(*fitted)
    for one in scores.each:
        assert one.l_test < 0.1 * one.constant_l_test
    assert scores.object_swap_rate < 0.05
    assert scores.contact_auroc > 0.9


def test_each_has_a_body(fitted: Fitted) -> None:
    model, test = fitted
    o = test.transitions.rows(slice(0, 10)).o
    border = model.border(o)
    assert border.shape[:2] == (10, 2)
    radius = border.norm(dim=-1).mean((0, 2))
    assert radius.tolist() == pytest.approx([REACH] * 2, rel=0.6)


def test_another_number_of_objects_is_refused_before_training() -> None:
    test = Mixed(2).labelled(200, seed=0)
    with pytest.raises(ValueError, match="the test triples have 2 objects, and objects is 1"):
        palpate.fit(Mixed(2), test=test, steps=1, device="cpu", progress=False)
    after = test.truth._replace(agent_next=test.truth.agent, object_next=test.truth.object)
    with pytest.raises(ValueError, match="the truth has 2 objects; the supervised model places one"):
        palpate.fit(
            Labelled(test.transitions, after), method="supervised", steps=1, batch_size=8, device="cpu", progress=False
        )


def test_it_can_be_saved(fitted: Fitted, tmp_path: object) -> None:
    model, test = fitted
    o = test.transitions.rows(slice(0, 10)).o
    model.save(f"{tmp_path}/two")
    same = palpate.load(f"{tmp_path}/two")
    assert torch.equal(same.encode(o).objects, model.encode(o).objects)
    assert same.config.objective.objects == 2
