"""Agents that turn about a pivot, fixed or on a base that moves: laws, paths, gradients, and small worlds to learn."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from drawn import quick, randn, seeds
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

import palpate
from palpate.bodies import make_body
from palpate.bodies.base import clearance
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Batch, Transitions
from palpate.doctor.frames import readings
from palpate.geometry import angle_of, rotated, unit
from palpate.groups.arm import Arm
from palpate.groups.base import Group
from palpate.groups.so2 import CHORDS, SO2
from palpate.methods.base import Encoding
from palpate.methods.located import Located
from palpate.methods.store import build
from palpate.metrics.measure import measure
from palpate.objectives.equivariance import equivariance
from palpate.quality import assess

every_group = pytest.mark.parametrize("group", [SO2(), Arm()], ids=["pivot", "arm"])
SHORT: dict[str, Any] = {"steps": 3, "batch_size": 16, "device": "cpu", "progress": False}


def poses(group: Group, count: int = 7, seed: int = 0) -> Tensor:
    return group.posed(randn(count, group.recorded_width, seed=seed))


def moves(group: Group, *shape: int, seed: int = 0) -> Tensor:
    return randn(*shape, group.action_width, seed=seed)


def matrix(z: Tensor) -> Tensor:
    """A pose as a matrix [5, 5]: the base's translation and the turn, side by side."""
    (cos, sin), position = z[-2:].tolist(), z[:-2]
    whole = torch.eye(5, dtype=torch.float64)
    whole[:2, :2] = torch.tensor([[cos, -sin], [sin, cos]])
    whole[2 : 2 + len(position), 4] = position
    return whole


def exponential(a: Tensor, share: float = 1.0) -> Tensor:
    """exp of a share of an action's constant velocity, by scaling and squaring."""
    twist = torch.zeros(5, 5, dtype=torch.float64)
    twist[0, 1], twist[1, 0] = -a[-1], a[-1]
    twist[2 : 1 + len(a), 4] = a[:-1]
    return torch.linalg.matrix_exp(share * twist)


@every_group
@quick
@given(seed=seeds)
def test_actions_are_the_groups(group: Group, seed: int) -> None:
    """act is a product of matrices, `between` its logarithm, and a path leads along the exponential."""
    z, a = poses(group, seed=seed), moves(group, 7, seed=seed + 1)
    after = group.act(z, a)
    for before, action, reached in zip(z, a, after, strict=True):
        assert_close(matrix(reached), matrix(before) @ exponential(action))
        assert_close(matrix(group.reached(action[None])[0]), exponential(action))
    assert_close(group.act(z, torch.zeros_like(a)), z)
    between = group.between(z, after)
    assert_close(between[:, :-1], a[:, :-1])
    assert_close(unit(between[:, -1]), unit(a[:, -1]))
    assert_close(group.act(after, group.between(after, z)), z)  # the inverse
    assert_close(group.act(after, -a), z)
    assert_close(group.start(z, a, after), z)
    sequence = moves(group, 7, 4, seed=seed + 2)
    reached = z
    for step in sequence.unbind(1):
        reached = group.act(reached, step)
    assert_close(group.act(z, group.compose(sequence)), reached)
    assert_close(group.turn(a), a[:, -1])
    for i in (0, 3, 8):
        share = torch.full((7,), i / 8, dtype=torch.float64)
        exact = torch.stack([matrix(p) @ exponential(x, i / 8) for p, x in zip(z, a, strict=True)])
        wanted = exact[:, :2, 0] if isinstance(group, SO2) else exact[:, 2:4, 4]
        assert_close(group.path(z, a).at(share), wanted)


@every_group
@quick
@given(seed=seeds)
def test_positions_seen_by_the_agent(group: Group, seed: int) -> None:
    """A point at rest is seen to pass by the inverse of the motion; at the end as from the pose that is reached."""
    z, a, places = poses(group, seed=seed), moves(group, 7, seed=seed + 1), randn(7, 3, 2, seed=seed + 2)
    assert_close(group.place(z[:, None], group.seen(z[:, None], places)), places)
    passing = group.path(z, a).seen(places[:, 0])
    assert_close(passing.corners[:, 0], group.seen(z, places[:, 0]))
    assert_close(passing.corners[:, -1], group.seen(group.act(z, a), places[:, 0]))
    assert_close(group.axes(z) @ torch.tensor([1.0, 0]).double(), unit(group.heading(z)))


@every_group
@quick
@given(seed=seeds)
def test_the_frame_is_free_and_no_more(group: Group, seed: int) -> None:
    z, a = poses(group, 50, seed), moves(group, 50, seed=seed + 1)
    after, zero = group.act(z, a), unit(randn(1, seed=seed + 2))
    shift = randn(group.pose_width - 2, seed=seed + 3)

    def in_frame(pose: Tensor) -> Tensor:
        return torch.cat((pose[:, :-2] + shift, rotated(pose[:, -2:], zero)), 1)

    assert equivariance(group, in_frame(z), a, in_frame(after)).max() < 1e-20
    mirror = torch.ones(group.pose_width, dtype=torch.float64)
    mirror[-1] = -1
    assert equivariance(group, mirror * z, a, mirror * after).mean() > 0.1
    assert equivariance(group, 0 * z, a, 0 * after).mean() > 0.1  # an angle of length 0 turns with every action
    learned = group.position(z)
    motion = group.frame(learned, group.position(in_frame(z)))
    assert_close(group.moved(learned, motion), group.position(in_frame(z)))
    assert_close(group.moved(learned, group.identity().double()), learned)
    assert_close(group.turned(learned, motion), group.moved(learned, motion) - group.moved(0 * learned, motion))


@every_group
def test_other_laws(group: Group) -> None:
    z = poses(group, 6)
    pairs = [group.distance2(z[i], z[j]) for i in range(6) for j in range(6) if i != j]
    assert_close(group.spread2(z), torch.stack(pairs).mean())
    assert_close(group.flawless(3 * z)[:, -2:], z[:, -2:])
    assert group.flaw(z).max() < 1e-20
    place = group.known(randn(6, 2, seed=1))
    for step in group.towards(z, place).unbind(1):
        z = group.act(z, step)
    assert_close(group.position(z), place)


@every_group
def test_gradients_are_finite_where_nothing_moves(group: Group) -> None:
    raw, a = torch.zeros(2, group.width, requires_grad=True), torch.zeros(2, group.action_width, requires_grad=True)
    z = group.pose(raw)
    path = group.path(group.start(z, a, z), a)
    thing = torch.ones(2, 2)
    (equivariance(group, z, a, z).sum() + path.distance2(thing).sum() + path.seen(thing).corners.sum()).backward()
    for x in (raw, a):
        assert x.grad is not None
        assert x.grad.isfinite().all()
    inputs = poses(group, 3).requires_grad_(), moves(group, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, a: group.act(z, a), inputs)
    assert torch.autograd.gradcheck(lambda z, a: group.between(z, group.act(z, 0.1 * a)), inputs)


def test_a_whole_turn_meets_every_bearing() -> None:
    """Chords of a whole turn lie inside the circle by little."""
    thing, z = unit(torch.linspace(-3, 3, 50, dtype=torch.float64)), SO2().posed(torch.zeros(50, 1).double())
    whole = SO2().path(z, torch.full((50, 1), 2 * math.pi, dtype=torch.float64))
    assert whole.distance2(thing).max().sqrt() < 1 - math.cos(math.pi / CHORDS) + 1e-9


def test_an_arm_that_turns_on_its_base_touches_what_it_sweeps() -> None:
    arm = make_body("footprint", 2).double().requires_grad_(False)
    arm.log_radius.fill_(math.log(0.1))
    arm.centre.copy_(torch.tensor([0.5, 0.0]))  # a disc of radius 0.1 at the arm's end
    z = Arm().posed(torch.zeros(1, 3, dtype=torch.float64))
    for action, thing, touched in (
        ([0.0, 0.0, 1.0], 0.5 * unit(torch.tensor(0.6)), True),
        ([0.0, 0.0, 1.0], 0.5 * unit(torch.tensor(-0.6)), False),
        ([0.0, 0.0, -1.0], 0.5 * unit(torch.tensor(-0.6)), True),
        ([0.0, 0.0, 1.0], 0.3 * unit(torch.tensor(0.6)), False),
        ([0.4, 0.0, 0.0], torch.tensor([0.8, 0.05]), True),
        ([0.4, 0.0, 0.0], torch.tensor([0.2, 0.05]), False),
    ):
        path = Arm().path(z, torch.tensor([action], dtype=torch.float64))
        found = clearance(arm, thing.double()[None], torch.zeros(0), path)
        assert (float(found) < 0) == touched


def pivot_world(count: int, seed: int) -> Labelled:
    """An arm on a fixed base pushes a thing to another bearing, seen as 32 numbers."""
    rng = torch.Generator().manual_seed(seed)
    angle, turn = 2 * math.pi * torch.rand(count, generator=rng), 4 * torch.rand(count, generator=rng) - 2
    width = 0.3  # radians on each side of the thing
    bearing = angle + width + (2 * math.pi - 2 * width) * torch.rand(count, generator=rng)
    ahead = torch.remainder((bearing - angle) * turn.sign(), 2 * math.pi)
    contact = ahead < turn.abs() + width
    after = angle + turn
    landed = after + width + (2 * math.pi - 2 * width) * torch.rand(count, generator=rng)
    o = _mixed(angle, bearing)
    o_next = _mixed(after, torch.where(contact, landed, bearing))
    truth = Truth(unit(angle), 3 * unit(bearing), contact=contact, heading=angle_of(unit(angle)))
    return Labelled(Transitions(observation=o, action=turn, next_observation=o_next), truth)


def _mixed(angle: Tensor, bearing: Tensor) -> Tensor:
    mixing = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    return torch.tanh(torch.cat((unit(angle), unit(bearing)), 1) @ mixing)


@pytest.mark.slow
def test_angles_and_bearings_are_learned() -> None:
    model = palpate.fit(
        pivot_world(4000, 0).transitions, group="so2", steps=300, batch_size=128, device="cpu", progress=False
    )
    test = pivot_world(1000, 1)
    scores = palpate.evaluate(model, test)
    assert scores.l_test < 0.02 * scores.constant["l_test"]
    assert scores.heading_error is not None
    assert scores.heading_error < 0.05
    assert scores.contact_accuracy is not None
    assert scores.contact_accuracy > 0.95
    assert "positions are bearings from the pivot" in str(scores)
    o = test.transitions.rows(slice(0, 5)).o
    seen = model.encode(o)
    assert_close(seen.object.norm(dim=1), torch.ones(5))
    assert_close(unit(seen.heading), seen.agent)


@pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
@pytest.mark.parametrize(("group", "numbers"), [("so2", 1), ("arm", 3)])
def test_models_are_trained_saved_and_aligned(group: Any, numbers: int, tmp_path: Any) -> None:
    o, o_next = np.random.default_rng(0).normal(size=(2, 60, 7)).astype("float32")
    action = np.random.default_rng(1).normal(size=(60, numbers))
    triples = Transitions(observation=o, action=action, next_observation=o_next)
    model = palpate.fit(triples, group=group, **SHORT)
    model.save(tmp_path / "model")
    found, again = model.encode(o), palpate.load(tmp_path / "model").encode(o)
    np.testing.assert_array_equal(found.agent, again.agent)
    assert found.heading.shape == (60,)
    motion = torch.tensor([0.7] if group == "so2" else [2.0, -3.0])
    known = model.model.group.moved(torch.from_numpy(found.agent), motion)
    moved = model.align({"observation": o, "agent": known})
    assert_close(moved.frame.origin, motion, atol=1e-4, rtol=0)
    checkup = palpate.check(triples, group=group, probe=False)
    assert [finding.name for finding in checkup.findings] == ["too-few"]
    with pytest.raises(ValueError, match=f"the count of numbers in an action is {numbers + 1}"):
        palpate.fit(
            Transitions(observation=o, action=np.ones((60, numbers + 1)), next_observation=o_next), group=group, **SHORT
        )
    with pytest.raises(ValueError, match="motion is 'straight'; allowed is 'arc' unless group is 'se2' or 'se3'"):
        palpate.fit(triples, group=group, motion="straight", **SHORT)


def test_scores_by_hand() -> None:
    """An arm's zero is free, and so is how far away a thing is that has a bearing only."""
    angle, place, thing = randn(400), randn(400, 2, seed=1), randn(400, 2, seed=2)
    truth = Truth(place, thing, heading=angle)
    learned = Encoding(place + 2.0, thing[:, None] + 2.0, heading=angle + 1.3)
    scores = measure(Arm(), learned, truth)
    assert max(scores.l_test, scores.heading_error or 0.0, scores.own_l_test or 0.0) < 1e-6
    assert "the translation and the arm's zero" in str(scores)
    bearing = Truth(unit(angle), thing, heading=angle)
    learned = Encoding(unit(angle + 0.4), rotated(SO2().known(thing), unit(torch.tensor(0.4)))[:, None])
    scores = measure(SO2(), learned, bearing)
    assert scores.l_test < 1e-10
    assert "the turn about the pivot" in str(scores)


def test_small_turns_are_judged_by_their_own_size() -> None:
    """An arm whose learned angle is constant does not follow its turns, however small they are."""
    o = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    batch = Batch(o, 0.1 * torch.randn(300, 1, generator=torch.Generator().manual_seed(1)), o.roll(1, 0))
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.1, group="so2")
    config = ModelConfig(
        encoder="mlp", observation_shape=(5,), observation_dtype="float32", n=2, actions=1, objective=scene
    )
    model = build(config).eval()
    assert isinstance(model, Located)
    torch.nn.init.zeros_(model.phi_int.head.weight)
    found = assess(model, batch)
    assert found is not None
    assert found.unit == pytest.approx(float(batch.a.square().mean().sqrt()), rel=1e-4)
    assert found.equivariance == pytest.approx(found.unit, rel=0.01)


def test_an_arms_base_is_no_reading_of_its_own() -> None:
    """It moves along fixed axes in any case; so only what the arm's turns say tells the readings apart."""
    found = readings(torch.randn(64, 3), (3,), ObjectiveConfig(group="arm"))
    assert "fixed axes" not in found
    assert {"own axes", "mirrored", "degrees", "lengths"} <= set(found)
