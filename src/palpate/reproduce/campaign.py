"""`palpate reproduce`: make the missing runs, then write tables and figures from all results."""

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from palpate.collecting.parts import Stopped
from palpate.config import TrainingConfig
from palpate.progress import Bar, Board, Rate, bar, board
from palpate.reproduce.cluster import Slurm, on_cluster
from palpate.reproduce.crew import Halted, Outcome, Outcomes, one_by_one, side_by_side
from palpate.reproduce.plots import draw
from palpate.reproduce.presets import EXPERIMENTS, PRESETS, Case, Preset
from palpate.reproduce.runs import Place
from palpate.reproduce.sets import gather, sets_on_disk
from palpate.reproduce.tables import write_tables
from palpate.settings import demand_same
from palpate.training.loop import training_device
from palpate.workers import available_cores

MOST_JOBS = 16  # default limit: each run holds its data in memory


class Report(NamedTuple):
    """The outcome of a campaign."""

    finished: list[str]  # names of runs made now
    skipped: list[str]  # names of runs that existed
    failed: dict[str, str]  # the reason, by name
    tables: dict[str, str]  # Markdown by experiment
    written: list[Path]  # tables and figures


def choose_preset(name: str | None, device: str | None = None, steps: int | None = None) -> Preset:
    """A preset by its name; `auto` follows the device. `steps` replaces its number of steps."""
    gpu = training_device(TrainingConfig(device=device)).type == "cuda"  # type: ignore[arg-type]
    if name is None:
        name = "paper" if gpu else "small"
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; allowed are {', '.join(PRESETS)}")
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


def most_jobs(cases: Sequence[Case], device: str | None = None) -> int:
    """Default number of parallel runs: one on a GPU, else one for each core, because small networks gain little from a
    second core."""
    if training_device(TrainingConfig(device=device)).type == "cuda":  # type: ignore[arg-type]
        return 1
    return max(1, min(len(cases), available_cores(), MOST_JOBS))


def reproduce(
    cases: Sequence[Case],
    place: Place,
    *,
    jobs: int | None = 1,
    slurm: Slurm | None = None,
    force: bool = False,
    show: bool = True,
) -> Report:
    """Make the missing runs (`make_runs`), then write their tables and figures."""
    report = make_runs(cases, place, jobs=jobs, slurm=slurm, force=force, show=show)
    tables, written = tables_and_figures(place.out, list(dict.fromkeys(case.experiment for case in cases)))
    return report._replace(tables=tables, written=written)


def make_runs(
    cases: Sequence[Case],
    place: Place,
    *,
    jobs: int | None = 1,
    slurm: Slurm | None = None,
    force: bool = False,
    show: bool = True,
) -> Report:
    """Make the runs whose JSON is missing, `jobs` at a time (None: `most_jobs`).

    A failed run does not stop the others. Ctrl-C raises `Halted`; unfinished runs are continued the next time.
    """
    jobs = most_jobs(cases, place.device) if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed is 1 or more")
    done = [] if force else [case for case in cases if _is_done(case, place.result(case))]
    todo = [case for case in cases if case not in done]
    if force:
        for case in todo:
            place.set_aside(case)
            shutil.rmtree(place.run(case), ignore_errors=True)
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
                        place.trace(outcome.case).write_text(outcome.trace, encoding="utf-8")
    except (Halted, Stopped, KeyboardInterrupt) as error:
        finished = sum(not outcome.message for outcome in outcomes)
        what = str(error) or "stopped"
        raise Halted(f"{what}; {len(done) + finished} of {len(cases)} runs are finished") from None
    return Report(
        finished=[_label(o.case) for o in outcomes if not o.message],
        skipped=[_label(case) for case in done],
        failed={_label(o.case): o.message for o in outcomes if o.message},
        tables={},
        written=[],
    )


class Overall:
    """A progress bar over the steps of all runs, and one for each unfinished run."""

    def __init__(self, todo: Sequence[Case], there: int, shown: Board) -> None:
        self._steps = {_label(case): case.steps for case in todo}
        self._at = dict.fromkeys(self._steps, 0)
        self._notes: dict[str, str] = {}
        self._ended, self._there, self._shown = 0, there, shown

    def report(self, case: Case, step: int, note: str) -> None:
        label = _label(case)
        self._at[label] = step
        self._notes[label] = note or self._notes.get(label, "")
        self._show()
        if step < self._steps[label]:  # after the last step the run is measured; its bar stays
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
    """Whether the JSON of this run exists. A JSON that was made with other settings is refused."""
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
    """Collect each set once, with all cores, before the runs start their processes."""
    for wanted in sets_on_disk(cases):
        path = wanted.path(place.data)
        if path.exists():
            continue
        with bar(f"collecting {path.name}", wanted.triples, show) as advance:
            gather(wanted, place.data, partial(_advance, advance, Rate()))


def _advance(advance: Bar, rate: Rate, done: int, total: int) -> None:
    advance(done, f"{rate(done):,.0f}/s")


def tables_and_figures(out: Path, experiments: Sequence[str] = EXPERIMENTS) -> tuple[dict[str, str], list[Path]]:
    """Write tables and figures from the JSON and the arrays beside it; no model is needed."""
    tables: dict[str, str] = {}
    written: list[Path] = []
    for experiment in experiments:
        folder = out / experiment
        text = write_tables(folder)
        if text is None:
            continue
        tables[experiment] = text
        written += [folder / "table.md", folder / "table.json", *draw(experiment, folder)]
    return tables, written
