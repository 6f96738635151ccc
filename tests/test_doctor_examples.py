"""Rows that show the findings of a short training run, for outputs made by hand."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from palpate.data.transitions import Batch
from palpate.doctor import arrays, causes, demonstrations, examples, frames, verdict
from palpate.doctor.examples import EXAMPLES, WHOLE, Probed, first
from palpate.findings import Rule
from palpate.groups.translations import Translations
from palpate.methods.base import Examination, Threshold

COUNT = 200
ROWS = 1000 - 2 * np.arange(300)  # of the log, that the run received
HELD = torch.arange(COUNT) + 50  # of these, those it was judged by


class Model(NamedTuple):
    group: Any = Translations(2)

    def scene(self, o: Tensor) -> Tensor:
        return o[:, None]

    def threshold(self) -> Threshold:
        return Threshold(0.5, "d")


class Trial(NamedTuple):
    held: Batch
    held_rows: Tensor = HELD
    model: Any = Model()


def rows_of(*held: int) -> list[int]:
    """The rows of the log of these judged triples."""
    return [int(ROWS[HELD[i]]) for i in held]


def shown(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    w: Tensor | None = None,
    w_next: Tensor | None = None,
    a: Tensor | None = None,
    **changes: Tensor,
) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    w = torch.rand(COUNT, 3, generator=generator) if w is None else w
    agent = torch.rand(COUNT, 2, generator=generator).double()
    moved = 0.1 * torch.randn(COUNT, 2, generator=generator).double() if a is None else a.double()
    one = torch.ones(COUNT, 1)
    outputs: dict[str, Any] = {
        "agent": agent,
        "agent_next": agent + moved,
        "objects": agent[:, None],
        "objects_next": agent[:, None],
        "scene": 1e-3 * one,
        "contact": one < 0,
        "visible": one > 0,
        "far": one < 0,
        "distance": one.double(),
        "elongation": None,
    }
    monkeypatch.setattr(examples, "examine", lambda model, batch: Examination(**{**outputs, **changes}))
    trial: Any = Trial(Batch(w, moved.float(), w if w_next is None else w_next))
    return Probed(trial, ROWS, np.repeat(np.arange(5), 4)).shows[name]()


def column(value: float, **changed: float) -> Tensor:
    """A value for each triple, and other values for some, by r + the number of the triple."""
    found = torch.full((COUNT, 1), value)
    for name, other in changed.items():
        found[int(name[1:])] = other
    return found


def test_first_rows() -> None:
    assert first(np.arange(20) % 2 == 1) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert first(np.array([0.5, -np.inf, 2.0, 2.0])) == [2, 3, 0]
    assert len(first(np.arange(20.0))) == EXAMPLES


def test_actions_that_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.zeros(COUNT, 2)
    agent = torch.zeros(COUNT, 2).double()
    end = agent.clone()
    end[7], end[30] = torch.tensor([3.0, 0]), torch.tensor([0, 2.0])
    for name in ("not-displacements", "changing-scale", "shifted-actions", "target-actions"):
        assert shown(name, monkeypatch, a=a, agent=agent, agent_next=end)[:2] == rows_of(7, 30)


def test_long_actions_that_fall_short(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.zeros(COUNT, 2)
    a[:, 0] = torch.linspace(0.1, 1, COUNT)
    agent = torch.zeros(COUNT, 2).double()
    end = a.double().clone()
    end[5], end[190] = 0, end[190] / 2
    found = shown("saturated-actions", monkeypatch, a=a, agent=agent, agent_next=end)
    assert found[:1] == rows_of(190)
    assert rows_of(5)[0] not in found  # a short one


def test_parts_that_no_move_links(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = torch.rand(COUNT, 2, generator=torch.Generator().manual_seed(1)).double()
    agent[40:60] += 100
    found = shown("disconnected", monkeypatch, a=torch.zeros(COUNT, 2), agent=agent, agent_next=agent)
    assert found == rows_of(*range(40, 48))


def test_scenes_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    w = torch.rand(COUNT, 3, generator=torch.Generator().manual_seed(0))
    w[11] += 9
    assert shown("no-lasting-scene", monkeypatch, w_next=w)[0] == rows_of(11)[0]
    contact = column(0, r3=1) > 0
    assert shown("few-contacts", monkeypatch, w_next=w, contact=contact) == rows_of(3, 11)


def test_distances_near_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown("no-two-classes", monkeypatch, scene=column(1e-3, r21=0.45, r4=0.6))
    assert found[:2] == rows_of(21, 4)


def test_contacts_that_the_path_does_not_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    contact = torch.arange(COUNT)[:, None] < 60
    distance = torch.where(contact, 0.1, 1.0).double()
    distance[3], distance[100] = 2.0, 0.02  # a contact far away, and a path through the object
    found = shown("unexplained-contacts", monkeypatch, contact=contact, distance=distance)
    assert sorted(found) == sorted(rows_of(3, 100))


def test_hidden_objects_and_contacts(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = column(1, r8=0, r9=0) > 0
    contact = column(0, r8=1, r12=1) > 0
    assert shown("hidden-object", monkeypatch, visible=visible) == rows_of(8, 9)
    assert shown("never-misses", monkeypatch, visible=visible, contact=contact) == rows_of(12)


def test_scenes_without_contacts_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    contact = torch.arange(COUNT)[:, None] % 2 == 0
    contact[100:140] = False
    line = torch.arange(COUNT, dtype=torch.float32)[:, None].repeat(1, 3)
    found = shown("unreachable", monkeypatch, contact=contact, w=line)  # 40 % contacts: of 15 neighbours, 6
    assert found == rows_of(*range(106, 114))
    assert shown("unreachable", monkeypatch, contact=column(0, r1=1) > 0) == []  # too few contacts to judge


def test_ends_of_a_corridor_and_beginnings_of_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = torch.zeros(COUNT, 2).double()
    agent[:, 1] = torch.linspace(0, 1, COUNT)
    found = shown("corridor", monkeypatch, agent=agent)
    assert set(found) == set(rows_of(0, 1, 2, 3, 196, 197, 198, 199))
    assert shown("moved-between-episodes", monkeypatch) == [0, 4, 8, 12, 16]


def test_every_finding_has_rows_or_is_about_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        *arrays.ARRAY_RULES,
        *(x for part in (verdict, demonstrations) for x in vars(part).values() if isinstance(x, Rule)),
    ]
    names = {rule.name for rule in rules} | {name for part in (causes, frames) for name, *_ in part.WORDS.values()}
    names |= {"own-actions", "objects-not-counted", "carried-scanner"}
    w = torch.rand(4, 3)
    trial: Any = Trial(Batch(w, w[:, :2], w), torch.arange(4))
    seen = Examination(*([torch.zeros(4, 1)] * 5), *([torch.ones(4, 1, dtype=torch.bool)] * 3), torch.zeros(4, 1), None)
    monkeypatch.setattr(examples, "examine", lambda model, batch: seen)
    probed = set(Probed(trial, np.arange(4), None).shows)
    array = {"idle", "unchanged", "duplicates", "contradictions", "clipped-actions"}
    assert names == probed | array | WHOLE
