"""Every verb as a stranger runs it: what it prints, what it leaves, how it ends."""

import importlib
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from balls import balls

from palpate import __version__, bench, cli
from palpate.choices import CHOSEN_MOVES
from palpate.cli.environment import _literal
from palpate.collecting.parts import Stopped
from palpate.demo import demo
from palpate.disk import Busy, alone
from palpate.representation import load
from palpate.runlog import read_log
from palpate.training.feeds import MOVES
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss
from palpate.workers import WorkerError

VERBS = ("demo", "collect", "explore", "check", "train", "evaluate", "encode", "view", "export", "reproduce", "bench")
COMMAND = [sys.executable, "-m", "palpate.cli"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::UserWarning"}
TINY = ["--batch-size", "8", "--device", "cpu"]
Run = Callable[..., tuple[int, str, str]]


def palpate(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """As a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.fixture
def run(command: Run) -> Run:
    return command


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.h5"
    done = palpate("collect", "palpate/Sprites-v0", "--num", 100, "--size", 20, "--out", path)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert re.search(r"100 triples from .*: \d\.\d MB, \d+\.\d s$", done.stdout.strip())
    return path


def refused(outcome: tuple[int, str, str], *says: str) -> str:
    """The user's mistake: code 2 and one clear line."""
    code, _, err = outcome
    assert code == 2
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("palpate: ")]
    assert len(lines) == 1
    assert err.splitlines()[-1] == lines[0]
    for text in says:
        assert text in lines[0]
    return lines[0]


class TestVerbs:
    def test_help(self) -> None:
        done = palpate()
        assert done.returncode == 0
        assert all(verb in done.stdout for verb in VERBS)

    @pytest.mark.parametrize("verb", VERBS)
    def test_help_of_a_verb(self, run: Run, verb: str) -> None:
        code, out, _ = run(verb, "--help")
        assert code == 0
        assert f"palpate {verb}" in out

    def test_check(self, run: Run, log: Path, tmp_path: Path) -> None:
        code, out, err = run("check", log, "--no-probe")
        assert (code, err) == (3, "")
        assert out.startswith("blocking: too-few: there are few different triples (different_triples 100).")
        good = tmp_path / "good.h5"
        balls(1200, seed=0).transitions.save(good)
        code, out, err = run("check", good, "--no-probe")
        assert (code, err) == (0, "")
        measured, verdict = out.splitlines()
        assert measured.startswith("measured: triples 1,200, different triples 1,200, ")
        assert verdict == "no blocking problems (arrays alone, no training run)"
        refused(run("check", tmp_path / "none.h5"), "there is no file")

    @pytest.mark.slow
    def test_demo(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.demo.TEST_TRIPLES", 200)
        monkeypatch.setattr("palpate.demo.WATCHED_TRIPLES", 50)
        out = tmp_path / "demo"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a run of three steps
            code, said, err = run("demo", "--steps", 3, "--out", out)
        assert code == 0, err
        assert "a constant predictor has 0.1" in said
        assert "pixels" in said
        for path in (out / "figures" / "overlay.png", out / "report.html"):
            assert str(path) in said
            assert path.stat().st_size > 1000
        scores = json.loads((out / "scores.json").read_text())
        assert f"L_test is {scores['l_test']:.2g}" in said
        refused(run("demo", "--steps", 3, "--out", out), str(out), "exists")

    @pytest.mark.filterwarnings("ignore:triples with and without contact")
    def test_figures_are_drawn_under_the_lock(
        self, run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the figures of one run might be written beside the model of another."""
        drawn: list[Path] = []

        def illustrate(folder: Path, *given: Any, **more: Any) -> None:
            drawn.append(folder)
            with pytest.raises(Busy), alone(folder, inside=True):
                pass

        monkeypatch.setattr("palpate.pictures.illustrate", illustrate)
        monkeypatch.setattr("palpate.demo.illustrate", illustrate)
        monkeypatch.setattr("palpate.demo.TEST_TRIPLES", 200)
        code, _, err = run("train", "--data", log, "--out", tmp_path / "run", "--steps", 2, *TINY)
        assert code == 0, err
        with pytest.raises(AssertionError):  # it returned no scores
            demo(tmp_path / "demo", objects=1, steps=2, seed=0, resume=False, overwrite=False)
        assert drawn == [tmp_path / "run", tmp_path / "demo"]

    @pytest.mark.filterwarnings("ignore")  # two steps learn nothing
    def test_a_demo_has_as_many_objects_as_wanted(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("palpate.demo.TEST_TRIPLES", 200)
        code, out, err = run("demo", "--objects", 2, "--steps", 2, "--out", tmp_path / "run")
        assert code == 0, err
        assert re.search(r"pixels for the agent and [\d.]+, [\d.]+ for the objects, of 50", out)
        assert load(tmp_path / "run").model.config.objects == 2
        assert [row["step"] for row in read_log(tmp_path / "run" / "metrics.jsonl")][-1] == 4  # two for each object

    @pytest.mark.slow
    def test_collect_train_evaluate(self, log: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        done = palpate("train", "--data", log, "--out", out, "--steps", 5, "--test", log, *TINY)
        assert done.returncode == 0, done.stderr
        assert "Representation(contact, small" in done.stdout
        assert f"palpate.load({str(out)!r})" in done.stdout
        assert [row["step"] for row in read_log(out / "metrics.jsonl")] == [5]
        assert (out / "report.html").exists()
        done = palpate("evaluate", out, "--data", log)
        assert done.returncode == 0, done.stderr
        assert "L_test" in done.stdout
        assert "constant" in done.stdout
        assert (out / "evaluations" / log.stem / "report.html").exists()

    @pytest.mark.slow
    def test_train_on_two_devices(self, log: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        done = palpate("train", "--data", log, "--out", out, "--steps", 5, "--devices", 2, *TINY)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Representation(contact, small") == 1
        assert [row["step"] for row in read_log(out / "metrics.jsonl")] == [5]
        assert (out / "report.html").exists()
        assert "devices" not in (out / "run.toml").read_text()  # so that another number may continue the run

    def test_devices_that_are_refused(
        self, run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = ("train", "--data", log, "--out", tmp_path / "run", *TINY)
        refused(run(*given, "--devices", 0), "devices is 0; allowed is 1 or more")
        variables = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        # The folder to resume may be on another machine, so it is not checked yet.
        several = run(*given, "--devices", 4, "--resume")
        refused(several, "devices is 4; allowed is 2, the number of processes that were started")

    def test_collect_options(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "log.h5"
        arguments = ["collect", "palpate/SpritesAnisotropic-v0", "--num", 30, "--size", 16, "--out", out]
        assert run(*arguments, "--contact-share", 1)[0] == 0
        import palpate as package

        with package.Labelled.open(out) as labelled:
            assert labelled.truth.contact is not None
            assert labelled.truth.contact.all()
            assert labelled.transitions.observation_shape == (3, 16, 16)
        refused(run(*arguments), str(out), "exists")
        assert run(*arguments, "--option", "contact_share=None", "--force")[0] == 0
        with package.Labelled.open(out) as labelled:
            assert labelled.truth.contact is not None
            assert not labelled.truth.contact.all()

    @pytest.mark.filterwarnings("ignore:triples with and without contact")
    @pytest.mark.slow
    def test_train_on_a_stream_with_settings(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "run"
        settings = ["--body", "ellipse", "--rest-floor", 0.05, "--chosen-moves", 0.25]
        code, said, err = run(
            "train", "--env", "palpate/Sprites-v0", "--size", 16, "--out", out, "--steps", 2, *TINY, *settings
        )
        assert code == 0, err
        assert "L_test" in said  # a streamed world makes its own test
        described = json.loads((out / "config.json").read_text())
        objective = described["model"]["objective"]
        assert (objective["body"], objective["rest_floor"], objective["refine"]) == ("ellipse", 0.05, False)
        assert described["training"]["chosen_moves"] == 0.25

    @pytest.mark.slow
    def test_bench(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.bench.MEASURE_SECONDS", 0.0)
        monkeypatch.setattr("palpate.bench.SPRITES", ["palpate/Sprites-v0"])
        monkeypatch.setattr("palpate.bench.ENCODED", {"small": (3, 20, 20), "mlp": (12,)})
        measure = bench._time
        monkeypatch.setattr(bench, "_time", lambda call, device, warm_up=0: measure(call, device, warm_up=0))
        code, out, _ = run("bench", "--device", "cpu")
        assert code == 0
        assert "per second" in out.splitlines()[0]
        assert "generate and draw Sprites-v0" in out
        assert "training step, three small, 50 px, batch 128" in out
        assert "encode, small, 20 px, batch 1 " in out
        assert "encode, mlp, 12 numbers, batch 64 " in out
        assert len(out.splitlines()) == 7


def test_bench_times_the_step_that_fit_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of its moves are chosen, as from 30 % of a run on."""
    run = bench._run("small", 20, torch.device("cpu"))
    drawn: list[int] = []
    world: Any = run.feed.source.world  # type: ignore[attr-defined]
    moves = type(world).moves
    monkeypatch.setattr(type(world), "moves", lambda self, *given: drawn.append(given[1]) or moves(self, *given))
    run.advance()
    assert drawn == [MOVES["cpu"]]
    assert run.feed.vitals()["chosen_moves"] == CHOSEN_MOVES


class TestMistakes:
    @pytest.mark.slow
    def test_as_a_process(self, tmp_path: Path) -> None:
        done = palpate("collect", "palpate/Sprits-v0", "--out", tmp_path / "x.h5")
        says = refused((done.returncode, done.stdout, done.stderr), "env is 'palpate/Sprits-v0'")
        assert "did you mean 'palpate/Sprites-v0'?" in says
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == []

    def test_a_world_for_train_without_its_flag(self, run: Run) -> None:
        refused(run("train", "palpate/Sprites-v0", "--out", "x"), "train takes a world as --env palpate/Sprites-v0")

    def test_a_verb_mistyped(self, run: Run) -> None:
        refused(run("trian", "--out", "x"), "'trian' is not a verb of palpate; did you mean 'train'?")

    @pytest.mark.parametrize("verb", ["train", "collect"])
    def test_resumed_and_forced(self, run: Run, log: Path, tmp_path: Path, verb: str) -> None:
        where = ["collect", "palpate/Sprites-v0"] if verb == "collect" else ["train", "--data", log, *TINY]
        refused(run(*where, "--out", tmp_path / "x", "--resume", "--force"), "give only one")

    @pytest.mark.filterwarnings("ignore:triples with and without contact")
    @pytest.mark.slow
    def test_a_full_disk_while_training(self, run: Run, log: Path, tmp_path: Path) -> None:
        """Overwriting: the old model stays, and the new run goes on once there is room."""
        out = tmp_path / "run"
        arguments = ["train", "--data", log, "--out", out, "--steps", 3, "--checkpoint-every", 1, *TINY]
        assert run(*arguments)[0] == 0
        before = (out / "model.safetensors").read_bytes()

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

        command = [*COMMAND, *map(str, [*arguments, "--seed", 1])]
        full = subprocess.run(
            [*command, "--force"], capture_output=True, text=True, env=ENVIRONMENT, check=False, preexec_fn=limit
        )
        refused((full.returncode, full.stdout, full.stderr), "cannot write ", "state.safetensors: File too large")
        assert (out / "model.safetensors").read_bytes() == before
        assert run(*arguments, "--seed", 1, "--resume")[0] == 0
        assert (out / "model.safetensors").read_bytes() != before

    def test_unknown_env(self, run: Run, tmp_path: Path) -> None:
        arguments = ["train", "--env", "palpate/SpriteBackground-v0", "--out", tmp_path / "x"]
        refused(run(*arguments), "did you mean 'palpate/SpritesBackground-v0'?")
        assert not (tmp_path / "x").exists()

    def test_missing_file(self, run: Run, tmp_path: Path) -> None:
        nothing = tmp_path / "nothing.h5"
        refused(run("train", "--data", nothing, "--out", tmp_path / "x"), f"there is no file {nothing}")
        refused(
            run("collect", "palpate/Sprites-v0", "--num", 2, "--out", tmp_path / "no" / "x.h5"), "there is no folder"
        )

    def test_missing_model(self, run: Run, log: Path, tmp_path: Path) -> None:
        refused(run("evaluate", tmp_path / "no", "--data", log), f"there is no folder {tmp_path / 'no'}")

    def test_a_file_of_something_else(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "notes.h5").write_text("buy milk")
        refused(run("train", "--data", tmp_path / "notes.h5", "--out", tmp_path / "x"), "is not an HDF5 file")

    def test_out_exists(self, run: Run, log: Path, tmp_path: Path) -> None:
        (tmp_path / "keep.txt").write_text("keep me")
        arguments = ["train", "--data", log, "--out", tmp_path, "--steps", 2, *TINY]
        refused(run(*arguments), str(tmp_path), "exists")
        refused(run(*arguments, "--force"), "is not a run of palpate")
        refused(run("collect", "palpate/Sprites-v0", "--num", 2, "--out", tmp_path), "is a folder")
        assert (tmp_path / "keep.txt").read_text() == "keep me"

    @pytest.mark.parametrize("verb", ["collect", "train"])
    def test_advice_speaks_the_language_of_the_command_line(
        self, run: Run, log: Path, tmp_path: Path, verb: str
    ) -> None:
        """`overwrite=True` means nothing to someone who types."""
        (tmp_path / "run.json").write_text("{}")
        if verb == "collect":
            outcome = run("collect", "palpate/Sprites-v0", "--num", 2, "--size", 16, "--out", log)
        else:
            outcome = run("train", "--data", log, "--out", tmp_path, *TINY)
        assert "--force" in refused(outcome, "exists")

    def test_both_or_neither_source(self, run: Run, log: Path, tmp_path: Path) -> None:
        out = ["--out", tmp_path / "x"]
        assert "not both" not in refused(run("train", *out), "either --data FILE or --env ID")
        refused(run("train", "--data", log, "--env", "palpate/Sprites-v0", *out), "--env ID, not both")

    def test_a_reader_who_has_seen_enough(self) -> None:
        shell = f"{shlex.join(COMMAND)} reproduce --help | head -1"
        done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        assert (done.stdout.count("\n"), done.stderr) == (1, "")

    def test_the_version(self, run: Run) -> None:
        assert run("--version") == (0, f"palpate {__version__}\n", "")

    def test_what_would_be_ignored(self, run: Run, log: Path, tmp_path: Path) -> None:
        refused(
            run("train", "--data", log, "--size", 50, "--out", tmp_path / "x"), "size is 50, but the triples of --data"
        )

    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            (["--body", "star"], "body is 'star'; allowed is 'ball' or 'outline' or 'ellipse'"),
            (["--refine"], "refine is True; leave it out: a refinement needs fresh triples"),
            (["--chosen-moves", "0.5"], "chosen_moves is 0.5; leave it out: the moves of a data set are fixed"),
            (
                ["--objective", "paper", "--radius", "0.1"],
                "radius is 0.1; leave it out: the method 'paper' learns no body",
            ),
            (["--objective", "paper", "--egocentric"], "egocentric is True; allowed is False for 'paper'"),
        ],
    )
    def test_settings_that_do_not_fit(self, run: Run, log: Path, tmp_path: Path, flags: list[str], says: str) -> None:
        refused(run("train", "--data", log, "--out", tmp_path / "x", *flags, *TINY), says)
        assert not (tmp_path / "x").exists()

    def test_bad_numbers(self, run: Run, log: Path, tmp_path: Path) -> None:
        out = ["--out", tmp_path / "x"]
        refused(run("collect", "palpate/Sprites-v0", *out, "--contact-share", 1.5), "contact_share is 1.5")
        refused(run("collect", "palpate/Sprites-v0", *out, "--num", 0), "num is 0")
        refused(run("collect", "palpate/Sprites-v0", *out, "--size", 3), "size is 3")
        refused(run("train", "--env", "palpate/Sprites-v0", *out, "--contact-share", -1), "contact_share is -1")
        refused(run("train", "--data", log, *out, "--batch-size", 128, "--device", "cpu"), "there are 100 triples")
        assert not (tmp_path / "x").exists()

    def test_settings_that_check_themselves(self, run: Run, log: Path, tmp_path: Path) -> None:
        """Those are built while the arguments are read."""
        code, _, err = run("train", "--data", log, "--out", tmp_path / "x", "--steps", -1)
        assert code == 2
        assert "steps is -1; allowed is 1 to 2**62" in " ".join(err.split())
        assert "Traceback" not in err

    def test_no_gpu(self, run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        refused(run("train", "--data", log, "--out", tmp_path / "x", "--device", "cuda"), "torch sees no GPU here")

    def test_nothing_to_resume(self, run: Run, log: Path, tmp_path: Path) -> None:
        refused(run("train", "--data", log, "--out", tmp_path / "x", "--resume", *TINY), "holds no run to resume")

    def test_unknown_flag_and_verb(self, run: Run) -> None:
        for arguments in (["demo", "--stepps", 3], ["dmeo"], ["collect", "palpate/Sprites-v0"]):
            code, _, err = run(*arguments)
            assert code == 2
            assert "Traceback" not in err

    def test_a_bug_is_not_dressed_up(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(self: cli.Demo) -> None:
            raise RuntimeError("ours")

        monkeypatch.setattr(cli.Demo, "__call__", broken)
        with pytest.raises(RuntimeError, match="ours"):
            run("demo")

    def test_a_loss_that_is_no_number(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def diverge(self: cli.Demo) -> None:
            raise NonFiniteLoss("not finite: agent")

        monkeypatch.setattr(cli.Demo, "__call__", diverge)
        refused(run("demo"), "not finite: agent")


def stopped(self: cli.Demo) -> None:
    raise Interrupted("stopped after step 3 of 9")


class TestInterrupt:
    @pytest.mark.slow
    @pytest.mark.parametrize(("number", "devices"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 2)])
    def test_stops_cleanly_and_the_printed_command_goes_on(
        self, log: Path, tmp_path: Path, number: signal.Signals, devices: int
    ) -> None:
        out = tmp_path / "run"
        steps = 150
        arguments = ["train", "--data", log, "--out", out, "--steps", steps, "--log-every", 1, *TINY]
        arguments += ["--devices", devices]
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        metrics, deadline = out / "metrics.jsonl", time.monotonic() + 600
        while process.poll() is None and not (metrics.exists() and read_log(metrics)):
            assert time.monotonic() < deadline, "the run never began"
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        reached = len(read_log(metrics))
        assert 0 < reached < steps
        assert f"palpate: stopped after step {reached} of {steps}. To continue:" in err
        verb, *again = shlex.split(err.splitlines()[-1])
        assert verb == "palpate"
        done = palpate(*again)
        assert done.returncode == 0, done.stderr
        assert [row["step"] for row in read_log(metrics)] == list(range(1, steps + 1))
        assert (out / "model.safetensors").exists()

    @pytest.mark.parametrize("once", [["--force"], ["--resume"], []])
    def test_the_command_resumes(self, run: Run, monkeypatch: pytest.MonkeyPatch, once: list[str]) -> None:
        """--resume once, and never --force, which would begin anew."""
        monkeypatch.setattr(cli.Demo, "__call__", stopped)
        code, _, err = run("demo", *once, "--out", "runs/x")
        assert code == 130
        assert err.splitlines()[-1] == "  palpate demo --out runs/x --resume"

    def test_the_command_can_be_pasted(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Quoted where the shell needs it."""
        monkeypatch.setattr(cli.Demo, "__call__", stopped)
        _, _, err = run("demo", "--out", "my runs/it's")
        assert shlex.split(err.splitlines()[-1]) == ["palpate", "demo", "--out", "my runs/it's", "--resume"]

    def test_before_the_run_began(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(self: cli.Demo) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli.Demo, "__call__", stop)
        assert run("demo") == (130, "", "palpate: stopped\n")


# A world of rows in place of Soccer, which needs a renderer; workers find it by its name.
BALLS = Path(__file__).parent / "collecting"
BALL_COMMAND = [sys.executable, "-c", "import ball_world; ball_world.install(); from palpate.cli import main; main()"]
BALL_ENVIRONMENT = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(BALLS), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def soccer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same world in this process."""
    monkeypatch.syspath_prepend(BALLS)
    monkeypatch.setattr("palpate.envs.registration.world", importlib.import_module("ball_world").world)


def rows_in(folder: Path) -> int:
    import palpate as package

    total = 0
    for part in folder.glob("[!.]*.h5"):
        with package.Transitions.open(part) as triples:
            total += len(triples)
    return total


def children(process: "subprocess.Popen[str]") -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestCollect:
    NUM = 2000
    ARGUMENTS = ("collect", "palpate/Soccer-v0", "--num", NUM, "--workers", 2, "--out")

    def begin(self, out: Path, *more: str) -> "subprocess.Popen[str]":
        """A collection under way, with more rows than there were."""
        folder = Path(f"{out}.parts")
        before = rows_in(folder)
        command = [*BALL_COMMAND, *map(str, self.ARGUMENTS), str(out), *more]
        environment = BALL_ENVIRONMENT | {"BALL_PAUSE": "0.002"}  # seconds a row
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        eventually(lambda: process.poll() is not None or rows_in(folder) > before)
        assert process.poll() is None
        return process

    @pytest.mark.slow
    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for workers in /proc")
    def test_killed_then_interrupted_then_finished(self, run: Run, soccer: None, tmp_path: Path) -> None:
        out = tmp_path / "log.h5"
        process = self.begin(out)
        workers = children(process)
        assert len(workers) >= 2
        process.kill()
        process.communicate()
        eventually(lambda: not any(map(alive, workers)), 600)  # nobody works for a parent that is gone
        killed = rows_in(tmp_path / "log.h5.parts")
        assert 0 < killed < self.NUM
        assert not out.exists()

        process = self.begin(out, "--resume")
        workers = children(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to the workers too
        _, err = process.communicate(timeout=600)
        assert process.returncode == 130
        eventually(lambda: not any(map(alive, workers)), 600)  # Python's own resource tracker ends a moment after us
        assert "Traceback" not in err
        kept = rows_in(tmp_path / "log.h5.parts")
        assert killed < kept < self.NUM
        says, again = err.splitlines()[-2:]
        assert says == f"palpate: stopped; {kept} of {self.NUM} triples are kept in {out}.parts. To continue:"
        verb, *arguments = shlex.split(again)
        assert verb == "palpate"

        code, said, err = run(*arguments, "--workers", 1)
        assert code == 0, err
        assert "2,000 triples" in said
        assert "dropped: 200 grazing" in said
        assert (
            run("collect", "palpate/Soccer-v0", "--num", self.NUM, "--workers", 1, "--out", tmp_path / "x.h5")[0] == 0
        )
        assert out.read_bytes() == (tmp_path / "x.h5").read_bytes()
        assert sorted(os.listdir(tmp_path)) == ["log.h5", "x.h5"]

    @pytest.mark.slow
    def test_full_disk(self, run: Run, tmp_path: Path) -> None:
        """As a process of its own: it must not crash at its end, as it would if HDF5 saw the failure."""
        out = tmp_path / "log.h5"
        arguments = ["collect", "palpate/SpritesBackground-v0", "--num", 400, "--size", 50, "--out", out]

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

        command = [*COMMAND, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, preexec_fn=limit)
        says = refused((done.returncode, done.stdout, done.stderr), "File too large", "400 of 400 triples are kept in")
        assert says.endswith("continue with resume=True (--resume)")
        assert rows_in(tmp_path / "log.h5.parts") == 400
        assert run(*arguments, "--resume")[0] == 0
        assert run(*arguments[:-1], tmp_path / "straight.h5")[0] == 0
        assert out.read_bytes() == (tmp_path / "straight.h5").read_bytes()

    def test_bad_input(self, run: Run, soccer: None, tmp_path: Path) -> None:
        arguments = [*self.ARGUMENTS, tmp_path / "log.h5"]
        refused(run(*arguments, "--contact-share", 1.5), "contact_share is 1.5; give a share from 0 to 1")
        refused(run(*arguments[:4], "--workers", 0, "--out", tmp_path / "log.h5"), "workers is 0; allowed is 1 or more")
        refused(run(*arguments, "--resume"), "there is nothing to resume: no folder", "--resume")
        refused(run(*arguments, "--resume", "--force"), "give only one")
        assert not os.listdir(tmp_path)

    def test_a_worker_that_fails(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ours, not the user's: its traceback, then what it means."""

        def fail(self: cli.Collect) -> None:
            error = WorkerError("a worker failed: ArithmeticError: lost", "Traceback of the worker\n")
            error.add_note("3 of 9 triples are kept")
            raise error

        monkeypatch.setattr(cli.Collect, "__call__", fail)
        code, _, err = run("collect", "palpate/Soccer-v0", "--out", "x.h5")
        assert (code, err) == (
            1, "Traceback of the worker\npalpate: a worker failed: ArithmeticError: lost; 3 of 9 triples are kept\n"
        )  # fmt: skip

    def test_stopped(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(self: cli.Collect) -> None:
            raise Stopped("stopped; 3 of 9 triples are kept")

        monkeypatch.setattr(cli.Collect, "__call__", stop)
        code, _, err = run("collect", "Walk-v0", "--out", "x.h5")
        assert (code, err.splitlines()[-1]) == (130, "  palpate collect Walk-v0 --out x.h5 --resume")


class TestOtherWorlds:
    """What can be said of someone else's environment in flags."""

    @pytest.fixture(autouse=True)
    def _register(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import gymnasium

        monkeypatch.syspath_prepend(Path(__file__).parent / "data")
        spec = gymnasium.envs.registration.EnvSpec("Cart-v0", "push_worlds:Cart", disable_env_checker=True)
        monkeypatch.setitem(gymnasium.registry, "Cart-v0", spec)

    ARGUMENTS = ("collect", "Cart-v0", "--num", 40, "--workers", 1, "--agent-position", "info:pos")
    PIXELS = ("--observation", "observation:pixels")

    def test_all_flags(self, run: Run, tmp_path: Path) -> None:
        import palpate as package

        out = tmp_path / "log.h5"
        flags = (*self.PIXELS, "--aggregate", 3, "--settle", 40, "--hold", "info:pos", "--watch", "info:pose")
        truth = ("--truth", "object=info:pose[:2]", "angle=info:pose[2]", "contact=moved")
        code, said, err = run(
            *self.ARGUMENTS, "--out", out, *flags, "--tolerance", 1e-6, *truth, "--option", "horizon=50"
        )
        assert code == 0, err
        assert "dropped: " in said
        with package.Labelled.open(out) as labelled:
            assert len(labelled.truth.known()) == 7
            attributes = labelled.transitions.attributes
        assert attributes["horizon"] == 50
        assert attributes["watch"] == "info:pose"

    def test_numbers_that_hold(self, run: Run, tmp_path: Path) -> None:
        waiting = ("--settle", 200, "--hold", "1.0, 2", "--watch", "info:pose")
        code, _, err = run(*self.ARGUMENTS, *self.PIXELS, *waiting, "--out", tmp_path / "x.h5")
        assert code == 0, err

    def test_mistakes(self, run: Run, tmp_path: Path) -> None:
        out = ("--out", tmp_path / "x.h5")
        refused(run(*self.ARGUMENTS, *out), "observation space is Dict", "--observation observation:KEY")
        refused(run(*self.ARGUMENTS, *self.PIXELS, *out, "--truth", "object"), "truth is 'object'", "name=value")
        refused(run(*self.ARGUMENTS, *self.PIXELS, *out, "--option", "a b=3"), "option is 'a b=3'", "name=value")
        refused(run(*self.ARGUMENTS[:-2], *self.PIXELS, *out), "not displacements", "--agent-position info:KEY")
        refused(run(*self.ARGUMENTS, *self.PIXELS, *out, "--settle", 5), "in which 0 does not hold", "--hold")
        refused(run("collect", "palpate/Sprites-v0", *out, "--aggregate", 2), "there is no option 'aggregate'")
        refused(run("collect", "no_such:Cart-v0", *out), "No module named 'no_such'", "install the package")
        assert not os.listdir(tmp_path)


def test_an_option_that_is_given_twice_is_refused(run: Run, tmp_path: Path) -> None:
    words = ("collect", "palpate/Sprites-v0", "--size", 30, "--option", "size=20", "--out", tmp_path / "x.h5")
    refused(run(*words), "size is given twice, as --size and as --option; leave out one")


def test_reasons_that_dropped_nothing_are_not_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palpate.collecting.blocks.dropped", lambda _: Counter(grazing=2, missed=0))
    said = run("collect", "palpate/Sprites-v0", "--num", 8, "--size", 20, "--out", tmp_path / "x.h5")[1]
    assert said.endswith("dropped: 2 grazing\n")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("None", None), ("(1, 2)", (1, 2)), ("pixels", "pixels")])
def test_options_read_as_what_they_look_like(text: str, value: object) -> None:
    found = _literal(text)
    assert found == value
    assert type(found) is type(value)
