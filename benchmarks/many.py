"""Many independent runs of one benchmark in processes of one thread each; all of them in one file, `runs.json`."""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import palpate
from palpate.disk import write_whole
from palpate.reproduce.provenance import commit

Settings = dict[str, Any]


def command_line(doc: str | None, *, draws: bool = True) -> argparse.ArgumentParser:
    """A parser with the benchmark's help: an action if the benchmark also draws, the folder, and the processes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if draws:
        parser.add_argument("action", choices=("run", "draw"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    return parser


def fitted(data: Any, **settings: Any) -> tuple[palpate.Representation, dict[str, Any]]:
    """The model of `palpate.fit` on the CPU; its verdict and findings, and how long it took."""
    start, cpu = time.monotonic(), time.process_time()
    with warnings.catch_warnings(action="ignore"):  # findings are kept
        model = palpate.fit(data, device="cpu", progress=False, **settings)
    return model, {
        "verdict": model.facts["quality"]["verdict"],
        "findings": [finding["name"] for finding in model.facts["findings"]],
        "seconds": round(time.monotonic() - start),
        "cpu_seconds": round(time.process_time() - cpu),
    }


def runs(out: Path) -> list[dict[str, Any]]:
    """The finished runs: what they found, and their settings as "settings"."""
    path = out / "runs.json"
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def make(out: Path, wanted: list[Settings], run: Callable[[Settings], dict[str, Any]], jobs: int) -> None:
    """Make the runs that are missing. A run is kept as soon as it is finished."""
    out.mkdir(parents=True, exist_ok=True)
    found = runs(out)
    done = [one["settings"] for one in found]
    left = [settings for settings in wanted if settings not in done]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting = {pool.submit(run, settings): settings for settings in left}
        for future in as_completed(waiting):
            one = {"settings": waiting[future], **future.result()}
            found.append(one)
            about = {"commit": commit(), "torch": torch.__version__}
            write_whole(out / "runs.json", (json.dumps({**about, "runs": found}, indent=1) + "\n").encode())
            print(json.dumps(one), flush=True)
