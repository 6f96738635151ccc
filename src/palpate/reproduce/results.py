"""The JSON files of runs, and their summary over seeds: medians, interquartile means, failures, wall-clock.

A run that diverged has no scores. It counts as a failure, with an infinite L_test.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palpate.disk import write_whole
from palpate.reproduce.presets import listed
from palpate.reproduce.statistics import Array, interquartile_mean, stratified_bootstrap

FORMAT = 1
FAILED = 0.02  # a run has failed if its L_test is above this share of the constant answer's
ALL_WORLDS = "all worlds"
COMPARED = ("sprites", "soccer")  # experiments that compare methods over several worlds

Row = Mapping[str, Any]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The runs whose JSON lies in `folder`; other JSON files are skipped."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); delete it, and the run is made again") from error
        if isinstance(row, dict) and row.get("format") == FORMAT:
            rows.append(row)
    return rows


def write_json(path: Path, content: Any) -> None:
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One method in one world over its seeds. All values are of L_test unless their name differs."""

    world: str
    method: str
    seeds: int
    median: float
    iqm: float
    interval: tuple[float, float] | None  # of the interquartile mean; one seed has none
    mean: float
    std: float | None
    failures: float  # share of the seeds
    to_supervised: float | None  # ratio of the medians
    agent_error: float | None  # median, as those below
    object_error: float | None
    seconds: float | None  # of runs that were not interrupted
    ms_per_step: float | None


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """One summary for each world and method; where methods are compared, also one for each method over all worlds.

    A summary over all worlds needs a method that was run in every world. It divides L_test by that of the constant
    answer, because worlds differ.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=order):
        groups.setdefault((row["world"], row["method"]), []).append(row)
    found = [
        _summary(world, method, group, [_l_test(group)], groups.get((world, "supervised")))
        for (world, method), group in groups.items()
    ]
    compared = [names for names, group in groups.items() if group[0]["experiment"] in COMPARED]
    worlds, methods = (list(dict.fromkeys(names)) for names in zip(*compared, strict=True)) if compared else ([], [])
    for method in methods if len(worlds) > 1 else []:
        if all((world, method) in groups for world in worlds):
            strata = [_relative(groups[world, method]) for world in worlds]
            everything = [row for world in worlds for row in groups[world, method]]
            found.append(_summary(ALL_WORLDS, method, everything, strata, None))
    return found


def _summary(
    world: str, method: str, rows: Sequence[Row], strata: list[Array], supervised: Sequence[Row] | None
) -> Summary:
    values = np.concatenate(strata)
    finite = bool(np.isfinite(values).all())
    many = len(values) > 1
    return Summary(
        world=world,
        method=method,
        seeds=len(values),
        median=float(np.median(values)),
        iqm=float(interquartile_mean(values)),
        interval=stratified_bootstrap(strata) if many else None,
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if many and finite else None,
        failures=float(np.mean(_relative(rows) > FAILED)),
        to_supervised=float(np.median(values) / np.median(_l_test(supervised))) if supervised else None,
        agent_error=median(row["scores"].get("agent_error") for row in rows),
        object_error=median(row["scores"].get("object_error") for row in rows),
        seconds=median(row["seconds"] for row in rows if not row["resumed_at"]),
        ms_per_step=median(row["ms_per_step"] for row in rows),
    )


def order(row: Row) -> tuple[int, ...]:
    """Sorts runs in the order of their experiment; unknown names come last."""
    worlds, methods = listed(row["experiment"])
    places = [
        names.index(name) if name in names else len(names)
        for name, names in ((row["world"], worlds), (row["method"], methods))
    ]
    return (*places, row["seed"])


def _l_test(rows: Sequence[Row]) -> Array:
    return np.array([row["scores"].get("l_test", math.inf) for row in rows], dtype=float)


def _relative(rows: Sequence[Row]) -> Array:
    """L_test as a share of what the constant answer scores."""
    constant = np.array([row["scores"].get("constant l_test", 1.0) for row in rows], dtype=float)
    return _l_test(rows) / constant


def median(values: Iterable[float | None]) -> float | None:
    """Of the values that are known."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
