"""`check` finds that the agent carries a scanner, and does not judge the object then."""

from collections.abc import Iterator

import pytest
import torch

import palpate
from palpate.doctor import probe
from palpate.doctor.verdict import judge, undecided
from palpate.envs.lidar import Lidar, LidarTurning

COUNT = 2000
OF_OBJECTS = {"separation", "contact_share", "moving_share", "explained", "hidden_share"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs just long enough for what is tested."""
    monkeypatch.setattr(probe, "STEPS", (60, 60))
    monkeypatch.setattr(probe, "MORE_STEPS", (30, 30))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def scans(world: type[Lidar]) -> palpate.Transitions:
    made = world()
    triple = made.sample(COUNT, torch.Generator().manual_seed(0))
    o, o_next = made.render_pair(triple)
    return palpate.Transitions(observation=o, action=triple.displacement, next_observation=o_next)


@pytest.mark.parametrize(("world", "steps"), [(Lidar, 200), (LidarTurning, 60)])
def test_a_carried_scanner_is_noted_and_objects_are_not_judged(
    monkeypatch: pytest.MonkeyPatch, world: type[Lidar], steps: int
) -> None:
    """A short run does not find the heading in scans, so that is no reason not to train."""
    monkeypatch.setattr(probe, "STEPS", (steps, steps))
    checkup = palpate.check(scans(world), group="se2" if world is LidarTurning else "translations")
    assert checkup.good, checkup
    assert [finding.name for finding in checkup.findings if finding.severity == "note"] == ["carried-scanner"]
    assert "residual" in checkup.measured
    assert not OF_OBJECTS & checkup.measured.keys()


def test_wrong_actions_are_found_with_a_carried_scanner() -> None:
    log = scans(Lidar)
    shuffled = log.action[torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))]
    o, o_next = log.rows(slice(None)).o, log.rows(slice(None)).o_next
    checkup = palpate.check(palpate.Transitions(observation=o, action=shuffled, next_observation=o_next))
    assert {finding.name: finding.severity for finding in checkup.findings} == {
        "not-displacements": "blocking",
        "carried-scanner": "note",
    }


def test_vectors_that_are_no_scans_are_judged_as_before() -> None:
    draw = torch.Generator().manual_seed(0)
    o, a = torch.randn(COUNT, 40, generator=draw), torch.randn(COUNT, 2, generator=draw)
    o_next = torch.randn(COUNT, 40, generator=draw)
    checkup = palpate.check(palpate.Transitions(observation=o, action=a, next_observation=o_next))
    assert "carried-scanner" not in {finding.name for finding in checkup.findings}
    assert OF_OBJECTS & checkup.measured.keys()


def test_an_agent_alone_needs_a_longer_run_only_for_its_residual() -> None:
    seen = {"residual": 0.1, "reach_of_long_moves": 1.0, "direction": 0.99, "stray_share": 0.0, "probe_steps": 400.0}
    assert judge(seen) == []
    assert not undecided(seen)
    assert undecided(seen | {"residual": 0.4})
