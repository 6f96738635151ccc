"""One run from beginning to end: its data, the training, the measurement, and the JSON that is left of it."""

import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import palpate
from palpate.api import evaluate, fit
from palpate.config import TrainingConfig
from palpate.disk import alone, write_whole
from palpate.reproduce.presets import Case
from palpate.reproduce.results import FORMAT
from palpate.reproduce.samples import samples
from palpate.reproduce.sets import held_back, training_data
from palpate.runlog import read_log
from palpate.training.loop import NonFiniteLoss, steps_done, training_device

Watch = Callable[[int, dict[str, float]], None]
COMPILED_VARIANTS = 64


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where runs are made, and where they leave what."""

    out: Path
    data: Path  # folder of sets that are collected once
    device: str = "auto"
    compile: bool | None = None  # None: as the preset says, on a GPU
    keep_models: bool = False
    keep_worlds: tuple[str, ...] = ()  # those whose models are kept anyway

    def keeps(self, case: Case) -> bool:
        return self.keep_models or case.world in self.keep_worlds

    def training(self, case: Case) -> TrainingConfig:
        config = replace(case.training, device=self.device)  # type: ignore[arg-type]
        gpu = training_device(config).type == "cuda"
        return replace(config, compile=(config.compile and gpu) if self.compile is None else self.compile)

    def result(self, case: Case) -> Path:
        return self.out / case.experiment / f"{case.name}.json"

    def run(self, case: Case) -> Path:
        """The folder of the run as long as it is under way; other settings have another."""
        return self.out / case.experiment / ".runs" / f"{case.name}-{case.digest()}"

    def model(self, case: Case) -> Path:
        """Where the finished run is put, with its weights, if models are kept."""
        return self.out / case.experiment / "models" / case.name

    def trace(self, case: Case) -> Path:
        """Why the run failed, if it did."""
        return self.run(case).with_name(f"{case.name}.error.txt")


def perform(case: Case, place: Place, watch: Watch | None = None) -> None:
    """Train, measure, and write the JSON; a run that was interrupted goes on where it stopped.

    A loss that is not finite is a result too, and a bad one. What else goes wrong is raised.
    """
    folder, path = place.run(case), place.result(case)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if path.exists():  # another process was faster
            return
        row, arrays = _measured(case, place, folder, watch)
        if arrays:
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **arrays)
            write_whole(path.with_suffix(".npz"), content.getvalue())
        shutil.rmtree(place.model(case), ignore_errors=True)  # of an earlier run
        if place.keeps(case) and row["scores"]:
            shutil.copytree(folder, place.model(case), ignore=shutil.ignore_patterns("checkpoint"))
        write_whole(path, (json.dumps(row, indent=1, allow_nan=False) + "\n").encode())
        shutil.rmtree(folder)
        place.trace(case).unlink(missing_ok=True)


def _measured(
    case: Case, place: Place, folder: Path, watch: Watch | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    config = place.training(case)
    device = training_device(config)
    data = training_data(case, place.data, device)
    test, reference = held_back(case, place.data)
    clock = Clock(watch)
    resumed_at = steps_done(folder)
    scores, facts, arrays = {}, {}, {}
    if config.compile:  # runs of several methods and worlds share a process, and each needs code of its own
        torch._dynamo.config.recompile_limit = COMPILED_VARIANTS
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # findings are kept in the JSON
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
            arrays = samples(case, model, test, reference, everything=case.source == "shared")
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
        "resumed_at": resumed_at,  # after an interruption: the step from which on the seconds count
        "settings": case.settings(),
        "device": device.type,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "palpate": palpate.__version__,
        "commit": commit(),
    }
    return row, arrays


class Clock:
    """Times the steps by the run's readings, and passes them on."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self._last: tuple[int, float] | None = None
        self._each: list[tuple[bool, float]] = []  # whether an evaluation fell into it, and seconds a step

    def __call__(self, step: int, readings: dict[str, float]) -> None:
        if self._last is not None:
            seconds, steps = time.monotonic() - self._last[1], step - self._last[0]
            self._each.append(("l_test" in readings, seconds / steps))
        if self._watch:
            self._watch(step, readings)
        self._last = step, time.monotonic()

    def ms_per_step(self) -> float | None:
        """Median over the second half of the run: compilation and kernels' choice lie in the first."""
        late = self._each[len(self._each) // 2 :]
        pure = [each for evaluated, each in late if not evaluated] or [each for _, each in late]
        return round(statistics.median(pure) * 1e3, 2) if pure else None


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


@cache
def commit() -> str:
    """Of this package's own source; installed from elsewhere it has none."""
    folder = Path(palpate.__file__).parent

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        return done.stdout.strip()

    tracked = git("ls-files", "--error-unmatch", "__init__.py")
    return (git("describe", "--always", "--dirty", "--exclude", "*") if tracked else "") or "unknown"


@cache
def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"
