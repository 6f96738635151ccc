"""A run's folder: `run.json`, its settings, and `metrics.jsonl`, its readings; TensorBoard beside them if asked for."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from palpate.config import OBJECTIVE_ONCE

UNKNOWN = object()  # what an earlier version says of a setting that it did not have


class RunLog:
    """Appends a row per reading. Opened at a step, it forgets later rows: they belong to work that was lost."""

    def __init__(self, folder: Path | None, step: int, tensorboard: bool = False) -> None:
        self._file: TextIO | None = None
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
        path = folder / "metrics.jsonl"
        kept = [row for row in read_log(path) if row["step"] <= step] if path.exists() else []
        aside = path.with_suffix(".jsonl.new")
        aside.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(aside, path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, readings: dict[str, float]) -> None:
        if self._file:
            self._file.write(json.dumps({"step": step, **readings}) + "\n")
            self._file.flush()
        if self._board:
            for name, value in readings.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        if self._file:
            self._file.close()
        if self._board:
            self._board.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; a last line cut short by a crash is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def claim(folder: Path, described: dict[str, Any], *, resume: bool, overwrite: bool) -> Path:
    """Make the run's folder, or check that the one there is this run."""
    described = json.loads(json.dumps(described))
    path = folder / "run.json"
    if resume:
        before = _described(path)
        if before is None:
            raise FileNotFoundError(f"{folder} holds no run to resume; leave out resume to start one there")
        before["model"]["objective"] = OBJECTIVE_ONCE | before["model"]["objective"]
        for part, values in described.items():
            for name, was, value in _differences(before[part], values):
                if was is UNKNOWN:
                    raise ValueError(
                        f"{folder} was begun by another version of palpate, which knew no {name}; start another folder"
                    )
                raise ValueError(
                    f"{folder} was started with {name}={was!r}, not {value!r}; resume with the same settings, or start "
                    "another folder"
                )
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not overwrite:
            raise FileExistsError(
                f"{folder} exists; resume the run there (resume=True, --resume), overwrite it (overwrite=True, "
                "--force), or choose another folder"
            )
        if not folder.is_dir() or _described(path) is None:
            raise ValueError(f"{folder} is not a run of palpate, so it is not overwritten; choose another folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return folder


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings that are no longer what they were, with both values; of a group of settings those inside."""
    for name, value in now.items():
        was = before.get(name, UNKNOWN)
        if isinstance(was, Mapping) and isinstance(value, Mapping):
            yield from _differences(was, value)
        elif was != value:
            yield name, was, value


def _described(path: Path) -> dict[str, dict[str, Any]] | None:
    """What a `run.json` says, None where it is none of ours."""
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        ours = all(isinstance(described[part], dict) for part in ("model", "training", "data"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return described if ours else None
