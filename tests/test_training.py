"""The loop: what a seed fixes, what a stop must not change, and what never reaches the weights."""

import errno
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import palpate.methods.interaction
import pytest
import torch
from palpate.methods.interaction import Interaction
from safetensors.torch import save_file
from torch import Tensor, nn

import palpate.data.stream
import palpate.training.loop
from palpate.checkpoint import read_state, write_state
from palpate.config import ModelConfig, ObjectiveConfig, TrainingConfig
from palpate.data.sources import OnDisk, Resident, Source
from palpate.data.stream import Stream
from palpate.data.transitions import Batch, Transitions
from palpate.envs.sprites import Sprites, SpritesConfig
from palpate.interrupts import interrupt_between_steps
from palpate.methods.base import Loss
from palpate.methods.store import build
from palpate.runlog import RunLog, read_log
from palpate.training.loop import (
    Interrupted,
    NonFiniteLoss,
    Notes,
    Run,
    train,
    training_device,
)

Weights = dict[str, Tensor]
BATCH = 16


def settings(**changes: Any) -> TrainingConfig:
    return TrainingConfig(
        **({"steps": 12, "batch_size": BATCH, "device": "cpu", "log_every": 4, "checkpoint_every": 5} | changes)
    )


def triples(count: int = 200) -> Transitions:
    """Vectors that show agent and object, each of which moves in half of the triples or always."""
    rng = np.random.default_rng(0)
    agent, agent_next, thing, thrown = rng.random((4, count, 2))
    thing_next = np.where(rng.random((count, 1)) < 0.5, thrown, thing)
    return Transitions(
        observation=np.hstack((agent, thing)),
        action=agent_next - agent,
        next_observation=np.hstack((agent_next, thing_next)),
    )


def build_model(shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    encoder = "small" if len(shape) == 3 else "mlp"
    objective = ObjectiveConfig(split_window=64)
    return build(ModelConfig(encoder=encoder, observation_shape=shape, n=2, objective=objective))  # type: ignore[arg-type]


def weights(model: nn.Module) -> Weights:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: Weights, two: Weights) -> bool:
    """Bit for bit; a slot not filled yet is NaN."""
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k], equal_nan=True) for k in one)


def stop_at(step: int) -> Callable[[int, dict[str, float]], None]:
    def watch(now: int, readings: dict[str, float]) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


@pytest.fixture(scope="module")
def sprites() -> Sprites:
    return Sprites(SpritesConfig(size=20))


@pytest.fixture(params=["stream", "choosy stream", "probing stream", "resident", "on disk"])
def make_source(request: pytest.FixtureRequest, sprites: Sprites, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    if request.param == "stream":
        return lambda: Stream(sprites, BATCH)
    if request.param == "choosy stream":  # from its first reading on, without waiting for classes that are apart
        monkeypatch.setattr(palpate.data.stream, "JUDGED", 1)
        monkeypatch.setattr(palpate.training.loop, "ADAPT_EVERY", 2)
        monkeypatch.setattr(palpate.methods.interaction, "SEPARABLE", -math.inf)
        return lambda: Stream(sprites, BATCH, least_contacts=0.51)
    if request.param == "probing stream":
        monkeypatch.setattr(palpate.data.stream, "JUDGED", 1)
        monkeypatch.setattr(palpate.data.stream, "PROBE_FROM", 0.0)
        monkeypatch.setattr(palpate.training.loop, "ADAPT_EVERY", 2)
        monkeypatch.setattr(palpate.methods.interaction, "SEPARABLE", -math.inf)
        return lambda: Stream(sprites, BATCH, probing=0.5)
    if request.param == "resident":
        return lambda: Resident(triples(), BATCH, "cpu")
    return lambda: OnDisk(triples(), BATCH, "cpu", seed=3, group_bytes=2000)


def trained(make_source: Callable[[], Any], config: TrainingConfig, **options: Any) -> nn.Module:
    source = make_source()
    model = build_model(source.observation_shape)
    try:
        train(model, source, config, **options)
    finally:
        source.close()
    return model


class TestSeed:
    def test_fixes_every_bit(self, make_source: Callable[[], Any]) -> None:
        first = weights(trained(make_source, settings(seed=1)))
        torch.rand(7)  # what others do with the global generator is none of our business
        assert same(first, weights(trained(make_source, settings(seed=1))))

    def test_another_gives_another_model(self, sprites: Sprites) -> None:
        one, two = (weights(trained(lambda: Stream(sprites, BATCH), settings(seed=seed))) for seed in (1, 2))
        assert not same(one, two)

    def test_training_changes_every_network(self, make_source: Callable[[], Any]) -> None:
        source = make_source()
        before = weights(build_model(source.observation_shape))
        source.close()
        after = weights(trained(make_source, settings(steps=2)))
        names = [name for name in before if name.startswith("phi_")]
        assert names
        assert all(not torch.equal(before[name], after[name]) for name in names)


@pytest.mark.parametrize("make_source", ["choosy stream"], indirect=True)
class TestChoosing:
    def test_the_model_is_asked_once_there_is_something_to_choose(
        self, make_source: Callable[[], Any], sprites: Sprites, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        plain = Interaction.contacts

        def contacts(self: Interaction, batch: Batch) -> Tensor:
            assert not self.training
            asked.append(len(batch.a))
            return plain(self, batch)

        monkeypatch.setattr(Interaction, "contacts", contacts)
        model = trained(make_source, settings())
        assert asked == [palpate.data.stream.POOL * BATCH] * 10  # from step 2 on
        assert model.training is False
        assert not same(weights(model), weights(trained(lambda: Stream(sprites, BATCH), settings())))


@pytest.mark.parametrize("make_source", ["probing stream"], indirect=True)
def test_the_model_is_asked_about_moves_once_they_are_chosen(
    make_source: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.Size] = []
    plain = Interaction.doubts

    def doubts(self: Interaction, o: Tensor, moves: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        asked.append(moves.shape)
        return plain(self, o, moves)

    monkeypatch.setattr(Interaction, "doubts", doubts)
    model = trained(make_source, settings())
    assert asked == [(BATCH // 2, palpate.data.stream.MOVES, 2)] * 10  # from step 2 on
    assert model.training is False


class TestSettling:
    def test_once_after_the_last_step_as_it_is_and_before_it_is_measured_and_saved(
        self, sprites: Sprites, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        told: list[str] = []

        def settle(self: Interaction, draw: Callable[[], Batch], steps: int) -> None:
            assert not torch.is_grad_enabled()
            for _ in range(2):  # a stream asks the model in between
                assert draw().a.shape == (BATCH, 2)
                assert not self.training
            told.append(f"settled after {steps}")
            self.body.log_radius.fill_(7.0)

        def evaluate(model: nn.Module) -> dict[str, float]:
            told.append(f"measured {float(model.body.log_radius)}" if model.body.log_radius == 7 else "measured")
            return {}

        monkeypatch.setattr(Interaction, "settle", settle)
        monkeypatch.setattr(palpate.data.stream, "JUDGED", 1)
        for _ in range(2):  # the second time there is nothing left to do
            model = build_model(sprites.observation_shape)
            source = Stream(sprites, BATCH, probing=0.5)
            train(model, source, settings(evaluate_every=6), folder=tmp_path, evaluate=evaluate)
            assert told == ["measured", "settled after 12", "measured 7.0"]
            assert model.body.log_radius == 7

    @pytest.mark.parametrize("make_source", ["probing stream"], indirect=True)
    def test_with_the_moves_that_say_most_and_the_same_when_resumed(
        self, make_source: Callable[[], Stream], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        asked: list[int] = []
        plain = Interaction.doubts

        def doubts(self: Interaction, o: Tensor, moves: Tensor) -> Tensor:
            asked.append(moves.shape[1])
            return plain(self, o, moves)

        monkeypatch.setattr(Interaction, "doubts", doubts)

        def run(**options: Any) -> Interaction:
            torch.manual_seed(0)
            source, objective = make_source(), ObjectiveConfig(bend=2)
            shape = source.observation_shape
            model = Interaction(ModelConfig(encoder="small", observation_shape=shape, n=2, objective=objective))
            train(model, source, settings(), **options)
            return model

        whole = run()
        assert asked[-2:] == [palpate.data.stream.LAST_MOVES] * 2
        assert whole.bend is not None
        assert (whole.bend.reach != 1).all()
        with pytest.raises(Interrupted):
            run(folder=tmp_path, watch=stop_at(4))
        assert same(weights(run(folder=tmp_path)), weights(whole))
        assert same(weights(run(folder=tmp_path)), weights(whole))  # there is nothing left to do


class TestResume:
    """Stopped after step 4, which is no multiple of `checkpoint_every`, and continued by another process' objects."""

    def test_equals_straight_through(self, make_source: Callable[[], Any], tmp_path: Path) -> None:
        config = settings()
        straight = trained(make_source, config, folder=tmp_path / "straight")
        with pytest.raises(Interrupted, match="stopped after step 4 of 12"):
            trained(make_source, config, folder=tmp_path / "stopped", watch=stop_at(4))
        assert [row["step"] for row in read_log(tmp_path / "stopped" / "metrics.jsonl")] == [4]
        resumed = trained(make_source, config, folder=tmp_path / "stopped")
        assert same(weights(straight), weights(resumed))
        rows = [read_log(tmp_path / name / "metrics.jsonl") for name in ("straight", "stopped")]
        assert [row["step"] for row in rows[0]] == [4, 8, 12]
        assert rows[0] == rows[1]

    def test_after_a_crash_the_last_checkpoint_counts(self, make_source: Callable[[], Any], tmp_path: Path) -> None:
        config = settings(log_every=1)

        def crash(step: int, readings: dict[str, float]) -> None:
            if step == 8:
                raise KeyError("power")

        straight = trained(make_source, config, folder=tmp_path / "straight")
        with pytest.raises(KeyError, match="power"):
            trained(make_source, config, folder=tmp_path / "crashed", watch=crash)
        steps: list[int] = []
        resumed = trained(
            make_source, config, folder=tmp_path / "crashed", watch=lambda step, readings: steps.append(step)
        )
        assert steps == [6, 7, 8, 9, 10, 11, 12]  # the checkpoint was that of step 5
        assert same(weights(straight), weights(resumed))
        rows = [read_log(tmp_path / name / "metrics.jsonl") for name in ("straight", "crashed")]
        assert rows[0] == rows[1]

    def test_averages_survive_a_stop_between_readings(self, tmp_path: Path) -> None:
        """Ctrl-C comes when it comes; the row of step 8 is still the average over steps 5 to 8."""

        class Stopping(Source[Batch]):
            def __init__(self, after: int) -> None:
                self.source, self.left = Resident(triples(), BATCH, "cpu"), after
                self.observation_shape, self.n = self.source.observation_shape, 2

            def draw(self, generator: torch.Generator) -> Batch:
                self.left -= 1
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGINT)
                return self.source.draw(generator)

        straight = trained(lambda: Stopping(0), settings(), folder=tmp_path / "straight")
        with pytest.raises(Interrupted, match="stopped after step 6 of 12"):
            trained(lambda: Stopping(6), settings(), folder=tmp_path / "stopped")
        resumed = trained(lambda: Stopping(0), settings(), folder=tmp_path / "stopped")
        assert same(weights(straight), weights(resumed))
        rows = [read_log(tmp_path / name / "metrics.jsonl") for name in ("straight", "stopped")]
        assert rows[0] == rows[1]

    def test_what_the_source_learned_survives(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Contacts that are drawn more often: from other rows the weights would come out different."""
        plain_loss = Interaction.loss

        def loss(self: Interaction, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
            return plain_loss(self, batch, generator, progress)._replace(contacts=batch.a[:, 0] > 0.3)

        monkeypatch.setattr(Interaction, "loss", loss)

        def source() -> Resident:
            return Resident(triples(), BATCH, "cpu", least_contacts=0.9)

        straight = trained(source, settings(), folder=tmp_path / "straight")
        with pytest.raises(Interrupted):
            trained(source, settings(), folder=tmp_path / "stopped", watch=stop_at(4))
        resumed = trained(source, settings(), folder=tmp_path / "stopped")
        assert same(weights(straight), weights(resumed))

    def test_the_best_weights_survive(self, tmp_path: Path) -> None:
        """The best evaluation came before the stop; the run after it only gets worse."""
        config = settings(evaluate_every=4)
        scores = {4: 1.0, 8: 3.0, 12: 2.0}
        snapshots: dict[int, Weights] = {}

        def evaluating(first: int) -> Callable[[nn.Module], dict[str, float]]:
            step = first

            def evaluate(model: nn.Module) -> dict[str, float]:
                nonlocal step
                step += 4
                snapshots[step] = weights(model)
                return {"held_out": scores[step]}

            return evaluate

        def source() -> Resident:
            return Resident(triples(), BATCH, "cpu")

        options: dict[str, Any] = {"folder": tmp_path, "criterion": "held_out"}
        with pytest.raises(Interrupted):
            trained(source, config, evaluate=evaluating(0), watch=stop_at(4), **options)
        resumed = trained(source, config, evaluate=evaluating(4), **options)
        assert same(weights(resumed), snapshots[4])
        assert not same(snapshots[4], snapshots[12])

    def test_held_out_criterion_equals_straight_through(self, tmp_path: Path) -> None:
        held_out = triples(40).rows(slice(None))
        options: dict[str, Any] = {
            "evaluate": lambda model: {"held_out": model.held_out([held_out])},
            "criterion": "held_out",
        }

        def source() -> Resident:
            return Resident(triples(), BATCH, "cpu")

        config = settings(evaluate_every=4, learning_rate=0.05)
        straight = trained(source, config, folder=tmp_path / "straight", **options)
        with pytest.raises(Interrupted):
            trained(source, config, folder=tmp_path / "stopped", watch=stop_at(8), **options)
        resumed = trained(source, config, folder=tmp_path / "stopped", **options)
        assert same(weights(straight), weights(resumed))
        rows = [read_log(tmp_path / name / "metrics.jsonl") for name in ("straight", "stopped")]
        assert rows[0] == rows[1]
        best = min(row["held_out"] for row in rows[0])
        with torch.no_grad():
            assert resumed.held_out([held_out]) == best  # type: ignore[operator]

    def test_a_finished_run_is_left_as_it_is(self, tmp_path: Path) -> None:
        first = trained(lambda: Resident(triples(), BATCH, "cpu"), settings(), folder=tmp_path)
        rows = read_log(tmp_path / "metrics.jsonl")
        again = trained(lambda: Resident(triples(), BATCH, "cpu"), settings(), folder=tmp_path)
        assert same(weights(first), weights(again))
        assert read_log(tmp_path / "metrics.jsonl") == rows
        assert not again.training

    def test_without_a_folder_nothing_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Interrupted):
            trained(lambda: Resident(triples(), BATCH, "cpu"), settings(), watch=stop_at(4))
        assert list(tmp_path.iterdir()) == []


class TestCheckpoint:
    @pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "foreign"])
    def test_damaged(self, damage: str, tmp_path: Path) -> None:
        def source() -> Resident:
            return Resident(triples(), BATCH, "cpu")

        with pytest.raises(Interrupted):
            trained(source, settings(), folder=tmp_path, watch=stop_at(4))
        path = tmp_path / "checkpoint" / "state.safetensors"
        whole = path.read_bytes()
        if damage == "foreign":
            save_file({"x": torch.zeros(3)}, path)
        else:
            path.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "garbage": b"\x80" * 300}[damage])
        with pytest.raises(ValueError, match="is damaged or was not written by palpate") as error:
            trained(source, settings(), folder=tmp_path)
        assert str(path) in str(error.value)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="does not exist; is this the folder of a run"):
            read_state(tmp_path / "state.safetensors")

    def test_round_trip(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "state.safetensors"
        groups = {"model": {"a/b.c": torch.rand(3, 4).t(), "n": torch.tensor(7)}, "best": {}}
        facts = {"step": 3, "best_value": 0.1 + 0.2, "none": None}
        write_state(path, groups, facts)
        back, facts_back = read_state(path)
        assert facts_back == facts
        assert list(back) == ["model", "best"]
        assert same(back["model"], groups["model"])
        assert back["best"] == {}
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_who_may_read_it_is_the_users_choice(self, tmp_path: Path) -> None:
        """safetensors itself writes files for their owner alone."""
        before = os.umask(0o027)
        try:
            write_state(tmp_path / "state.safetensors", {"model": {"w": torch.ones(2)}}, {})
        finally:
            os.umask(before)
        assert (tmp_path / "state.safetensors").stat().st_mode & 0o777 == 0o640

    def test_a_failed_write_leaves_the_old_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "state.safetensors"
        write_state(path, {"model": {"w": torch.ones(2)}}, {"step": 1})

        def fail(number: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=r"cannot write .*state\.safetensors: No space left on device"):
            write_state(path, {"model": {"w": torch.zeros(2)}}, {"step": 2})
        assert read_state(path)[1] == {"step": 1}
        assert [file.name for file in tmp_path.iterdir()] == [path.name]


class Toy(nn.Module):
    """A weight pulled to the batch; its second term is not a number in the steps named."""

    def __init__(self, bad: dict[int, float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.bad, self.calls, self.settled = bad, 0, False
        self.values: list[float] = []

    def loss(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
        self.calls += 1
        good = (self.weight - batch.a).square().sum(-1).mean()
        other = self.weight.sum() * self.bad.get(self.calls, 0.1)
        self.values.append(float(good.detach()))
        return Loss({"good": good, "other": other}, {"reading": good.detach() * 2})

    def vitals(self) -> dict[str, float]:
        return {"pulse": 60.0}

    def settle(self, draw: Callable[[], Batch], steps: int) -> None:
        self.settled = True

    def take_down_scaffold(self) -> None:
        """It has none."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.weight]}]


def train_toy(toy: Toy, **changes: Any) -> Toy:
    folder = changes.pop("folder", None)
    train(toy, Resident(triples(), BATCH, "cpu"), settings(schedule="constant", **changes), folder=folder)
    return toy


class TestNonFinite:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("k", [1, 3, 4])
    def test_never_reaches_the_weights(self, k: int, value: float) -> None:
        toy = Toy({k: value})
        with pytest.raises(NonFiniteLoss) as error:
            train_toy(toy, log_every=6)
        assert toy.calls == 6  # good steps after the bad one were computed, and masked too
        good = train_toy(Toy({}), steps=k - 1) if k > 1 else Toy({})
        assert torch.equal(toy.weight, good.weight)
        message = str(error.value)
        assert "not finite: other, gradient" in message
        assert f"{k - 1} good steps after the last reading" in message
        assert "learning rate" in message

    def test_names_the_first_bad_step_only(self) -> None:
        class Both(Toy):
            def loss(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
                loss = super().loss(batch, generator, progress)
                good = loss.terms["good"] * (math.nan if self.calls == 5 else 1)
                return Loss({"good": good, "other": loss.terms["other"]}, loss.readings)

        with pytest.raises(NonFiniteLoss, match="not finite: other, gradient,"):
            train_toy(Both({3: math.nan}), log_every=6)

    def test_a_gradient_alone(self) -> None:
        """The root of 0 is a number, its slope is not."""

        class Steep(Toy):
            def loss(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
                loss = super().loss(batch, generator, progress)
                root = (self.weight - self.weight.detach()).sum().abs().sqrt()
                return Loss({"good": loss.terms["good"], "root": root}, {})

        toy = Steep({})
        with pytest.raises(NonFiniteLoss, match="not finite: gradient,"):
            train_toy(toy)
        assert torch.equal(toy.weight, Toy({}).weight)

    def test_a_real_model_keeps_weights_and_moments(self) -> None:
        config = settings(schedule="constant", log_every=50)
        source = Resident(triples(), BATCH, "cpu")
        run = Run(build_model(source.observation_shape), source, config)
        for _ in range(3):
            run.set_schedule()
            run.advance()
        learned = [parameter for parameter in run.parameters if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in learned]
        moments = [{name: value.clone() for name, value in run.moments(p).items()} for p in learned]
        assert {name for kept in moments for name in kept} == {"momentum", "exp_avg", "exp_avg_sq", "step"}
        batch = source.draw(run.generator)
        run.advance(batch._replace(o=torch.full_like(batch.o, torch.nan)))
        run.advance(batch)
        assert all(map(torch.equal, before, learned))
        for kept, parameter in zip(moments, learned, strict=True):
            for name, value in run.moments(parameter).items():
                assert torch.equal(kept[name], value)
        with pytest.raises(NonFiniteLoss, match=r"not finite: agent, contrast, .*gradient"):
            run.read()

    @pytest.mark.parametrize(("begun", "resumed"), [("muon", "adamw"), ("adamw", "muon")])
    def test_moments_of_another_optimizer_are_refused(self, tmp_path: Path, begun: Any, resumed: Any) -> None:
        source = Resident(triples(), BATCH, "cpu")
        train(build_model(source.observation_shape), source, settings(optimizer=begun), folder=tmp_path)
        run = Run(build_model(source.observation_shape), source, settings(optimizer=resumed))
        with pytest.raises(ValueError, match="was begun with another optimizer; start another"):
            run.restore(tmp_path)

    def test_no_checkpoint_after_a_bad_step(self, tmp_path: Path) -> None:
        """A checkpoint that comes before the reading would carry on as if the masked steps had been made."""
        with pytest.raises(NonFiniteLoss):
            train_toy(Toy({3: math.nan}), log_every=6, checkpoint_every=2, folder=tmp_path)
        assert read_state(tmp_path / "checkpoint" / "state.safetensors")[1]["step"] == 2

    def test_no_last_fit_to_such_weights(self) -> None:
        toy = Toy({11: math.nan})
        with pytest.raises(NonFiniteLoss):
            train_toy(toy, log_every=12)
        assert not toy.settled
        assert train_toy(Toy({})).settled


class TestReadings:
    def test_notes_average_since_the_last_reading(self) -> None:
        notes = Notes(["a", "b"], ["c"], torch.device("cpu"))
        for step in (1.0, 2.0, 6.0):
            flag = notes.add([torch.tensor(step), torch.tensor(10 * step)], [torch.tensor(-step)])
            assert flag.item() == 0
        assert notes.read() == {"a": 3.0, "b": 30.0, "c": -3.0}
        notes.add([torch.tensor(5.0), torch.tensor(7.0)], [torch.tensor(9.0)])
        assert notes.read() == {"a": 5.0, "b": 7.0, "c": 9.0}

    def test_a_reading_that_is_no_number_stops_nothing(self) -> None:
        notes = Notes(["a"], ["c"], torch.device("cpu"))
        assert notes.add([torch.tensor(1.0)], [torch.tensor(math.nan)]).item() == 0

    def test_rows_of_the_log(self, tmp_path: Path) -> None:
        toy = train_toy(Toy({}), steps=10, log_every=4, folder=tmp_path)
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == [4, 8, 10]
        assert set(rows[0]) == {"step", "good", "other", "gradient", "reading", "pulse", "learning_rate"}
        for row, values in zip(rows, (toy.values[:4], toy.values[4:8], toy.values[8:]), strict=True):
            assert row["good"] == pytest.approx(np.mean(values), rel=1e-5)
            assert row["reading"] == pytest.approx(2 * np.mean(values), rel=1e-5)
            assert row["learning_rate"] == TrainingConfig(schedule="constant").learning_rate_at(0)

    def test_the_learning_rate_follows_the_schedule(self) -> None:
        source = Resident(triples(), BATCH, "cpu")
        config = settings(steps=40, learning_rate=0.01)
        run = Run(build_model(source.observation_shape), source, config)
        for step, factor in ((0, 0.04), (5, 0.52), (10, 1.0), (25, 0.5), (40, 0.0)):
            run.step = step
            run.set_schedule()
            matrices, others = (optimizer.param_groups for optimizer in run.optimizers)
            rates = (matrices[0], 0.01), (others[0], 0.01), (others[1], 0.1)  # the body follows ten times as fast
            for group, rate in rates:
                assert group["lr"].item() == pytest.approx(rate * factor, abs=1e-8)
            assert run.progress.item() == pytest.approx(step / 40)

    def test_watch_sees_what_is_logged(self, tmp_path: Path) -> None:
        seen: list[dict[str, Any]] = []
        train(
            build_model((4,)),
            Resident(triples(), BATCH, "cpu"),
            settings(),
            folder=tmp_path,
            watch=lambda step, readings: seen.append({"step": step, **readings}),
        )
        assert seen == read_log(tmp_path / "metrics.jsonl")
        wanted = {"agent", "contrast", "contact", "stay", "gradient", "contact_share"}
        assert wanted | {"separation", "radius", "softness"} <= set(seen[0])

    def test_a_log_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_text('{"step": 2, "x": 1.0}\n{"step": 4, "x": 2.0}\n{"step": 6, "x"')
        assert [row["step"] for row in read_log(path)] == [2, 4]
        log = RunLog(tmp_path, step=2)
        log.write(4, {"x": 5.0})
        log.close()
        assert read_log(path) == [{"step": 2, "x": 1.0}, {"step": 4, "x": 5.0}]

    def test_tensorboard_beside_it(self, tmp_path: Path) -> None:
        pytest.importorskip("tensorboard")
        log = RunLog(tmp_path, step=0, tensorboard=True)
        log.write(1, {"agent": 0.5})
        log.close()
        events = list((tmp_path / "tensorboard").iterdir())
        assert len(events) == 1
        assert b"agent" in events[0].read_bytes()
        assert read_log(tmp_path / "metrics.jsonl") == [{"step": 1, "agent": 0.5}]

    def test_tensorboard_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(ValueError, match=r"pip install palpate\[tensorboard\]"):
            RunLog(tmp_path, step=0, tensorboard=True)


class TestEvaluation:
    def test_the_smallest_criterion_is_handed_out(self) -> None:
        snapshots: list[Weights] = []

        def evaluate(model: nn.Module) -> dict[str, float]:
            assert not model.training
            assert not torch.is_grad_enabled()
            snapshots.append(weights(model))
            return {"held_out": [3.0, 1.0, 2.0][len(snapshots) - 1], "other": -float(len(snapshots))}

        model = build_model((4,))
        config = settings(evaluate_every=4)
        train(model, Resident(triples(), BATCH, "cpu"), config, evaluate=evaluate, criterion="held_out")
        assert len(snapshots) == 3
        assert same(weights(model), snapshots[1])
        assert not same(weights(model), snapshots[2])
        assert not model.training

    def test_without_a_criterion_the_last_weights_are(self) -> None:
        snapshots: list[Weights] = []

        def evaluate(model: nn.Module) -> dict[str, float]:
            snapshots.append(weights(model))
            return {"held_out": float(len(snapshots))}

        model = build_model((4,))
        train(model, Resident(triples(), BATCH, "cpu"), settings(evaluate_every=4), evaluate=evaluate)
        assert same(weights(model), snapshots[-1])

    def test_looking_changes_nothing(self) -> None:
        """Evaluating is no part of learning: the weights are those of a run without it."""
        held_out = triples(40).rows(slice(None))
        plain, watched = build_model((4,)), build_model((4,))
        train(plain, Resident(triples(), BATCH, "cpu"), settings(evaluate_every=4))
        train(
            watched,
            Resident(triples(), BATCH, "cpu"),
            settings(evaluate_every=4),
            evaluate=lambda model: {"held_out": model.held_out([held_out])},
        )
        assert same(weights(plain), weights(watched))

    def test_neither_does_logging(self, make_source: Callable[[], Any]) -> None:
        often = trained(make_source, settings(log_every=3, evaluate_every=5), evaluate=lambda model: {})
        assert same(weights(often), weights(trained(make_source, settings(log_every=12))))

    @pytest.mark.parametrize(("log_every", "evaluate_every"), [(4, 4), (4, 3), (10, 5)])
    def test_comes_as_often_as_asked(self, log_every: int, evaluate_every: int) -> None:
        at: list[int] = []
        model = build_model((4,))
        train(
            model,
            Resident(triples(), BATCH, "cpu"),
            settings(log_every=log_every, evaluate_every=evaluate_every),
            evaluate=lambda model: {"score": 1.0},
            watch=lambda step, readings: at.append(step) if "score" in readings else None,
        )
        assert at == [step for step in range(1, 13) if step % evaluate_every == 0 or step == 12]


class TestInterrupt:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_second_is_immediate_and_the_handler_comes_back(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        with interrupt_between_steps() as asked:
            assert not asked()
            os.kill(os.getpid(), number)
            assert asked()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is before

    def test_a_thread_cannot_be_asked(self) -> None:
        """Signals belong to the main thread; a training elsewhere runs on."""
        done: list[nn.Module] = []
        thread = threading.Thread(target=lambda: done.append(train_toy(Toy({}))))
        thread.start()
        thread.join()
        assert len(done) == 1

    def test_in_the_last_step_the_run_is_complete(self, tmp_path: Path) -> None:
        trained(lambda: Resident(triples(), BATCH, "cpu"), settings(), folder=tmp_path, watch=stop_at(12))
        assert read_state(tmp_path / "checkpoint" / "state.safetensors")[1]["step"] == 12


class TestDevice:
    def test_no_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert training_device(TrainingConfig()).type == "cpu"
        with pytest.raises(ValueError, match="device is 'cuda', but torch sees no GPU here"):
            training_device(TrainingConfig(device="cuda"))

    def test_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert training_device(TrainingConfig()).type == "cuda"
        assert training_device(TrainingConfig(device="cpu")).type == "cpu"
