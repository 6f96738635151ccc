"""Findings from the arrays of a log: each fault is found, and good logs have none."""

from typing import Any

import numpy as np
import pytest
import torch
from balls import balls

from palpate.collecting.collect import collect
from palpate.data.transitions import Transitions
from palpate.doctor.check import Checkup, check
from palpate.findings import Finding

COUNT = 1200


def good(count: int = COUNT, **options: Any) -> Transitions:
    return balls(count, seed=0, **options).transitions


def changed(triples: Transitions, **columns: Any) -> Transitions:
    o, a, o_next = (x.numpy().copy() for x in triples.rows(slice(None)))
    given = {"observation": o, "action": a, "next_observation": o_next} | columns
    return Transitions(**given, layout="channel-first")


def names(triples: Transitions) -> dict[str, str]:
    return {finding.name: finding.severity for finding in check(triples, probe=False).findings}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sides": (640.0, 480.0), "view": "picture", "pixels": (24, 32)},
        {"sides": (1.0, 1.0, 1.0), "contact_share": 0.02},
        {"sides": (0.001, 0.001), "contact_share": 0.9},
    ],
)
def test_good_logs_have_no_findings(options: dict[str, Any]) -> None:
    assert names(good(**options)) == {}


def test_large_pictures_have_a_hint() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (7, 300, 480, 3), np.uint8)
    triples = Transitions(observation=pictures, action=np.eye(7)[:, :2], next_observation=pictures[::-1])
    (found,) = (finding for finding in check(triples, probe=False).findings if finding.name == "large-pictures")
    assert found.severity == "warning"
    assert found.evidence == {"picture_side": 480, "side_on_cpu": 60, "side_on_gpu": 120, "cost_of_full_size": 64}
    assert "shrink=1" in found.advice
    small = pictures[:, :256, :256]
    triples = Transitions(observation=small, action=np.eye(7)[:, :2], next_observation=small[::-1])
    assert "large-pictures" not in names(triples)


@pytest.mark.parametrize("env", ["palpate/Sprites-v0", "palpate/SpritesBackground-v0"])
def test_our_worlds_have_none(env: str) -> None:
    assert names(collect(env, COUNT, seed=0, size=20)) == {}


def test_moves_on_a_grid_have_no_findings() -> None:
    """Few different actions, repeated observations and repeated moves are allowed."""
    rng = np.random.default_rng(0)
    place = rng.integers(0, 8, (COUNT, 2))
    target = rng.integers(0, 8, (COUNT, 2))
    thing = rng.random((COUNT, 2))

    def seen(at: np.ndarray) -> np.ndarray:
        return np.hstack((at, thing)).astype(np.float32)

    triples = Transitions(observation=seen(place), action=target - place, next_observation=seen(target))
    assert names(triples) == {}


class TestFaults:
    def test_too_few(self) -> None:
        assert names(good(200)) == {"too-few": "blocking"}
        assert names(good(600)) == {"too-few": "warning"}

    def test_nothing_moves(self) -> None:
        assert names(changed(good(), action=np.zeros((COUNT, 2)))) == {"no-motion": "blocking"}

    def test_a_dead_camera(self) -> None:
        o = np.full((COUNT, 1, 20, 20), 7, np.uint8)
        still = Transitions(observation=o, action=good().action, next_observation=o, layout="channel-first")
        assert names(still) == {"constant-observation": "blocking"}

    @pytest.mark.parametrize(("share", "severity"), [(0.1, "warning"), (0.6, "blocking")])
    def test_rows_where_nothing_changes(self, share: float, severity: str) -> None:
        triples = good()
        o, _, o_next = (x.numpy().copy() for x in triples.rows(slice(None)))
        o_next[: int(share * COUNT)] = o[: int(share * COUNT)]
        assert names(changed(triples, next_observation=o_next)) == {"unchanged": severity}

    @pytest.mark.parametrize(("share", "severity"), [(0.3, "warning"), (0.95, "blocking")])
    def test_idle_rows(self, share: float, severity: str) -> None:
        triples = good()
        o, a, o_next = (x.numpy().copy() for x in triples.rows(slice(None)))
        still = slice(0, int(share * COUNT))
        a[still], o_next[still] = 0, o[still]
        assert names(changed(triples, action=a, next_observation=o_next)) == {"idle": severity}

    def test_duplicates(self) -> None:
        assert names(good().subset(np.arange(3 * COUNT) % COUNT)) == {"duplicates": "warning"}
        assert names(good().subset(np.arange(COUNT) % 200)) == {"duplicates": "warning", "too-few": "blocking"}

    def test_a_direction_never_taken(self) -> None:
        flat = good().action.numpy() @ np.array([[0.6, 0.8], [0.6, 0.8]])  # all along one line, not along an axis
        assert names(changed(good(), action=flat)) == {"flat": "blocking"}

    @pytest.mark.parametrize("seed", range(4))
    def test_a_plane_in_space(self, seed: int) -> None:
        """Rounding makes the smallest eigenvalue slightly positive or negative."""
        rng = np.random.default_rng(seed)
        plane = rng.normal(size=(COUNT, 2)) @ rng.normal(size=(2, 3))
        assert names(changed(good(), action=plane)) == {"flat": "blocking"}

    @pytest.mark.parametrize(
        ("n", "found"), [(1, {"one-dimension": "warning"}), (3, {}), (4, {"many-dimensions": "warning"})]
    )
    def test_more_numbers_than_space_has_dimensions(self, n: int, found: dict[str, str]) -> None:
        assert names(changed(good(), action=np.random.default_rng(0).normal(size=(COUNT, n)))) == found

    def test_clipped_actions(self) -> None:
        assert names(changed(good(), action=good().action.clamp(-0.2, 0.2))) == {"clipped-actions": "warning"}

    def test_aliased_observations(self) -> None:
        """A sensor that shows only in which quarter of the box the agent is."""
        rows = balls(COUNT, seed=0)
        blind = [(x > 0.5).float() for x in (rows.truth.agent, rows.truth.agent_next)]
        moved = (blind[0] != blind[1]).any(1)  # the others are found as unchanged
        triples = Transitions(observation=blind[0], action=rows.transitions.action, next_observation=blind[1])
        assert names(triples.subset(moved.numpy()))["contradictions"] == "blocking"

    def test_evidence_and_advice(self) -> None:
        (finding,) = check(good(200), probe=False).findings
        assert finding.evidence == {"different_triples": 200}
        assert str(finding).startswith("there are few different triples (different_triples 200). Collect at least")


def test_consecutive_rows_are_detected() -> None:
    walk = np.cumsum(np.random.default_rng(0).normal(size=(COUNT + 1, 2)), 0).astype(np.float32)
    triples = Transitions(observation=walk[:-1], action=np.diff(walk, axis=0), next_observation=walk[1:])
    assert check(triples, probe=False).measured["in_order"] == pytest.approx(1, abs=1e-3)
    assert check(good(), probe=False).measured["in_order"] == 0


def test_findings_have_rows_that_show_them() -> None:
    rng = np.random.default_rng(0)
    o, a, o_next = rng.normal(size=(400, 4)), rng.normal(size=(400, 2)), rng.normal(size=(400, 4))
    a[10:130] = 0  # idle
    o_next[200:280] = o[200:280]  # unchanged
    o[300], a[300], o_next[300] = o[301], a[301], o_next[301]
    found = check(Transitions(observation=o, action=a, next_observation=o_next), probe=False)
    assert found.rows["idle"] == list(range(10, 18))
    assert found.rows["unchanged"] == list(range(200, 208))
    assert "too-few" not in found.rows
    assert "too-few" in {finding.name for finding in found.findings}


def test_rows_of_contradictions_copies_and_clipped_actions() -> None:
    rng = np.random.default_rng(0)
    o, a, o_next = rng.normal(size=(100, 4)), rng.normal(size=(100, 2)), rng.normal(size=(100, 4))
    o[1], o_next[1] = o[0], o_next[0]
    a[0], a[1] = 1, -1
    for x in (o, a, o_next):
        x[50:60] = x[40:50]
    rows = check(Transitions(observation=o, action=a, next_observation=o_next), probe=False).rows
    assert rows["contradictions"] == [0, 1]
    assert rows["duplicates"] == list(range(40, 48))
    rows = check(Transitions(observation=o, action=a.clip(-1, 0.5), next_observation=o_next), probe=False).rows
    assert rows["clipped-actions"] == np.flatnonzero(((a <= -1) | (a >= 0.5)).any(1))[:8].tolist()


@pytest.mark.parametrize(("group", "width", "turns"), [("se2", 3, 1), ("se3", 6, 3)])
def test_a_turn_is_as_far_as_a_displacement(group: Any, width: int, turns: int) -> None:
    """In millimetres, too: a turn in place is no rest, and two different turns between the same observations contradict
    each other."""
    rng = np.random.default_rng(0)
    o, a, o_next = rng.normal(size=(400, 4)), rng.normal(size=(400, width)), rng.normal(size=(400, 4))
    a[:, :-turns] *= 100
    a[:2] = 0
    a[:2, -1] = 0.05, 1.5
    a[3], o[3], o_next[3] = a[2], o[2], o_next[2]
    a[3, -1] += 1.0
    a[20:120] = 0
    found = check(Transitions(observation=o, action=a, next_observation=o_next), group=group, probe=False)
    assert found.measured["idle"] == pytest.approx(0.25)
    assert found.rows["idle"] == list(range(20, 28))
    assert found.measured["contradictions"] == pytest.approx(2 / 400)
    o[3:20], o_next[3:20] = o[2], o_next[2]
    found = check(Transitions(observation=o, action=a, next_observation=o_next), group=group, probe=False)
    assert found.rows["contradictions"][:2] == [2, 3]


def test_rows_that_differ_in_one_bit_are_different() -> None:
    triples = good(view="picture")
    o = triples.rows(slice(None)).o.numpy().copy()
    o_next = o.copy()
    o_next[:, 0, 31, 31] ^= 1
    assert check(changed(triples, observation=o, next_observation=o_next), probe=False).measured["unchanged"] == 0


def test_text_of_a_checkup() -> None:
    worst = Finding("b", "blocking", "what is wrong", {"share": 0.5}, "Do this.")
    mild = Finding("a", "warning", "less", {"share": 0.1}, "Do that.")
    found = Checkup(findings=[worst, mild], measured={"triples": 1200, "action_rms": 0.25})
    assert str(found).splitlines() == [
        "blocking: b: what is wrong (share 0.5). Do this.",
        "warning: a: less (share 0.1). Do that.",
        "measured: triples 1,200, action rms 0.25",
        "blocking problems: do not train on these data as they are",
    ]
    assert (found.good, Checkup(findings=[mild]).good, Checkup().good) == (False, True, True)


def test_the_blocks_of_a_large_set_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = check(good(), probe=False).measured
    monkeypatch.setattr("palpate.data.transitions.BLOCK_BYTES", 64 * 1024)
    assert len(list(good().blocks())) > 3
    assert check(good(), probe=False).measured == whole
    assert torch.is_tensor(good().action)
