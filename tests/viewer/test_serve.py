"""The command, its refusals, and its end."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from written import LENGTHS, truth, write_lerobot, write_robomimic, write_zarr

from palpate import extras
from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.data.logs.options import LogOptions
from palpate.data.transitions import Transitions
from palpate.disk import as_json
from palpate.envs.registration import world
from palpate.methods.store import sealed
from palpate.viewer.serve import hosts, listening, view
from palpate.viewer.session import Session

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may listen."""

    def refused(host: str, port: int) -> None:
        raise AssertionError(f"it listens on {host}:{port}")

    monkeypatch.setattr("palpate.viewer.serve.listening", refused)


def refused(command: Command, message: str, *arguments: object) -> None:
    code, out, err = command("view", *arguments, "--no-browser")
    assert (code, out) == (2, "")
    assert re.search(message, err), err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("silent")
def test_paths_that_cannot_be_shown(command: Command, made_runs: Path, tmp_path: Path) -> None:
    for name in ("damaged.h5", "notes.txt", "other.zip"):
        (tmp_path / name).write_bytes(b"no log")
    (tmp_path / "empty").mkdir()
    refused(command, "there is no .*nothing; give the folder of a run, or a log", tmp_path / "nothing")
    for name in ("damaged.h5", "notes.txt"):
        refused(command, f"{name} is not an HDF5 file, or is truncated", tmp_path / name)
    refused(command, "other.zip is not a zip file, or is damaged", tmp_path / "other.zip")
    refused(command, "empty is a folder without meta/info.json", tmp_path / "empty")
    refused(command, "live is for the folder of a run", made_runs / "log.h5", "--live")
    refused(command, "position is 'x', but .*log.h5 holds triples", made_runs / "log.h5", "--position", "x")


@pytest.mark.usefixtures("silent")
def test_columns_that_are_missing(command: Command, tmp_path: Path) -> None:
    zarr = write_zarr(tmp_path / "log.zarr", truth(), 2, "uint8")
    packed = Path(shutil.make_archive(str(zarr), "zip", zarr))
    robomimic = write_robomimic(tmp_path / "log.hdf5", truth())
    for path in (zarr, packed, robomimic, write_lerobot(tmp_path / "lerobot", truth())):
        refused(command, "give position, the columns that hold the agent's position", path)
    refused(command, "position: there is no column 'stat'; did you mean 'state'", packed, "--position", "stat")
    refused(command, "give observation: it may be side, top", packed, "--position", "state[:2]")


@pytest.mark.usefixtures("silent")
def test_models_that_do_not_fit_a_log(command: Command, made_runs: Path, tmp_path: Path) -> None:
    x = np.zeros((9, 3), np.float32)
    x[:, 0] = range(9)
    Transitions(observation=x, action=x[:, :2], next_observation=x).save(tmp_path / "vectors.h5")
    log, run = made_runs / "log.h5", made_runs / "run"
    refused(command, "model is .*, but .*stream is a run, which has its own", made_runs / "stream", "--model", run)
    refused(command, "there is no .*nothing", log, "--model", tmp_path / "nothing")
    refused(command, "model is .*log.h5, which is neither a run nor a saved model", log, "--model", log)
    refused(command, "the triples have observations .3,.*; the model reads", tmp_path / "vectors.h5", "--model", run)


def test_a_log_is_shown_with_the_model_of_a_run(made_runs: Path, tmp_path: Path) -> None:
    session = Session(made_runs / "log.h5", model=made_runs / "stream")
    log = waited(session.log)
    assert log.error == ""
    assert log.value.show(3).answer is not None
    assert log.value.truth is not None
    assert session.ranking(log.value) is not None
    assert session.command == ["palpate", "view", str(made_runs / "log.h5"), "--model", str(made_runs / "stream")]
    session.close()
    # The columns of another project's log are those of the run, if they are not given.
    zarr, run = write_zarr(tmp_path / "log.zarr", truth(side=20), 2, "uint8"), tmp_path / "run"
    shutil.copytree(made_runs / "stream", run)
    (run / "run.toml").write_text('position = "state[:2]"\nobservation = "top"\nstride = 2\n')
    session = Session(zarr, model=run, reading=LogOptions(observation="side"))
    log = waited(session.log)
    assert log.error == ""
    assert log.value.triples.attributes["observation"] == "side"
    assert log.value.triples.attributes["stride"] == 2
    assert log.value.truth is None
    session.close()


def test_a_log_is_checked_with_the_group_of_its_actions(tmp_path: Path) -> None:
    """That of its world, of the options, or of the model; the action is drawn as the move that it is."""
    triples = collect("palpate/SpritesTurning-v0", 60, size=20, progress=False, out=tmp_path / "log.h5")
    session = Session(tmp_path / "log.h5")
    log = waited(session.log).value
    assert "turn_rms" in waited(session.examination(log)).value.measured
    rows = triples.rows(slice(None))
    turns = rows.a * torch.tensor([0.0, 0.0, 1.0]) + torch.tensor([0.5, 0.0, 0.0])
    anonymous = Transitions(observation=rows.o, action=turns, next_observation=rows.o_next)
    anonymous.save(tmp_path / "other.h5")
    for group, measured in (("se2", "turn_rms"), (None, "flattest_axis")):
        session = Session(tmp_path / "other.h5", reading=LogOptions(group=group))
        log = waited(session.log).value
        assert measured in waited(session.examination(log)).value.measured
        drawn = log.show(0).plane
        assert bool(drawn) == (group == "se2")
        if group == "se2":  # ahead is up: from the middle to above it
            (x, y), (x_end, y_end) = (
                map(float, at.split(",")) for at in re.findall(r'points="([^"]*)"', drawn)[0].split()
            )
            assert x == pytest.approx(x_end)
            assert y_end < y - 50
    session = Session(tmp_path / "other.h5", reading=LogOptions(group="se3"))
    assert "the count of numbers in an action is 3; allowed is 6" in waited(session.log).error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two steps nothing is learned
        settings = {"steps": 2, "batch_size": 16, "encoder": "small", "device": "cpu", "progress": False}
        fit(anonymous, out=tmp_path / "run", group="se2", motion="straight", **settings)
    session = Session(tmp_path / "other.h5", model=tmp_path / "run")
    log = waited(session.log).value
    assert (log.scene.group, log.scene.motion) == ("se2", "straight")
    assert "turn_rms" in waited(session.examination(log)).value.measured


def test_addresses_that_cannot_be_used(command: Command, made_runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"port {port} is in use; choose another with --port, or leave it out"
        refused(command, message, made_runs / "run", "--port", port)
    refused(command, "port is 99999; allowed is 0", made_runs / "run", "--port", 99999)
    refused(command, "host is 'no.such.host.invalid'", made_runs / "run", "--host", "no.such.host.invalid")


def test_a_zip_of_zarr_is_shown(tmp_path: Path) -> None:
    zarr = write_zarr(tmp_path / "log.zarr", truth(), 2, "uint8")
    packed = Path(shutil.make_archive(str(zarr), "zip", zarr))
    session = Session(packed, reading=LogOptions(observation="top,side", position="state[:2]"))
    log = waited(session.log)
    assert log.error == ""
    assert len(log.value) == sum(LENGTHS) - len(LENGTHS)
    assert log.value.show(3).panels[0].source.startswith("data:image/png")


@pytest.mark.usefixtures("silent")
def test_a_missing_extra_is_named(command: Command, made_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="nicegui")

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    code, _, err = command("view", made_runs / "run", "--no-browser")
    assert code == 2
    assert "pip install 'palpate[view]'" in err
    assert len(err.splitlines()) == 1


def test_loopback_only_unless_asked() -> None:
    with listening("127.0.0.1", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_only_names_of_this_machine_are_answered_on_loopback() -> None:
    pytest.importorskip("nicegui")
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    reached: list[str] = []

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        reached.append(dict(scope["headers"])[b"host"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = FastAPI()
    app.mount("/", mounted)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts("127.0.0.1", "127.0.0.1"))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        del message

    ours = ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"]
    for host in (*ours, "evil.example:8080", "127.0.0.1.evil.example", ""):
        scope = {
            "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", host.encode())],
        }  # fmt: skip
        asyncio.run(app(scope, receive, send))
    assert reached == ours
    assert hosts("0.0.0.0", "0.0.0.0") == hosts("::", "::") == ["*"]
    assert "box.example" in hosts("box.example", "127.0.1.1")


def test_a_server_that_does_not_start_is_an_error(made_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    with pytest.raises(RuntimeError, match="the server of the page did not start"):
        view(made_runs / "run", browser=False)


def test_a_session_follows_a_run_that_is_trained_again(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    content = config.read_bytes()
    config.unlink()
    session = Session(tmp_path / "run")
    failed = waited(session.log)
    assert "unfinished run" in failed.error
    assert session.log is failed  # it is not tried again and again
    session.retry()
    assert session.log is not failed
    config.write_bytes(content)
    first = waited(session.log)
    assert first.error == ""
    assert first.value is not None
    ranking = session.ranking(first.value)
    assert ranking is not None
    os.utime(config, (1, 1))
    second = waited(session.log)
    assert second is not first
    assert second.value is not None
    assert second.value.triples is first.value.triples  # the data are opened once
    assert second.value.model is not first.value.model
    assert ranking._ended.is_set()
    session.close()


def waited(task: Any) -> Any:
    for _ in range(600):
        if task.done:
            return task
        time.sleep(0.1)
    raise AssertionError("the task has not ended")


@pytest.mark.slow
def test_a_report_is_shown_without_torch(made_runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("nicegui")
    shutil.copytree(made_runs / "run", tmp_path / "run")
    (tmp_path / "run" / "figures").mkdir()
    (tmp_path / "run" / "figures" / "overlay.png").write_bytes(b"png")
    code = (
        "import os, sys, threading; from pathlib import Path; from urllib.request import urlopen\n"
        "from palpate.viewer.serve import view\n"
        "def look(address):\n"
        "    page = urlopen(address).read().decode()\n"
        "    print('data:image/png' in page, sorted({'torch', 'h5py', 'matplotlib'} & set(sys.modules)), flush=True)\n"
        "    os._exit(0)\n"
        f"view(Path({str(tmp_path / 'run')!r}), browser=False, ready=look)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "stream", "log.h5"])
def test_ctrl_c_ends_it(made_runs: Path, name: str) -> None:
    pytest.importorskip("nicegui")
    process = subprocess.Popen(
        [sys.executable, "-m", "palpate.cli", "view", str(made_runs / name), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = re.search(r"http://127.0.0.1:\d+/", process.stdout.readline())
    assert address
    assert "palpate view" in urlopen(address[0], timeout=600).read().decode()
    for path in ("", "_nicegui_ws/socket.io/?EIO=4&transport=polling"):
        with pytest.raises(HTTPError, match="400") as refused:
            urlopen(Request(address[0] + path, headers={"Host": "evil.example"}), timeout=600)
        assert b"host" in refused.value.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "")


def test_a_run_without_a_world_is_not_played(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    for recorded, message in (
        ({}, "its data do not name one; these worlds can be played: palpate/Sprites-v0"),
        ({"env": "gym_pusht/PushT-v0"}, "come from gym_pusht/PushT-v0, which Play cannot move"),
        ({"env": "palpate/SoccerGoal-v0"}, "come from palpate/SoccerGoal-v0, which Play cannot move"),
    ):
        config.write_bytes(as_json(sealed({**json.loads(config.read_bytes()), "world": recorded})))
        play = waited(Session(tmp_path / "run").play)
        assert message in play.error
        assert "view(folder, world=MyWorld())" in play.error


def test_a_run_is_shown_and_played_in_its_own_world(tmp_path: Path) -> None:
    made = world("palpate/SpritesMany-v0", size=20, objects=2, alike=True)  # not by its id, as in the demo
    options: dict[str, Any] = {"steps": 1, "batch_size": 8, "progress": False, "device": "cpu", "encoder": "small"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one step nothing is learned
        fit(made, out=tmp_path / "run", method="transporter", **options)
    session = Session(tmp_path / "run")
    played, log = waited(session.play), waited(session.log)
    assert played.error == log.error == ""
    assert played.value.ground._world.config == made.config
    assert len(played.value.ground.objects()) == 2
    assert log.value.truth.objects.shape[1:] == (2, 2)
    assert log.value.triples.attributes["alike"] is True
    session.close()


def test_a_model_is_drawn_once_and_a_new_one_again(
    made_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    drawn: list[str] = []

    def measured(model: object, labelled: object) -> tuple[dict[str, Figure], list[str]]:
        drawn.append("error" if not drawn else "overlay")
        return {drawn[-1]: Figure(figsize=(1, 1))}, []

    monkeypatch.setattr("palpate.pictures.measured", measured)
    drawing = Session(tmp_path / "run").drawing

    def start() -> None:
        drawing.start()
        assert drawing._thread is not None
        drawing._thread.join(60)
        assert (drawing.finished, drawing.error) == (True, "")

    start()
    start()  # by another tab
    assert (drawn, list(drawing.figures)) == (["error"], ["error"])
    os.utime(tmp_path / "run" / "config.json", (1, 1))
    start()
    assert (drawn, list(drawing.figures)) == (["error", "overlay"], ["overlay"])


def test_a_session_opens_the_log_and_the_world_of_a_run(made_runs: Path) -> None:
    for name in ("run", "stream"):
        session = Session(made_runs / name)
        for task in (session.log, session.play):
            assert waited(task).error == ""
            assert task.value is not None
        assert session.log is session.log
        session.close()
