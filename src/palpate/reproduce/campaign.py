"""`palpate reproduce`: makes the runs that are not there yet, then tables and figures from what there is."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from palpate.collecting.parts import Stopped
from palpate.collecting.workers import available_cores
from palpate.config import TrainingConfig
from palpate.disk import write_whole
from palpate.progress import Board, bar, board
from palpate.reproduce.cluster import Slurm, on_cluster
from palpate.reproduce.crew import Halted, Outcome, Outcomes, one_by_one, side_by_side
from palpate.reproduce.plots import draw
from palpate.reproduce.presets import EXPERIMENTS, PRESETS, Case, Preset
from palpate.reproduce.results import frame_distance, read_results, write_tables
from palpate.reproduce.runs import Place
from palpate.reproduce.sets import gather, sets_on_disk
from palpate.settings import demand_same
from palpate.training.loop import training_device

MOST_JOBS = 16  # unless the user says so: each holds its data in memory


class Report(NamedTuple):
    """What came of it."""

    finished: list[str]  # names of runs made now
    skipped: list[str]  # and of those that were there
    failed: dict[str, str]  # why, by name
    tables: dict[str, str]  # Markdown by experiment
    written: list[Path]  # tables and figures


def choose_preset(name: str, device: str = "auto", steps: int | None = None) -> Preset:
    """A preset by its name, `auto` by the device; with another number of steps where that is wanted."""
    gpu = training_device(TrainingConfig(device=device)).type == "cuda"  # type: ignore[arg-type]
    if name == "auto":
        name = "paper" if gpu else "small"
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; allowed are auto, {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if steps is None:
        return preset
    if steps < 1:
        raise ValueError(f"steps is {steps}; allowed is 1 or more")
    every = max(1, steps * preset.training.evaluate_every // preset.training.steps)
    return replace(
        preset,
        training=replace(preset.training, steps=steps, evaluate_every=every),
        vector_training={**preset.vector_training, "steps": steps},
    )


def most_jobs(cases: Sequence[Case], device: str = "auto") -> int:
    """Runs at a time by default: small networks gain little from a second core, a GPU is full with one run."""
    if training_device(TrainingConfig(device=device)).type == "cuda":  # type: ignore[arg-type]
        return 1
    return max(1, min(len(cases), available_cores(), MOST_JOBS))


def reproduce(
    cases: Sequence[Case],
    place: Place,
    *,
    jobs: int = 1,
    slurm: Slurm | None = None,
    force: bool = False,
    show: bool = True,
) -> Report:
    """Make the runs whose JSON is missing, `jobs` at a time, then write tables and figures of their experiments.

    A run that fails does not stop the others. Ctrl-C raises `Halted`; what was under way goes on the next time.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed is 1 or more")
    done = [] if force else [case for case in cases if _is_done(case, place.result(case))]
    todo = [case for case in cases if case not in done]
    if force:
        for case in todo:
            for path in (place.result(case), place.result(case).with_suffix(".npz")):
                path.unlink(missing_ok=True)
            for folder in (place.run(case), place.model(case)):
                shutil.rmtree(folder, ignore_errors=True)
    for path in {place.result(case).parent for case in todo}:
        path.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    try:
        _gather_sets(todo, place, show)
        with board(show) as shown:
            overall = Overall(todo, len(done), shown)
            if slurm is not None and todo:
                made: Outcomes = on_cluster(todo, place, slurm)
            elif jobs == 1:
                made = one_by_one(todo, place, overall.report)
            else:
                made = side_by_side(todo, place, overall.report, jobs)
            with closing(made):
                for outcome in made:
                    outcomes.append(outcome)
                    overall.ended(outcome.case)
                    if outcome.trace:
                        write_whole(place.trace(outcome.case), outcome.trace.encode())
    except (Halted, Stopped, KeyboardInterrupt) as error:
        finished = sum(not outcome.message for outcome in outcomes)
        what = str(error) or "stopped"
        raise Halted(f"{what}; {len(done) + finished} of {len(cases)} runs are finished") from None
    tables, written = tables_and_figures(place.out, list(dict.fromkeys(case.experiment for case in cases)))
    return Report(
        finished=[_label(o.case) for o in outcomes if not o.message],
        skipped=[_label(case) for case in done],
        failed={_label(o.case): o.message for o in outcomes if o.message},
        tables=tables,
        written=written,
    )


class Overall:
    """The bar over all runs, by their steps, and one for each run under way."""

    def __init__(self, todo: Sequence[Case], there: int, shown: Board) -> None:
        self._steps = {_label(case): case.training.steps for case in todo}
        self._at = dict.fromkeys(self._steps, 0)
        self._notes: dict[str, str] = {}
        self._ended, self._there, self._shown = 0, there, shown

    def report(self, case: Case, step: int, note: str) -> None:
        label = _label(case)
        self._at[label] = step
        self._notes[label] = note or self._notes.get(label, "")
        self._show()
        if step < self._steps[label]:  # at the last step it is still to be measured
            self._shown(label, step, self._steps[label], self._notes[label])

    def ended(self, case: Case) -> None:
        label = _label(case)
        self._at[label] = self._steps[label]
        self._ended += 1
        self._shown(label, self._steps[label], self._steps[label], self._notes.get(label, ""))
        self._show()

    def _show(self) -> None:
        runs = f"steps; {self._there + self._ended} of {self._there + len(self._steps)} runs done"
        self._shown("all runs", sum(self._at.values()), sum(self._steps.values()), runs)


def _label(case: Case) -> str:
    return f"{case.experiment}/{case.name}"


def _is_done(case: Case, path: Path) -> bool:
    """Whether the JSON of this run is there; one that was made with other settings is not quietly taken for it."""
    if not path.exists():
        return False
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the JSON of a run ({error}); delete it, or choose another folder with --out"
        ) from error
    demand_same(path, settings, case.settings(), "choose another folder with --out, or begin anew with --force")
    return True


def _gather_sets(cases: Sequence[Case], place: Place, show: bool) -> None:
    """Before the runs, which may be many processes: each set is made once, by all cores."""
    for path, what in sets_on_disk(cases, place.data).items():
        if path.exists():
            continue
        start = time.monotonic()
        with bar(f"collecting {path.name}", what[1], show) as advance:

            def progress(done: int, total: int, advance: Callable[..., None] = advance, start: float = start) -> None:
                advance(done, f"{done / max(time.monotonic() - start, 1e-3):,.0f}/s")

            gather(path, *what, progress=progress)


def tables_and_figures(out: Path, experiments: Sequence[str] = EXPERIMENTS) -> tuple[dict[str, str], list[Path]]:
    """Write them from the JSON and the arrays beside it; no model is needed."""
    tables: dict[str, str] = {}
    written: list[Path] = []
    for experiment in experiments:
        folder = out / experiment
        text = write_tables(folder, _frames(folder)) if folder.is_dir() else None
        if text is None:
            continue
        tables[experiment] = text
        written += [folder / "table.md", folder / "table.json", *draw(experiment, folder)]
    return tables, written


def _frames(folder: Path) -> list[str]:
    """How well the frames agree that our method learned from the two views of Soccer."""
    distances = []
    for row in read_results(folder):
        if (row["world"], row["method"]) != ("third", "ours"):
            continue
        pair = [folder / f"{view}-ours-{row['seed']}.npz" for view in ("third", "first")]
        if all(path.exists() for path in pair):
            third, first = (_positions(path) for path in pair)
            distances.append(frame_distance(third, first))
    if not distances:
        return []
    each = ", ".join(f"{distance:.2g}" for distance in distances)
    return [
        "The same scenes seen in third and in first person: what ours says of them differs by "
        f"{np.median(distances):.2g} on average, after one translation (seed by seed: {each})."
    ]


def _positions(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"all_{name}"] for name in ("agent", "object")}
