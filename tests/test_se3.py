"""SE(3): agents that turn in space. Closed forms, screw paths, gradients, and what the losses leave undetermined."""

import math

import pytest
import torch
from drawn import quick, randn, seeds
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

from palpate.geometry import Polyline, Segment, Sweep, beside_objects
from palpate.groups.se3 import CHORDS, SE3
from palpate.objectives.equivariance import equivariance
from palpate.rotations import matrix_of

MIRROR = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)


def poses(count: int = 7, seed: int = 0) -> Tensor:
    return SE3().posed(randn(count, 6, seed=seed))


def matrix(z: Tensor) -> Tensor:
    """A pose [9] as a matrix [4, 4]."""
    whole = torch.eye(4, dtype=torch.float64)
    whole[:3, 3] = z[:3]
    whole[:3, :3] = SE3().rotation(z)
    return whole


def twist(velocity: Tensor, rotation: Tensor) -> Tensor:
    """The generator [4, 4] of a constant motion."""
    x, y, z = rotation.tolist()
    found = torch.zeros(4, 4, dtype=torch.float64)
    found[:3, :3] = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    found[:3, 3] = velocity
    return found


def in_frame(z: Tensor, frame: Tensor) -> Tensor:
    group = SE3()
    axes = (group.turned(axis, frame) for axis in z[:, 3:].split(3, 1))
    return torch.cat((group.moved(z[:, :3], frame), *axes), 1)


@quick
@given(seed=seeds)
def test_actions_are_rigid_motions(seed: int) -> None:
    group, z, a = SE3(), poses(seed=seed), randn(7, 6, seed=seed + 1)
    after = group.act(z, a)
    for before, action, moved in zip(z, a, after, strict=True):
        assert_close(matrix(moved), matrix(before) @ matrix(group.act(group.origin().double(), action)))
    assert_close(group.act(z, torch.zeros(7, 6, dtype=torch.float64)), z)
    between = group.between(z, after)
    assert_close(between[:, :3], a[:, :3])
    assert_close(matrix_of(between[:, 3:]), matrix_of(a[:, 3:]))
    assert_close(group.act(after, group.between(after, z)), z)
    assert_close(group.distance2(group.start(z, a, after), z), torch.zeros(7, dtype=torch.float64))
    assert_close(group.turn(a), a[:, 3:].norm(dim=1))


def test_an_action_leads_towards_a_position() -> None:
    group, z, place = SE3(), poses(), randn(7, 3, seed=1)
    (a,) = group.towards(z, place).unbind(1)
    assert_close(group.act(z, a), torch.cat((place, z[:, 3:]), 1))


@quick
@given(seed=seeds)
def test_every_rigid_motion_of_the_truth_has_no_loss_and_a_mirror_has(seed: int) -> None:
    group, z, a = SE3(), poses(50, seed), randn(50, 6, seed=seed + 1)
    frame, after = randn(6, seed=seed + 2), group.act(z, a)
    assert equivariance(group, in_frame(z, frame), a, in_frame(after, frame)).max() < 1e-20
    mirror = MIRROR.repeat(3)
    assert equivariance(group, mirror * z, a, mirror * after).mean() > 0.1


def test_the_loss_refuses_poses_without_a_rotation() -> None:
    """Columns that are 0 turn with every action; their flaw is what they cost."""
    group, z = SE3(), torch.zeros(3, 9)
    action = torch.tensor([[0.0, 0, 0, 1.0, 0, 0]]).expand(3, -1)
    assert_close(equivariance(group, z, action, z), torch.full((3,), 0.5))
    alike = torch.tensor([[0.0, 0, 0, 1, 0, 0, 1, 0, 0]])  # one column twice
    assert_close(group.flaw(alike), torch.tensor([0.5]))
    assert group.flaw(poses()).max() < 1e-20


def test_on_a_grid_with_quarter_turns_the_agent_is_determined_up_to_one_motion() -> None:
    """Theorem 1's first step: all states are reached from the first by actions, so its pose decides every other one.

    All cells, the 24 rotations of a cube, and steps ahead or quarter turns. Exact in integers.
    """
    shape = (3, 2, 2)
    quarters = [
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0]],
        [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
    ]
    generators = [torch.tensor(quarter) for quarter in quarters]
    first = torch.eye(3, dtype=torch.long)
    frame, shift = generators[0] @ generators[1], torch.tensor([7, -3, 1])

    def key(p: Tensor, turn: Tensor) -> tuple[int, ...]:
        return (*p.tolist(), *turn.flatten().tolist())

    begin = (torch.zeros(3, dtype=torch.long), first)
    assigned = {key(*begin): (shift, frame)}
    states, open_states = {key(*begin): begin}, [begin]
    while open_states:
        p, turn = open_states.pop()
        image_p, image_turn = assigned[key(p, turn)]
        steps = [(axis, torch.eye(3, dtype=torch.long)) for axis in (first[0], -first[0])]
        turns = [(torch.zeros(3, dtype=torch.long), generator) for generator in generators]
        for move, by in steps + turns:
            after = p + turn @ move, turn @ by
            if not all(0 <= x < size for x, size in zip(after[0].tolist(), shape, strict=True)):
                continue
            image = image_p + image_turn @ move, image_turn @ by
            if key(*after) not in assigned:
                states[key(*after)] = after
                open_states.append(after)
            known = assigned.setdefault(key(*after), image)
            assert key(*known) == key(*image)
    assert len(states) == math.prod(shape) * 24
    true, found = (
        torch.stack([p for p, _ in side]).double()
        for side in (list(states.values()), [assigned[name] for name in states])
    )
    fitted = SE3().frame(true, found)
    assert_close(matrix_of(fitted[3:]), frame.double())
    assert_close(fitted[:3], shift.double())
    for name, (_, turn) in states.items():
        assert torch.equal(assigned[name][1], frame @ turn)


@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-4, 0.3, 1.5, 3.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_path_is_the_one_parameter_subgroup(angle: float, seed: int) -> None:
    """A screw motion; the corners lie on the exact path."""
    group, z, velocity, axis = SE3(), poses(1, seed), randn(3, seed=seed), randn(3, seed=seed + 5)
    axis = axis / axis.norm()
    whole = torch.linalg.matrix_exp(twist(velocity, angle * axis))
    a = torch.cat((whole[:3, 3], angle * axis))[None]
    path = group.path(z, a)
    assert isinstance(path, Polyline)
    assert path.corners.shape == (1, CHORDS + 1, 3)

    def at(t: float) -> Tensor:
        return (matrix(z[0]) @ torch.linalg.matrix_exp(t * twist(velocity, angle * axis)))[:3, 3]

    for i in range(CHORDS + 1):
        assert_close(path.corners[0, i], at(i / CHORDS), atol=1e-9, rtol=0)
    assert_close(group.act(z, a)[0, :3], path.corners[0, -1])
    between = torch.stack([at(t) for t in torch.linspace(0, 1, 200).tolist()])
    off = Polyline(path.corners.expand(200, -1, -1)).distance2(between).sqrt().max()
    assert off <= float(velocity.norm()) * angle / 512 + 1e-9


def test_a_turn_about_the_vertical_axis_is_the_arc_of_the_plane() -> None:
    from palpate.groups.se2 import SE2

    z, a = randn(5, 3), randn(5, 3, seed=1)
    plane, space = SE2(), SE3()
    flat = plane.path(plane.posed(z), a)
    nought = torch.zeros(5, 1, dtype=torch.float64)
    turn = torch.cat((nought, nought, a[:, 2:]), 1)
    raised = space.posed(torch.cat((z[:, :2], nought, nought, nought, z[:, 2:]), 1))
    path = space.path(raised, torch.cat((a[:, :2], nought, turn), 1))
    assert isinstance(flat, Sweep)
    assert isinstance(path, Polyline)
    assert_close(path.corners[..., :2], flat.corners)
    assert_close(path.corners[..., 2], torch.zeros_like(path.corners[..., 2]))


def test_straight_paths_and_turns_in_place() -> None:
    group, z = SE3("straight"), poses(1)
    a = torch.tensor([[0.5, 0.0, 0.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    path = group.path(z, a)
    assert isinstance(path, Segment)
    assert_close(path.move, 0.5 * z[:, 3:6])
    assert_close(path.start + path.move, group.act(z, a)[:, :3])
    turning = SE3().path(z, torch.tensor([[0.0, 0.0, 0.0, 1.5, 0.0, 1.0]], dtype=torch.float64))
    assert_close(turning.distance2(z[:, :3] + 3.0), torch.tensor([27.0], dtype=torch.float64))


def test_a_path_with_an_axis_for_objects() -> None:
    group, z, a = SE3(), poses(4), randn(4, 6)
    path, points = group.path(z, a), randn(4, 2, 3, seed=3)
    both = beside_objects(path).distance2(points)
    assert_close(both, torch.stack([path.distance2(point) for point in points.unbind(1)], 1))


@pytest.mark.parametrize("group", [SE3(), SE3("straight")], ids=["arc", "straight"])
def test_gradients_are_finite_where_nothing_moves(group: SE3) -> None:
    raw = torch.zeros(2, 9, requires_grad=True)
    a = torch.zeros(2, 6, requires_grad=True)
    z = group.pose(raw)
    path = group.path(group.start(z, a, z), a)
    loss = equivariance(group, z, a, z).sum() + path.distance2(torch.ones(2, 3)).sum()
    loss.backward()
    for x in (raw, a):
        assert x.grad is not None
        assert x.grad.isfinite().all()
    for angle in (0.0, 1.0, math.pi - 1e-3):
        moves = torch.cat((randn(3, 3), angle * torch.eye(3, dtype=torch.float64)), 1).requires_grad_()
        assert torch.autograd.gradcheck(lambda z, a: group.act(z, a), (poses(3).requires_grad_(), moves))


@quick
@given(seed=seeds)
def test_positions_in_the_agents_frame(seed: int) -> None:
    group, z, places = SE3(), poses(seed=seed)[:, None], randn(7, 3, 3, seed=seed + 1)
    assert_close(group.place(z, group.seen(z, places)), places)
    for axis in range(3):
        ahead = group.place(z, torch.eye(3, dtype=torch.float64)[axis].expand(7, 1, 3))
        assert_close(ahead - z[..., :3], group.rotation(z)[..., axis])


def test_a_mirrored_truth_is_fitted_without_a_mirror() -> None:
    learned = randn(30, 3)
    frame = SE3().frame(learned, learned * MIRROR)
    assert (SE3().moved(learned, frame) - learned * MIRROR).square().mean() > 0.1
    assert_close(torch.linalg.det(matrix_of(frame[3:])), torch.ones((), dtype=torch.float64))
