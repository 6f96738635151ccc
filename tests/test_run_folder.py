"""The folder of a run: whatever happens, no good model is lost, two runs never mix, and every run can be resumed."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import palpate
from palpate import disk, folders, runlog
from palpate.checkpoint import read_state, write_state
from palpate.data.transitions import Transitions
from palpate.disk import Busy
from palpate.representation import Representation
from palpate.runlog import MODEL_FORMAT, run_folder
from palpate.training.loop import Interrupted

SHORT: dict[str, Any] = {
    "steps": 6, "batch_size": 8, "log_every": 2, "evaluate_every": 2, "checkpoint_every": 2, "device": "cpu",
    "progress": False, "seed": 0,
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")

WHOLE = {"run.json", "run.toml", "config.json", "model.safetensors", "metrics.jsonl", "checkpoint"}


def stop_at_4(step: int, readings: dict[str, float]) -> None:
    if step == 4:
        os.kill(os.getpid(), signal.SIGINT)


def same(one: Representation, two: Representation) -> bool:
    x, y = one.model.lasting_state(), two.model.lasting_state()
    return all(np.array_equal(x[name], y[name], equal_nan=True) for name in x)


def die_after(steps: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Fail at one of the removals and renames by which a new run is put in place; filled once that has happened."""
    killed: list[int] = []
    left = iter(range(steps - 1))

    def dying(act: Callable[..., None]) -> Callable[..., None]:
        def acting(*arguments: Any, **options: Any) -> None:
            if next(left, None) is None and not killed:
                killed.append(steps)
            if killed:
                raise ZeroDivisionError
            act(*arguments, **options)

        return acting

    put = folders.put_in_place

    def putting(kind: folders.Kind, pending: Path, out: Path) -> None:
        with patch.context() as during:
            for owner, name in ((os, "replace"), (shutil, "rmtree"), (Path, "unlink")):
                during.setattr(owner, name, dying(getattr(owner, name)))
            put(kind, pending, out)

    patch.setattr(folders, "put_in_place", putting)
    return killed


def vectors(seed: int = 0) -> Transitions:
    random = np.random.default_rng(seed)
    o, a = random.random((120, 4), np.float32), random.random((120, 2), np.float32) - 0.5
    return Transitions(observation=o, action=a, next_observation=o + np.float32(0.1) * np.tile(a, 2))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    palpate.fit(vectors(), out=out, **SHORT)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def test_a_run_with_a_cut_description_can_be_overwritten(run: Path) -> None:
    """Also if it holds files of the user, which stay."""
    before = (run / "run.json").read_bytes()
    (run / "run.json").write_bytes(before[:100])
    (run / "thoughts.txt").write_text("keep me")
    with pytest.raises(ValueError, match=r"run\.json is damaged, .* overwrite the run \(overwrite=True, --force\)"):
        palpate.fit(vectors(), out=run, resume=True, **SHORT)
    palpate.fit(vectors(), out=run, overwrite=True, **SHORT)
    assert (run / "run.json").read_bytes() == before
    assert (run / "thoughts.txt").read_text() == "keep me"


def test_files_that_are_not_of_the_run_stay(run: Path) -> None:
    ours = ["figures/overlay.png", "evaluations/log/report.html", "evaluations/log/figures/error.png"]
    theirs = ["overwriting/plan.txt", "figures/mine.png", "evaluations/log/thoughts.txt"]
    for name in ours + theirs:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    palpate.fit(vectors(), out=run, resume=True, **SHORT)
    assert all((run / name).exists() for name in ours + theirs)
    palpate.fit(vectors(), out=run, overwrite=True, **SHORT)
    assert not any((run / name).exists() for name in ours)
    assert all((run / name).exists() for name in theirs)
    assert not (run / "evaluations" / "log" / "figures").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_model_is_not_saved_into_a_run(run: Path, tmp_path: Path, overwrite: bool) -> None:
    with pytest.raises(Interrupted):
        palpate.fit(vectors(), out=tmp_path / "unfinished", watch=stop_at_4, **SHORT)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    model = palpate.load(run)
    for out in (run, tmp_path / "unfinished"):
        with pytest.raises(FileExistsError, match=f"{out.name} is the folder of a run, .* choose another folder"):
            model.save(out, overwrite=overwrite)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_model_is_not_saved_where_another_process_works(run: Path, tmp_path: Path) -> None:
    model, out = palpate.load(run), tmp_path / "saved"
    model.save(out)
    with disk.alone(out, inside=True), pytest.raises(Busy, match="another process is working in saved"):
        model.save(out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors"}


def test_the_description_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: disk.Disk) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.Disk, "settle", full)
    with pytest.raises(OSError, match="No space left"):
        palpate.fit(vectors(), out=tmp_path / "run", **SHORT)
    assert list((tmp_path / "run").iterdir()) == []


def test_other_data_of_the_same_shape(run: Path) -> None:
    with pytest.raises(ValueError, match="run was made with other settings: checksum of the data was '"):
        palpate.fit(vectors(1), out=run, resume=True, **SHORT)


def test_a_file_is_the_same_by_any_path_but_not_with_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors().save("log.h5")
    palpate.fit("log.h5", out="run", **SHORT)
    palpate.fit(tmp_path / "log.h5", out="run", resume=True, **SHORT)
    vectors(1).save("log.h5", overwrite=True)
    with pytest.raises(ValueError, match="run was made with other settings: checksum of the data was '"):
        palpate.fit("log.h5", out="run", resume=True, **SHORT)


def test_device_and_precision_are_recorded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    described = json.loads((run / "run.json").read_text())
    assert (described["training"]["device"], described["training"]["precision"]) == ("cpu", "32-true")
    described["training"]["device"] = "cuda"
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="run was made with other settings: device was 'cuda' and is 'cpu'"):
        palpate.fit(vectors(), out=run, resume=True, **SHORT | {"device": None})


def test_runs_of_another_format(run: Path) -> None:
    path, described = run / "checkpoint" / "state.safetensors", json.loads((run / "run.json").read_text())
    groups, facts = read_state(path)
    write_state(path, groups | {"feed": {}}, facts | {"format": 0})
    with pytest.raises(ValueError, match=r"state\.safetensors has format 0, and this palpate resumes only 1"):
        palpate.fit(vectors(), out=run, resume=True, **SHORT)
    del described["format"]
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"run\.json has format None, and this palpate resumes only 2"):
        palpate.fit(vectors(), out=run, resume=True, **SHORT)
    palpate.fit(vectors(), out=run, overwrite=True, **SHORT)


def test_a_run_of_another_model_format_is_not_resumed(run: Path) -> None:
    """Its checkpoint might fit, and the model would be saved as one of this format."""
    described = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(described | {"format of the model": MODEL_FORMAT - 1}))
    says = f"format of the model was {MODEL_FORMAT - 1} and is {MODEL_FORMAT}; .* overwrite the run"
    with pytest.raises(ValueError, match=says):
        palpate.fit(vectors(), out=run, resume=True, **SHORT)


def test_resuming_and_overwriting(run: Path) -> None:
    with pytest.raises(ValueError, match=r"resume \(--resume\) continues .* and overwrite \(--force\) replaces it"):
        palpate.fit(vectors(), out=run, resume=True, overwrite=True, **SHORT)


def test_an_old_model_stays_until_the_new_one_is_complete(run: Path, tmp_path: Path) -> None:
    (run / "thoughts.txt").write_text("keep me")
    (run / "report.html").write_text("old")
    (run / "tensorboard").mkdir()
    before = (run / "model.safetensors").read_bytes()
    again = SHORT | {"seed": 1}
    straight = palpate.fit(vectors(), out=tmp_path / "straight", **again)
    with pytest.raises(Interrupted):
        palpate.fit(vectors(), out=run, overwrite=True, watch=stop_at_4, **again)
    assert (run / "model.safetensors").read_bytes() == before
    assert (run / "report.html").exists()
    palpate.load(run)
    with pytest.raises(ValueError, match="overwriting was made with other settings: seed was 1 and is 0"):
        palpate.fit(vectors(), out=run, resume=True, **SHORT)
    resumed = palpate.fit(vectors(), out=run, resume=True, **again)
    assert same(straight, resumed)
    assert same(straight, palpate.load(run))
    theirs = {path.name for path in (tmp_path / "straight").iterdir()}
    assert {path.name for path in run.iterdir()} == theirs | {"thoughts.txt"}
    assert (run / "run.json").read_bytes() == (tmp_path / "straight" / "run.json").read_bytes()


def leave(folder: Path, text: str) -> None:
    for name in ("checkpoint", "tensorboard") if text == "old" else ("checkpoint",):
        (folder / name).mkdir(parents=True)
    for name in ("run.toml", "model.safetensors", "metrics.jsonl", "checkpoint/state.safetensors", "config.json"):
        (folder / name).write_text(text)


def test_killed_while_the_new_model_is_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step of it: one of the two models is there whole, or none; and resuming finishes the work."""
    for steps in count(1):
        out = tmp_path / str(steps)
        leave(out, "old")
        (out / "run.json").write_text(json.dumps({"model": {}, "training": {"seed": 0}, "data": {}}))
        described = {"model": {}, "training": {"seed": 1}, "data": {}}
        with (
            suppress(ZeroDivisionError),
            monkeypatch.context() as patch,
            run_folder(out, described, resume=False, overwrite=True) as folder,
        ):
            killed = die_after(steps, patch)
            assert folder == out / folders.OVERWRITING
            leave(folder, "new")
        if (out / "config.json").exists():
            assert (out / "config.json").read_text() == (out / "model.safetensors").read_text()
        with run_folder(out, described, resume=True, overwrite=False) as folder:
            assert folder == out
        found = {path.name: path.read_text() for path in out.rglob("*") if path.is_file() and path.name != "run.json"}
        assert set(found.values()) == {"new"}
        assert {path.name for path in out.iterdir()} == WHOLE
        if not killed:
            break
    assert steps > 10


def test_overwriting_twice(run: Path) -> None:
    """The unfinished one is what is thrown away."""
    before = (run / "model.safetensors").read_bytes()
    for seed in (1, 2):
        with pytest.raises(Interrupted):
            palpate.fit(vectors(), out=run, overwrite=True, watch=stop_at_4, **SHORT | {"seed": seed})
        assert (run / "model.safetensors").read_bytes() == before
    palpate.fit(vectors(), out=run, resume=True, **SHORT | {"seed": 2})
    assert {path.name for path in run.iterdir()} == WHOLE


def test_two_at_once(tmp_path: Path) -> None:
    run, refusals = tmp_path / "run", []

    def other(step: int, readings: dict[str, float]) -> None:
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(Busy, match="another process is working in run; wait for it") as error:
                palpate.fit(vectors(), out=run, **SHORT | options)
            refusals.append(error)

    palpate.fit(vectors(), out=run, watch=other, **SHORT | {"log_every": 6})
    assert len(refusals) >= 3
    assert {path.name for path in run.iterdir()} == WHOLE


def test_an_occupied_folder_is_refused_before_the_data_are_opened(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="exists; resume the run there"):
        palpate.fit("no file at all", out=tmp_path, **SHORT)


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "state.safetensors", ".model.safetensors.new"])
def test_a_disk_that_fills_up_loses_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = tmp_path / "run"
    settle, written, write = disk.Disk.settle, [], runlog.RunLog.write

    def full(path: Path) -> None:
        written.append(path.name)
        if path.name == name and written.count(name) == (2 if name in ("metrics.jsonl", "state.safetensors") else 1):
            with disk.named(path):
                raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk.Disk, "settle", lambda self: (full(self._target), settle(self)))
        patch.setattr(runlog.RunLog, "write", lambda self, *reading: (full(self._path), write(self, *reading)))
        with pytest.raises(OSError, match=rf"cannot write .*{name}: No space left on device"):
            palpate.fit(vectors(), out=run, **SHORT)
    assert same(palpate.fit(vectors(), out=run, resume=True, **SHORT), palpate.load(trained))
    for file in ("metrics.jsonl", "run.toml"):
        assert (run / file).read_text() == (trained / file).read_text()


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("facts", {"step": 10**30}),
        ("facts", {"step": None}),
        ("facts", {"step": 0}),
        ("facts", {"best_value": "low"}),
        ("facts", {"best_value": 0.5}),
        ("random", {}),
        ("optimizer", {}),
        ("optimizer", {"9999.momentum": torch.zeros(2)}),
        ("optimizer", {"0.velocity": torch.zeros(())}),
        ("optimizer", {"0.momentum": torch.zeros(())}),
        ("random", {"generator": torch.Generator().get_state().short()}),
        ("best", {"colour": torch.zeros(2)}),
        ("notes", {}),
        ("notes", {"sums": torch.zeros(2, 2), "count": torch.zeros(())}),
        ("feed", {"labels": torch.zeros(1, dtype=torch.int8)}),
        ("feed", None),
    ],
    ids=str,
)
def test_a_checkpoint_with_anything_in_it(run: Path, group: str, change: dict[str, Any] | None) -> None:
    path = run / "checkpoint" / "state.safetensors"
    groups, facts = read_state(path)
    if group == "facts":
        facts |= change or {}
    elif change is None:
        del groups[group]
    else:
        groups[group] = change
    if group == "best":
        facts["best_value"] = 0.5
    write_state(path, groups, facts)
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged or was not written by palpate") as error:
        palpate.fit(vectors(), out=run, resume=True, **SHORT)
    assert "\n" not in str(error.value)


def test_a_checkpoint_with_other_readings(tmp_path: Path) -> None:
    """Their number is known after the first step."""
    with pytest.raises(Interrupted):
        palpate.fit(vectors(), out=tmp_path, watch=stop_at_4, **SHORT)
    path = tmp_path / "checkpoint" / "state.safetensors"
    groups, facts = read_state(path)
    groups["notes"]["sums"] = torch.zeros(1)
    write_state(path, groups, facts)
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged .*notes/sums is float32 \[1\], not"):
        palpate.fit(vectors(), out=tmp_path, resume=True, **SHORT)


def test_a_flipped_bit_in_a_checkpoint(run: Path) -> None:
    path = run / "checkpoint" / "state.safetensors"
    content = path.read_bytes()
    for at in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ValueError, match=r"state\.safetensors is damaged"):
            read_state(path)
