"""`palpate reproduce`: run the cases without results, then write tables and figures from all results."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from palpate.collecting.parts import Stopped
from palpate.config import TrainingConfig
from palpate.disk import from_json, write_whole
from palpate.progress import bar
from palpate.reproduce.crew import GPUS, Halted, Outcome, attempt, side_by_side
from palpate.reproduce.plots import draw
from palpate.reproduce.presets import EXPERIMENTS, PRESETS, Case, Preset
from palpate.reproduce.runs import Place, repeat
from palpate.reproduce.sets import gather, sets_on_disk
from palpate.reproduce.tables import write_table
from palpate.settings import demand_same
from palpate.training.loop import training_device
from palpate.workers import available_cores

MOST_JOBS = 16  # default limit: each run holds its data in memory


class Report(NamedTuple):
    """The outcome of a campaign; cases have the name EXPERIMENT/WORLD-METHOD-SEED."""

    finished: list[str]  # run now
    skipped: list[str]  # results existed
    failed: dict[str, str]  # the reason by name
    tables: dict[str, str]  # Markdown by experiment
    written: list[Path]  # tables and figures
    busy: Sequence[str] = ()  # another process runs them


def choose_preset(name: str | None, device: str | None = None, steps: int | None = None) -> Preset:
    """A preset by its name, or the one that suits the device. `steps`, if given, replaces its number of steps."""
    fitting = "paper" if _on_gpu(device) else "small"  # refuses a device that is missing
    preset = PRESETS[name or fitting]
    if steps is None:
        return preset
    every = max(1, steps * preset.training.evaluate_every // preset.training.steps)
    return replace(preset, training=replace(preset.training, steps=steps, evaluate_every=every))


def most_jobs(cases: Sequence[Case], device: str | None = None) -> int:
    """Default number of parallel runs: one per GPU, else one per core, because small networks use one core well."""
    return max(1, min(len(cases), len(visible_gpus(device)) or available_cores(), MOST_JOBS))


def visible_gpus(device: str | None = None) -> list[str]:
    """The GPUs that this process may use, as `GPUS` names them; none if runs are on the CPU."""
    if not _on_gpu(device):
        return []
    count, named = max(1, torch.cuda.device_count()), os.environ.get(GPUS)
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


def _on_gpu(device: str | None) -> bool:
    return training_device(TrainingConfig(device=device)).type == "cuda"  # type: ignore[arg-type]


def reproduce(
    cases: Sequence[Case], place: Place, *, jobs: int | None = 1, force: bool = False, show: bool = True
) -> Report:
    """Run the cases without results (`make_runs`), then write tables and figures."""
    report = make_runs(cases, place, jobs=jobs, force=force, show=show)
    tables, written = tables_and_figures(place.out, list(dict.fromkeys(case.experiment for case in cases)))
    return report._replace(tables=tables, written=written)


def make_runs(
    cases: Sequence[Case], place: Place, *, jobs: int | None = 1, force: bool = False, show: bool = True
) -> Report:
    """Run the cases without a JSON, `jobs` at a time (None: `most_jobs`).

    A failed run does not stop the others. Ctrl-C raises `Halted`; the next call continues unfinished runs. Several
    processes may share a folder: a case that another process runs is passed over. `force` repeats all cases; an earlier
    result is replaced when its new run is measured.
    """
    jobs = most_jobs(cases, place.device) if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed is 1 or more")
    if force:
        repeat(cases, place)
    done = [case for case in cases if _is_done(case, place)]
    todo = [case for case in cases if case not in done]
    outcomes: list[Outcome] = []
    steps = {_label(case): 0 for case in todo}
    try:
        for wanted in sets_on_disk(todo):  # with all cores, before the runs start
            gather(wanted, place.data, show)
        with bar("all runs", sum(case.steps for case in todo), show) as advance:

            def report(case: Case, step: int, note: str) -> None:
                steps[_label(case)] = step
                runs = f"steps, {len(outcomes)} of {len(todo)} runs"
                advance(sum(steps.values()), f"{runs}; {case.name} {note}".strip())

            gpus = visible_gpus(place.device)
            here = (attempt(case, place, report) for case in todo)  # one process compiles once
            with closing(side_by_side(todo, place, report, jobs, gpus) if jobs > 1 else here) as made:
                for outcome in made:
                    outcomes.append(outcome)
                    report(outcome.case, outcome.case.steps, "")
                    if outcome.trace:
                        write_whole(place.trace(outcome.case), outcome.trace.encode())
    except (Halted, Stopped, KeyboardInterrupt) as error:
        finished = len(done) + sum(outcome.state in ("finished", "existed") for outcome in outcomes)
        raise Halted(f"{str(error) or 'stopped'}; {finished} of {len(cases)} runs are finished") from None

    def ended(state: str) -> dict[str, str]:
        return {_label(outcome.case): outcome.message for outcome in outcomes if outcome.state == state}

    skipped = [*map(_label, done), *ended("existed")]
    return Report([*ended("finished")], skipped, ended("failed"), {}, [], busy=[*ended("busy")])


def _label(case: Case) -> str:
    return f"{case.experiment}/{case.name}"


def _is_done(case: Case, place: Place) -> bool:
    """Whether this case need not run. A JSON that was made with other settings is refused."""
    if not place.is_done(case):
        return False
    path = place.result(case)
    try:
        settings = from_json(path.read_bytes())["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the JSON of a run ({error}); delete it, or choose another folder with --out"
        ) from error
    demand_same(path, settings, case.settings(), "choose another folder with --out, or repeat the run with --force")
    return True


def tables_and_figures(out: Path, experiments: Sequence[str] = EXPERIMENTS) -> tuple[dict[str, str], list[Path]]:
    """Write tables and figures from the JSON and the arrays stored with it; no model is needed."""
    tables: dict[str, str] = {}
    written: list[Path] = []
    for experiment in experiments:
        folder = out / experiment
        text = write_table(folder)
        if text is not None:
            tables[experiment] = text
            written += [folder / "table.md", *draw(experiment, folder)]
    return tables, written
