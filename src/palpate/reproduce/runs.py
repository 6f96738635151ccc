"""One run: its data, its training, its scores, and the JSON that holds them."""

import hashlib
import io
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palpate.api import fit
from palpate.config import TrainingConfig
from palpate.disk import alone, remove, write_whole
from palpate.evaluation import evaluate
from palpate.reproduce.presets import Case
from palpate.reproduce.provenance import provenance
from palpate.reproduce.results import FORMAT, write_json
from palpate.reproduce.samples import samples
from palpate.reproduce.sets import held_back, training_data
from palpate.runlog import RUN, read_log
from palpate.training.loop import training_device
from palpate.training.notes import NonFiniteLoss
from palpate.training.state import steps_done

Watch = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cases are run, and the files and folders of each case."""

    out: Path
    data: Path  # folder of sets that are collected once
    device: str | None = None
    compile: bool | None = None  # None: the preset's value, on a GPU
    keep_models: bool = False
    keep_worlds: tuple[str, ...] = ()  # worlds whose models are always kept

    def training(self, case: Case) -> TrainingConfig:
        device: Any = training_device(replace(case.training, device=self.device)).type  # type: ignore[arg-type]
        default = case.training.compile and device == "cuda"
        return replace(case.training, device=device, compile=default if self.compile is None else self.compile)

    def result(self, case: Case) -> Path:
        return self.out / case.experiment / f"{case.name}.json"

    def run(self, case: Case) -> Path:
        """The folder of an unfinished run; each combination of settings has its own."""
        digest = hashlib.sha256(json.dumps(case.settings(), sort_keys=True).encode()).hexdigest()[:8]
        return self.out / case.experiment / ".runs" / f"{case.name}-{digest}"

    def model(self, case: Case) -> Path:
        """The folder of a finished run with its weights, if models are kept."""
        return self.out / case.experiment / "models" / case.name

    def trace(self, case: Case) -> Path:
        """The traceback of a failed run."""
        return self.run(case).with_name(f"{case.name}.error.txt")

    def is_done(self, case: Case) -> bool:
        """Whether the case has a result, and no unfinished run that will replace it."""
        return self.result(case).exists() and not self.run(case).exists()


def repeat(cases: Sequence[Case], place: Place) -> None:
    """Begin the cases again: each gets an empty folder of a run, and keeps its result until that run is measured."""
    with ExitStack() as locks:  # all of them, before anything changes
        for case in cases:
            place.run(case).parent.mkdir(parents=True, exist_ok=True)
            locks.enter_context(alone(place.run(case)))
        for case in cases:
            remove(place.run(case))
            place.run(case).mkdir()


def perform(case: Case, place: Place, watch: Watch | None = None) -> bool:
    """Train, measure, and write the JSON. An interrupted run is continued. Returns False if the case is done.

    A non-finite loss is a result; other errors are raised. `Busy` is raised if another process has this case.
    """
    folder, path = place.run(case), place.result(case)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if place.is_done(case):  # by another process after this one started
            return False
        row, arrays = measured(case, place, folder, watch)
        new = path.with_name(f".{case.name}.new")  # an earlier result stays until the new one is written
        remove(new)
        new.mkdir()
        write_json(new / "json", row)
        if arrays:
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **arrays)
            write_whole(new / "npz", content.getvalue())
        if row.get("scores") and (place.keep_models or case.world in place.keep_worlds):
            shutil.copytree(folder, new / "model", ignore=shutil.ignore_patterns("checkpoint"))
        for name, target in (("npz", path.with_suffix(".npz")), ("model", place.model(case)), ("json", path)):
            _replace(new / name, target)
        remove(new)
        shutil.rmtree(folder)
        place.trace(case).unlink(missing_ok=True)
    return True


def _replace(source: Path, target: Path) -> None:
    """Put a file or a folder in the place of an earlier one, which is removed even if there is no new one."""
    if target.is_dir() or not source.exists():
        remove(target)
    if source.exists():
        target.parent.mkdir(exist_ok=True)
        os.replace(source, target)


@singledispatch
def measured(
    case: Case, place: Place, folder: Path, watch: Watch | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Train and measure; returns the JSON and the arrays stored with it. Other kinds of cases register a function."""
    config = place.training(case)
    device = training_device(config)
    data = training_data(case, place.data, device)
    test, reference = held_back(case, place.data)
    resumed_at = steps_done(folder)
    scores, facts, arrays = {}, {}, {}
    if config.compile:  # cases that share a process are compiled separately
        torch._dynamo.config.recompile_limit = 64
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the JSON holds the findings
            model = fit(
                data,
                out=folder,
                encoder=case.encoder,
                training=config,
                test=test.subset(slice(0, min(case.watched_triples, len(test)))),
                resume=(folder / RUN).exists(),
                progress=False,
                watch=watch,
                **case.fit,
            )
            scores = _rounded(evaluate(model, test, reference=reference).as_dict())
            facts = {"vitals": _rounded(model.model.vitals()), "findings": model.facts["findings"]}
            seconds = time.monotonic() - began
            arrays = samples(case, model, test)
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
        "resumed_at": resumed_at,  # `seconds` starts at this step
        "settings": case.settings(),
        "threads": torch.get_num_threads(),
        **provenance(device),
    }
    return row, arrays


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}
