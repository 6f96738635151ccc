"""Runs as they are made, with the smallest settings there are."""

import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
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
from palpate.disk import Busy, alone
from palpate.reproduce import crew, presets, runs, sets
from palpate.reproduce.campaign import Overall, choose_preset, most_jobs, reproduce, tables_and_figures
from palpate.reproduce.cluster import Slurm
from palpate.reproduce.crew import Halted
from palpate.reproduce.presets import Case, cases
from palpate.reproduce.runs import Clock, Place, perform
from palpate.reproduce.sets import mixtures
from palpate.reproduce.tables import frame_notes
from palpate.runlog import read_log
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss

HERE = Path(__file__).parents[1]  # where made_up lies
# The command line with the smallest preset in place of `small`; workers are told by the settings they receive.
COMMAND = [
    sys.executable,
    "-c",
    "import dataclasses, made_up\nfrom palpate.reproduce import presets\n"
    "presets.PRESETS['small'] = dataclasses.replace(made_up.TINY, name='small')\n"
    "from palpate.cli import main\nmain()",
]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}


def vanilla(*methods: str, seeds: int = 1, steps: int | None = None) -> list[Case]:
    tiny = TINY if steps is None else replace(TINY, training=replace(TINY.training, steps=steps))
    return cases(["sprites"], tiny, seeds, worlds=["vanilla"], methods=methods)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(out=tmp_path / "results", data=tmp_path / "data", device="cpu")


def result(place: Place, case: Case) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(place.result(case).read_text(), parse_constant=pytest.fail)
    return loaded


class TestRuns:
    def test_what_a_run_leaves(self, place: Place) -> None:
        (case,) = planned = vanilla("ours")
        report = reproduce(planned, place, show=False)
        assert (report.finished, report.skipped, report.failed) == (["sprites/vanilla-ours-0"], [], {})
        found = result(place, case)
        assert [step for step, _ in found["curve"]] == [2, 4]
        assert found["scores"]["count"] == 24
        assert found["scores"]["l_test"] > 0
        assert found["settings"] == case.settings()
        assert (found["resumed_at"], found["device"], found["torch"]) == (0, "cpu", torch.__version__)
        assert found["seconds"] > 0
        assert found["ms_per_step"] > 0
        assert found["findings"]  # four steps find no contacts
        assert found["commit"] == "unknown" or len(found["commit"]) >= 7
        folder = place.out / "sprites"
        left = {path.name for path in folder.iterdir()}
        assert left == {".runs", "vanilla-ours-0.json", "vanilla-ours-0.npz", "table.md", "table.json", "figures"}
        assert list((folder / ".runs").iterdir()) == []
        assert place.result(case).stat().st_size < 10_000
        assert all(path.stat().st_size < 300_000 for path in (folder / "figures").iterdir())
        assert "| vanilla | ours | 1 |" in report.tables["sprites"]

    def test_models_are_kept_where_asked(self, place: Place) -> None:
        (case,) = planned = vanilla("ours")
        keeping = replace(place, keep_models=True)
        reproduce(planned, keeping, show=False)
        model = palpate.load(keeping.model(case))
        assert model.facts["training"]["steps"] == 4
        assert not (keeping.model(case) / "checkpoint").exists()
        assert list((place.out / "sprites" / ".runs").iterdir()) == []
        reproduce(planned, place, force=True, show=False)
        assert not keeping.model(case).exists()  # it is not the model of the JSON any more

    @pytest.mark.parametrize(
        ("experiment", "world", "method"),
        [
            ("sprites", "vanilla", "ours"),
            ("sprites", "vanilla", "supervised"),
            ("sprites", "vanilla", "paper"),
            ("shares", "fixed-set", "ours"),
            ("shares", "vectors-share-0.5", "ours"),
        ],
    )
    def test_settings_say_what_fit_chooses(self, place: Place, experiment: Any, world: str, method: str) -> None:
        (case,) = planned = cases([experiment], TINY, 1, worlds=[world], methods=[method])
        reproduce(planned, replace(place, keep_models=True), show=False)
        facts = palpate.load(place.model(case)).facts
        chosen = {choice["name"]: choice["value"] for choice in facts["choices"]}
        said = case.settings()["chosen"]
        assert said == {name: value for name, value in chosen.items() if name in said}
        rate = {"ours": 5e-3, "supervised": 5e-3, "paper": 2e-3}[method] if experiment == "sprites" else None
        assert case.settings()["training"]["learning_rate"] == facts["training"]["learning_rate"]
        assert rate in (None, facts["training"]["learning_rate"])
        assert ("rest_floor" in said) == (method == "ours")

    def test_another_choice_is_refused(self, place: Place) -> None:
        (case,) = planned = vanilla("ours")
        place.result(case).parent.mkdir(parents=True)
        settings = case.settings()
        settings["chosen"]["rest_floor"] = 0.5
        place.result(case).write_text(json.dumps(row("vanilla", "ours", 0, 0.1, settings=settings)))
        with pytest.raises(ValueError, match=r"with other settings: .*rest_floor was 0\.5 and is 0\.02"):
            reproduce(planned, place, show=False)

    def test_finished_runs_are_skipped_and_other_settings_are_not_taken_for_them(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned = vanilla("supervised")
        reproduce(planned, place, show=False)
        path = place.result(planned[0])
        before = path.read_bytes()
        report = reproduce(planned, place, show=False)
        assert (report.finished, report.skipped) == ([], ["sprites/vanilla-supervised-0"])
        other = vanilla("supervised", steps=3)
        with pytest.raises(ValueError, match=r"with other settings: .*steps was 4 and is 3.*--out.*--force"):
            reproduce(other, place, show=False)
        assert path.read_bytes() == before
        with monkeypatch.context() as patch:
            patch.setattr(runs, "write_json", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
            assert reproduce(other, place, force=True, show=False).failed
        assert path.with_name(f"{path.name}.old").read_bytes() == before  # lost only when the new one is there
        assert reproduce(other, place, force=True, show=False).finished
        assert not list(path.parent.glob("*.old"))
        assert json.loads(path.read_text())["settings"]["training"]["steps"] == 3
        path.write_text("[]")
        with pytest.raises(ValueError, match="is not the JSON of a run"):
            reproduce(other, place, show=False)

    def test_an_interrupted_run_goes_on(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """And ends with the numbers of one that was not interrupted."""
        first, second = planned = vanilla("supervised", seeds=2)

        def interrupt(step: int, note: str) -> None:
            if step == 3:
                signal.raise_signal(signal.SIGINT)

        straight = replace(place, out=place.out / "straight")
        reproduce(planned, straight, show=False)
        with monkeypatch.context() as patch:
            patch.setattr(Overall, "report", lambda self, case, step, note: interrupt(step, note))
            with pytest.raises(Halted, match=r"stopped after step 3 of 4; 0 of 2 runs are finished"):
                reproduce(planned, place, show=False)
        assert not place.result(first).exists()
        assert read_log(place.run(first) / "metrics.jsonl")[-1]["step"] == 3
        report = reproduce(planned, place, show=False)
        assert len(report.finished) == 2
        resumed, whole = result(place, first), result(straight, first)
        assert (resumed["resumed_at"], whole["resumed_at"]) == (3, 0)
        assert resumed["scores"] == whole["scores"]
        assert resumed["curve"] == whole["curve"]
        assert result(place, second)["resumed_at"] == 0
        assert not place.run(first).exists()

    def test_a_run_that_fails_does_not_stop_the_others(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.undo()
        assert reproduce(planned, place, show=False).finished == ["sprites/vanilla-ours-0"]
        assert list((place.out / "sprites" / ".runs").iterdir()) == []

    def test_a_run_that_diverges_is_a_result(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_two_processes_do_not_make_one_run(self, place: Place) -> None:
        (case,) = vanilla("supervised")
        place.run(case).parent.mkdir(parents=True)
        with alone(place.run(case)), pytest.raises(Busy, match="another process works in vanilla-supervised-0"):
            perform(case, place)
        perform(case, place)
        assert place.result(case).exists()

    @pytest.mark.slow
    def test_by_another_process_which_saves_when_the_parent_is_gone(self, place: Place) -> None:
        """All that a worker sees of it is the end of the pipe."""
        (endless,) = vanilla("supervised", steps=100_000)
        planned = [*vanilla("vae", "supervised"), replace(endless, seed=1)]
        seen: list[tuple[str, int]] = []
        made = crew.side_by_side(planned, place, lambda case, step, note: seen.append((case.name, step)), 1)
        outcomes = [next(made), next(made)]
        made.close()
        assert [(outcome.case.name, outcome.message) for outcome in outcomes] == [
            ("vanilla-vae-0", ""), ("vanilla-supervised-0", "")
        ]  # fmt: skip
        assert [step for name, step in seen if name == "vanilla-vae-0"] == [1, 2, 3, 4]
        assert result(place, planned[0])["threads"] == len(os.sched_getaffinity(0))
        alone = replace(place, out=place.out / "alone")
        perform(planned[1], alone)
        assert result(alone, planned[1])["scores"] == pytest.approx(result(place, planned[1])["scores"], rel=1e-2)
        _, facts = read_state(place.run(planned[2]) / "checkpoint" / "state.safetensors")
        reached = read_log(place.run(planned[2]) / "metrics.jsonl")[-1]["step"]
        assert 0 < facts["step"] == reached < 100_000

    def test_a_worker_that_dies_is_the_runs_failure(self) -> None:
        worker = object.__new__(crew.Worker)
        worker.pipe, theirs = multiprocessing.Pipe()
        (case,) = vanilla("ours")
        worker.process = types.SimpleNamespace(join=lambda seconds: None, exitcode=-9)  # type: ignore[assignment]
        theirs.send(crew.Reading(1, ""))
        theirs.close()
        assert crew._answer(worker, case) == (crew.Reading(1, ""), False)
        outcome, gone = crew._answer(worker, case)
        assert isinstance(outcome, crew.Outcome)
        assert gone
        assert "process was ended by signal 9" in outcome.message
        assert "--jobs" in outcome.message

    @pytest.mark.slow
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
            sets.kept.cache_clear()
        if any("no picture can be drawn" in message for message in report.failed.values()):
            pytest.skip("no OpenGL here")
        assert report.failed == {}
        assert len(collected) == len(set(collected)) == 6
        text = report.tables["soccer"]
        assert "| third | ours |" in text
        assert "seen in third and in first person" in text
        assert (place.out / "soccer" / "figures" / "errors.png").exists()
        third, first = (np.load(place.out / "soccer" / f"{view}-ours-0.npz") for view in ("third", "first"))
        assert third["all_agent"].shape == third["all_true_object"].shape == (24, 2)
        assert (third["true_agent"] == first["true_agent"]).all()  # the same scenes
        # From above, the orange ball is at its true position, in the rectangle that the picture shows.
        left, right, bottom, top = third["extent"]
        for picture, (x, y) in zip(third["pictures"], third["true_object"], strict=True):
            rows, columns = picture.shape[:2]
            i, j = int((top - y) / (top - bottom) * rows), int((x - left) / (right - left) * columns)
            ball = picture[i - 2 : i + 3, j - 2 : j + 3].astype(int)
            assert (ball[..., 0] - ball[..., 2]).max() > 100

    def test_vectors_are_the_same_mixture_for_every_seed(self) -> None:
        one, two = (mixtures("palpate/Sprites-v0", 300, seed=seed, size=20) for seed in (0, 1))
        assert one.transitions.observation_shape == (64,)
        stacked = [torch.cat((x.truth.agent, x.truth.object), 1) for x in (one, two)]
        assert not torch.equal(*stacked)
        nearest = torch.cdist(stacked[0], stacked[1]).flatten().argmin()
        i, j = divmod(int(nearest), 300)
        seen = [x.transitions.rows([k]).o[0] for x, k in ((one, i), (two, j))]
        far = one.transitions.rows(slice(None)).o
        assert (seen[0] - seen[1]).norm() < 0.3 * torch.cdist(far, far).median()

    def test_vectors_and_fixed_sets(self, place: Place) -> None:
        planned = cases(["shares"], TINY, 1, worlds=["vectors-share-0.03", "fixed-set"])
        report = reproduce(planned, place, show=False)
        assert report.failed == {}
        assert [path.name for path in report.written] == ["table.md", "table.json", "l_test.png"]
        assert {result(place, case)["world"] for case in planned} == {"vectors-share-0.03", "fixed-set"}


def test_steps_are_timed_without_the_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock(None)
    for step in range(10, 101, 10):
        now += 1.0 + (9.0 if step % 20 == 0 else 0.0) + (70.0 if step == 10 else 0.0)
        clock(step, {"l_test": 0.1} if step % 20 == 0 else {})
    assert clock.ms_per_step() == pytest.approx(100)
    assert Clock(None).ms_per_step() is None


def test_progress_over_all_runs() -> None:
    planned = vanilla("ours", "transporter-long")
    shown: list[tuple[Any, ...]] = []
    overall = Overall(planned, 3, lambda *bar: shown.append(bar))
    overall.report(planned[0], 2, "L_test 0.1")
    assert shown[-2:] == [
        ("all runs", 2, 12, "steps; 3 of 5 runs done"), ("sprites/vanilla-ours-0", 2, 4, "L_test 0.1")
    ]  # fmt: skip
    overall.report(planned[0], 4, "")
    assert shown[-1] == ("all runs", 4, 12, "steps; 3 of 5 runs done")  # still to be measured, so not yet complete
    overall.ended(planned[0])
    assert shown[-2:] == [
        ("sprites/vanilla-ours-0", 4, 4, "L_test 0.1"), ("all runs", 4, 12, "steps; 4 of 5 runs done")
    ]  # fmt: skip


def test_presets_and_jobs_follow_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_preset(None, "cpu").name == "small"
    assert choose_preset("paper", "cpu") is presets.PRESETS["paper"]
    short = choose_preset("paper", "cpu", steps=100)
    assert (short.training.steps, short.training.evaluate_every, short.vector_training["steps"]) == (100, 5, 100)
    assert most_jobs(vanilla("ours"), "cpu") == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose_preset(None).name == "paper"
    assert most_jobs(cases(["sprites"], TINY, 1)) == 1
    (case,) = cases(["sprites"], presets.PRESETS["paper"], 1, worlds=["vanilla"], methods=["ours"])
    here = Place(out=Path(), data=Path())
    assert here.training(case).compile
    assert not replace(here, compile=False).training(case).compile
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not here.training(case).compile


class TestCluster:
    @pytest.mark.slow
    def test_through_submitit(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("submitit")
        monkeypatch.setattr("palpate.reproduce.cluster.POLL_SECONDS", 0.1)
        monkeypatch.setenv("PYTHONPATH", str(HERE))
        planned = vanilla("supervised")
        report = reproduce(planned, place, slurm=Slurm(gpus=0, cpus=1, memory_gb=1, cluster="local"), show=False)
        assert (report.finished, report.failed) == (["sprites/vanilla-supervised-0"], {})
        assert result(place, planned[0])["scores"]

    def test_without_submitit(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "submitit", None)
        with pytest.raises(ValueError, match=r"submitit is not installed.*pip install 'palpate\[slurm\]'"):
            reproduce(vanilla("ours"), place, slurm=Slurm(), show=False)

    def test_without_a_cluster(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("submitit")
        monkeypatch.setattr("shutil.which", lambda name: None)
        with pytest.raises(ValueError, match="no Slurm was found here.*leave out --slurm"):
            reproduce(vanilla("ours"), place, slurm=Slurm(), show=False)
        with pytest.raises(ValueError, match="minutes is 0; allowed is 1 or more"):
            Slurm(minutes=0)


def test_tables_and_figures_from_the_folder_alone(tmp_path: Path) -> None:
    rows = [row(world, method, seed, 10.0**-seed * 1e-2) for world in ("vanilla", "background")
            for method in ("ours", "transporter", "vae") for seed in range(3)]  # fmt: skip
    write(tmp_path / "sprites", rows)
    tables, written = tables_and_figures(tmp_path)
    assert list(tables) == ["sprites"]
    assert [path.name for path in written] == ["table.md", "table.json", "curves.png"]  # no arrays, no pictures
    np.savez(tmp_path / "sprites" / "vanilla-ours-0.npz", **arrays())
    again, written = tables_and_figures(tmp_path)
    assert again == tables
    assert [path.name for path in written[2:]] == [
        f"{name}.png" for name in ("curves", "triples", "gallery", "distances", "errors")
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[2:])

    soccer = [row(view, "ours", 0, 1e-3, experiment="soccer") for view in ("third", "first")]
    write(tmp_path / "soccer", soccer)
    for view, shift in (("third", 0.0), ("first", 5.0)):
        found = arrays() | {"all_agent": arrays()["all_agent"] + shift, "all_object": arrays()["all_object"] + shift}
        np.savez(tmp_path / "soccer" / f"{view}-ours-0.npz", **found)
    (note,) = frame_notes(tmp_path / "soccer", soccer)
    assert float(note.split("differ by ")[1].split()[0]) == pytest.approx(0)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    monkeypatch.setitem(presets.PRESETS, "small", replace(TINY, name="small"))
    return partial(command, "reproduce")


class TestCommandLine:
    ONLY = ("--worlds", "vanilla", "--methods", "supervised", "--seeds", 1, "--device", "cpu", "--jobs", 1)

    @pytest.mark.slow
    def test_as_a_process_interrupted_and_continued(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "results"
        arguments = ["reproduce", "sprites", "--out", out, *self.ONLY, "--steps", 30, "--force", "--keep-models"]
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and not any(read_log(log) for log in out.glob("sprites/.runs/*/metrics.jsonl")):
            assert time.monotonic() < deadline, "the run never began"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
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
        write(tmp_path / "ablation", [row("vanilla", "point", 0, 0.01, experiment="ablation")])
        code, said, _ = run("all", "--out", tmp_path, "--figures-only")
        assert code == 0
        assert "| vanilla | point | 1 | 0.01 |" in said
        assert (tmp_path / "ablation" / "figures" / "l_test.png").exists()

    def test_a_failed_run_is_said_and_ends_with_1(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*given: Any, **more: Any) -> Any:
            raise ArithmeticError("lost\ncount")

        monkeypatch.setattr(runs, "fit", broken)
        code, said, err = run("sprites", "--out", tmp_path, *self.ONLY)
        assert code == 1
        assert "0 runs made, 0 existed, 1 failed" in said
        assert "palpate: sprites/vanilla-supervised-0: ArithmeticError: lost count\n" in err
        assert "Traceback" not in err

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["sprites", "--worlds", "vanila"], "world is 'vanila'"),
            (["soccer", "--methods", "oars"], "did you mean 'ours'?"),
            (["sprites", "--seeds", 0], "seeds is 0; allowed is 1 or more"),
            (["sprites", "--steps", 0], "steps is 0; allowed is 1 or more"),
            (["sprites", "--jobs", 0], "jobs is 0; allowed is 1 or more"),
            (["sprites", "--partition", "gpu"], "add --slurm"),
            (["sprites", "--slurm"], "with --slurm give --preset"),
            (["sprites", "--slurm", "--preset", "small", "--jobs", 2], "the cluster decides"),
            (["sprites", "--slurm", "--preset", "small", "--time", 0], "minutes is 0"),
            (["sprites", "--device", "cuda"], "torch sees no GPU here"),
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

    def test_unknown_experiment(self, run: Run) -> None:
        code, _, err = run("sprite")
        assert code == 2
        assert "Traceback" not in err

    def test_ctrl_c_before_the_first_run(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*given: Any, **more: Any) -> Any:
            raise Interrupted("stopped after step 1 of 4")

        monkeypatch.setattr(runs, "fit", stop)
        code, _, err = run("sprites", "--out", tmp_path / "my results", *self.ONLY)
        assert code == 130
        assert shlex.split(err.splitlines()[-1])[:5] == [
            "palpate",
            "reproduce",
            "sprites",
            "--out",
            str(tmp_path / "my results"),
        ]
