"""`metrics.jsonl`, always; TensorBoard beside it where that is installed and asked for."""

import json
import os
from pathlib import Path
from typing import Any, TextIO


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
