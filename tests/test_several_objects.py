"""Several objects, end to end: each is found, with its body and its contacts."""

import json
import signal
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from several import Mixed

import palpate
from palpate import counting
from palpate.config import ObjectiveConfig
from palpate.contacts.slots import Slot
from palpate.counting import Count
from palpate.data.labelled import Labelled
from palpate.envs.many import REACH
from palpate.training.loop import Interrupted


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
    with pytest.raises(ValueError, match="the truth has 2 objects and the model 1; train with objects=2"):
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


# The number of objects


def find(monkeypatch: pytest.MonkeyPatch, objects: int) -> list[int]:
    """Let the short runs find so many objects; returns the list to which each search appends `enough`."""
    asked: list[int] = []

    def count(*rows: Any, enough: int, **options: Any) -> Count:
        asked.append(enough)
        slots = [Slot("object", 0.9, 0.1, 0.0)] * objects + [Slot("nothing", 0.1, 0.1, 0.0)]
        return Count(slots, torch.zeros(1, len(slots), dtype=torch.bool), 0.0)

    monkeypatch.setattr(counting, "count_objects", count)
    return asked


TINY: dict[str, Any] = {"steps": 4, "batch_size": 16, "device": "cpu", "progress": False}


@pytest.mark.parametrize(("found", "objects"), [(0, 1), (1, 1), (3, 3)])
def test_auto_trains_with_the_objects_that_are_found(found: int, objects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = find(monkeypatch, found)
    with warnings.catch_warnings(action="ignore"):
        model = palpate.fit(Mixed(3), objects="auto", **TINY)
    assert asked == [6]
    assert model.config.objects == objects
    (choice,) = [choice for choice in model.facts["choices"] if choice["name"] == "objects"]
    assert choice["value"] == objects
    assert ("no object was found" in choice["reason"]) == (found == 0)


def test_a_run_with_auto_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends like one that was never stopped; `run.json` holds the number, `run.toml` the word."""
    find(monkeypatch, 2)

    def stop(step: int, readings: dict[str, float]) -> None:
        signal.raise_signal(signal.SIGINT)

    settings: dict[str, Any] = {"objects": "auto", "log_every": 2, **TINY}
    data = Mixed(2).labelled(500, seed=0).transitions
    with warnings.catch_warnings(action="ignore"):
        straight = palpate.fit(data, **settings)
        with pytest.raises(Interrupted):
            palpate.fit(data, out=tmp_path / "run", watch=stop, **settings)
        resumed = palpate.fit(data, out=tmp_path / "run", resume=True, **settings)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["objective"]["objects"] == 2
    assert 'objects = "auto"' in (tmp_path / "run" / "run.toml").read_text()
    for name, value in straight.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("given", "found", "more"), [(1, 2, True), (1, 1, False), (2, 2, False), (6, 6, False)])
def test_a_run_with_too_few_objects_says_so(
    given: int, found: int, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = find(monkeypatch, found)
    monkeypatch.setattr(counting, "STEPS", 4)  # no longer than the run
    with warnings.catch_warnings(action="ignore"):
        model = palpate.fit(Mixed(2), objects=given, **TINY)
    assert asked == ([given + 1] if given < 6 else [])
    assert ("more-objects" in [finding["name"] for finding in model.facts["findings"]]) == more


@pytest.mark.parametrize("count", [3, 499])
def test_auto_needs_enough_triples(count: int) -> None:
    data = Mixed(2).labelled(count, seed=0).transitions
    with pytest.raises(ValueError, match="too few triples to count objects; wanted at least 500"):
        palpate.fit(data, objects="auto", **TINY)


def test_few_triples_leave_the_slots_unjudged() -> None:
    with warnings.catch_warnings(action="ignore"):
        model = palpate.fit(Mixed(2).labelled(300, seed=0).transitions, objects=2, **TINY)
    assert model.facts["quality"]["objects"] == 2
    assert "empty-slot" not in [finding["name"] for finding in model.facts["findings"]]


@pytest.mark.parametrize("error", [ValueError, Interrupted, KeyboardInterrupt])
def test_a_failed_count_does_not_lose_the_model(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*rows: Any, **options: Any) -> Count:
        raise error("no count")

    monkeypatch.setattr(counting, "count_objects", fail)
    monkeypatch.setattr(counting, "STEPS", 4)  # no longer than the run
    settings: dict[str, Any] = {"out": tmp_path / "run", **TINY}
    with warnings.catch_warnings(action="ignore"):
        if error is ValueError:
            assert palpate.fit(Mixed(2), **settings).facts["quality"]["counted"] is None
        else:
            with pytest.raises(error):
                palpate.fit(Mixed(2), **settings)
    assert palpate.load(tmp_path / "run").facts["quality"]["objects"] == 1


def test_a_stopped_count_without_a_folder_does_not_lose_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*rows: Any, **options: Any) -> Count:
        raise Interrupted("stopped")

    monkeypatch.setattr(counting, "count_objects", stop)
    monkeypatch.setattr(counting, "STEPS", 4)  # no longer than the run
    with warnings.catch_warnings(record=True, action="always") as shown:
        model = palpate.fit(Mixed(2), **TINY)
    assert "stopped while objects were counted; the model is complete" in [str(warning.message) for warning in shown]
    assert model.facts["quality"]["counted"] is None


def test_auto_is_refused_where_several_objects_are() -> None:
    with pytest.raises(ValueError, match="objects is 'auto'; give their number: objects are counted in vectors only"):
        palpate.fit("palpate/SpritesMany-v0", objects="auto", **TINY)
    with pytest.raises(ValueError, match="objects is 'auto'; leave it out: the method 'vae' places one object"):
        palpate.fit(Mixed(2), method="vae", objects="auto", **TINY)
    with pytest.raises(ValueError, match="objects is 'auto'; give their number: the method 'supervised' cannot count"):
        palpate.fit(Mixed(2).labelled(600, seed=0), method="supervised", objects="auto", **TINY)
    with pytest.raises(ValueError, match="objects is 'many'; allowed is 1 to 6 or 'auto'"):
        ObjectiveConfig(objects="many")  # type: ignore[arg-type]
