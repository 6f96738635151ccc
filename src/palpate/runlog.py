"""A run's folder: settings in `run.json`, readings in `metrics.jsonl` and, if wanted, in TensorBoard."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from palpate.disk import LOCK, alone, as_json, named, write_whole
from palpate.extras import demand
from palpate.settings import demand_same, require_one

RUN, COMPLETE = "run.json", "config.json"  # the first and the last file of a run
OVERWRITING = ".overwriting"  # folder of a new run, inside the folder of the run that it will replace
FORMAT = 1  # of `run.json`; no other is resumed
FIGURES = ("overlay", "distances", "error", "curves")
REPORT = ("report.html", "scores.json", *(f"figures/{name}.png" for name in FIGURES))
# All files that training, evaluation and figures write, the last one first; nothing else is ever removed.
FILES = (
    COMPLETE, "model.safetensors", ".model.safetensors.new", "metrics.jsonl", "checkpoint/state.safetensors",
    "tensorboard/events.out.tfevents.*", "run.toml", *REPORT, *(f"evaluations/*/{name}" for name in REPORT),
)  # fmt: skip
FOLDERS = ("checkpoint", "tensorboard", "figures", "evaluations")


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
    """The folder to train in, locked for other processes. After the block, its content is in `out`.

    An overwriting run is made in a folder inside `out`, and replaces the old run only when it is complete. Until then
    the old model can be loaded, and the new run can be resumed.
    """
    demand_place(out, resume=resume, overwrite=overwrite)
    if out is None:
        yield None
        return
    described = {"format": FORMAT, **described}
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out, inside=True):
        pending = out / OVERWRITING
        _put_in_place(pending, out)  # a killed process may have left this unfinished
        if resume:
            folder = pending if (pending / RUN).exists() else out
            advice = (
                "resume with the same settings, overwrite the run (overwrite=True, --force), or start another folder"
            )
            demand_same(folder, _require_described(folder), described, advice)
        else:
            occupied = _occupied(out)
            if occupied:
                _require_overwritable(out, overwrite)
            folder = pending if occupied else out
            _discard(pending)
            folder.mkdir(exist_ok=True)
            write_whole(folder / RUN, as_json(described))
        yield folder
        _put_in_place(pending, out)


def demand_place(out: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder in which no run can start. It is cheap, so call it before long work."""
    require_one(resume=resume, overwrite=overwrite)
    if out is not None and resume and not out.is_dir():
        raise FileNotFoundError(f"{out} holds no run to resume; leave out resume to start one there")
    # If another process is working in the folder, the lock reports it.
    if out is not None and not resume and _occupied(out) and not (out / LOCK).exists():
        _require_overwritable(out, overwrite)


def _occupied(out: Path) -> bool:
    return out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir()))


def _put_in_place(pending: Path, out: Path) -> None:
    """Replace the run in `out` by a complete one. If it is interrupted, the next call continues."""
    if not (pending / COMPLETE).exists():
        if not (pending / RUN).exists():  # all was moved
            _discard(pending)
        return
    if (pending / RUN).exists():  # else no file of the old run is left
        _remove_files(out)
        os.replace(pending / RUN, out / RUN)
    for path in reversed(_files(pending)):
        target = out / path.relative_to(pending)
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
    _discard(pending)


def _files(folder: Path) -> list[Path]:
    """The files of a run, without `run.json`."""
    return [path for pattern in FILES for path in sorted(folder.glob(pattern)) if path.is_file()]


def _remove_files(folder: Path) -> None:
    """Remove the files of a run, and its folders if they are empty then. Other files stay."""
    for path in _files(folder):
        path.unlink()
    for name in FOLDERS:
        for path in (*sorted((folder / name).rglob("*/"), reverse=True), folder / name):
            with suppress(OSError):  # it is not empty, or does not exist
                path.rmdir()


def _discard(pending: Path) -> None:
    (pending / RUN).unlink(missing_ok=True)
    _remove_files(pending)
    with suppress(OSError):
        pending.rmdir()


def _require_overwritable(out: Path, overwrite: bool) -> None:
    if not overwrite:
        raise FileExistsError(
            f"{out} exists; resume the run there (resume=True, --resume), overwrite it (overwrite=True, --force), or "
            "choose another folder"
        )
    described = _described(out)
    ours = bool(described)
    if described is None:  # damaged; it is a run if there are other files of a run, or no others at all
        ours = bool(_files(out)) or {path.name for path in out.iterdir()} <= {RUN, LOCK, OVERWRITING}
    if not ours:
        raise ValueError(f"{out} is not a run of palpate and is not overwritten; choose another folder")


def _require_described(folder: Path) -> dict[str, Any]:
    described = _described(folder)
    if described is None:
        raise ValueError(
            f"{folder / RUN} is damaged, so the run cannot be resumed; restore it, overwrite the run "
            "(overwrite=True, --force), or start another folder"
        )
    if not described:
        raise FileNotFoundError(f"{folder} holds no run to resume; leave out resume to start one there")
    if described.get("format") != FORMAT:
        raise ValueError(
            f"{folder / RUN} has format {described.get('format')!r}, and this palpate resumes only {FORMAT}: overwrite "
            "the run (overwrite=True, --force), or start another folder"
        )
    return described


def _described(folder: Path) -> dict[str, Any] | None:
    """The content of `run.json`: empty if it is missing or not ours, None if it is not JSON."""
    try:
        described = json.loads((folder / RUN).read_bytes())
    except OSError:
        return {}
    except (ValueError, RecursionError):
        return None
    parts = ("model", "training", "data")
    ours = isinstance(described, dict) and all(isinstance(described.get(part), dict) for part in parts)
    return described if ours else {}
