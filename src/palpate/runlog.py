"""A run's folder: `run.json`, its settings, and `metrics.jsonl`, its readings; TensorBoard beside them if asked for."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palpate.disk import LOCK, alone, append, as_json, named, remove, write_whole
from palpate.settings import demand_one, demand_same

RUN, COMPLETE = "run.json", "config.json"  # the first and the last file of a run
OVERWRITING = "overwriting"  # a new run, inside the folder of the one that it will replace
# What training, evaluating and drawing leave in the folder, the last file first; nothing else in it is ever removed.
LEFT = (
    COMPLETE, "model.safetensors", "metrics.jsonl", "checkpoint", "tensorboard", "figures", "report.html",
    "scores.json", "evaluations",
)  # fmt: skip


class RunLog:
    """Appends a row per reading. Opened at a step, it forgets later rows: they belong to work that was lost."""

    def __init__(self, folder: Path | None, step: int, tensorboard: bool = False) -> None:
        self._path: Path | None = None
        self._board: Any = None
        if folder is None:
            return
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ValueError(
                    "TensorBoard is not installed; do 'pip install palpate[tensorboard]' or leave it out"
                ) from error
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        kept = [row for row in read_log(self._path) if row["step"] <= step] if self._path.exists() else []
        write_whole(self._path, "".join(map(_line, kept)).encode())

    def write(self, step: int, readings: dict[str, float]) -> None:
        if self._path:
            append(self._path, _line({"step": step, **readings}))
        if self._board:
            for name, value in readings.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        if self._board:
            self._board.close()


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`, up to a line that was cut short by a crash or is damaged."""
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        rows.append(row)
    return rows


@contextmanager
def run_folder(
    out: Path | None, described: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[Path | None]:
    """The folder to train in, locked for other processes; when the block ends well, what it holds is in `out`.

    An overwriting run is made in a folder inside `out`, and replaces the old run only when it is complete. Until then
    the old model can be loaded, and the new run can be resumed.
    """
    demand_one(resume=resume, overwrite=overwrite)
    if out is None:
        yield None
        return
    if resume and not out.is_dir():
        raise FileNotFoundError(f"{out} holds no run to resume; leave out resume to start one there")
    if out.exists() and not out.is_dir():
        _demand_overwritable(out, overwrite)
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out, inside=True):
        pending = out / OVERWRITING
        _put_in_place(pending, out)  # where a process was killed while it did so
        if resume:
            folder = pending if (pending / RUN).exists() else out
            advice = "resume with the same settings, or start another folder"
            demand_same(folder, _demand_described(folder), described, advice)
        else:
            occupied = any(path.name != LOCK for path in out.iterdir())
            if occupied:
                _demand_overwritable(out, overwrite)
            folder = pending if occupied else out
            shutil.rmtree(pending, ignore_errors=True)
            folder.mkdir(exist_ok=True)
            write_whole(folder / RUN, as_json(described))
        yield folder
        _put_in_place(pending, out)


def _put_in_place(pending: Path, out: Path) -> None:
    """Replace the run in `out` by a complete one. Cut short at any point, the next call goes on with it."""
    if not (pending / COMPLETE).exists():
        if not (pending / RUN).exists():  # all was moved
            shutil.rmtree(pending, ignore_errors=True)
        return
    if (pending / RUN).exists():  # else no file of the old run is left
        for name in LEFT:
            remove(out / name)
        os.replace(pending / RUN, out / RUN)
    for name in reversed(LEFT):
        if (pending / name).exists():
            os.replace(pending / name, out / name)
    shutil.rmtree(pending)


def _demand_overwritable(out: Path, overwrite: bool) -> None:
    if not overwrite:
        raise FileExistsError(
            f"{out} exists; resume the run there (resume=True, --resume), overwrite it (overwrite=True, --force), or "
            "choose another folder"
        )
    described = _described(out)
    ours = bool(described)
    if described is None:  # damaged: with nothing but our files beside it, it was a run
        ours = {path.name for path in out.iterdir()} <= {RUN, LOCK, OVERWRITING, *LEFT}
    if not ours:
        raise ValueError(f"{out} is not a run of palpate, so it is not overwritten; choose another folder")


def _demand_described(folder: Path) -> dict[str, Any]:
    described = _described(folder)
    if described is None:
        raise ValueError(
            f"{folder / RUN} is damaged, so the run cannot be resumed; restore it, overwrite the run "
            "(overwrite=True, --force), or start another folder"
        )
    if not described:
        raise FileNotFoundError(f"{folder} holds no run to resume; leave out resume to start one there")
    return described


def _described(folder: Path) -> dict[str, Any] | None:
    """What `run.json` says: empty where it is missing or none of ours, None where it is no JSON."""
    try:
        described = json.loads((folder / RUN).read_bytes())
    except OSError:
        return {}
    except (ValueError, RecursionError):
        return None
    parts = ("model", "training", "data")
    ours = isinstance(described, dict) and all(isinstance(described.get(part), dict) for part in parts)
    return described if ours else {}
