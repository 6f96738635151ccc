"""Whole runs of `palpate reproduce`, with the smallest settings there are."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up import TINY, arrays, row, write

import palpate
from palpate.checkpoint import read_state
from palpate.disk import alone
from palpate.projection import Homography
from palpate.reproduce import crew, presets, runs, sets
from palpate.reproduce.campaign import (
    choose_preset,
    make_runs,
    most_jobs,
    reproduce,
    tables_and_figures,
    visible_gpus,
)
from palpate.reproduce.crew import GPUS, Halted, Outcome
from palpate.reproduce.presets import Case, cases
from palpate.reproduce.runs import Place, perform, repeat
from palpate.runlog import read_log
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss
from palpate.workers import WorkerError

# The command line with the smallest preset as `small`; workers receive its settings.
COMMAND = [
    sys.executable,
    "-c",
    "import dataclasses, made_up\nfrom palpate.reproduce import presets\n"
    "presets.PRESETS['small'] = dataclasses.replace(made_up.TINY, name='small')\n"
    "from palpate.cli import main\nmain()",
]
FOLDERS = [str(Path(__file__).parents[1]), str(Path(palpate.__file__).parents[1])]  # of made_up and palpate
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(FOLDERS)}


def vanilla(*methods: str, seeds: int = 1, steps: int | None = None) -> list[Case]:
    tiny = TINY if steps is None else replace(TINY, training=replace(TINY.training, steps=steps))
    return cases(["sprites"], tiny, seeds, worlds=["vanilla"], methods=methods)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(out=tmp_path / "results", data=tmp_path / "data", device="cpu")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the smallest run."""
    monkeypatch.setattr("palpate.reproduce.campaign.draw", lambda *_: [])


def result(place: Place, case: Case) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(place.result(case).read_text(), parse_constant=pytest.fail)
    return loaded


class TestRuns:
    @pytest.mark.slow
    def test_files_of_a_run_and_its_model(self, place: Place) -> None:
        (case,) = planned = vanilla("ours")
        report = reproduce(planned, replace(place, keep_models=True), show=False)
        assert (report.finished, report.skipped, report.failed) == (["sprites/vanilla-ours-0"], [], {})
        found = result(place, case)
        assert [step for step, _ in found["curve"]] == [2, 4]
        assert found["scores"]["count"] == 24
        assert found["scores"]["l_test"] > 0
        assert found["settings"] == case.settings()
        assert (found["resumed_at"], found["torch"]) == (0, torch.__version__)
        assert found["seconds"] > 0
        assert found["findings"]  # four steps find no contacts
        assert found["commit"] == "unknown" or len(found["commit"]) >= 7
        folder = place.out / "sprites"
        left = {path.name for path in folder.iterdir()}
        assert left == {".runs", "models", "vanilla-ours-0.json", "vanilla-ours-0.npz", "table.md", "figures"}
        assert list((folder / ".runs").iterdir()) == []
        assert {path.name for path in (folder / "figures").iterdir()} == {
            "curves.png", "gallery.png", "distances.png"
        }  # fmt: skip
        assert "| vanilla | ours | 1 |" in report.tables["sprites"]
        model = palpate.load(place.model(case))
        assert model.facts["training"]["steps"] == 4
        assert not (place.model(case) / "checkpoint").exists()

    @pytest.mark.usefixtures("no_figures")
    @pytest.mark.parametrize(
        ("experiment", "world", "method"),
        [("sprites", "anisotropic", "ours"), ("sprites", "vanilla", "paper"), ("shares", "fixed-set", "ours")],
    )
    @pytest.mark.slow
    def test_settings_equal_what_fit_chooses(self, place: Place, experiment: Any, world: str, method: str) -> None:
        (case,) = planned = cases([experiment], TINY, 1, worlds=[world], methods=[method])
        reproduce(planned, replace(place, keep_models=True), show=False)
        facts = palpate.load(place.model(case)).facts
        chosen = {choice["name"]: choice["value"] for choice in facts["choices"]}
        said = case.settings()["chosen"]
        assert said == {name: value for name, value in chosen.items() if name in said}
        assert case.settings()["training"]["learning_rate"] == facts["training"]["learning_rate"]
        assert ("rest_floor" in said) == (method == "ours")

    @pytest.mark.usefixtures("no_figures")
    @pytest.mark.slow
    def test_finished_runs_are_skipped_and_other_settings_refused(self, place: Place) -> None:
        planned = vanilla("supervised")
        reproduce(planned, replace(place, keep_models=True), show=False)
        path = place.result(planned[0])
        before = path.read_bytes()
        report = reproduce(planned, place, show=False)
        assert (report.finished, report.skipped) == ([], ["sprites/vanilla-supervised-0"])
        other = vanilla("supervised", steps=3)
        with pytest.raises(ValueError, match=r"with other settings: .*steps was 4 and is 3.*--out.*--force"):
            reproduce(other, place, show=False)
        assert path.read_bytes() == before
        assert reproduce(other, place, force=True, show=False).finished
        assert json.loads(path.read_text())["settings"]["training"]["steps"] == 3
        assert not place.model(planned[0]).exists()  # it does not belong to the new JSON
        path.write_text("[]")
        with pytest.raises(ValueError, match="is not the JSON of a run"):
            reproduce(other, place, show=False)

    @pytest.mark.usefixtures("no_figures")
    @pytest.mark.slow
    def test_a_resumed_run_equals_an_uninterrupted_one(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        (case,) = planned = vanilla("supervised")
        fit = runs.fit

        def interrupted(data: Any, *, watch: Any, **settings: Any) -> Any:
            def stop(step: int, readings: dict[str, float]) -> None:
                watch(step, readings)
                if step == 3:
                    signal.raise_signal(signal.SIGINT)

            return fit(data, watch=stop, **settings)

        straight = replace(place, out=place.out / "straight")
        reproduce(planned, straight, show=False)
        with monkeypatch.context() as patch:
            patch.setattr(runs, "fit", interrupted)
            with pytest.raises(Halted, match=r"stopped after step 3 of 4; 0 of 1 runs are finished"):
                reproduce(planned, place, show=False)
        assert not place.result(case).exists()
        assert read_log(place.run(case) / "metrics.jsonl")[-1]["step"] == 3
        assert len(reproduce(planned, place, show=False).finished) == 1
        resumed, whole = result(place, case), result(straight, case)
        assert (resumed["resumed_at"], whole["resumed_at"]) == (3, 0)
        assert resumed["scores"] == whole["scores"]
        assert resumed["curve"] == whole["curve"]
        assert not place.run(case).exists()

    def test_an_old_result_stays_until_its_new_run_is_measured(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = planned = vanilla("ours", seeds=2)
        write(place.out / "sprites", [row("vanilla", "ours", seed, 0.1) for seed in range(2)])
        old = place.result(second).read_bytes()
        (place.model(second) / "weights").mkdir(parents=True)

        def stopped(case: Case, place: Place, folder: Path, watch: Any) -> Any:
            if case == second:
                raise KeyboardInterrupt
            return {"settings": case.settings()}, {}

        with monkeypatch.context() as patch:
            patch.setattr(runs, "measured", stopped)
            with pytest.raises(Halted, match="1 of 2 runs are finished"):
                make_runs(planned, place, force=True, show=False)
        assert result(place, first)["settings"]
        assert place.result(second).read_bytes() == old
        assert (place.model(second) / "weights").exists()
        # The command that continues has no --force, and still repeats what is left.
        monkeypatch.setattr(runs, "measured", lambda case, *_: ({"settings": case.settings()}, {}))
        report = make_runs(planned, place, show=False)
        assert (report.finished, report.skipped) == (["sprites/vanilla-ours-1"], ["sprites/vanilla-ours-0"])
        assert result(place, second)["settings"]
        assert not place.model(second).exists()

    @pytest.mark.parametrize("what", ["write_json", "write_whole", "copytree"])
    def test_a_full_disk_costs_no_old_result(self, place: Place, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
        (case,) = vanilla("ours")

        def trained(value: float) -> Any:
            def measured(case: Case, place: Place, folder: Path, watch: Any) -> Any:
                folder.mkdir(exist_ok=True)
                (folder / "weights").write_text(str(value))
                return {"scores": {"l_test": value}}, {"x": np.full(2, value)}

            return measured

        def full(*given: Any, **more: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def kept() -> tuple[Any, ...]:
            weights = (place.model(case) / "weights").read_text()
            return result(place, case)["scores"], np.load(place.result(case).with_suffix(".npz"))["x"][0], weights

        place = replace(place, keep_models=True)
        for value in (1.0, 2.0):
            monkeypatch.setattr(runs, "measured", trained(value))
            if value == 2.0:
                repeat([case], place)
                with monkeypatch.context() as patch:
                    patch.setattr(runs.shutil if what == "copytree" else runs, what, full)
                    with pytest.raises(OSError, match="No space left"):
                        perform(case, place)
                assert kept() == ({"l_test": 1.0}, 1.0, "1.0")
            assert perform(case, place)
            assert kept() == ({"l_test": value}, value, str(value))
        assert {path.name for path in (place.out / "sprites").iterdir()} == {
            ".runs", "models", "vanilla-ours-0.json", "vanilla-ours-0.npz"
        }  # fmt: skip

    @pytest.mark.slow
    def test_an_unfinished_run_with_another_interval_is_refused(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (case,) = vanilla("supervised")
        fit = runs.fit

        def interrupted(data: Any, *, watch: Any, **settings: Any) -> Any:
            return fit(data, watch=lambda *_: signal.raise_signal(signal.SIGINT), **settings)

        with monkeypatch.context() as patch:
            patch.setattr(runs, "fit", interrupted)
            with pytest.raises(Interrupted):
                perform(case, place)
        other = replace(case, training=replace(case.training, log_every=2))
        assert place.run(other) == place.run(case)
        with pytest.raises(ValueError, match="made with other settings: log_every was 1 and is 2; .*--force"):
            perform(other, place)
        assert perform(case, place)

    @pytest.mark.usefixtures("no_figures")
    @pytest.mark.slow
    def test_a_failed_run_does_not_stop_the_others(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        planned = vanilla("ours", "supervised")
        fit = runs.fit

        def broken(data: Any, **settings: Any) -> Any:
            if "method" not in settings:
                raise ArithmeticError("lost count")
            return fit(data, **settings)

        monkeypatch.setattr(runs, "fit", broken)
        report = reproduce(planned, place, show=False)
        assert report.finished == ["sprites/vanilla-supervised-0"]
        assert report.failed == {"sprites/vanilla-ours-0": "ArithmeticError: lost count"}
        assert "in broken" in place.trace(planned[0]).read_text()
        assert "supervised" in report.tables["sprites"]
        monkeypatch.setattr(runs, "fit", fit)
        assert reproduce(planned, place, show=False).finished == ["sprites/vanilla-ours-0"]
        assert list((place.out / "sprites" / ".runs").iterdir()) == []

    def test_a_diverged_run_is_a_result(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        (case,) = planned = vanilla("ours")

        def diverge(data: Any, *, out: Path, **settings: Any) -> Any:
            out.mkdir(parents=True)
            (out / "metrics.jsonl").write_text('{"step": 2, "l_test": 0.5}\n')
            raise NonFiniteLoss("not finite: agent")

        monkeypatch.setattr(runs, "fit", diverge)
        report = reproduce(planned, replace(place, keep_models=True), show=False)
        assert report.failed == {}
        assert not place.model(case).exists()
        found = result(place, case)
        assert (found["scores"], found["diverged"], found["curve"]) == ({}, "not finite: agent", [[2, 0.5]])
        assert "| inf |" in report.tables["sprites"]

    @pytest.mark.slow
    @pytest.mark.usefixtures("no_figures")
    def test_sets_of_soccer_are_collected_once_and_frames_compared(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("mujoco")
        planned = cases(["soccer"], TINY, 1, methods=["ours"])
        collected: list[str] = []
        collect = sets.collect
        monkeypatch.setattr(sets, "available_cores", lambda: 1)
        monkeypatch.setattr(
            sets, "collect", lambda *given, **more: collected.append(more["out"].name) or collect(*given, **more)
        )
        try:
            report = reproduce(planned, place, show=False)
        finally:
            sets.load.cache_clear()
        if any("no picture can be drawn" in message for message in report.failed.values()):
            pytest.skip("no OpenGL here")
        assert report.failed == {}
        assert len(collected) == len(set(collected)) == 6
        assert "| third | ours |" in report.tables["soccer"]
        assert "The same scenes in third and in first person" in report.tables["soccer"]
        third, first = (np.load(place.out / "soccer" / f"{view}-ours-0.npz") for view in ("third", "first"))
        assert third["all_agent"].shape == third["all_true_object"].shape == (24, 2)
        assert (third["true_agent"] == first["true_agent"]).all()  # the same scenes
        # From above, the orange ball is at the pixel of its true position.
        pixels = Homography(third["homography"])(third["true_object"])
        for picture, (j, i) in zip(third["pictures"], pixels.astype(int), strict=True):
            ball = picture[i - 2 : i + 3, j - 2 : j + 3].astype(int)
            assert (ball[..., 0] - ball[..., 2]).max() > 100


class TestSeveralProcesses:
    def test_a_model_appears_as_a_whole(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        (case,) = vanilla("ours")
        model, scored = place.model(case), ({"scores": {"l_test": 0.1}}, {})

        def trained(case: Case, place: Place, folder: Path, watch: Any) -> Any:
            folder.mkdir()
            (folder / "new").touch()
            return scored

        def copied(*given: Any, **more: Any) -> None:
            copytree(*given, **more)
            assert [path.name for path in model.iterdir()] == ["old"]

        copytree = runs.shutil.copytree
        monkeypatch.setattr(runs, "measured", trained)
        monkeypatch.setattr(runs.shutil, "copytree", copied)
        model.mkdir(parents=True)
        (model / "old").touch()
        assert perform(case, replace(place, keep_models=True))
        assert [path.name for path in model.parent.rglob("*")] == [case.name, "new"]

    @pytest.mark.usefixtures("no_figures")
    def test_a_case_of_another_process_is_passed_over(self, place: Place) -> None:
        held, free = planned = vanilla("supervised", seeds=2)
        place.run(held).parent.mkdir(parents=True)
        with alone(place.run(held)):
            report = reproduce(planned, place, show=False)
            before = place.result(free).read_bytes()
            with pytest.raises(OSError, match="another process is working in vanilla-supervised-0"):
                reproduce([free, held], place, force=True, show=False)
            assert place.result(free).read_bytes() == before
        assert (report.finished, report.busy, report.failed) == (
            ["sprites/vanilla-supervised-1"], ["sprites/vanilla-supervised-0"], {}
        )  # fmt: skip
        assert "| vanilla | supervised | 1 |" in report.tables["sprites"]
        report = reproduce(planned, place, show=False)
        assert (report.finished, report.skipped) == (["sprites/vanilla-supervised-0"], ["sprites/vanilla-supervised-1"])
        assert "| vanilla | supervised | 2 |" in report.tables["sprites"]
        assert place.result(free).exists()

    def test_a_case_that_another_process_finished_meanwhile_is_not_repeated(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (case,) = vanilla("ours")
        write(place.out / "sprites", [row("vanilla", "ours", 0, 0.1)])
        monkeypatch.setattr(runs, "fit", pytest.fail)
        assert crew.attempt(case, place, lambda *_: None) == Outcome(case, "existed")

    def test_a_set_of_another_process_is_waited_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wanted = sets.Set("palpate/Soccer-v0", 24, 0, 20)
        path = wanted.path(tmp_path)
        with ExitStack() as other:
            other.enter_context(alone(path))

            waits = []

            def finish(seconds: float) -> None:
                waits.append(seconds)
                if len(waits) == 2:
                    path.touch()
                    other.close()

            monkeypatch.setattr(time, "sleep", finish)
            monkeypatch.setattr(sets, "collect", pytest.fail)
            sets.gather(wanted, tmp_path, show=True)
        assert capsys.readouterr().err == f"waiting for {path}, which another process collects\n"

    @pytest.mark.slow
    def test_a_worker_saves_its_run_when_its_pipe_closes(self, place: Place) -> None:
        (endless,) = vanilla("supervised", steps=100_000)
        planned = [*vanilla("supervised"), replace(endless, seed=1)]
        seen: list[int] = []

        def show(case: Case, step: int, note: str) -> None:
            if case == planned[1]:
                raise KeyboardInterrupt
            seen.append(step)

        made = crew.side_by_side(planned, place, show, 1)
        assert next(made) == Outcome(planned[0], "finished")
        with pytest.raises(Halted):
            next(made)
        assert seen == [1, 2, 3, 4]
        here = replace(place, out=place.out / "here")
        perform(planned[0], here)
        assert result(here, planned[0])["scores"] == pytest.approx(result(place, planned[0])["scores"], rel=1e-2)
        _, facts = read_state(place.run(planned[1]) / "checkpoint" / "state.safetensors")
        reached = read_log(place.run(planned[1]) / "metrics.jsonl")[-1]["step"]
        assert 0 < facts["step"] == reached < 100_000

    def test_the_death_of_a_worker_is_a_failure_of_its_case(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = vanilla("supervised", seeds=2)

        class Dying:
            def __init__(self, *given: Any, **more: Any) -> None:
                self.answers: list[Any] = []

            def send(self, case: Case) -> None:
                self.answers = [(1, "")] if case is first else [(1, ""), Outcome(case, "finished")]

            def receive(self) -> Any:
                if not self.answers:
                    raise WorkerError("the process was ended by signal 9")
                return self.answers.pop(0)

        dismissed: list[Any] = []
        monkeypatch.setattr(crew, "Worker", Dying)
        monkeypatch.setattr(crew, "ready", list)
        monkeypatch.setattr(crew, "dismiss", lambda workers, patience: dismissed.extend(workers))
        outcomes = list(crew.side_by_side([first, second], place, lambda *_: None, 1))
        assert outcomes == [
            Outcome(first, "failed", "the process was ended by signal 9"), Outcome(second, "finished")
        ]  # fmt: skip
        assert len(dismissed) == len(set(dismissed)) == 2

    def test_each_worker_has_a_gpu_of_its_own(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that replaces a dead worker gets its GPU."""
        planned = vanilla("supervised", seeds=6)
        started: list[str] = []

        class Dying:
            """The second one dies."""

            def __init__(self, *given: Any, variables: dict[str, str], **more: Any) -> None:
                started.append(variables[GPUS])
                self.dies = len(started) == 2

            def send(self, case: Case) -> None:
                self.case = case

            def receive(self) -> Any:
                if self.dies:
                    raise WorkerError("gone")
                return Outcome(self.case, "finished")

        monkeypatch.setattr(crew, "Worker", Dying)
        monkeypatch.setattr(crew, "ready", list)
        monkeypatch.setattr(crew, "dismiss", lambda workers, patience: None)
        outcomes = list(crew.side_by_side(planned, place, lambda *_: None, 3, ["4", "7"]))
        assert sorted(outcome.state for outcome in outcomes) == ["failed", *["finished"] * 5]
        assert started == ["4", "7", "4", "7"]


def test_preset_jobs_and_compilation_follow_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_preset(None, "cpu").name == "small"
    short = choose_preset("paper", "cpu", steps=100)
    assert (short.training.steps, short.training.evaluate_every) == (100, 5)
    assert most_jobs(vanilla("ours"), "cpu") == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose_preset(None).name == "paper"
    assert most_jobs(cases(["sprites"], TINY, 1)) == 1
    assert visible_gpus("cpu") == []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert most_jobs(cases(["sprites"], TINY, 1)) == 2
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv(GPUS, "4,GPU-5")
    assert visible_gpus() == ["4", "GPU-5"]
    (case,) = cases(["sprites"], presets.PRESETS["paper"], 1, worlds=["vanilla"], methods=["ours"])
    here = Place(out=Path(), data=Path())
    assert here.training(case).compile
    assert not replace(here, compile=False).training(case).compile
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not here.training(case).compile


@pytest.mark.slow
def test_tables_and_figures_from_the_folder_alone(tmp_path: Path) -> None:
    rows = [row("vanilla", method, seed, 10.0**-seed * 1e-2) for method in ("ours", "vae") for seed in range(2)]
    write(tmp_path / "sprites", rows)
    np.savez(tmp_path / "sprites" / "vanilla-ours-0.npz", **arrays())
    write(tmp_path / "soccer", [row("third", "ours", 0, 1e-3, experiment="soccer")])
    tables, written = tables_and_figures(tmp_path)
    assert list(tables) == ["sprites", "soccer"]
    assert [path.name for path in written[:4]] == ["table.md", "curves.png", "gallery.png", "distances.png"]
    assert [path.name for path in written[4:]] == ["table.md", "curves.png"]  # no arrays, no pictures
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written if path.suffix == ".png")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    monkeypatch.setitem(presets.PRESETS, "small", replace(TINY, name="small"))
    return partial(command, "reproduce")


class TestCommandLine:
    ONLY = ("--worlds", "vanilla", "--methods", "supervised", "--seeds", 1, "--device", "cpu", "--jobs", 1)

    @pytest.mark.slow
    def test_ctrl_c_prints_the_command_that_continues(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "my results"
        arguments = ["reproduce", "sprites", "--out", out, *self.ONLY, "--steps", 30, "--force", "--keep-models"]
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        deadline = time.monotonic() + 600
        while process.poll() is None and not any(read_log(log) for log in out.glob("sprites/.runs/*/metrics.jsonl")):
            assert time.monotonic() < deadline, "the run never began"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        *_, says, again = err.splitlines()
        assert says.startswith("palpate: stopped after step ")
        assert says.endswith(" of 30; 0 of 1 runs are finished. To continue:")
        assert "--force" not in again
        *verb, more = *shlex.split(again)[:2], shlex.split(again)[2:]
        assert verb == ["palpate", "reproduce"]
        code, said, err = run(*more)
        assert code == 0, err
        assert "1 runs made, 0 existed, 0 failed" in said
        assert "| vanilla | supervised | 1 |" in said
        (path,) = (out / "sprites").glob("vanilla-*.json")
        assert json.loads(path.read_text())["resumed_at"] > 0
        assert palpate.load(out / "sprites" / "models" / "vanilla-supervised-0").config.method == "supervised"
        assert f"Wrote    {out / 'sprites' / 'figures' / 'curves.png'}" in said

    def test_figures_only(self, run: Run, tmp_path: Path) -> None:
        code, _, err = run("all", "--out", tmp_path, "--figures-only")
        assert code == 2
        assert "holds no JSON of sprites or soccer or ablation or shares or control; run them first" in err
        write(tmp_path / "ablation", [row("vanilla", "ball", 0, 0.01, experiment="ablation")])
        code, said, _ = run("all", "--out", tmp_path, "--figures-only")
        assert code == 0
        assert "| vanilla | ball | 1 | 0.01 |" in said
        assert (tmp_path / "ablation" / "figures" / "l_test.png").exists()

    def test_a_failed_run_exits_with_1(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*given: Any, **more: Any) -> Any:
            raise ArithmeticError("lost\ncount")

        monkeypatch.setattr(runs, "fit", broken)
        code, said, err = run("sprites", "--out", tmp_path, *self.ONLY)
        assert code == 1
        assert "0 runs made, 0 existed, 1 failed" in said
        assert "palpate: sprites/vanilla-supervised-0: ArithmeticError: lost count\n" in err
        assert "Traceback" not in err

    def test_a_case_of_another_process_exits_with_0(self, run: Run, tmp_path: Path) -> None:
        (case,) = cases(["sprites"], presets.PRESETS["small"], 1, worlds=["vanilla"], methods=["supervised"])
        folder = Place(out=tmp_path, data=tmp_path).run(case)
        folder.parent.mkdir(parents=True)
        with alone(folder):
            code, said, _ = run("sprites", "--out", tmp_path, *self.ONLY)
        assert code == 0
        assert "0 runs made, 0 existed, 0 failed" in said
        assert "1 runs of other processes were passed over" in said

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["soccer", "--methods", "oars"], "did you mean 'ours'?"),
            (["sprites", "--steps", 0], "steps is 0; allowed is 1 to 2**62"),
            (["sprites", "--jobs", 0], "jobs is 0; allowed is 1 or more"),
            (["sprites", "--device", "cuda", "--preset", "small", "--jobs", 1], "torch sees no GPU here"),
            (["sprite"], "sprite"),
        ],
    )
    def test_mistakes(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[Any], says: str
    ) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        code, _, err = run(*arguments, "--out", tmp_path / "x")
        assert code == 2
        assert says in err
        assert err.count("\n") == 1
        assert not (tmp_path / "x").exists()
