"""Agents that turn in space, from triples to positions: training, scores, frames, files, and what is refused."""

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from drawn import randn
from gripper import Gripper
from torch import Tensor
from torch.testing import assert_close
from untrained import FROM_HOST, Called, numbers, random_model, shorten

import palpate
from palpate.collecting.blocks import Span, make
from palpate.config import ObjectiveConfig
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Batch, Transitions
from palpate.doctor.frames import frames
from palpate.encoding import encode_log
from palpate.groups.se3 import SE3
from palpate.methods.base import Encoding
from palpate.metrics.measure import measure
from palpate.representation import Representation
from palpate.rotations import matrix_of
from palpate.viewer.answers import _path

SHORT: dict[str, Any] = {"group": "se3", "steps": 3, "batch_size": 16, "device": "cpu", "progress": False}
UNTRAINED = pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
COUNT = 5000
MOTION = torch.tensor([0.7, -0.2, 0.4, 1.0, -0.5, 2.0])


def random_turner() -> Representation:
    return random_model(3, 6, body="ball", group="se3")


# Learning


@pytest.mark.slow
def test_positions_and_rotations_are_learned() -> None:
    """With fewer triples and steps than `fit` has by default; a constant answer has 100 %."""
    world = Gripper(bend=1.0)
    model = palpate.fit(world.labelled(6000).transitions, group="se3", steps=400, device="cpu", progress=False)
    scores = palpate.evaluate(model, world.labelled(1500, 1))
    assert scores.l_test < 0.05 * scores.constant["l_test"]
    assert scores.own_l_test is not None
    assert scores.own_l_test < 0.05 * scores.constant["own_l_test"]
    assert scores.rotation_error is not None
    assert scores.rotation_error < 0.1
    assert scores.heading_error is None


@UNTRAINED
def test_a_run_is_resumed_bit_by_bit(tmp_path: Path) -> None:
    data = Gripper().labelled(300).transitions
    o, a, _ = data.rows(slice(None))
    settings: dict[str, Any] = SHORT | {"steps": 6, "checkpoint_every": 2, "log_every": 1}
    whole = palpate.fit(data, **settings)

    def stop(step: int, readings: dict[str, float]) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        palpate.fit(data, out=tmp_path / "run", watch=stop, **settings)
    resumed = palpate.fit(data, out=tmp_path / "run", resume=True, **settings)
    for one, other in zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert_close(one, other, atol=0, rtol=0, equal_nan=True)
    loaded = palpate.load(tmp_path / "run")
    assert isinstance(loaded.model.group, SE3)
    rep = loaded.encode(o)
    assert rep.agent.shape == rep.object.shape == (300, 3)
    assert rep.heading is None
    assert_close(rep.rotation, resumed.encode(o).rotation)
    assert_close(torch.linalg.det(rep.rotation), torch.ones(300))
    assert loaded.would_touch(o, a).shape == (300,)


@UNTRAINED
@pytest.mark.parametrize("settings", [{"objective": "paper"}, {"objective": "paper-gaussian"}, {"motion": "straight"}])
def test_other_objectives_and_paths(settings: dict[str, Any]) -> None:
    data = Gripper().labelled(300).transitions
    model = palpate.fit(data, **SHORT, **settings)
    assert model.encode(data.rows(slice(None)).o).rotation.isfinite().all()


@UNTRAINED
def test_a_streamed_world_with_chosen_moves() -> None:
    model = palpate.fit(Gripper(), **SHORT | {"chosen_moves": 0.5})
    assert model.config.n == 3
    assert model.config.action_width == 6


def test_actions_of_other_lengths_are_refused() -> None:
    rows = Gripper().labelled(300).transitions.rows(slice(None))
    data = Transitions(observation=rows.o, action=rows.a[:, :3], next_observation=rows.o_next)
    for use in (lambda: palpate.fit(data, **SHORT), lambda: palpate.check(data, group="se3")):
        with pytest.raises(ValueError, match="the count of numbers in an action is 3; allowed is 6"):
            use()


# Frames and scores


def test_a_frame_turns_everything() -> None:
    model, o, group = random_turner(), numbers(), SE3()
    before = model.encode(o)
    known = group.moved(before.agent, MOTION)
    moved = model.align({"observation": o, "agent": known})
    after = moved.encode(o)
    turn = matrix_of(MOTION[3:])
    assert_close(matrix_of(moved.frame.origin[3:]), turn, atol=1e-4, rtol=0)
    assert_close(after.agent, known, atol=1e-4, rtol=0)
    assert_close(after.object, before.object @ turn.mT + MOTION[:3], atol=1e-4, rtol=0)
    assert_close(after.rotation, turn @ before.rotation, atol=1e-4, rtol=0)
    assert_close(after.covariance, turn @ before.covariance @ turn.mT, atol=1e-4, rtol=1e-4)


def test_covariances_turn_with_the_frame() -> None:
    """A ball's does not show it."""
    long = torch.diag(torch.tensor([1.0, 4.0, 9.0]))
    found = Encoding(torch.zeros(1, 3), torch.zeros(1, 1, 3), long[None, None]).moved(SE3(), MOTION)
    turn = matrix_of(MOTION[3:])
    assert_close(found.covariance, (turn @ long @ turn.mT)[None])


def test_scores_by_hand() -> None:
    """A frame that is moved and turned costs nothing; a rotation or a place that is off costs what it is off."""
    truth = Gripper().labelled(400).truth
    assert truth.rotation is not None
    found = Encoding(truth.agent, truth.object[:, None], rotation=truth.rotation).moved(SE3(), MOTION)
    scores = measure(SE3(), found, truth)
    assert scores.l_test < 1e-10
    assert scores.own_l_test is not None
    assert scores.own_l_test < 1e-10
    assert scores.rotation_error == pytest.approx(0, abs=1e-5)
    assert scores.motion == "rigid motion"
    assert found.rotation is not None
    off = measure(SE3(), found._replace(rotation=found.rotation @ matrix_of(torch.tensor([0.0, 0.06, 0.08]))), truth)
    assert off.rotation_error == pytest.approx(0.1, abs=1e-4)
    assert off.l_test < 1e-10
    assert off.own_l_test is not None
    assert off.own_l_test > 1e-4
    assert "rotation error (rad)" in str(off)
    # Random rotations are 126 degrees from any one, on average.
    assert off.constant["rotation_error"] == pytest.approx(math.pi / 2 + 2 / math.pi, abs=0.15)
    mirror = torch.tensor([1.0, 1.0, -1.0])
    flipped = Encoding(truth.agent * mirror, truth.object[:, None] * mirror, rotation=truth.rotation)
    assert measure(SE3(), flipped, truth).l_test > 0.01
    assert measure(SE3(), found._replace(rotation=None), truth).rotation_error is None
    assert measure(SE3(), found, truth._replace(rotation=None)).rotation_error is None


def test_moves_may_be_matrices() -> None:
    model, o, moves = random_turner(), numbers(), 0.7 * torch.randn(40, 6)
    whole = torch.eye(4).repeat(40, 1, 1)
    whole[:, :3, 3], whole[:, :3, :3] = moves[:, :3], matrix_of(moves[:, 3:])
    assert_close(model.would_touch(o, whole), model.would_touch(o, moves))
    assert_close(model.contact(o, whole.numpy(), o.flip(0)), model.contact(o, moves, o.flip(0)))


def test_several_objects_are_scored_in_the_true_frame() -> None:
    agent, things = randn(200, 3), randn(200, 2, 3, seed=1)
    rotation = matrix_of(randn(200, 3, seed=2))
    found = Encoding(agent, things.flip(1), rotation=rotation).moved(SE3(), MOTION.double())
    scores = measure(SE3(), found, Truth(agent, things, rotation=rotation))
    assert scores.l_test < 1e-10
    assert scores.object_swap_rate == 0
    assert scores.own_l_test == pytest.approx(0, abs=1e-10)


def test_the_viewer_has_the_path() -> None:
    model, o = random_turner(), numbers()
    path = _path(model, Batch(o[:1], torch.tensor([[0.4, 0.0, 0.0, 0.0, 0.0, 1.5]]), o[1:2]))
    assert path is not None
    assert path.shape == (9, 3)
    assert_close(torch.from_numpy(path[0]), model.encode(o[:1]).agent[0])
    assert np.linalg.norm(path[-1] - path[0]) == pytest.approx(0.4, rel=1e-4)


# Files and other tools


def test_true_rotations_are_stored_and_checked(tmp_path: Path) -> None:
    made = Gripper().labelled(60)
    made.save(tmp_path / "log.h5")
    with Labelled.open(tmp_path / "log.h5") as opened:
        assert_close(opened.truth.rotation, made.truth.rotation)
        assert opened.subset(slice(5)).truth.rotation_next is None
    says = r"truth agent has shape \(60, 3\); these triples need \(60, 6\); if the agent turns, give its true rotation"
    with pytest.raises(ValueError, match=says):
        Labelled(made.transitions, Truth(made.truth.agent, made.truth.object))
    with pytest.raises(ValueError, match=r"truth rotation has shape \(60, 3\); these triples need \(60, 3, 3\)"):
        Labelled(made.transitions, made.truth._replace(rotation=made.truth.agent))


def test_a_collected_block_keeps_rotations() -> None:
    """The states of a world may hold them under the names of `Truth`."""
    block = make(Gripper(), 0, Span(0, 40))
    assert block.columns["truth/rotation"].shape == block.columns["truth/rotation_next"].shape == (40, 3, 3)


def test_a_policy_sees_the_axes_and_a_table_has_the_matrix(tmp_path: Path) -> None:
    model, o = random_turner(), numbers()

    class Sensor(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-9, 9, (5,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return o[0].numpy(), {}

    read, _ = palpate.wrap(Sensor(), model, device="cpu").reset()
    encoding = model.encode(o)
    axes = encoding.rotation[0]
    assert_close(read, torch.cat((encoding.agent[0], axes[:, 0], axes[:, 1], encoding.object[0])).numpy())
    data = Transitions(observation=o[:-1], action=torch.randn(39, 6), next_observation=o[1:])
    for suffix in ("npz", "csv"):
        encode_log(model, data, tmp_path / f"table.{suffix}", progress=False)
    with np.load(tmp_path / "table.npz") as table:
        found = torch.from_numpy(table["palpate.rotation"]).unflatten(1, (3, 3))
    assert_close(found, encoding.rotation, atol=1e-5, rtol=0)
    assert "palpate.rotation" in (tmp_path / "table.csv").read_text().splitlines()[0]


def test_a_step_makes_no_tensors_from_python_numbers() -> None:
    """A CUDA graph cannot capture their copy from the host."""
    model, o, group = random_turner(), numbers(), SE3()
    z, a = model.model.pose(o), torch.randn(40, 6)
    assert z is not None

    with Called() as called:
        model.frame.placed(model.model, model.model.encode(o))
        group.path(group.start(z, a, group.act(z, a)), a).distance2(z[:, :3])
        group.flaw(z)
    assert "linalg_cross" in called.names
    assert not FROM_HOST & called.names


# Environments


class Drone(gymnasium.Env[np.ndarray, np.ndarray]):
    """It reports where it is and its rotation matrix; its actions are velocities along and about its own axes."""

    observation_space = gymnasium.spaces.Box(-99, 99, (12,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.pose = SE3().posed(torch.from_numpy(self.np_random.uniform(-1, 1, 6)))
        return self.view()

    def view(self) -> tuple[np.ndarray, dict[str, Any]]:
        at, matrix = self.pose[:3].numpy(), SE3().rotation(self.pose).numpy()
        info = {"at": at, "matrix": matrix, "flat": matrix.flatten(), "object": np.zeros(3), "mode": 1.0}
        return np.concatenate((at, matrix.flatten())).astype(np.float32), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.pose = SE3().act(self.pose, 0.5 * torch.from_numpy(action.astype(np.float64)))
        o, info = self.view()
        return o, 0.0, False, False, info


@pytest.mark.parametrize("reading", ["info:matrix", "info:flat"])
def test_a_rotation_that_is_read_makes_own_frame_actions(reading: str) -> None:
    options: dict[str, Any] = {"agent_position": "info:at", "agent_rotation": reading, "progress": False}
    made = palpate.collect(Drone(), 30, labelled=True, **options)
    rows = made.transitions.rows(slice(None))

    def pose(o: Tensor) -> Tensor:
        return torch.cat((o[:, :3], o[:, 3:].unflatten(1, (3, 3))[..., :2].mT.flatten(1)), 1)

    assert rows.a.shape == (30, 6)
    assert rows.a.abs().max() < 0.51  # half of the command
    assert_close(SE3().act(pose(rows.o), rows.a), pose(rows.o_next), atol=1e-5, rtol=0)
    assert_close(made.truth.rotation, rows.o[:, 3:].unflatten(1, (3, 3)))
    settled = palpate.collect(Drone(), 5, settle=2, hold=[0.0] * 6, watch="observation", **options)
    assert len(settled) == 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agent_position": None}, "agent_rotation is 'info:matrix'; give agent_position too"),
        ({"agent_heading": "info:mode"}, "agent_heading and agent_rotation are given; .* give only one"),
        (
            {"agent_position": "info:at[0:2]"},
            "agent_rotation is given for a position of 2 numbers; a rotation needs one",
        ),
        ({"agent_rotation": "info:at"}, r"agent_rotation, read from info:at, has shape \(3,\); allowed is a matrix"),
        ({"agent_rotation": lambda now: 2 * now.info["matrix"]}, "in row 0, which is no rigid motion"),
    ],
)
def test_rotations_that_cannot_be_read(options: dict[str, Any], says: str) -> None:
    usual = {"agent_position": "info:at", "agent_rotation": "info:matrix"}
    with pytest.raises(ValueError, match=says):
        palpate.collect(Drone(), 3, progress=False, **usual | options)


def test_another_rotation_in_info_is_no_truth() -> None:
    """It may be a quaternion."""

    class Other(Drone):
        def view(self) -> tuple[np.ndarray, dict[str, Any]]:
            o, info = super().view()
            return o, info | {"rotation": np.zeros(4), "agent": info["at"]}

    assert palpate.collect(Other(), 5, agent_position="info:at", labelled=True, progress=False).truth.rotation is None


def test_explore_refuses_agents_that_turn_in_space(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="agent_rotation is 'info:matrix'; explore moves agents along fixed axes only"):
        palpate.explore(
            Drone(), 400, out=tmp_path, agent_position="info:at", agent_rotation="info:matrix", progress=False
        )


# What the actions are


CASES = [
    ("none", "se3", None),
    ("none", "translations", "own-frame-actions"),
    ("fixed axes", "se3", "fixed-axes-actions"),
    ("fixed turns", "se3", "fixed-axes-turns"),
    ("mirrored", "se3", "mirrored-turns"),
    ("degrees", "se3", "turns-in-degrees"),
    ("blind", "se3", "heading-not-visible"),
    ("another row", "se3", None),
]


def changed(change: str) -> Transitions:
    """A log whose actions, or observations, are not what they should be."""
    world = Gripper(bend=1.0)
    triple = world.sample(COUNT, torch.Generator().manual_seed(0))
    move, turn = triple.displacement.split(3, 1)
    in_common = (triple.rotation @ torch.stack((move, turn), 2)).unbind(2)
    action = {
        "fixed axes": torch.cat((in_common[0], turn), 1),
        "fixed turns": torch.cat((move, in_common[1]), 1),
        "mirrored": torch.cat((move, -turn), 1),
        "degrees": torch.cat((move, turn.rad2deg()), 1),
        "another row": triple.displacement.roll(1, 0),
    }.get(change, triple.displacement)
    if change == "blind":
        still = torch.eye(3).expand(COUNT, 3, 3)
        triple = triple._replace(rotation=still, rotation_next=still)
    o, o_next = world.render_pair(triple)
    return Transitions(observation=o, action=action, next_observation=o_next)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "group", "name"), CASES)
def test_what_actions_are_is_found(change: str, group: Any, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, (200, 150), (100, 50))
    finding, residuals = frames(changed(change), ObjectiveConfig(group=group))
    assert (finding and finding.name) == name, residuals
    assert finding is None or finding.severity == "blocking"
    if name == "own-frame-actions":
        assert finding is not None
        assert "group='se3'" in finding.advice


def test_without_time_no_finding_says_that_nothing_shows_the_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths are learned sooner than directions."""
    for name, value in (("ALIKE", 1.0), ("MUCH_BETTER", 1e6)):  # every log would have the finding
        monkeypatch.setattr(f"palpate.doctor.frames.{name}", value)
    monkeypatch.setattr("palpate.doctor.frames.FOLLOWS", (0.0, 0.0))
    shorten(monkeypatch, (2, 2), (2, 2))
    data, scene = Gripper().labelled(300).transitions, ObjectiveConfig(group="se3")
    finding, _ = frames(data, scene)
    assert finding is not None
    assert finding.name == "heading-not-visible"
    monkeypatch.setattr("palpate.doctor.frames.FRAME_SECONDS", -1.0)
    assert frames(data, scene)[0] is None


def test_an_agent_that_never_turns_is_named() -> None:
    rows = Gripper().labelled(1200).transitions.rows(slice(None))
    for share, named in ((1e-4, True), (1.0, False)):
        action = torch.cat((rows.a[:, :3], share * rows.a[:, 3:]), 1)
        data = Transitions(observation=rows.o, action=action, next_observation=rows.o_next)
        found = {finding.name for finding in palpate.check(data, group="se3", probe=False).findings}
        assert ("never-turns" in found) == named
