"""Counting objects: short runs with a slot more each, until one is left."""

from typing import Any

import pytest
import torch
from several import Mixed

from palpate import counting
from palpate.config import MOST, ObjectiveConfig
from palpate.contacts.slots import Holds, Slot
from palpate.counting import FEWEST_SLOTS, Count, count_objects, kept_and_held, steps_of
from palpate.data.stream import first_triples
from palpate.data.transitions import Batch
from palpate.methods.contact import Contact

NONE = Batch(torch.randn(10, 4), torch.randn(10, 2), torch.randn(10, 4))


def rows(objects: int, count: int = 6000) -> tuple[Batch, Batch]:
    return kept_and_held(first_triples(Mixed(objects), count, torch.Generator().manual_seed(0)), 0)


def counted(holds: list[Holds], unexplained: float = 0.0) -> Count:
    shares = {"object": (0.9, 0.1), "duplicate": (0.8, 0.1), "mover": (0.5, 0.4), "nothing": (0.1, 0.1)}
    slots = [Slot(what, *shares[what], 0.0) for what in holds]
    return Count(slots, torch.zeros(10, len(slots), dtype=torch.bool), unexplained)


def search(monkeypatch: pytest.MonkeyPatch, found: dict[int, Count], **options: Any) -> tuple[Count, list[int]]:
    """The count, and the numbers of slots that were tried."""
    tried: list[int] = []

    def run(model: Contact, kept: Batch, held: Batch, seed: int, watch: Any) -> Count:
        slots = model.config.objects
        tried.append(slots)
        watch(steps_of(slots))
        return found[slots]

    monkeypatch.setattr(counting, "_run", run)
    return count_objects(NONE, NONE, ObjectiveConfig(), **options), tried


def test_slots_are_added_until_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {k: counted(["object"] * min(k, 3) + ["nothing"] * (k - 3)) for k in range(FEWEST_SLOTS, MOST + 1)}  # type: ignore[operator]
    steps: list[int] = []
    count, tried = search(monkeypatch, found, watch=steps.append)
    assert (len(count.found), tried) == (3, [2, 3, 4])
    assert steps == [steps_of(2), steps_of(2) + steps_of(3), steps_of(2) + steps_of(3) + steps_of(4)]


def test_or_until_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = {k: counted(["object"] * k) for k in range(FEWEST_SLOTS, MOST + 1)}
    assert search(monkeypatch, everywhere, enough=2)[1] == [2]
    assert search(monkeypatch, everywhere)[1] == [2, 3, 4, 5, 6]


def test_changes_that_no_object_explains_need_another_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        2: counted(["object", "nothing"], 0.4),
        3: counted(["object", "object", "object"]),
        4: counted(["nothing"]),
    }
    count, tried = search(monkeypatch, found)
    assert (len(count.found), tried) == (3, [2, 3, 4])


def test_without_an_object_there_is_a_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    none = counted(["mover", "nothing", "nothing"], 1.0)
    count, tried = search(monkeypatch, {2: none, 3: none})
    assert (len(count.found), tried) == (0, [2, 3])
    assert "no object was found" in count.reason


def test_duplicates_and_things_that_move_by_themselves_are_not_counted() -> None:
    count = counted(["duplicate", "object", "mover", "object", "nothing"])
    assert count.indices == [1, 3]
    assert "90%, 90% of the paths" in count.reason


def test_one_slot_more_than_enough_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {k: counted(["object"] + ["duplicate"] * (k - 1), 0.5) for k in range(FEWEST_SLOTS, MOST + 1)}  # type: ignore[operator]
    assert search(monkeypatch, found, enough=2)[1] == [2, 3]


def test_too_few_triples_are_not_called_no_object() -> None:
    count = Count([Slot("unknown", 0.0, 0.0, 0.0)] * 2, torch.zeros(10, 2, dtype=torch.bool), 0.0)
    assert count.reason == "too few triples to count"


@pytest.mark.parametrize("objects", [1, 2])
def test_of_two_slots_each_object_has_one(objects: int) -> None:
    count = count_objects(*rows(objects), ObjectiveConfig(), enough=2)
    assert [slot.holds for slot in count.found] == ["object"] * objects
    assert min(slot.youden for slot in count.found) > 0.6
    assert count.unexplained < 0.1
