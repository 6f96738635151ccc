"""One run: its data, training, measurement, and the JSON it leaves."""

import io
import shutil
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palpate.api import evaluate, fit
from palpate.config import TrainingConfig
from palpate.disk import alone, remove, write_whole
from palpate.reproduce.presets import Case
from palpate.reproduce.provenance import provenance
from palpate.reproduce.results import FORMAT, write_json
from palpate.reproduce.samples import samples
from palpate.reproduce.sets import held_back, training_data
from palpate.runlog import read_log
from palpate.training.loop import training_device
from palpate.training.notes import NonFiniteLoss
from palpate.training.state import steps_done

Watch = Callable[[int, dict[str, float]], None]
COMPILED_VARIANTS = 64


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where runs are made, and the files and folders they leave."""

    out: Path
    data: Path  # folder of sets that are collected once
    device: str | None = None
    compile: bool | None = None  # None: the preset's value, on a GPU
    keep_models: bool = False
    keep_worlds: tuple[str, ...] = ()  # worlds whose models are always kept

    def keeps(self, case: Case) -> bool:
        return self.keep_models or case.world in self.keep_worlds

    def training(self, case: Case) -> TrainingConfig:
        config = replace(case.training, device=self.device)  # type: ignore[arg-type]
        gpu = training_device(config).type == "cuda"
        return replace(config, compile=(config.compile and gpu) if self.compile is None else self.compile)

    def result(self, case: Case) -> Path:
        return self.out / case.experiment / f"{case.name}.json"

    def run(self, case: Case) -> Path:
        """The folder of an unfinished run; each combination of settings has its own."""
        return self.out / case.experiment / ".runs" / f"{case.name}-{case.digest()}"

    def model(self, case: Case) -> Path:
        """The folder of a finished run with its weights, if models are kept."""
        return self.out / case.experiment / "models" / case.name

    def set_aside(self, case: Case) -> None:
        """Rename what a finished run left; it goes when the run is made again (`forget`)."""
        for path, old in self._aside(case):
            if path.exists():
                remove(old)
                path.replace(old)

    def forget(self, case: Case) -> None:
        for _, old in self._aside(case):
            remove(old)

    def _aside(self, case: Case) -> list[tuple[Path, Path]]:
        left = (self.result(case), self.result(case).with_suffix(".npz"), self.model(case))
        return [(path, path.with_name(f"{path.name}.old")) for path in left]

    def trace(self, case: Case) -> Path:
        """The traceback of a failed run."""
        return self.run(case).with_name(f"{case.name}.error.txt")


def perform(case: Case, place: Place, watch: Watch | None = None) -> None:
    """Train, measure, and write the JSON. An interrupted run is continued.

    A non-finite loss is a result; other errors are raised.
    """
    folder, path = place.run(case), place.result(case)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if path.exists():  # made by another process meanwhile
            return
        row, arrays = measured(case, place, folder, watch)
        if arrays:
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **arrays)
            write_whole(path.with_suffix(".npz"), content.getvalue())
        shutil.rmtree(place.model(case), ignore_errors=True)  # of an earlier run
        if row.get("scores") and place.keeps(case):
            shutil.copytree(folder, place.model(case), ignore=shutil.ignore_patterns("checkpoint"))
        write_json(path, row)
        place.forget(case)
        shutil.rmtree(folder)
        place.trace(case).unlink(missing_ok=True)


@singledispatch
def measured(
    case: Case, place: Place, folder: Path, watch: Watch | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Train and measure; returns the JSON and the arrays beside it. Another kind of run registers its own function."""
    config = place.training(case)
    device = training_device(config)
    data = training_data(case, place.data, device)
    test, reference = held_back(case, place.data)
    clock = Clock(watch)
    resumed_at = steps_done(folder)
    scores, facts, arrays = {}, {}, {}
    if config.compile:  # methods and worlds that share a process are compiled separately
        torch._dynamo.config.recompile_limit = COMPILED_VARIANTS
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the JSON keeps the findings
            model = fit(
                data,
                out=folder,
                encoder=case.encoder,
                training=config,
                test=test.subset(slice(0, min(case.watched_triples, len(test)))),
                resume=(folder / "run.json").exists(),
                progress=False,
                watch=clock,
                **case.fit,
            )
            scores = _rounded(evaluate(model, test, reference=reference).as_dict())
            facts = {"vitals": _rounded(model.model.vitals()), "findings": model.facts["findings"]}
            seconds = time.monotonic() - began
            arrays = samples(case, model, test, everything=case.source == "shared")
    except NonFiniteLoss as error:
        facts, seconds = {"diverged": str(error)}, time.monotonic() - began
    row = {
        "format": FORMAT,
        **{name: getattr(case, name) for name in ("experiment", "world", "method", "seed", "preset")},
        "scores": scores,
        **facts,
        "curve": [
            [reading["step"], float(f"{reading['l_test']:.4g}")]
            for reading in read_log(folder / "metrics.jsonl")
            if "l_test" in reading
        ],
        "seconds": round(seconds, 1),
        "ms_per_step": clock.ms_per_step(),
        "resumed_at": resumed_at,  # the step from which the seconds count, after an interruption
        "settings": case.settings(),
        "device": device.type,
        "threads": torch.get_num_threads(),
        **provenance(device),
    }
    return row, arrays


class Clock:
    """Times the steps of a run between its readings, and passes the readings on."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self._last: tuple[int, float] | None = None
        self._each: list[tuple[bool, float]] = []  # whether it includes an evaluation, and seconds a step

    def __call__(self, step: int, readings: dict[str, float]) -> None:
        if self._last is not None:
            seconds, steps = time.monotonic() - self._last[1], step - self._last[0]
            self._each.append(("l_test" in readings, seconds / steps))
        if self._watch:
            self._watch(step, readings)
        self._last = step, time.monotonic()

    def ms_per_step(self) -> float | None:
        """Median over the second half of the run; the first half includes compilation and the choice of kernels."""
        late = self._each[len(self._each) // 2 :]
        pure = [each for evaluated, each in late if not evaluated] or [each for _, each in late]
        return round(statistics.median(pure) * 1e3, 2) if pure else None


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}
