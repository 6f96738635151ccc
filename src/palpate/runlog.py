"""A run's folder: settings in `run.json`, readings in `metrics.jsonl` and, if wanted, in TensorBoard."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palpate.disk import from_json, named, write_whole
from palpate.extras import demand
from palpate.folders import Kind, claimed, require_free
from palpate.settings import require_one

RUN, COMPLETE = "run.json", "config.json"  # the first and the last file of a run
MODEL_FORMAT = 17  # of a saved model; no other is read
FIGURES = {  # their captions in reports and on pages
    "overlay": "What is found",
    "distances": "Squared distances between o and o', and the threshold for contact",
    "error": "Error of the object's position",
    "curves": "Curves",
}
REPORT = ("report.html", "scores.json", *(f"figures/{name}.png" for name in FIGURES))
RUNS = Kind(
    noun="run",
    one="a run",
    note=RUN,
    format=2,
    settings=("model", "training", "data"),
    files=(
        COMPLETE, "model.safetensors", ".model.safetensors.new", "metrics.jsonl", "checkpoint/state.safetensors",
        "tensorboard/events.out.tfevents.*", "run.toml", *REPORT, *(f"evaluations/*/{name}" for name in REPORT),
    ),
    folders=("checkpoint", "tensorboard", "figures", "evaluations"),
)  # fmt: skip


class RunLog:
    """Appends a row per reading. Rows after `step` are removed when it opens: a resumed run writes them again."""

    def __init__(self, folder: Path | None, step: int, tensorboard: bool = False) -> None:
        self._path: Path | None = None
        self._board: Any = None
        if folder is None:
            return
        if tensorboard:
            module = demand(
                "torch.utils.tensorboard", library="tensorboard", extra="tensorboard", needs="curves need TensorBoard"
            )
            self._board = module.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        kept = [row for row in read_log(self._path) if row["step"] <= step] if self._path.exists() else []
        write_whole(self._path, "".join(map(_line, kept)).encode())

    def write(self, step: int, readings: dict[str, float]) -> None:
        if self._path:
            with named(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(_line({"step": step, **readings}))
        if self._board:
            for name, value in readings.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        if self._board:
            self._board.close()


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`, up to the first incomplete or damaged line."""
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = from_json(line)
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
    """The folder to train in, if there is an `out`; see `claimed`."""
    demand_place(out, resume=resume, overwrite=overwrite)
    if out is None:
        yield None
        return
    with claimed(RUNS, out, described, resume=resume, overwrite=overwrite) as folder:
        yield folder


def demand_place(out: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder in which no run can start. It is cheap, so call it before long work."""
    require_one(resume=resume, overwrite=overwrite)
    if out is not None:
        require_free(RUNS, out, resume=resume, overwrite=overwrite)
