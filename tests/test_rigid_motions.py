"""What agents that turn in the plane and in space share: laws of poses, actions and frames."""

import itertools

import pytest
import torch
from drawn import quick, randn, seeds
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from palpate.groups.rigid import RigidMotions
from palpate.groups.se2 import SE2
from palpate.groups.se3 import SE3
from palpate.objectives.equivariance import chain_equivariance
from palpate.quality import residual

every_group = pytest.mark.parametrize(
    "group",
    [SE2(), SE2(2), SE2(2, "straight"), SE3(), SE3("straight")],
    ids=["plane", "plane of two numbers", "plane straight", "space", "space straight"],
)


def poses(group: RigidMotions, count: int = 7, seed: int = 0) -> Tensor:
    return group.posed(randn(count, group.n + group.turn_width, seed=seed))


def moves(group: RigidMotions, *shape: int, seed: int = 0) -> Tensor:
    return randn(*shape, group.action_width, seed=seed)


@every_group
@quick
@given(seed=seeds)
def test_a_composition_acts_like_its_parts(group: RigidMotions, seed: int) -> None:
    z, actions = poses(group, seed=seed), moves(group, 7, 5, seed=seed + 1)
    reached = z
    for a in actions.unbind(1):
        reached = group.act(reached, a)
    assert_close(group.act(z, group.compose(actions)), reached)
    assert_close(group.complete(group.complete(actions)), group.complete(actions))


@every_group
def test_a_collapsed_model_has_a_residual(group: RigidMotions) -> None:
    """Without a heading the agent could not move by any action, and would seem to follow them all."""
    z, a = torch.zeros(50, group.pose_width, dtype=torch.float64), moves(group, 50)
    poses_of = group.flawless(z)
    assert group.flaw(poses_of).max() < 1e-20
    unit_of_actions = float(group.length2(a).mean().sqrt())
    assert residual(group, poses_of, a, poses_of, unit_of_actions) > 0.9 * unit_of_actions
    assert_close(group.flawless(poses(group)), poses(group))


@every_group
@quick
@given(seed=seeds)
def test_a_chain_has_no_loss_for_the_truth(group: RigidMotions, seed: int) -> None:
    """Also where the chain's first pose is not that of the network's frame."""
    count, width = 9, group.pose_width
    a, chain = moves(group, count, seed=seed), torch.arange(count) // 4
    travelled = group.travelled(a, chain)
    start = poses(group, 3, seed + 1)[chain]
    z = group.act(start, group.between(group.origin().double().expand(count, -1), travelled))
    after = group.act(z, a)
    assert chain_equivariance(group, z, a, after, chain, travelled).max() < 1e-20
    assert chain_equivariance(group, z + 0.1 * randn(count, width), a, after, chain, travelled).max() > 1e-4


@every_group
@quick
@given(seed=seeds, factor=st.floats(0.01, 100))
def test_another_unit_changes_lengths_alone(group: RigidMotions, seed: int, factor: float) -> None:
    z, a = poses(group, seed=seed), moves(group, 7, seed=seed + 1)
    after, larger = group.act(z, a), group.act(group.scaled_pose(z, factor), group.scaled(a, factor))
    assert_close(larger, group.scaled_pose(after, factor))
    assert_close(group.length2(group.scaled(a, factor)), factor**2 * group.length2(a))
    assert_close(larger[..., group.n :], after[..., group.n :])


@every_group
@quick
@given(seed=seeds)
def test_the_frame_is_the_best_rigid_motion(group: RigidMotions, seed: int) -> None:
    numbers = group.n + group.turn_width
    learned, motion = randn(30, group.n, seed=seed), randn(numbers, seed=seed + 1)
    assert_close(group.moved(learned, group.frame(learned, group.moved(learned, motion))), group.moved(learned, motion))
    noisy = group.moved(learned, motion) + 0.3 * randn(30, group.n, seed=seed + 2)
    frame = group.frame(learned, noisy)
    left = (noisy - group.moved(learned, frame)).square().sum()
    for nearby in 1e-3 * randn(20, numbers, seed=seed + 3):
        assert (noisy - group.moved(learned, frame + nearby)).square().sum() >= left
    assert_close(group.moved(learned, group.identity().double()), learned)
    assert_close(group.turned(learned, motion) + motion[: group.n], group.moved(learned, motion))


@every_group
def test_the_spread_is_the_mean_over_all_pairs(group: RigidMotions) -> None:
    z = poses(group, 6)
    pairs = [group.distance2(z[i], z[j]) for i, j in itertools.permutations(range(6), 2)]
    assert_close(group.spread2(z), torch.stack(pairs).mean())
