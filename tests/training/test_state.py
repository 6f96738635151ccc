"""Checkpoints: a stopped run ends bit for bit like one that was not stopped."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
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
    triples,
    weights,
)

from palpate.checkpoint import FORMAT, read_state, write_state
from palpate.data.sources import Resident
from palpate.data.transitions import Batch
from palpate.refine import Correction
from palpate.runlog import read_log
from palpate.training import loop
from palpate.training.feeds import Feed, Oversampled, Selected
from palpate.training.loop import Interrupted, train
from palpate.training.notes import NonFiniteLoss
from palpate.training.state import restore, steps_done
from palpate.training.step import Run


@contextmanager
def stopped_already() -> Iterator[Callable[[], bool]]:
    """Ctrl-C came before the first step."""
    yield lambda: True


def logs(folder: Path) -> list[list[dict[str, Any]]]:
    return [read_log(folder / name / "metrics.jsonl") for name in ("straight", "stopped")]


@pytest.mark.parametrize("kind", FEEDS)
@pytest.mark.slow
def test_resume_equals_straight_through(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after step 4, between two checkpoints; streamed runs end with a refinement."""
    select_at_once(monkeypatch)
    refine = kind in ("stream", "pool", "chosen moves")
    config = settings(optimizer="muon" if kind == "set" else "adamw")
    straight = trained(kind, config, folder=tmp_path / "straight", refine=refine)
    with pytest.raises(Interrupted, match="stopped after step 4 of 12"):
        trained(kind, config, folder=tmp_path / "stopped", refine=refine, watch=stop_at(4))
    assert steps_done(tmp_path / "stopped") == 4
    for _ in range(2):  # the second time nothing is left to do
        resumed = trained(kind, config, folder=tmp_path / "stopped", refine=refine)
        assert not resumed.training
        assert same(weights(straight), weights(resumed))
        rows = logs(tmp_path)
        assert [row["step"] for row in rows[0]] == [4, 8, 12]
        assert rows[0] == rows[1]
    corrections = [module for module in straight.modules() if isinstance(module, Correction)]
    assert [bool((each.reach != 1).all()) for each in corrections] == [True] * refine  # the refinement took place


@pytest.mark.slow
def test_slots_that_start_anew_do_so_in_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    select_at_once(monkeypatch)
    straight = trained("set", objects=3)
    with pytest.raises(Interrupted, match="stopped after step 8 of 12"):
        trained("set", objects=3, folder=tmp_path, watch=stop_at(8))
    groups, _ = read_state(tmp_path / "checkpoint" / "state.safetensors")
    assert 0 < int(groups["model"]["slots.rounds"]) < 8
    resumed = trained("set", objects=3, folder=tmp_path)
    assert int(straight.slots.rounds) == 8
    assert same(weights(straight), weights(resumed))


@pytest.mark.parametrize("step", [4, 6, 8])
@pytest.mark.slow
def test_a_run_in_stages_is_resumed(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the first of two stages, between them, and within the second."""
    select_at_once(monkeypatch)
    options: dict[str, Any] = {"objects": 2, "method": "one-by-one"}
    straight = trained("chosen moves", settings(log_every=2), **options)
    with pytest.raises(Interrupted, match=f"stopped after step {step} of 12"):
        trained("chosen moves", settings(log_every=2), folder=tmp_path, watch=stop_at(step), **options)
    resumed = trained("chosen moves", settings(log_every=2), folder=tmp_path, **options)
    assert same(weights(straight), weights(resumed))


def test_a_resumed_stage_leaves_earlier_parts_in_evaluation_mode(tmp_path: Path) -> None:
    """Otherwise averages of BatchNorm would change."""
    options: dict[str, Any] = {"objects": 2, "method": "one-by-one"}
    with pytest.raises(Interrupted):
        trained("stream", settings(log_every=2), folder=tmp_path, watch=stop_at(8), **options)
    model: Any = make_model(True, **options)
    restore(Run(model, feed("stream"), settings(), torch.device("cpu")), tmp_path)
    assert [module.training for module in (model.phi_int, *model.parts)] == [False, False, True]


@pytest.mark.parametrize(
    ("kind", "vitals"),
    [("pool", {"pool": 4}), ("chosen moves", {"chosen_moves": 0.5}), ("oversampled", {"contact_share": 0.5})],
)
def test_what_a_feed_has_found_is_part_of_a_checkpoint(
    kind: str, vitals: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would compare feeds that select nothing."""
    select_at_once(monkeypatch)
    with pytest.raises(Interrupted):
        trained(kind, folder=tmp_path, watch=stop_at(4))
    made = feed(kind)
    assert isinstance(made, Oversampled | Selected)
    assert not made.vitals()
    restore(Run(make_model(isinstance(made, Selected)), made, settings(), torch.device("cpu")), tmp_path)
    assert {name: made.vitals()[name] for name in vitals} == pytest.approx(vitals, abs=0.4)


def test_after_a_crash_the_last_checkpoint_counts(tmp_path: Path) -> None:
    def crash(step: int, readings: dict[str, float]) -> None:
        if step == 8:
            raise KeyError("power")

    config, steps = settings(log_every=1), list[int]()
    straight = trained("set", config, folder=tmp_path / "straight")
    with pytest.raises(KeyError, match="power"):
        trained("set", config, folder=tmp_path / "stopped", watch=crash)
    resumed = trained("set", config, folder=tmp_path / "stopped", watch=lambda step, readings: steps.append(step))
    assert steps == [6, 7, 8, 9, 10, 11, 12]  # the checkpoint was that of step 5
    assert same(weights(straight), weights(resumed))
    one, two = logs(tmp_path)
    assert one == two


def test_averages_survive_a_stop_between_readings(tmp_path: Path) -> None:
    """The row of step 8 is still the average over steps 5 to 8."""

    class Stopping(Feed):
        left = 0

        def draw(self, generator: torch.Generator) -> Batch:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
            drawn: Batch = super().draw(generator)
            return drawn

    def run(name: str, left: int = 0) -> nn.Module:
        made = Stopping(Resident(triples(), "cpu"), BATCH)
        made.left = left
        model = make_model()
        train(model, made, settings(), folder=tmp_path / name)
        return model

    straight = run("straight")
    with pytest.raises(Interrupted, match="stopped after step 6 of 12"):
        run("stopped", left=6)
    assert same(weights(straight), weights(run("stopped")))
    one, two = logs(tmp_path)
    assert one == two


def test_the_best_weights_survive_a_stop(tmp_path: Path) -> None:
    scores, snapshots = {4: 1.0, 8: 3.0, 12: 2.0}, dict[int, dict[str, torch.Tensor]]()

    def options(step: int) -> dict[str, Any]:
        def evaluate(model: nn.Module) -> dict[str, float]:
            nonlocal step
            step += 4
            snapshots[step] = weights(model)
            return {"held_out": scores[step]}

        return {"folder": tmp_path, "criterion": "held_out", "evaluate": evaluate}

    config = settings(evaluate_every=4)
    with pytest.raises(Interrupted):
        trained("set", config, watch=stop_at(4), **options(0))
    assert same(weights(trained("set", config, **options(4))), snapshots[4])
    assert not same(snapshots[4], snapshots[12])


def test_restored_weights_do_not_depend_on_the_file(tmp_path: Path) -> None:
    """A view of the file would change with it, and keep a replaced file's disk space."""
    options = {"criterion": "held_out", "evaluate": lambda model: {"held_out": 1.0}}
    trained("set", settings(evaluate_every=4), folder=tmp_path, **options)
    run = Run(make_model(), resident(), settings(), torch.device("cpu"))
    restore(run, tmp_path)
    before = {name: x.clone() for name, x in run.best.items()}
    path = tmp_path / "checkpoint" / "state.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert before
    assert same(run.best, before)


def test_stopped_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to save then, and no checkpoint is lost."""
    straight = train_toy(Toy())
    with monkeypatch.context() as patch:
        patch.setattr(loop, "interrupt_between_steps", stopped_already)
        with pytest.raises(Interrupted, match="stopped after step 0 of 12"):
            train_toy(Toy(), tmp_path)
        assert steps_done(tmp_path) == 0
    with pytest.raises(Interrupted):
        train(Toy(), resident(), settings(schedule="paper"), folder=tmp_path, watch=stop_at(4))
    with monkeypatch.context() as patch:
        patch.setattr(loop, "interrupt_between_steps", stopped_already)
        with pytest.raises(Interrupted, match="stopped after step 4 of 12"):
            train_toy(Toy(), tmp_path)
    assert torch.equal(train_toy(Toy(), tmp_path).weight, straight.weight)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Interrupted):
        trained("set", watch=stop_at(4))
    assert list(tmp_path.iterdir()) == []


def test_no_checkpoint_after_a_bad_step(tmp_path: Path) -> None:
    """A checkpoint that comes before the reading would carry on as if the masked steps had been made."""
    with pytest.raises(NonFiniteLoss):
        train_toy(Toy({3: torch.nan}), tmp_path, log_every=6, checkpoint_every=2)
    assert steps_done(tmp_path) == 2


def test_a_longer_run_is_not_cut_short(tmp_path: Path) -> None:
    trained("set", folder=tmp_path)
    run = Run(make_model(), resident(), settings(steps=6), torch.device("cpu"))
    with pytest.raises(ValueError, match="step is 12 of 6"):
        restore(run, tmp_path)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.safetensors"
    groups = {"model": {"a/b.c": torch.rand(3, 4).t(), "n": torch.tensor(7)}, "best": {}}
    facts = {"step": 3, "best_value": 0.1 + 0.2, "none": None}
    write_state(path, groups, facts)
    back, facts_back = read_state(path)
    assert facts_back == {"format": FORMAT, **facts}
    assert list(back) == ["model", "best"]
    assert same(back["model"], groups["model"])
    assert back["best"] == {}
    with pytest.raises(FileNotFoundError, match="does not exist; is this the folder of a run"):
        read_state(tmp_path / "state.safetensors")
