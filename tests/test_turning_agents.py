"""Agents that turn, from triples to positions: training, scores, frames, files, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from turning import COUNT, labelled, seen
from untrained import FROM_HOST, Called, numbers, random_model, shorten

import palpate
from palpate.config import ModelConfig, ObjectiveConfig, TrainingConfig
from palpate.data.labelled import Labelled, Truth
from palpate.data.stream import Stream
from palpate.data.transitions import Batch, Transitions
from palpate.doctor.frames import frames
from palpate.encoding import encode_log
from palpate.envs.turning import SpritesTurning, TurningConfig
from palpate.geometry import angle_of, rotated, unit
from palpate.groups.se2 import SE2
from palpate.groups.translations import Translations
from palpate.methods.base import Encoding
from palpate.methods.located import Located
from palpate.methods.store import build
from palpate.metrics.measure import measure
from palpate.quality import residual
from palpate.representation import Representation
from palpate.viewer.answers import _path

SHORT: dict[str, Any] = {"group": "se2", "steps": 3, "batch_size": 16, "device": "cpu", "progress": False}
UNTRAINED = pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
CAMERA = {"encoder": "mlp", "observation_shape": (5,), "observation_dtype": "float32", "n": 2}
ELLIPSE = {"body": "ellipse", "refine": False, "rest_floor": 0.1}


def random_turner() -> Representation:
    return random_model(2, 3, body="ellipse", group="se2")


# Learning


@pytest.mark.slow
def test_positions_and_headings_are_learned() -> None:
    """With a quarter of the steps that `fit` chooses; a constant answer has 100 %."""
    test = labelled(1500, seed=1)
    model = palpate.fit(labelled(6000).transitions, group="se2", steps=300, device="cpu", progress=False)
    scores = palpate.evaluate(model, test)
    assert scores.l_test < 0.01 * scores.constant["l_test"]
    assert scores.own_l_test is not None
    assert scores.own_l_test < 0.01 * scores.constant["own_l_test"]
    assert scores.heading_error is not None
    assert scores.heading_error < 0.05
    assert model.facts["quality"]["verdict"] == "good"


@pytest.mark.slow
def test_headings_are_learned_from_pictures() -> None:
    """By phi_int and its own loss. L_int alone gives every picture a heading of length 0, and an error of pi / 2."""
    torch.manual_seed(0)
    made, generator = SpritesTurning(TurningConfig(size=32)), torch.Generator().manual_seed(0)
    shape = made.observation_shape
    scene = ObjectiveConfig(**ELLIPSE, group="se2")
    model = build(ModelConfig(encoder="small", observation_shape=shape, n=2, actions=3, objective=scene))
    assert isinstance(model, Located)
    model.measure(Stream(made).draw(500, generator))
    optimizer = torch.optim.AdamW(model.phi_int.parameters(), weight_decay=0.05)
    steps = 300
    for step in range(steps):
        share = step / steps
        optimizer.param_groups[0]["lr"] = TrainingConfig(learning_rate=5e-3).learning_rate_at(share)
        batch = Stream(made).draw(128, generator)
        raw, raw_next = model.phi_int(model.inputs(torch.cat((batch.o, batch.o_next)))).chunk(2)
        optimizer.zero_grad()
        model.agent_term(raw, model.inputs.scaled(batch.a), raw_next, ()).backward()
        torch.nn.utils.clip_grad_norm_(model.phi_int.parameters(), 10.0)
        optimizer.step()
    scene = made.reset(500, generator)
    with torch.no_grad():
        pose = model.pose(made.render(scene))
    off = angle_of(rotated(pose[:, 2:], unit(-scene.heading)))
    off = angle_of(rotated(unit(off), unit(-angle_of(unit(off).mean(0))).expand(500, -1)))
    assert off.abs().mean() < 0.3


def test_objects_wait_for_an_agent_that_turns() -> None:
    """Until the agent follows its actions, L_- does not hold its objects; objects of other agents do not wait."""
    batch = Batch(numbers(64), torch.randn(64, 3), numbers(64).roll(1, 0))
    losses: dict[str, dict[str, Tensor]] = {}
    for group in ("se2", "translations"):
        n = 2 if group == "se2" else 3
        scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.1, group=group)  # type: ignore[arg-type]
        model = build(ModelConfig(**CAMERA | {"n": n}, actions=3, objective=scene))  # type: ignore[arg-type]
        model.train()
        losses[group] = model.loss(batch, torch.Generator(), torch.zeros(())).terms
    assert losses["se2"]["stay"] == 0
    assert losses["se2"]["contact"] > 0
    assert losses["translations"]["stay"] != 0
    assert isinstance(model, Located)
    group, z = SE2(), SE2().posed(torch.randn(64, 3))
    model.group = group
    assert model.follows(z, batch.a, group.act(z, batch.a)) == 1
    assert model.follows(z, batch.a, z) == 0


def test_headings_count_as_much_as_positions_once_poses_follow() -> None:
    """And a quarter as much before; a model in use has the plain L_int."""
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.1, group="se2")
    model = build(ModelConfig(**CAMERA, actions=3, objective=scene))  # type: ignore[arg-type]
    assert isinstance(model, Located)
    group, draw = SE2(), torch.Generator().manual_seed(0)
    z, a, point = group.posed(torch.randn(64, 3, generator=draw)), torch.randn(64, 3, generator=draw), torch.zeros(2)
    after = group.act(z, a)
    for turn, follows in ((0.01, 1.0), (2.5, 0.0)):
        wrong = torch.cat((after[:, :2], rotated(after[:, 2:], unit(torch.tensor(turn)))), 1)
        raw, raw_next = (torch.cat((pose, group.seen(z_true, point)), 1) for pose, z_true in ((z, z), (wrong, after)))
        chord2 = 4 * math.sin(turn / 2) ** 2
        model.train()
        assert float(model.agent_term(raw, a, raw_next, ())) == pytest.approx((1 + 3 * follows) / 4 * chord2, rel=1e-2)
        model.eval()
        assert float(model.agent_term(raw, a, raw_next, ())) == pytest.approx(chord2 / 4, rel=1e-3)


@pytest.mark.slow
@UNTRAINED
def test_own_frame_actions_taken_for_displacements_are_not_trusted() -> None:
    model = palpate.fit(labelled(2000).transitions, steps=150, device="cpu", progress=False)
    advice = {finding["name"]: finding["advice"] for finding in model.facts["findings"]}
    assert "group='se2'" in advice["agent-residual"]
    assert model.facts["quality"]["verdict"] == "not to be trusted"


@UNTRAINED
@pytest.mark.parametrize("width", [3, 2])
def test_a_run_is_resumed_bit_by_bit(width: int, tmp_path: Path) -> None:
    rows = labelled(300).transitions.rows(slice(None))
    data = Transitions(observation=rows.o, action=rows.a[:, :: 4 - width], next_observation=rows.o_next)
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
    assert isinstance(loaded.model.group, SE2)
    assert loaded.config.action_width == width
    assert_close(loaded.encode(rows.o).heading, resumed.encode(rows.o).heading)
    assert loaded.would_touch(rows.o, data.rows(slice(None)).a).shape == (300,)


@UNTRAINED
@pytest.mark.parametrize("objective", ["paper", "paper-gaussian"])
def test_the_papers_objectives_train_too(objective: str) -> None:
    model = palpate.fit(labelled(300).transitions, objective=objective, **SHORT)
    assert model.encode(labelled(300).transitions.rows(slice(None)).o).heading.isfinite().all()


@UNTRAINED
def test_a_streamed_world_with_chosen_moves() -> None:
    model = palpate.fit("palpate/SpritesTurning-v0", **SHORT | {"chosen_moves": 0.5, "encoder": "small"})
    assert model.config.n == 2
    assert model.config.action_width == 3


def test_a_world_names_its_group(tmp_path: Path) -> None:
    """A stream, its triples in a file, and an exploration."""
    name = "palpate/SpritesTurning-v0"
    needs = r"group is 'translations', but the data come from palpate/SpritesTurning-v0, so .* give group='se2'"
    with pytest.raises(ValueError, match=needs):
        palpate.fit(name, **SHORT | {"group": "translations"})
    log = palpate.collect(name, 20, size=20, progress=False, out=tmp_path / "log.h5")
    with pytest.raises(ValueError, match=needs):
        palpate.fit(log, steps=3, progress=False)
    with pytest.raises(ValueError, match="moves along the agent's own axes: this method learns no agent that turns"):
        palpate.fit(log, method="vae", steps=3, progress=False)
    with pytest.raises(ValueError, match=r"whose agent turns; explore moves agents along fixed axes only: collect, th"):
        palpate.explore(name, 400, out=tmp_path / "x", size=20, progress=False)
    with pytest.raises(ValueError, match=r"so the actions are displacements along fixed axes: give group='tr"):
        palpate.fit("palpate/Sprites-v0", group="se2", steps=3, progress=False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "vae"}, r"group is 'se2'; leave it out: the method 'vae' learns no agent that turns"),
        ({"group": "so3"}, r"group is 'so3'; allowed is 'translations' or 'se2' or 'se3'"),
        ({"group": "translations", "motion": "straight"}, r"motion is 'straight'; allowed is 'arc' unless group is"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        palpate.fit(labelled(300).transitions, **SHORT | {"encoder": None} | settings)


def test_actions_of_other_lengths_are_refused() -> None:
    rows = labelled(300).transitions.rows(slice(None))
    data = Transitions(observation=rows.o, action=rows.a[:, :1], next_observation=rows.o_next)
    for use in (lambda: palpate.fit(data, **SHORT), lambda: palpate.check(data, group="se2")):
        with pytest.raises(ValueError, match="the count of numbers in an action is 1; allowed is 2 or 3"):
            use()


# Frames and scores


def test_a_frame_turns_everything() -> None:
    model, o, motion = random_turner(), numbers(), torch.tensor([0.7, -0.2, 2.0])
    before, border = model.encode(o), model.border(o)
    known = model.model.group.moved(before.agent, motion)
    moved = model.align({"observation": o, "agent": known})
    after = moved.encode(o)
    assert_close(moved.frame.origin, motion, atol=1e-4, rtol=0)
    turn = unit(torch.tensor(2.0))
    assert_close(after.agent, known, atol=1e-4, rtol=0)
    assert_close(after.object, rotated(before.object, turn) + motion[:2], atol=1e-4, rtol=0)
    assert_close(unit(after.heading), rotated(unit(before.heading), turn), atol=1e-4, rtol=0)
    assert after.heading.abs().max() <= math.pi
    gap = (after.orientation - before.orientation - 2.0 + math.pi / 2) % math.pi - math.pi / 2
    assert gap.abs().max() < 1e-4
    assert_close(moved.border(o), rotated(border, turn), atol=1e-4, rtol=0)
    matrix = torch.stack((turn, rotated(turn, torch.tensor([0.0, 1.0]))), 1)
    assert_close(after.covariance, matrix @ before.covariance @ matrix.mT, atol=1e-4, rtol=1e-4)


def test_scores_by_hand() -> None:
    """A frame that is moved and turned costs nothing; a heading or a place that is off costs what it is off."""
    truth = labelled(400).truth
    assert truth.heading is not None
    motion = torch.tensor([0.3, 0.4, 1.2])
    group = SE2()
    found = Encoding(truth.agent, truth.object[:, None], heading=truth.heading).moved(group, motion)
    scores = measure(group, found, truth)
    assert scores.l_test < 1e-10
    assert scores.own_l_test is not None
    assert scores.own_l_test < 1e-10
    assert scores.heading_error == pytest.approx(0, abs=1e-5)
    assert scores.motion == "rigid motion"
    assert "rigid motion was fitted to the other" in str(scores)
    off = measure(group, found._replace(heading=found.heading + 0.1), truth)  # type: ignore[operator]
    assert off.heading_error == pytest.approx(0.1, abs=1e-4)
    assert off.l_test < 1e-10
    apart2 = (truth.object - truth.agent).square().sum(1)[1::2].mean().item()
    assert off.own_l_test == pytest.approx(4 * math.sin(0.05) ** 2 * apart2, rel=1e-4)
    assert off.constant["heading_error"] == pytest.approx(math.pi / 2, abs=0.15)
    assert measure(Translations(2), found, truth).l_test > 0.01
    json.dumps(scores.as_dict())
    ours = measure(group, found._replace(heading=None), truth)
    assert ours.heading_error is None


def test_several_objects_are_scored_in_the_true_frame() -> None:
    """The learned frame may be turned: neither the order of the objects nor their angles are compared in it."""
    draw = torch.Generator().manual_seed(0)
    agent, things = torch.rand(200, 2, generator=draw), torch.rand(200, 2, 2, generator=draw)
    heading, angle = 6 * torch.rand(200, generator=draw) - 3, 3 * torch.rand(200, 2, generator=draw)
    found = Encoding(agent, things.flip(1), orientations=angle.flip(1), heading=heading)
    found = found.moved(SE2(), torch.tensor([0.3, 0.4, 2.5]))
    scores = measure(SE2(), found, Truth(agent, things, angle, heading=heading))
    assert scores.l_test < 1e-10
    assert max(one.l_test for one in scores.each) < 1e-10
    assert scores.object_swap_rate == 0
    assert scores.orientation_error == pytest.approx(0, abs=1e-5)
    assert scores.own_l_test == pytest.approx(0, abs=1e-10)


def test_scores_without_true_headings() -> None:
    """Of two numbers, they may be unknown; a reference may lack them too."""
    truth = labelled(400).truth
    assert truth.heading is not None
    found = Encoding(truth.agent, truth.object[:, None], heading=truth.heading)
    unknown = truth._replace(heading=None)
    scores = measure(SE2(), found, unknown)
    assert scores.heading_error is None
    assert "the rigid motion that fits the agent" in str(scores)
    assert measure(SE2(), found, truth, reference=(found, unknown)).heading_error is None


def test_a_frame_is_moved_without_tensors_from_python_numbers() -> None:
    """A CUDA graph cannot capture their copy from the host; `wrap` captures one."""
    model, o = random_turner(), numbers()
    encoding = model.encode(o)
    with Called() as called:
        model.frame.placed(model.model, encoding)
    assert "atan2" in called.names
    assert not FROM_HOST & called.names


@UNTRAINED
def test_a_test_set_of_another_dimension_is_refused_before_training() -> None:
    made = labelled(300)
    with pytest.raises(ValueError, match="true positions of the test triples have 2 numbers, and those of the model 3"):
        palpate.fit(made.transitions, test=made, **SHORT | {"group": "translations"})
    model = palpate.fit(made.transitions, **SHORT | {"group": "translations"})
    with pytest.raises(ValueError, match="has 3 numbers, the truth's 2; if the actions are moves along"):
        palpate.evaluate(model, made)


def test_a_heading_beside_positions_in_space() -> None:
    """An agent that is displaced in space may have a heading as well."""
    o, a = numbers(20), torch.ones(20, 3)
    rows = Transitions(observation=o, action=a, next_observation=o + 1)
    assert len(Labelled(rows, Truth(torch.zeros(20, 3), torch.zeros(20, 3), heading=torch.zeros(20)))) == 20
    with pytest.raises(ValueError, match=r"need \(20, 3\); if the agent turns, give its true heading too"):
        Labelled(rows, Truth(torch.zeros(20, 2), torch.zeros(20, 2)))


def test_the_viewer_draws_the_arc() -> None:
    model, o = random_turner(), numbers()
    row = Batch(o[:1], torch.tensor([[0.4, 0.0, 1.5]]), o[1:2])
    path = _path(model, row)
    assert path is not None
    assert path.shape == (9, 2)
    assert_close(torch.from_numpy(path[0]), model.encode(o[:1]).agent[0])
    assert np.hypot(*(path[-1] - path[0])) == pytest.approx(0.4, rel=1e-4)
    assert np.hypot(*(path[4] - path.mean(0))) > 0.01  # bent


def test_a_residual_does_not_depend_on_the_unit() -> None:
    group, generator = SE2(), torch.Generator().manual_seed(0)
    z, after = (group.posed(torch.randn(50, 3, generator=generator)) for _ in range(2))
    a = torch.randn(50, 3, generator=generator)
    millimetres = torch.tensor([1000.0, 1000.0, 1.0])
    one = residual(group, z, a, after, 0.5)
    other = residual(group, group.scaled_pose(z, 1000.0), a * millimetres, group.scaled_pose(after, 1000.0), 500.0)
    assert other == pytest.approx(1000 * one, rel=1e-4)


# Files and other tools


def test_true_headings_are_stored_and_checked(tmp_path: Path) -> None:
    made = labelled(60)
    made.save(tmp_path / "log.h5")
    with Labelled.open(tmp_path / "log.h5") as opened:
        assert_close(opened.truth.heading, made.truth.heading)
        assert opened.subset(slice(5)).truth.heading_next is None
    with pytest.raises(ValueError, match=r"truth agent has shape \(60, 2\); these triples need \(60, 3\)"):
        Labelled(made.transitions, Truth(made.truth.agent, made.truth.object))
    with pytest.raises(ValueError, match=r"truth heading has shape \(60, 1\); these triples need \(60,\)"):
        Labelled(made.transitions, made.truth._replace(heading=made.truth.heading[:, None]))  # type: ignore[index]


def test_a_policy_sees_the_heading_and_a_table_has_it(tmp_path: Path) -> None:
    model, o = random_turner(), numbers()

    class Sensor(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-9, 9, (5,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return o[0].numpy(), {}

    read, _ = palpate.wrap(Sensor(), model, device="cpu").reset()
    encoding = model.encode(o)
    assert_close(read, torch.cat((encoding.agent[0], unit(encoding.heading[0]), encoding.object[0])).numpy())
    data = Transitions(observation=o[:-1], action=torch.randn(39, 3), next_observation=o[1:])
    encode_log(model, data, tmp_path / "table.npz", progress=False)
    with np.load(tmp_path / "table.npz") as table:
        assert_close(torch.from_numpy(table["palpate.heading"]), encoding.heading, atol=1e-5, rtol=0)


class Rover(gymnasium.Env[np.ndarray, np.ndarray]):
    """A rover that reports where it is and which way it faces; its actions are wheel speeds."""

    observation_space = gymnasium.spaces.Box(-99, 99, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.pose = self.np_random.uniform(-1, 1, 3)
        return self.view()

    def view(self) -> tuple[np.ndarray, dict[str, Any]]:
        return self.pose.astype(np.float32), {"at": self.pose[:2], "yaw": self.pose[2], "object": np.zeros(2)}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        left, right = action
        self.pose = self.pose + np.array(
            [(left + right) * math.cos(self.pose[2]), (left + right) * math.sin(self.pose[2]), right - left]
        )
        o, info = self.view()
        return o, 0.0, False, False, info


def test_a_heading_that_is_read_makes_own_frame_actions() -> None:
    options = {"agent_position": "info:at", "agent_heading": "info:yaw", "progress": False}
    made = palpate.collect(Rover(), 30, labelled=True, **options)
    rows = made.transitions.rows(slice(None))
    group = SE2()
    assert rows.a.shape == (30, 3)
    assert rows.a[:, 1].abs().max() < 1e-5  # it drives ahead, then turns
    assert_close(group.act(group.posed(rows.o), rows.a), group.posed(rows.o_next), atol=1e-5, rtol=0)
    assert_close(made.truth.heading, rows.o[:, 2])
    with pytest.raises(ValueError, match=r"the log was collected with agent_heading, so .*: give group='se2'"):
        palpate.fit(made.transitions, steps=3, progress=False)
    with pytest.raises(ValueError, match="agent_heading is 'info:yaw'; give agent_position too"):
        palpate.collect(Rover(), 3, agent_heading="info:yaw", progress=False)
    with pytest.raises(ValueError, match="agent_heading, read from info:at, has shape"):
        palpate.collect(Rover(), 3, **options | {"agent_heading": "info:at"})
    with pytest.raises(ValueError, match="agent_heading is given for a position of 3 numbers"):
        palpate.collect(Rover(), 3, **options | {"agent_position": "observation"})


class Space(Rover):
    """In space, with a compass."""

    def view(self) -> tuple[np.ndarray, dict[str, Any]]:
        info = {"agent": self.pose, "at": self.pose, "object": np.zeros(3), "heading": self.pose[2]}
        return self.pose.astype(np.float32), info


def test_a_compass_in_space_is_no_agent_that_turns() -> None:
    made = palpate.collect(Space(), 5, agent_position="info:at", labelled=True, progress=False)
    assert made.truth.agent.shape == (5, 3)
    assert made.truth.heading is not None


class Trembling(Rover):
    """Its heading rests at pi, with noise."""

    sign = 1.0

    def view(self) -> tuple[np.ndarray, dict[str, Any]]:
        self.sign = -self.sign
        return self.pose.astype(np.float32), {"at": self.pose[:2], "yaw": self.sign * (math.pi - 1e-5)}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.pose = self.pose + 0.1 * np.array([action[0], action[1], 0])
        o, info = self.view()
        return o, 0.0, False, False, info


def test_a_heading_at_pi_rests() -> None:
    options = {"agent_position": "info:at", "agent_heading": "info:yaw", "settle": 2, "watch": "observation"}
    made = palpate.collect(Trembling(), 5, progress=False, **options)
    assert len(made) == 5


# What the actions are


def blind(made: Labelled) -> tuple[Tensor, Tensor]:
    """Observations of a robot without a front."""
    truth = made.truth
    assert truth.agent_next is not None
    assert truth.object_next is not None
    still = torch.zeros(len(made))
    return seen(truth.agent, still, truth.object), seen(truth.agent_next, still, truth.object_next)


CASES = [
    ("none", "se2", None),
    ("none", "translations", "own-frame-actions"),
    ("forward and turn", "translations", "own-frame-actions"),
    ("mirrored", "se2", "mirrored-turns"),
    ("degrees", "se2", "turns-in-degrees"),
    ("fixed axes and turns", "se2", "fixed-axes-actions"),
    ("fixed axes", "translations", None),
    ("blind", "se2", "heading-not-visible"),
    ("blind", "translations", "heading-not-visible"),
    ("another row", "se2", None),
]


def changed(change: str) -> Transitions:
    """A log whose actions, or observations, are not what they should be."""
    made = labelled(COUNT, sideways=change != "forward and turn")
    rows, truth = made.transitions.rows(slice(None)), made.truth
    assert truth.agent_next is not None
    moved = truth.agent_next - truth.agent
    action = {
        "mirrored": rows.a * torch.tensor([1, 1, -1]),
        "degrees": rows.a * torch.tensor([1, 1, 180 / math.pi]),
        "fixed axes and turns": torch.cat((moved, rows.a[:, 2:]), 1),
        "fixed axes": moved,
        "forward and turn": rows.a[:, ::2],
        "another row": rows.a.roll(1, 0),
    }.get(change, rows.a)
    o, o_next = blind(made) if change == "blind" else (rows.o, rows.o_next)
    return Transitions(observation=o, action=action, next_observation=o_next)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """These small logs need half the steps."""
    shorten(monkeypatch, (200, 150), (100, 50))
    monkeypatch.setattr("palpate.doctor.frames.FRAME_SECONDS", 1e6)  # no finding depends on the machine


@pytest.mark.slow
@pytest.mark.parametrize(("change", "group", "name"), CASES)
def test_what_actions_are_is_found(change: str, group: Any, name: str | None, short: None) -> None:
    finding, residuals = frames(changed(change), ObjectiveConfig(group=group))
    assert (finding and finding.name) == name, residuals
    assert finding is None or finding.severity == "blocking"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "group", "names"),
    [
        ("none", "se2", set()),
        ("none", "translations", {"own-frame-actions"}),
        ("another row", "se2", {"not-displacements"}),
    ],
)
def test_check_names_what_actions_are(change: str, group: Any, names: set[str], short: None) -> None:
    checkup = palpate.check(changed(change), group=group)
    assert {finding.name for finding in checkup.findings if finding.severity == "blocking"} >= names
    assert checkup.good is not bool(names)


def found(a: Tensor, o: tuple[Tensor, Tensor], **settings: Any) -> dict[str, str]:
    checkup = palpate.check(Transitions(observation=o[0], action=a, next_observation=o[1]), **settings)
    return {finding.name: finding.severity for finding in checkup.findings}


def test_in_pictures_a_short_run_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns a heading from numbers, but from pictures it may take longer."""
    shorten(monkeypatch, (5, 5), (5, 5))
    log = palpate.collect("palpate/SpritesTurning-v0", 1200, size=20, progress=False)
    checkup = palpate.check(log, group="se2")
    assert checkup.good
    assert [finding.name for finding in checkup.findings if finding.severity == "warning"] == ["heading-not-visible"]
    assert "the short training run did not find which way the agent faces" in str(checkup)


def test_a_robot_that_never_turns_is_named() -> None:
    rows = labelled(1200).transitions.rows(slice(None))
    straight = rows.a * torch.tensor([1, 1, 1e-4])
    assert found(straight, (rows.o, rows.o_next), group="se2", probe=False)["never-turns"] == "blocking"
    assert "never-turns" not in found(rows.a, (rows.o, rows.o_next), group="se2", probe=False)
    sideless = rows.a * torch.tensor([1, 0, 1])
    assert "flat" not in found(sideless, (rows.o, rows.o_next), group="se2", probe=False)


def test_explore_refuses_agents_that_turn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="group is 'se2'; explore moves agents along fixed axes only; leave it out"):
        palpate.explore(
            Rover(), 400, out=tmp_path / "x", agent_position="info:at", fit={"group": "se2"}, progress=False
        )
    with pytest.raises(ValueError, match="agent_heading is 'info:yaw'; explore moves agents along fixed axes only"):
        palpate.explore(
            Rover(), 400, out=tmp_path / "x", agent_position="info:at", agent_heading="info:yaw", progress=False
        )
    assert not (tmp_path / "x").exists()
