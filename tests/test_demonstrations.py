"""Faults of logs of demonstrations: each is found, its advice names the cause, and good logs have no finding."""

from collections.abc import Iterator

import pytest
import torch
from faults import REACH, episode_log, episodes, mixture, wander
from torch import Tensor

import palpate
from palpate.data.transitions import Transitions
from palpate.doctor import probe
from palpate.doctor.check import Checkup
from palpate.doctor.demonstrations import judge_demonstrations
from palpate.doctor.verdict import judge
from palpate.geometry import Segment

COUNT, LENGTH = 50, 50  # episodes and their moves
FRAMES = 3  # of a row, in logs with stride
TURN = 1.08  # radians in a row, and a third more at most


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These small logs need half the steps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(probe, "STEPS", (200, 150))
    monkeypatch.setattr(probe, "MORE_STEPS", (100, 50))
    yield
    torch.set_num_threads(threads)


def names(triples: Transitions) -> tuple[dict[str, str], Checkup]:
    checkup = palpate.check(triples)
    assert checkup.probed
    return {finding.name: finding.severity for finding in checkup.findings}, checkup


def careful(agent: Tensor, thing: Tensor, generator: torch.Generator) -> Tensor:
    """Short moves, as between the frames of a demonstration."""
    way = wander(agent, thing, generator) - agent
    return agent + way * (0.1 / way.norm(dim=1, keepdim=True).clamp(min=1e-6)).clamp(max=1)


def straight_to_it(agent: Tensor, thing: Tensor, generator: torch.Generator) -> Tensor:
    way = thing - agent
    step = way * (0.2 / way.norm(dim=1, keepdim=True).clamp(min=1e-6)).clamp(max=1)
    return agent + step + 0.02 * torch.randn(agent.shape, generator=generator)


def mostly_away(agent: Tensor, thing: Tensor, generator: torch.Generator) -> Tensor:
    """Moves that touch the object only once in a while."""
    target = agent
    for _ in range(8):
        aim = wander(agent, thing, generator).clamp(0, 1)
        touches = Segment(agent, aim - agent).distance2(thing) < (REACH + 0.02) ** 2
        allowed = torch.rand(len(agent), generator=generator) < 0.0015
        target = torch.where(((target == agent).all(1) & (~touches | allowed))[:, None], aim, target)
    return target


def circling(frames_late: int, frames: int = FRAMES, seed: int = 0) -> Transitions:
    """Episodes of fast, smooth motion, a row every `frames` frames; the state is so many frames older than the picture,
    or newer if the number is negative."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(-frames, frames * (LENGTH + 2))[None, :, None]
    speed = TURN / frames * (1 + torch.rand(COUNT, 1, 2, generator=generator) / 3)  # radians in a frame
    path = 0.5 + 0.45 * torch.sin(speed * time + 6.3 * torch.rand(COUNT, 1, 2, generator=generator))

    def place(row: int, late: int = 0) -> Tensor:
        return path[:, frames * (row + 1) - late]

    thing, columns = 0.2 + 0.6 * torch.rand(COUNT, 2, generator=generator), []
    for row in range(LENGTH):
        hit = Segment(place(row), place(row + 1) - place(row)).distance2(thing) < 0.13**2
        landed = torch.where(hit[:, None], 0.2 + 0.6 * torch.rand(COUNT, 2, generator=generator), thing)
        action = place(row + 1, frames_late) - place(row, frames_late)
        columns.append((mixture(place(row), thing), action, mixture(place(row + 1), landed)))
        thing = landed
    o, a, o_next = (torch.stack(column, 1).flatten(0, 1) for column in zip(*columns, strict=True))
    return Transitions(
        observation=o,
        action=a,
        next_observation=o_next,
        episode=torch.arange(COUNT).repeat_interleave(LENGTH),
        attributes={"stride": frames},
    )


@pytest.mark.slow
class TestGood:
    def test_long_moves(self) -> None:
        found, checkup = names(episode_log(*episodes(COUNT, LENGTH)))
        assert found == {}
        assert abs(checkup.measured["actions_late"]) < 0.04

    def test_a_workspace_that_is_longer_than_wide(self) -> None:
        found, checkup = names(episode_log(*episodes(COUNT, LENGTH, width=0.5)))
        assert found == {}
        assert 0.4 < checkup.measured["width_over_length"] < 0.7

    def test_rows_every_few_frames(self) -> None:
        assert names(circling(0))[0] == {}


@pytest.mark.slow
class TestActions:
    @pytest.mark.parametrize(("shift", "when"), [(1, "late"), (-1, "early")])
    def test_of_another_row(self, shift: int, when: str) -> None:
        made, episode = episodes(COUNT, LENGTH)
        moved = (made.agent_next - made.agent).roll(shift, 0)
        found, checkup = names(episode_log(made, episode, moved))
        assert found["shifted-actions"] == "blocking"
        assert f"a row too {when}" in str(checkup)

    @pytest.mark.parametrize(("frames", "says"), [(1, "The state is older"), (-1, "The picture is older")])
    def test_a_state_that_is_a_frame_late_or_early_in_a_log_with_stride(self, frames: int, says: str) -> None:
        found, checkup = names(circling(frames))
        assert found["shifted-actions"] == "blocking"
        assert says in str(checkup)

    def test_one_frame_of_ten(self) -> None:
        """The residual is small, so nothing else is wrong."""
        found, checkup = names(circling(1, 10))
        assert found == {"shifted-actions": "warning"}
        assert "The state is older" in str(checkup)
        evidence = next(finding.evidence for finding in checkup.findings if finding.name == "shifted-actions")
        assert evidence["frames"] == pytest.approx(1, abs=0.5)
        assert evidence["rows"] == pytest.approx(evidence["frames"] / 10)

    def test_targets(self) -> None:
        """Up to a constant."""
        made, episode = episodes(COUNT, LENGTH)
        found, checkup = names(episode_log(made, episode, made.agent_next - torch.tensor([0.3, 0.2])))
        assert found["target-actions"] == "blocking"
        assert "the actions are targets" in str(checkup)

    def test_positions(self) -> None:
        made, episode = episodes(COUNT, LENGTH)
        found, checkup = names(episode_log(made, episode, made.agent))
        assert found["target-actions"] == "blocking"
        assert "the actions are positions" in str(checkup)

    def test_velocities_over_steps_of_different_duration(self) -> None:
        made, episode = episodes(COUNT, LENGTH)
        duration = torch.exp(torch.randn(len(episode), 1, generator=torch.Generator().manual_seed(0)))
        found, checkup = names(episode_log(made, episode, (made.agent_next - made.agent) / duration))
        assert found["changing-scale"] == "blocking"
        assert "look like velocities" in str(checkup)

    def test_joint_commands(self) -> None:
        """Seven numbers: the arrays show it."""
        made, episode = episodes(20, LENGTH)
        joints = (made.agent_next - made.agent) @ torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
        found = {
            finding.name: finding for finding in palpate.check(episode_log(made, episode, joints), probe=False).findings
        }
        assert "Joint angles and motor commands are not displacements" in found["many-dimensions"].advice


@pytest.mark.slow
class TestEpisodes:
    def test_that_never_miss_the_object(self) -> None:
        found, checkup = names(episode_log(*episodes(125, 20, straight_to_it)))
        assert found == {"never-misses": "warning"}
        assert "Add moves that pass the object" in str(checkup)
        assert checkup.measured["touched_episodes"] > 0.95

    def test_in_a_corridor(self) -> None:
        found, checkup = names(episode_log(*episodes(COUNT, LENGTH, width=0.1)))
        assert found["corridor"] == "warning"
        assert "moves across it" in str(checkup)
        assert checkup.measured["width"] == pytest.approx(0.1, abs=0.04)  # in the actions' unit

    def test_between_which_the_object_is_moved(self) -> None:
        found, checkup = names(episode_log(*episodes(100, 25, touching=False)))
        assert found["moved-between-episodes"] == "blocking"
        assert not {"no-contacts", "no-lasting-scene"} & set(found)
        assert "Record episodes in which the agent itself touches" in str(checkup)

    def test_with_few_contacts(self) -> None:
        """The object is also moved between the episodes, but a few triples show a contact."""
        made, episode = episodes(100, 25, mostly_away)
        assert 0.001 < made.contact.float().mean() < 0.012
        found, _ = names(episode_log(made, episode))
        assert "moved-between-episodes" not in found
        assert {"no-contacts", "few-contacts"} & set(found)

    def test_of_an_object_that_never_moves(self) -> None:
        made, episode = episodes(100, 25, touching=False)
        there = torch.full_like(made.object, 0.5)
        found, _ = names(episode_log(made._replace(object=there, object_next=there), episode))
        assert "moved-between-episodes" not in found
        assert "blocking" in found.values()


def test_rules_about_demonstrations_have_preconditions() -> None:
    """Positions that mean nothing, or an object that was not found, are not judged."""
    seen = {
        "residual": 0.9,
        "direction": 0.1,
        "reach_of_long_moves": 1.0,
        "probe_steps": 400.0,
        "width_over_length": 0.01,
        "width": 0.01,
        "length": 1.0,
        "passing_share": 0.0,
        "touched_episodes": 1.0,
        "scene_change_between_episodes": 1.0,
        "scene_change_within_episodes": 0.0,
        "changed_within_episodes": 0.0,
    }
    assert [f.name for f in judge_demonstrations(seen, judge(seen))] == ["not-displacements"]
    assert [f.name for f in judge_demonstrations(seen, judge(seen | {"direction": 0.99}))] == ["changing-scale"]
    good = seen | {
        "residual": 0.1,
        "stray_share": 0.0,
        "scene_spread": 2.0,
        "moving_share": 0.0,
        "contact_share": 0.0,
        "separation": 0.9,
        "held_rows": 900.0,
    }
    found = [f.name for f in judge_demonstrations(good, judge(good))]
    assert found == ["corridor", "moved-between-episodes"]
    restless = good | {"scene_change_within_episodes": 0.9}
    assert "moved-between-episodes" not in [f.name for f in judge_demonstrations(restless, judge(restless))]
    few = good | {"changed_within_episodes": 0.001, "moving_share": 0.001}
    assert [f.name for f in judge_demonstrations(few, judge(few))] == ["no-contacts", "corridor"]
    touched = good | {"moving_share": 0.3, "contact_share": 0.3, "explained": 0.9}
    assert [f.name for f in judge_demonstrations(touched, judge(touched))] == ["corridor", "never-misses"]
    unknown = {key: x for key, x in touched.items() if key not in ("passing_share", "width_over_length")}
    assert judge_demonstrations(unknown, judge(unknown)) == []
