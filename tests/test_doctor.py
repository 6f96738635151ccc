"""Findings of the short training run: each fault is found, and good logs have none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults import States, log, mixture, noise, pictures, pushes, states
from several import Mixed

import palpate
from palpate.config import ObjectiveConfig
from palpate.contacts.slots import Slot
from palpate.contacts.witnesses import PLACES_FROM
from palpate.counting import Count
from palpate.data.stream import first_triples
from palpate.data.transitions import Batch, Transitions
from palpate.doctor import check, probe
from palpate.doctor import several as doctor_several
from palpate.doctor.examples import WHOLE
from palpate.doctor.probe import small
from palpate.doctor.several import SEVERAL, several
from palpate.doctor.verdict import judge, undecided
from palpate.geometry import Segment
from palpate.networks import Branch
from palpate.training.loop import Interrupted

COUNT = 2500
REACH = 0.12  # distance of centres at which agent and object touch


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These small logs need half the steps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(probe, "STEPS", (200, 150))
    monkeypatch.setattr(probe, "MORE_STEPS", (100, 50))
    yield
    torch.set_num_threads(threads)


def findings(triples: Transitions) -> dict[str, str]:
    checkup = palpate.check(triples)
    assert checkup.probed
    for finding in checkup.findings:
        rows = checkup.rows.get(finding.name, [])
        assert (not rows) == (finding.name in WHOLE), finding.name
        assert set(rows) <= set(range(len(triples)))
    return {finding.name: finding.severity for finding in checkup.findings}


def test_a_run_that_is_too_short_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SECONDS", 0.0)
    checkup = palpate.check(log(states(COUNT, 0.3, seed=0)))
    assert not checkup.probed
    assert "\ncut short: the training run ended after 0 of 200 steps" in str(checkup)
    assert "\nnot judged: the arrays have no blocking problems, but the training run was too short" in str(checkup)
    assert "residual" not in checkup.measured


def test_a_longer_run_that_is_cut_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hurried(probe.Trial):
        def train(self, *, first: bool) -> bool:
            assert torch.get_num_threads() == 1
            self.deadline = self.deadline if first else 0.0
            return super().train(first=first)

    monkeypatch.setattr(probe, "STEPS", (20, 20))
    monkeypatch.setattr(check, "Trial", Hurried)
    monkeypatch.setattr(check, "undecided", lambda seen: True)
    torch.set_num_threads(2)
    cut = palpate.check(log(states(COUNT, 0.3, seed=0)))
    assert torch.get_num_threads() == 2  # as before
    assert cut.probed
    assert "\ncut short: the training run ended after 20 of 120 steps" in str(cut)
    monkeypatch.setattr(check, "undecided", lambda seen: False)
    assert "cut short" not in str(palpate.check(log(states(COUNT, 0.3, seed=0))))


def test_an_undecided_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "STEPS", (20, 20))
    monkeypatch.setattr(probe, "MORE_STEPS", (100, 100))  # long enough for searches
    monkeypatch.setattr(check, "undecided", lambda seen: True)
    checkup = palpate.check(log(states(COUNT, 0.3, seed=0)))
    assert checkup.probed
    assert checkup.measured["probe_steps"] == 120


def some(keep: Callable[[States], torch.Tensor], share: float = 0.3) -> States:
    """Triples of which this holds."""
    many = states(25_000, share, seed=4)
    kept = keep(many)
    return States(*(x[kept][:COUNT] for x in many))


def walk() -> States:
    """One long episode in order of time."""
    generator = torch.Generator().manual_seed(2)
    target = torch.rand(COUNT, 2, generator=generator)
    landing = 0.2 + 0.6 * torch.rand(COUNT, 2, generator=generator)
    agent, thing = [torch.zeros(2)], [torch.full((2,), 0.5)]
    for to, land in zip(target, landing, strict=True):
        hit = Segment(agent[-1], to - agent[-1]).distance2(thing[-1]) < 0.13**2
        agent.append(to)
        thing.append(land if hit else thing[-1])
    places, things = torch.stack(agent), torch.stack(thing)
    return States(places[:-1], things[:-1], places[1:], things[1:], (things[1:] != things[:-1]).any(1))


@pytest.mark.slow
class TestGood:
    def test_rare_contacts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "STEPS", (400, 300))
        assert findings(log(states(COUNT, 0.04))) == {}

    @pytest.mark.slow
    def test_space(self) -> None:
        assert findings(log(states(COUNT, 0.5, sides=(1.0, 1.0, 1.0)))) == {}

    @pytest.mark.slow
    def test_pictures_in_millimetres(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "STEPS", (0, 250))
        made = states(COUNT, 0.3)
        assert findings(log(made, 1000 * (made.agent_next - made.agent), pictures(24))) == {}

    @pytest.mark.slow
    def test_an_episode_in_order_of_time(self) -> None:
        assert findings(log(walk())) == {}


@pytest.mark.slow
class TestFaults:
    def test_an_agent_in_one_of_two_rooms_that_look_the_same(self) -> None:
        def seen(agent: torch.Tensor, thing: torch.Tensor) -> torch.Tensor:
            return mixture(torch.stack(((2 * agent[:, 0]) % 1, agent[:, 1]), 1), thing)

        assert findings(log(states(COUNT), see=seen)) == {"not-displacements": "blocking"}

    @pytest.mark.slow
    def test_actions_of_another_row(self) -> None:
        made = walk()
        checkup = palpate.check(log(made, (made.agent_next - made.agent).roll(1, 0)))
        assert {finding.name for finding in checkup.findings} == {"shifted-actions"}
        assert "a row too late" in str(checkup)

    @pytest.mark.slow
    def test_commands_that_are_not_reached(self) -> None:
        made = states(COUNT)
        command = made.agent_next - made.agent
        moved = command * (0.4 / command.norm(dim=1, keepdim=True)).clamp(max=1)
        assert set(findings(log(made._replace(agent_next=made.agent + moved), command))) == {"saturated-actions"}

    @pytest.mark.slow
    def test_no_contacts(self) -> None:
        assert findings(log(states(COUNT, 0.0))) == {"no-contacts": "blocking"}

    @pytest.mark.slow
    def test_few_contacts(self) -> None:
        assert set(findings(log(states(6000, 0.01)))) == {"few-contacts"}

    @pytest.mark.slow
    def test_an_object_that_cannot_be_seen(self) -> None:
        found = findings(log(states(COUNT), see=lambda agent, thing: mixture(agent, agent)))
        assert found == {"no-lasting-scene": "blocking"}

    @pytest.mark.slow
    def test_an_object_that_drifts(self) -> None:
        made = states(COUNT)
        drifted = made.object_next + 0.05 * noise(made.object.shape)
        drifting = made._replace(object_next=torch.where(made.contact[:, None], made.object_next, drifted))
        assert findings(log(drifting)) == {"no-two-classes": "blocking"}

    @pytest.mark.slow
    def test_an_object_that_jumps_by_itself(self) -> None:
        made = states(COUNT, 0.1)
        jumps = (noise((COUNT,), 5) > 0.8) & ~made.contact
        landing = 0.5 + 0.3 * (2 * torch.rand(COUNT, 2, generator=torch.Generator().manual_seed(6)) - 1)
        made = made._replace(object_next=torch.where(jumps[:, None], landing, made.object_next))
        checkup = palpate.check(log(made))
        assert {finding.name for finding in checkup.findings} == {"unexplained-contacts"}
        assert jumps[checkup.rows["unexplained-contacts"]].double().mean() > 0.5  # by chance 0.2

    @pytest.mark.slow
    def test_an_object_out_of_reach(self) -> None:
        left = some(lambda s: (s.agent[:, 0] < 0.4) & (s.agent_next[:, 0] < 0.4))
        assert set(findings(log(left))) == {"unreachable"}

    @pytest.mark.slow
    def test_two_rooms_without_a_door(self) -> None:
        def stays(s: States) -> torch.Tensor:
            left, right = ((s.agent[:, 0] < 0.4) & (s.agent_next[:, 0] < 0.4) for s in (s, _mirrored(s)))
            return left | right

        assert findings(log(some(stays)))["disconnected"] == "blocking"


def _mirrored(s: States) -> States:
    return s._replace(agent=1 - s.agent, agent_next=1 - s.agent_next)


class TestUse:
    def test_blocking_findings_skip_the_probe(self) -> None:
        o = np.zeros((COUNT, 4), np.float32)
        checkup = palpate.check(Transitions(observation=o, action=np.ones((COUNT, 2)), next_observation=o))
        assert not checkup.probed
        assert not checkup.good

    def test_a_file(self, tmp_path: Path) -> None:
        log(states(400)).save(tmp_path / "log.h5")
        assert [f.name for f in palpate.check(tmp_path / "log.h5", probe=False).findings] == ["too-few"]
        with pytest.raises(FileNotFoundError, match="there is no file"):
            palpate.check(tmp_path / "none.h5")

    @pytest.mark.slow
    def test_the_same_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "STEPS", (10, 10))
        monkeypatch.setattr(probe, "MORE_STEPS", (10, 10))
        one, two = (palpate.check(log(states(600))).measured for _ in range(2))
        assert one == two

    def test_an_interrupted_probe_cannot_be_resumed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*_: Any, **__: Any) -> None:
            raise Interrupted("stopped after step 3 of 9")

        monkeypatch.setattr(probe, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            palpate.check(log(states(COUNT)))

    def test_labelled_data_are_refused(self) -> None:
        triples = log(states(COUNT))
        with pytest.raises(
            ValueError, match=r"data is Labelled\(.*; allowed are Transitions, .* A Labelled has .trans"
        ):
            palpate.check(palpate.Labelled(triples, palpate.Truth(triples.action, triples.action)))  # type: ignore[arg-type]

    @pytest.mark.slow
    def test_on_a_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Positions are not judged there."""
        monkeypatch.setattr(probe, "STEPS", (20, 20))
        monkeypatch.setattr(probe, "MORE_STEPS", (20, 20))
        assert palpate.check(log(states(600, sides=(1.0,)))).probed

    def test_large_pictures_are_made_small(self) -> None:
        o = np.zeros((4, 90, 200, 3), np.uint8)
        triples = Transitions(observation=o, action=np.ones((4, 2)), next_observation=o)
        assert small(triples, np.arange(4)).o.shape == (4, 3, 12, 28)


def told(scene: Callable[[States], States]) -> tuple[dict[str, float], dict[str, str], bool]:
    """Measurements and findings of a probe whose positions are exact, while W also follows the agent a little; and
    whether positions lead."""
    made = scene(pushes(120, REACH))

    def see(agent: torch.Tensor, thing: torch.Tensor) -> torch.Tensor:
        return torch.cat((agent, thing), 1)

    rows = small(log(made, see=see), np.arange(len(made.contact)))
    trial = probe.Trial(rows, 0.0, progress=False, scene=ObjectiveConfig())
    model, x = trial.model, trial.model.inputs(rows.o)
    unit = model.inputs.unit

    def read_out(branch: Branch, *columns: torch.Tensor) -> None:
        """The branch becomes the affine map from scaled observations to these numbers."""
        basis = torch.cat((x, torch.ones(len(x), 1)), 1).double()
        found = torch.linalg.lstsq(basis, torch.cat(columns, 1).double()).solution.float()
        branch.encoder, branch.head = torch.nn.Identity(), torch.nn.Linear(4, found.shape[1])
        branch.head.weight.data, branch.head.bias.data = found[:-1].T.contiguous(), found[-1]

    agent, thing = rows.o.split(2, 1)
    read_out(model.phi_int, agent / unit)
    read_out(model.phi_ext, thing / unit, torch.full((len(x), 1), -8.0))  # never hidden
    read_out(model.phi_cont, thing - 0.5, agent - 0.5, torch.full((len(x), 4), 0.1))
    model.head[0].log_radius.data.copy_((REACH / unit).log())
    model.train()
    for batch in zip(*(side.split(256) for side in trial.kept), strict=True):
        model.loss(Batch(*batch), torch.Generator(), torch.tensor(PLACES_FROM))
    model.eval()
    seen = trial.measure()
    return seen, {finding.name: finding.severity for finding in judge(seen)}, bool(model.scenes.lead[0])


def test_small_pushes_are_found_by_the_objects_positions() -> None:
    """As in `fit`. Without positions, these data would have a finding."""
    seen, found, lead = told(lambda made: made)
    assert (found, lead) == ({}, True)
    assert seen["separation"] > 0.8
    assert seen["explained"] > 0.95


def test_pushes_of_an_object_that_drifts_are_not_found() -> None:
    def drifting(made: States) -> States:
        drifted = made.object_next + 0.05 * noise(made.object.shape)
        return made._replace(object_next=torch.where(made.contact[:, None], made.object_next, drifted))

    seen, found, _ = told(drifting)
    assert set(found) == {"no-two-classes"}
    assert seen["separation"] < 0.2


def pairs(objects: int) -> Transitions:
    drawn = first_triples(Mixed(objects), 4000, torch.Generator().manual_seed(0))
    return Transitions(observation=drawn.o, action=drawn.a, next_observation=drawn.o_next)


@pytest.mark.slow
@pytest.mark.parametrize("objects", [1, 2])
def test_a_second_object_is_found(objects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are those in which it moved and the first one did not."""
    monkeypatch.setattr(check, "several", several)
    checkup = palpate.check(pairs(objects))
    found = {finding.name: finding.severity for finding in checkup.findings}
    assert (found.get("several-objects") == "warning") == (objects == 2)
    assert checkup.measured["objects"] == objects
    assert (len(checkup.rows.get("several-objects", [])) > 4) == (objects == 2)


def test_a_second_object_is_not_looked_for_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "several", several)
    monkeypatch.setattr(doctor_several, "COUNTING_SECONDS", 0.0)
    checkup = palpate.check(pairs(2))
    assert [(finding.name, finding.severity) for finding in checkup.findings] == [("objects-not-counted", "note")]
    assert checkup.rows == {}
    assert "objects" not in checkup.measured


def test_three_objects_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search may end with more than enough. The rows are those in which the second surest moved, not the surest."""
    moved = torch.tensor([[True, True, False], [True, False, False], [False, True, True], [False, False, True]])
    slots = [Slot("object", touched, 0.1, 0.0) for touched in (0.8, 0.9, 0.7)]
    monkeypatch.setattr(doctor_several, "count_objects", lambda *rows, **options: Count(slots, moved, 0.0))
    trial = probe.Trial(small(pairs(2), np.arange(500)), 0.0, False, ObjectiveConfig())
    looked = several(trial, ObjectiveConfig())
    assert [finding.name for finding in looked.findings] == ["several-objects"]
    assert (looked.measured["objects"], looked.measured["moves_if_touched"]) == (3, 0.8)
    assert looked.rows.tolist() == [False, True, False, False]
    few = probe.Trial(small(pairs(2), np.arange(400)), 0.0, False, ObjectiveConfig())  # 80 to judge by
    assert several(few, ObjectiveConfig()).measured == {}


@pytest.mark.parametrize(("objects", "names"), [(1, []), (2, ["several-objects"]), (3, ["several-objects"])])
def test_several_objects_are_a_warning(objects: int, names: list[str]) -> None:
    seen = {"objects": float(objects), "moves_if_touched": 0.9, "moves_otherwise": 0.1}
    assert [finding.name for finding in SEVERAL.judge(seen)] == names


def test_a_finding_with_a_failed_precondition_is_not_judged() -> None:
    seen = {
        "residual": 0.9,
        "reach_of_long_moves": 0.1,
        "probe_steps": 1.0,
        "stray_share": 0.9,
        "scene_spread": 0.0,
        "moving_share": 0.0,
        "separation": -1.0,
        "held_rows": 900.0,
    }
    assert [finding.name for finding in judge(seen)] == ["not-displacements"]
    good = seen | {"residual": 0.1, "reach_of_long_moves": 1.0, "stray_share": 0.0}
    assert [finding.name for finding in judge(good)] == ["no-lasting-scene"]
    assert [finding.name for finding in judge(good | {"scene_spread": 2.0})] == ["no-contacts"]
    assert judge(good | {"scene_spread": 2.0, "moving_share": 0.3, "separation": 0.9}) == []


def test_small_motions_of_the_object_count_as_contacts() -> None:
    """They are smaller than the difference of unrelated scenes, but the agent's path explains them."""
    seen = {
        "residual": 0.03,
        "reach_of_long_moves": 1.0,
        "probe_steps": 1600.0,
        "stray_share": 0.0,
        "scene_spread": 2.0,
        "moving_share": 0.0,
        "contact_share": 0.3,
        "separation": 0.7,
        "explained": 0.9,
        "held_rows": 1200.0,
    }
    assert judge(seen) == []
    (unclear,) = judge(seen | {"separation": -0.2})
    assert (unclear.name, unclear.severity) == ("no-two-classes", "warning")  # geometry knows the contacts already
    assert "a full training may separate them" in str(unclear)
    for otherwise in ({"explained": 0.62, "contact_share": 0.3, "moving_share": 0.1}, {"moving_share": 0.3}):
        (forbidden,) = judge(seen | {"separation": -0.2} | otherwise)
        assert (forbidden.name, forbidden.severity) == ("no-two-classes", "blocking")
        assert "a full training" not in str(forbidden)
    assert [finding.name for finding in judge(seen | {"contact_share": 0.01})] == ["few-contacts"]
    assert [finding.name for finding in judge(seen | {"explained": 0.55})] == ["no-contacts"]
    early = seen | {"separation": 0.2, "explained": 0.6}
    assert undecided(early)
    assert not undecided(early | {"explained": 0.55})
    assert undecided(seen | {"explained": 0.9})  # a longer run may show that objects are hidden
    assert not undecided(seen | {"explained": 0.97})
