"""SE(2): agents that turn. Closed forms, paths, gradients, and what the losses leave undetermined."""

import itertools
import math
from typing import Any

import pytest
import torch
from drawn import randn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from palpate.geometry import Polyline, Segment, Sweep, angle_of, beside_objects, rotated, unit
from palpate.groups.se2 import CHORDS, SE2
from palpate.objectives.equivariance import (
    LEAST_MOVE,
    STILL_WEIGHTS,
    equivariance,
    landmark_equivariance,
    stillness,
)

quick = settings(deadline=None, max_examples=25, derandomize=True, database=None)
seeds = st.integers(0, 1000)


def poses(count: int = 7, seed: int = 0) -> Tensor:
    return SE2().posed(randn(count, 3, seed=seed))


def matrix(z: Tensor) -> Tensor:
    """A pose [4] as a matrix [3, 3]."""
    x, y, cos, sin = z.tolist()
    return torch.tensor([[cos, -sin, x], [sin, cos, y], [0, 0, 1]], dtype=torch.float64)


def exponential(turn: float, forward: float, share: float = 1.0) -> Tensor:
    """exp of a share of a constant velocity, by scaling and squaring."""
    twist = torch.tensor([[0, -turn, forward], [turn, 0, 0], [0, 0, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(share * twist)


@quick
@given(seed=seeds)
def test_actions_are_rigid_motions(seed: int) -> None:
    group, z, a = SE2(), poses(seed=seed), randn(7, 3, seed=seed + 1)
    after = group.act(z, a)
    for before, action, moved in zip(z, a, after, strict=True):
        assert_close(matrix(moved), matrix(before) @ matrix(group.act(group.origin().double(), action)))
    assert_close(group.act(z, torch.zeros(7, 3, dtype=torch.float64)), z)
    between = group.between(z, after)
    assert_close(between[:, :2], a[:, :2])
    assert_close(unit(between[:, 2]), unit(a[:, 2]))
    assert_close(group.act(after, group.between(after, z)), z)
    assert_close(group.distance2(group.start(z, a, after), z), torch.zeros(7, dtype=torch.float64))


@quick
@given(seed=seeds)
def test_every_rigid_motion_of_the_truth_has_no_loss_and_a_mirror_has(seed: int) -> None:
    group, z, a = SE2(), poses(50, seed), randn(50, 3, seed=seed + 1)
    frame, after = randn(3, seed=seed + 2), group.act(z, a)

    def in_frame(pose: Tensor) -> Tensor:
        return torch.cat((group.moved(pose[:, :2], frame), group.turned(pose[:, 2:], frame)), 1)

    assert equivariance(group, in_frame(z), a, in_frame(after)).max() < 1e-20
    mirror = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    assert equivariance(group, mirror * z, a, mirror * after).mean() > 0.1
    without_sides = SE2(2)  # the robot cannot tell left from right: a mirrored plane has the opposite turns
    a = a[:, ::2]
    mirrored = equivariance(without_sides, mirror * z, a * mirror[:2], mirror * without_sides.act(z, a))
    assert mirrored.max() < 1e-20


def test_the_loss_refuses_poses_without_a_heading() -> None:
    """A vector of length 0 turns with every action; its flaw is what it costs."""
    group = SE2()
    z = torch.zeros(3, 4)
    assert_close(equivariance(group, z, torch.tensor([[0.0, 0.0, 1.0]]).expand(3, -1), z), torch.full((3,), 0.25))
    assert group.flaw(poses()).max() < 1e-20


@quick
@given(seed=seeds)
def test_a_point_at_rest_is_a_landmark(seed: int) -> None:
    """Any one point of the plane, and a frame is not needed to compare two views of it."""
    for group in (SE2(), SE2(2)):
        z, a, point = poses(50, seed), randn(50, group.action_width, seed=seed + 1), randn(1, 2, seed=seed + 2)
        after = group.act(z, a)
        assert_close(group.reached(a), group.act(group.origin().double().expand(50, -1), a))
        views = group.seen(z, point), group.seen(after, point)
        assert landmark_equivariance(group, views[0], a, views[1]).max() < 1e-20
        still = torch.zeros(50, 2, dtype=torch.float64)
        assert_close(landmark_equivariance(group, still, a, still), group.length2(a))  # what a collapse costs
        assert stillness(group, z, a, after) == 0
        assert stillness(group, z, a, z) == sum(STILL_WEIGHTS)
        share = LEAST_MOVE / 2  # of the mean squared motion of each part
        slow = z + share**0.5 * (after - z)
        assert_close(stillness(group, z, a, slow), torch.tensor(sum(STILL_WEIGHTS) / 4, dtype=torch.float64))


def test_a_robot_that_never_turns_has_no_heading_to_move() -> None:
    group, z, a = SE2(), poses(), randn(7, 3) * torch.tensor([1.0, 1.0, 0.0])
    assert stillness(group, z, a, group.act(z, a)) == 0
    raw = randn(7, group.width)
    assert_close(group.pose(raw), raw[:, :4])
    assert_close(group.landmark(raw), raw[:, 4:])


@pytest.mark.parametrize("shape", [(4, 4), (5, 3)])
def test_on_a_grid_with_quarter_turns_the_agent_is_determined_up_to_one_motion(shape: tuple[int, int]) -> None:
    """Theorem 1's first step: all states are reached from the first by actions, so its pose decides every other one.

    All cells, four headings, and steps ahead or quarter turns. Exact in integers.
    """
    turns = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    states = list(itertools.product(range(shape[0]), range(shape[1]), range(4)))
    assigned: dict[Any, tuple[int, int, int]] = {states[0]: (7, -3, 1)}
    open_states = [states[0]]
    while open_states:
        x, y, h = here = open_states.pop()
        p, q, g = assigned[here]
        for forward, turn in ((1, 0), (-1, 0), (0, 1), (0, 3)):
            after = (x + forward * turns[h][0], y + forward * turns[h][1], (h + turn) % 4)
            if after not in states:
                continue
            image = (p + forward * turns[g][0], q + forward * turns[g][1], (g + turn) % 4)
            if after not in assigned:
                open_states.append(after)
            assert assigned.setdefault(after, image) == image
    assert set(assigned) == set(states)
    group = SE2()
    true, found = (
        torch.tensor([list(s) for s in side], dtype=torch.float64) for side in (list(assigned), list(assigned.values()))
    )
    frame = group.frame(true[:, :2], found[:, :2])
    assert_close(group.moved(true[:, :2], frame), found[:, :2])
    quarter = float(frame[2]) / (math.pi / 2)
    assert quarter == pytest.approx(round(quarter))
    assert set(((found[:, 2] - true[:, 2]) % 4).tolist()) == {round(quarter) % 4}


@pytest.mark.parametrize("turn", [-3.0, -1.0, -1e-4, 0.0, 1e-7, 0.3, 1.5, 3.1])
def test_an_arc_is_the_one_parameter_subgroup(turn: float) -> None:
    """Of two numbers the first is the arc's length; its corners lie on the exact path."""
    group, z = SE2(2), poses(1)
    a = torch.tensor([[0.7, turn]], dtype=torch.float64)
    path = group.path(z, a)
    assert isinstance(path, Sweep)
    for i in range(CHORDS + 1):
        exact = matrix(z[0]) @ exponential(turn, 0.7, i / CHORDS)
        assert_close(path.corners[0, i], exact[:2, 2], atol=1e-9, rtol=0)
    assert_close(group.act(z, a)[0, :2], path.corners[0, -1])
    between = [(matrix(z[0]) @ exponential(turn, 0.7, t))[:2, 2] for t in torch.linspace(0, 1, 200).tolist()]
    off = path.distance2(torch.stack(between)[None].transpose(0, 1)[:, 0]).sqrt().max()
    assert off <= 0.7 * abs(turn) / 512 + 1e-9


@quick
@given(seed=seeds)
def test_three_numbers_and_two_describe_the_same_arc(seed: int) -> None:
    z, a = poses(seed=seed), randn(7, 2, seed=seed + 1)
    whole = SE2(2).complete(a)
    one, two = SE2(2).path(z, a), SE2().path(z, whole)
    assert isinstance(one, Sweep)
    assert isinstance(two, Sweep)
    assert_close(one.corners, two.corners)


@pytest.mark.parametrize("group", [SE2(), SE2(2), SE2(3, "straight"), SE2(2, "straight")])
def test_actions_lead_straight_towards_a_position(group: SE2) -> None:
    z, place = poses(), randn(7, 2, seed=1)
    way, passed = Segment(z[:, :2], place - z[:, :2]), []
    for a in group.towards(z, place).unbind(1):
        assert a.shape == (7, group.action_width)
        passed += [group.path(z, a).at(torch.full((7,), t, dtype=torch.float64)) for t in (0.3, 0.7)]
        z = group.act(z, a)
    assert_close(z[:, :2], place)
    assert_close(
        rotated(torch.stack((way.move.norm(dim=1), torch.zeros(7, dtype=torch.float64)), 1), z[:, 2:]), way.move
    )
    for point in passed:
        assert_close(way.distance2(point), torch.zeros(7, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_straight_path_leads_ahead_and_turns_in_place_stay() -> None:
    group, z = SE2(2, "straight"), poses(1)
    path = group.path(z, torch.tensor([[0.5, 1.0]], dtype=torch.float64))
    assert_close(path.corners.diff(dim=-2)[:, 0], 0.5 * z[:, 2:])
    assert path.corners.shape == (1, 2, 2)
    turning = SE2().path(z, torch.tensor([[0.0, 0.0, 1.5]], dtype=torch.float64))
    assert_close(turning.distance2(z[:, :2] + 3.0), torch.tensor([18.0], dtype=torch.float64))


@pytest.mark.parametrize("group", [SE2(), SE2(2), SE2(2, "straight")], ids=["three", "two", "straight"])
def test_gradients_are_finite_where_nothing_moves(group: SE2) -> None:
    raw = torch.zeros(2, 4, requires_grad=True)
    a = torch.zeros(2, group.action_width, requires_grad=True)
    z = group.pose(raw)
    path = group.path(group.start(z, a, z), a)
    loss = equivariance(group, z, a, z).sum() + path.distance2(torch.ones(2, 2)).sum()
    loss.backward()
    for x in (raw, a):
        assert x.grad is not None
        assert x.grad.isfinite().all()
    assert torch.autograd.gradcheck(
        lambda z, a: group.act(z, a), (poses(3).requires_grad_(), randn(3, group.action_width).requires_grad_())
    )


@quick
@given(seed=seeds)
def test_positions_in_the_agents_frame(seed: int) -> None:
    group, z, places = SE2(), poses(seed=seed)[:, None], randn(7, 3, 2, seed=seed + 1)
    assert_close(group.place(z, group.seen(z, places)), places)
    ahead = group.place(z, torch.tensor([1.0, 0.0], dtype=torch.float64).expand(7, 1, 2))
    assert_close(angle_of(ahead - z[..., :2]), group.heading(z))


def test_a_polyline_is_as_near_as_its_nearest_segment() -> None:
    corners, point, toward = randn(5, 4, 2), randn(5, 2, seed=1), unit(randn(5, 3, seed=2))
    line = Polyline(corners)
    parts = [Segment(corners[:, i], corners[:, i + 1] - corners[:, i]) for i in range(3)]
    assert_close(line.distance2(point), torch.stack([part.distance2(point) for part in parts]).amin(0))
    assert_close(line.offset(point).square().sum(1), line.distance2(point))
    least = torch.stack([part.least_along(toward, point) for part in parts]).amin(0)
    assert_close(line.least_along(toward, point), least)
    assert_close(line.at(torch.full((5,), 0.5).double()), (corners[:, 1] + corners[:, 2]) / 2)
    assert_close(line.at(torch.ones(5).double()), corners[:, -1])
    many = beside_objects(line).distance2(torch.stack((point, -point), 1))
    assert_close(many[:, 1], line.distance2(-point))
