"""Slots that hold an object move if they are touched, and only then; the others start anew."""

import pytest
import torch
from torch import Tensor

from palpate.contacts.slots import RENEW_AT, Slots, judge_slots

B = 512


def contacts(count: int, seed: int = 0) -> Tensor:
    return torch.rand(B, count, generator=torch.Generator().manual_seed(seed)) < 0.2


def observed(touching: Tensor, moved: Tensor) -> Slots:
    slots = Slots(touching.shape[1])
    slots.observe(touching, moved)
    return slots


def test_youden_by_hand() -> None:
    touching = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0], dtype=torch.bool)[:, None]
    moved = torch.tensor([1, 1, 1, 0, 0, 0, 1, 0], dtype=torch.bool)[:, None]
    assert observed(touching, moved).youden.tolist() == pytest.approx([3 / 4 - 1 / 4])


def test_slots_that_move_when_touched_are_valid() -> None:
    """The others move by themselves, never, or are never touched."""
    touching = contacts(4)
    touching[:, 3] = False
    moved = torch.stack((touching[:, 0], contacts(1, seed=1)[:, 0], torch.zeros(B).bool(), contacts(1, 2)[:, 0]), 1)
    slots = observed(touching, moved)
    assert slots.valid.tolist() == slots.spare.logical_not().tolist() == [True, False, False, False]


def test_of_two_slots_with_the_same_object_the_better_one_stays() -> None:
    touching = contacts(3)
    touching[:, 1] = touching[:, 0]
    late = touching[:, 0] & (torch.arange(B) % 8 > 0)  # misses an eighth
    moved = torch.stack((late, touching[:, 1], touching[:, 2]), 1)
    slots = observed(touching, moved)
    assert slots.valid.all()
    assert slots.together[0, 1] == pytest.approx(7 / 8, abs=0.05)
    assert slots.together[0, 2] < 0.2
    assert slots.spare.tolist() == [True, False, False]


def test_of_two_equal_slots_the_first_stays() -> None:
    touching = contacts(1).expand(-1, 2)
    assert observed(touching, touching).spare.tolist() == [False, True]


def test_slots_that_are_all_alike_are_left_to_learn() -> None:
    """Early in a run bodies are too large, and every index is low."""
    touching = contacts(2)
    moved = touching & (contacts(2, seed=1) | contacts(2, seed=2))
    slots = observed(touching, moved)
    assert not slots.valid.any()
    assert not slots.spare.any()


def test_a_surer_slot_explains_a_change_first() -> None:
    touching = contacts(2)
    moved = touching.clone()
    moved[:, 1] &= torch.arange(B) % 2 > 0
    assert observed(touching, moved).surer.tolist() == [[False, False], [True, False]]


def test_spare_slots_start_anew_at_certain_times() -> None:
    touching = contacts(2)
    moved = torch.stack((touching[:, 0], torch.zeros(B).bool()), 1)
    slots = observed(touching, moved)
    times = torch.linspace(0, 1, 201).tolist()
    renewed = []
    for share in times:
        if slots.renew(share) == [1]:
            renewed.append(share)
            assert slots.counts[:, 1].tolist() == [0] * 4
            assert slots.moves.count_nonzero() == 1
    assert renewed == pytest.approx(RENEW_AT, abs=0.0051)
    assert slots.youden[0] == 1


@pytest.mark.parametrize("steps", [100, 220, 450, 2500])
def test_a_short_run_renews_less_often_but_not_later(steps: int) -> None:
    """The host looks every 50 steps."""
    touching = contacts(2)
    slots = observed(touching, torch.stack((touching[:, 0], torch.zeros(B).bool()), 1))
    shares = [step / steps for step in range(50, steps, 50)]
    renewed = [share for share in shares if slots.renew(share)]
    assert renewed
    assert renewed[-1] < RENEW_AT[-1] + 50 / steps


def test_a_single_slot_is_always_valid_and_never_spare() -> None:
    slots = observed(contacts(1), torch.zeros(B, 1).bool())
    assert slots.valid.tolist() == [True]
    assert slots.spare.tolist() == [False]
    assert not slots.surer.any()
    assert slots.renew(0.5) == []


# Slots of a trained model


class Judged:
    """Paths at random distances from k slots, of which those nearer than 0.3 touch; motions are short unless made."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.distance = torch.rand(2000, count, generator=generator, dtype=torch.float64)
        self.length = 0.01 * torch.rand(2000, count, generator=generator, dtype=torch.float64)
        self.touched = self.distance < 0.3
        self.visible = torch.ones_like(self.touched)

    def holds(self) -> list[str]:
        return [slot.holds for slot in judge_slots(self.distance, self.length, self.length > 0.2, self.visible)[0]]


def test_what_slots_hold() -> None:
    """An object, nothing, something that moves by itself, an object that moves in only some of its contacts."""
    judged = Judged(4)
    judged.length[:, 0] += judged.touched[:, 0]
    judged.length[:, 2] += contacts(4)[:, 0].repeat(4)[:2000] | contacts(4, seed=1)[:, 0].repeat(4)[:2000]
    judged.length[:, 3] += judged.touched[:, 3] & (torch.arange(2000) % 5 > 0)
    assert judged.holds() == ["object", "nothing", "mover", "object"]


def test_shares_and_movements_by_hand() -> None:
    judged = Judged(2)
    missed = torch.arange(2000) % 10 == 0
    judged.length[:, 0] += judged.touched[:, 0] & ~missed
    (slot, _), moved = judge_slots(judged.distance, judged.length, judged.length > 0.2, judged.visible)
    assert (slot.touched, slot.otherwise) == (pytest.approx(0.9, abs=0.05), pytest.approx(0, abs=0.05))
    assert slot.youden == pytest.approx(0.9, abs=0.05)
    agree = (moved[:, 0] == (judged.touched[:, 0] & ~missed)).double().mean()
    assert agree > 0.95


def test_the_worse_of_two_slots_that_move_together_is_a_duplicate() -> None:
    judged = Judged(3)
    judged.distance[:, 1] = judged.distance[:, 0]
    judged.length[:, :2] += judged.touched[:, :1]
    judged.length[:, 0] -= (judged.touched[:, 0] & (torch.arange(2000) % 8 == 0)).double()
    judged.length[:, 2] += judged.touched[:, 2]
    assert judged.holds() == ["duplicate", "object", "object"]


def test_a_hidden_object_is_judged_where_it_is_visible() -> None:
    judged = Judged(2)
    judged.visible[:, 0] = torch.arange(2000) % 2 == 0
    judged.length += torch.where(judged.visible, judged.touched, torch.rand(2000, 2) < 0.5)
    assert judged.holds() == ["object", "object"]
    judged.visible[:] = torch.arange(2000)[:, None] < 50  # too few
    assert judged.holds() == ["unknown", "unknown"]
