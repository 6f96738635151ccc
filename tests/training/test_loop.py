"""The loop: what a seed fixes, what looking must not change, which weights are handed over, how it is stopped."""

import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import (
    BATCH,
    FEEDS,
    Toy,
    feed,
    make_model,
    resident,
    same,
    select_at_once,
    settings,
    stop_at,
    train_toy,
    trained,
    weights,
)

from palpate.config import TrainingConfig
from palpate.data.transitions import Batch
from palpate.interrupts import interrupt_between_steps
from palpate.methods.base import Model
from palpate.methods.contact import Contact
from palpate.runlog import RunLog, read_log
from palpate.training.feeds import LAST_MOVES, MOVES, POOL
from palpate.training.loop import train, training_device
from palpate.training.state import steps_done


@pytest.mark.parametrize("kind", FEEDS)
def test_a_seed_fixes_every_bit_and_looking_changes_none(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    select_at_once(monkeypatch)
    first = trained(kind, settings(seed=1, log_every=12))
    torch.rand(7)  # what others do with the global generator
    other = feed(kind)
    batch = other.draw(torch.Generator())
    other.close()

    def evaluate(model: Model) -> dict[str, float | None]:
        return {"held_out": model.held_out([batch])}

    second = trained(kind, settings(seed=1, log_every=3, evaluate_every=5), evaluate=evaluate)
    assert same(weights(first), weights(second))


def test_another_seed_gives_another_model_and_every_network_learns() -> None:
    before, one, two = weights(make_model()), *(weights(trained("set", settings(seed=seed))) for seed in (1, 2))
    names = [name for name in before if name.startswith("phi_")]
    assert names
    for name in names:
        assert not torch.equal(before[name], one[name])
        assert not torch.equal(one[name], two[name])


@pytest.mark.slow
def test_the_model_is_asked_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """About contacts of a pool and about moves, from step 2 on, and about more moves for the refinement."""
    select_at_once(monkeypatch)
    asked: list[tuple[int, ...]] = []
    contacts, uncertainty = Contact.contacts, Contact.uncertainty

    def note(self: Contact, *shape: int) -> None:
        assert not self.training
        assert not torch.is_grad_enabled()
        asked.append(shape)

    def spied_contacts(self: Contact, batch: Batch) -> Tensor:
        note(self, len(batch.a))
        return contacts(self, batch)

    def spied_uncertainty(self: Contact, o: Tensor, moves: Tensor) -> Tensor:
        note(self, *moves.shape)
        return uncertainty(self, o, moves)

    monkeypatch.setattr(Contact, "contacts", spied_contacts)
    monkeypatch.setattr(Contact, "uncertainty", spied_uncertainty)
    trained("pool")
    assert asked == [(POOL * BATCH,)] * 10
    asked.clear()
    trained("chosen moves", refine=True)
    assert asked == [(BATCH // 2, MOVES["cpu"], 2)] * 10 + [(int(0.9 * BATCH), LAST_MOVES, 2)] * 2


def test_refinement_comes_once_before_the_model_is_measured_and_saved(tmp_path: Path) -> None:
    events: list[str] = []

    class Refined(Toy):
        def refine(self, draw: Callable[[], Batch], steps: int) -> None:
            assert draw().a.shape == (BATCH, 2)
            assert not self.training
            events.append(f"refined after {steps}")
            self.weight.fill_(7.0)

    def evaluate(model: nn.Module) -> dict[str, float]:
        events.append("measured refined" if (model.weight == 7).all() else "measured")
        return {}

    for _ in range(2):  # the second time nothing is left to do
        toy = Refined()
        train(toy, resident(), settings(evaluate_every=6), folder=tmp_path, evaluate=evaluate)
        assert events == ["measured", "refined after 12", "measured refined"]
        assert (toy.weight == 7).all()


class TestReadings:
    def test_rows_are_averages_since_the_last(self, tmp_path: Path) -> None:
        toy = train_toy(Toy(), tmp_path, steps=10, log_every=4)
        rows = read_log(tmp_path / "metrics.jsonl")
        assert [row["step"] for row in rows] == [4, 8, 10]
        assert set(rows[0]) == {"step", "good", "other", "gradient", "reading", "pulse", "learning_rate"}
        for row, values in zip(rows, (toy.values[:4], toy.values[4:8], toy.values[8:]), strict=True):
            assert row["good"] == pytest.approx(sum(values) / len(values), rel=1e-5)
            assert row["reading"] == pytest.approx(2 * row["good"], rel=1e-5)
            assert row["learning_rate"] == settings().largest_rate

    @pytest.mark.parametrize("damaged", ['{"step": 12, "go', "[" * 10**5])
    def test_rows_are_read_up_to_a_damaged_line(self, damaged: str, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").write_text(f'{{"step": 4}}\n{damaged}\n{{"step": 8}}\n')
        assert read_log(tmp_path / "metrics.jsonl") == [{"step": 4}]

    def test_watch_sees_what_is_logged(self, tmp_path: Path) -> None:
        seen: list[dict[str, Any]] = []
        trained("set", folder=tmp_path, watch=lambda step, readings: seen.append({"step": step, **readings}))
        assert seen == read_log(tmp_path / "metrics.jsonl")
        assert {"agent", "contrast", "contact", "stay", "gradient", "contact_share", "separation", "radius"} <= set(
            seen[0]
        )

    def test_a_log_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_text('{"step": 2, "x": 1.0}\n{"step": 4, "x": 2.0}\n{"step": 6, "x"')
        assert [row["step"] for row in read_log(path)] == [2, 4]
        log = RunLog(tmp_path, step=2)
        log.write(4, {"x": 5.0})
        log.close()
        assert read_log(path) == [{"step": 2, "x": 1.0}, {"step": 4, "x": 5.0}]

    def test_tensorboard_beside_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("tensorboard")
        train_toy(Toy(), tmp_path, tensorboard=True)
        (events,) = (tmp_path / "tensorboard").iterdir()
        assert b"pulse" in events.read_bytes()
        monkeypatch.delitem(sys.modules, "torch.utils.tensorboard")
        monkeypatch.setitem(sys.modules, "tensorboard", None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install .*palpate\[tensorboard\]"):
            RunLog(tmp_path, step=0, tensorboard=True)


class TestEvaluation:
    @pytest.mark.parametrize(("criterion", "values", "kept"), [
        ("held_out", [3.0, 1.0, 2.0], 1), ("held_out", [3.0, 1.0, 1.02], 2), ("held_out", [-3.0, -3.2, -3.0], 1),
        ("held_out", [1.0, 1.02, 1.04], 1), (None, [3.0, 1.0, 2.0], 2),
        ("held_out", [1.0, math.inf, 3.0], 2), ("held_out", [1.0, 2.0, math.inf], 2),  # earlier ones are forgotten
    ])  # fmt: skip
    def test_the_smallest_criterion_is_handed_over_the_last_of_several(
        self, criterion: str | None, values: list[float], kept: int
    ) -> None:
        snapshots: list[dict[str, Tensor]] = []

        def evaluate(model: nn.Module) -> dict[str, float]:
            assert not model.training
            assert not torch.is_grad_enabled()
            snapshots.append(weights(model))
            return {"held_out": values[len(snapshots) - 1], "other": -float(len(snapshots))}

        model = trained("set", settings(evaluate_every=4), evaluate=evaluate, criterion=criterion)
        assert [same(weights(model), each) for each in snapshots] == [i == kept for i in range(3)]
        assert not model.training

    @pytest.mark.parametrize(("log_every", "evaluate_every"), [(4, 3), (10, 5)])
    def test_comes_as_often_as_set(self, log_every: int, evaluate_every: int) -> None:
        at: list[int] = []
        trained(
            "set",
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

    def test_a_thread_trains_without_handlers(self) -> None:
        """Signals belong to the main thread."""
        done: list[nn.Module] = []
        thread = threading.Thread(target=lambda: done.append(train_toy(Toy())))
        thread.start()
        thread.join()
        assert len(done) == 1

    def test_in_the_last_step_the_run_is_complete(self, tmp_path: Path) -> None:
        trained("set", folder=tmp_path, watch=stop_at(12))
        assert steps_done(tmp_path) == 12


@pytest.mark.parametrize("gpu", [False, True])
def test_device(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert training_device(TrainingConfig()).type == ("cuda" if gpu else "cpu")
    assert training_device(TrainingConfig(device="cpu")).type == "cpu"
    if not gpu:
        with pytest.raises(ValueError, match="device is 'cuda', but torch sees no GPU here"):
            training_device(TrainingConfig(device="cuda"))
