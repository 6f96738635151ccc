"""The laws of a group's actions, for every group."""

import pytest
import torch
from drawn import dimensions, quick, randn, seeds
from hypothesis import given
from tilted import Tilted
from torch.testing import assert_close

from palpate.groups.base import Group
from palpate.groups.translations import Translations


def groups(n: int) -> list[Group]:
    return [Translations(n), *([Tilted()] if n == 2 else [])]


@quick
@given(seed=seeds, n=dimensions)
def test_actions_and_poses(seed: int, n: int) -> None:
    for group in groups(n):
        z, z_next = (group.pose(randn(5, group.width, seed=seed + i)) for i in range(2))
        a = group.between(z, z_next)
        assert z.shape == (5, group.pose_width)
        assert a.shape == (5, group.action_width)
        assert_close(group.act(z, a), z_next)
        assert_close(group.start(z, a, z_next), z)
        assert_close(group.between(z, group.act(z, a)), a)
        for point, pose in ((0.0, z), (1.0, z_next)):
            reached = group.path(z, a).at(torch.full((5,), point, dtype=torch.float64))
            assert_close(reached, group.position(pose))


@quick
@given(seed=seeds, n=dimensions)
def test_actions_lead_towards_a_position(seed: int, n: int) -> None:
    for group in groups(n):
        z, place = group.pose(randn(5, group.width, seed=seed)), randn(5, n, seed=seed + 1)
        for a in group.towards(z, place).unbind(1):
            z = group.act(z, a)
        assert_close(group.position(z), place)


@quick
@given(seed=seeds, n=dimensions)
def test_a_sequence_of_actions_is_one_action(seed: int, n: int) -> None:
    for group in groups(n):
        z, actions = group.pose(randn(5, group.width, seed=seed)), randn(5, 3, group.action_width, seed=seed + 1)
        stepwise = z
        for a in actions.unbind(1):
            stepwise = group.act(stepwise, a)
        assert_close(group.act(z, group.compose(actions)), stepwise)
        assert_close(group.compose(actions[:, :1]), actions[:, 0])


@quick
@given(seed=seeds, n=dimensions)
def test_what_is_travelled_is_the_sequence_of_actions_since_the_chain_began(seed: int, n: int) -> None:
    chain = torch.tensor([3, 4, 4, 4, 7, 7])
    for group in groups(n):
        actions = randn(6, group.action_width, seed=seed)
        travelled = group.travelled(actions, chain)
        first = group.origin().to(actions)
        for row, since in enumerate([[], [], [1], [1, 2], [], [4]]):
            reached = group.act(first, group.compose(actions[since])) if since else first
            assert_close(travelled[row], reached)


@quick
@given(seed=seeds, n=dimensions)
def test_place_and_seen_are_inverse(seed: int, n: int) -> None:
    for group in groups(n):
        z, seen = group.pose(randn(5, 1, group.width, seed=seed)), randn(5, 3, n, seed=seed + 1)  # k = 3 objects
        assert_close(group.seen(z, group.place(z, seen)), seen)
        assert_close(group.place(z, group.seen(z, seen)), seen)
        assert_close(group.place(z, torch.zeros_like(seen)), group.position(z).expand_as(seen))


@quick
@given(seed=seeds, n=dimensions)
def test_the_distance_of_poses(seed: int, n: int) -> None:
    for group in groups(n):
        z, other = (group.pose(randn(5, group.width, seed=seed + i)) for i in range(2))
        a = randn(1, group.action_width, seed=seed + 2)
        distance2 = group.distance2(z, other)
        assert_close(group.distance2(other, z), distance2)
        assert_close(group.distance2(group.act(z, a), group.act(other, a)), distance2)
        assert_close(group.distance2(z, z), torch.zeros_like(distance2))
        assert_close(group.length2(group.between(z, other)), distance2)
        assert_close(group.length2(group.scaled(group.between(z, other), 3.0)), 9 * distance2)
        larger, larger_other = group.scaled_pose(z, 3.0), group.scaled_pose(other, 3.0)
        assert_close(group.between(larger, larger_other), group.scaled(group.between(z, other), 3.0))
        assert_close(group.position(larger), 3 * group.position(z))
        started = group.start(z, group.between(z, z), other)  # of two estimates that differ, midway
        assert_close(group.distance2(z, started), distance2 / 4)
        assert_close(group.distance2(started, other), distance2 / 4)


@pytest.mark.parametrize("group", [*groups(2), *groups(3)], ids=lambda group: type(group).__name__)
def test_the_spread_is_the_mean_over_all_pairs(group: Group) -> None:
    z = group.pose(randn(6, group.width))
    pairs = [group.distance2(z[i], z[j]) for i in range(6) for j in range(6) if i != j]
    assert_close(group.spread2(z), torch.stack(pairs).mean())


@quick
@given(seed=seeds, n=dimensions)
def test_the_frame_recovers_a_known_motion(seed: int, n: int) -> None:
    for group in groups(n):
        learned, motion = randn(30, n, seed=seed), group.frame(torch.zeros(1, n), randn(1, n, seed=seed + 1))
        true = group.moved(learned, motion)
        assert_close(group.moved(learned, group.frame(learned, true)), true)
        noisy = true + 0.1 * randn(30, n, seed=seed + 2)
        left = (noisy - group.moved(learned, group.frame(learned, noisy))).square().sum()
        assert left < (noisy - true).square().sum()  # least squares fit the noise too
        assert_close(group.moved(learned, group.identity().double()), learned)
        assert len(group.identity()) == len(motion)
        assert_close(group.difference(learned, true), learned - true)
