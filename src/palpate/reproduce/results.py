"""The JSON files of runs.

A run that diverged has no scores. It counts as a failure, with an infinite L_test.
"""

import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palpate.disk import from_json, write_whole
from palpate.reproduce.presets import listed
from palpate.reproduce.statistics import Array

FORMAT = 1
FAILED = 0.02  # a run has failed if its L_test is above this share of the constant predictor's

# Fields that tables and figures need, of all runs, of policies and of the others.
FIELDS = ("experiment", "seed", "curve", "hardware", "torch", "commit")
OF_POLICIES = ("representation", "final", "random")
OF_OTHERS = ("world", "method", "preset", "scores", "seconds", "resumed_at")

Row = Mapping[str, Any]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The runs whose JSON lies in `folder`. Runs of another format are left out with a warning; other JSON files are
    skipped."""
    rows, others = [], []
    for path in sorted(folder.glob("*.json")):
        row = read_json(path)
        if not isinstance(row, dict) or not {"format", "experiment"} & row.keys():
            continue
        if row.get("format") != FORMAT:
            others.append(path.name)
            continue
        fields = (*FIELDS, *(OF_POLICIES if row.get("experiment") == "control" else OF_OTHERS))
        _require_names(path, row, fields)
        rows.append(row)
    if others:
        warnings.warn(
            f"{len(others)} of the results in {folder} have another format, such as {others[0]}, and are left out; "
            "repeat their runs (--force)",
            stacklevel=2,
        )
    return rows


def read_json(path: Path) -> Any:
    try:
        return from_json(path.read_bytes())
    except ValueError as error:
        raise _damaged(path, error) from error


def read_arrays(path: Path, *names: str) -> dict[str, Array]:
    """The arrays stored with a JSON; those with these names must be among them."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise _damaged(path, error) from error
    _require_names(path, arrays, names)
    return arrays


def _require_names(path: Path, found: Mapping[str, Any], names: Iterable[str]) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise _damaged(path, f"{missing[0]!r} is missing")


def _damaged(path: Path, why: object) -> ValueError:
    return ValueError(f"{path} is damaged ({why}); delete it, and repeat the run")


def write_json(path: Path, content: Any) -> None:
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Runs by world and method, in the order of their experiment; unknown names come last."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_order):
        groups.setdefault((row["world"], row["method"]), []).append(row)
    return groups


def _order(row: Row) -> tuple[int, ...]:
    names = zip((row["world"], row["method"]), listed(row["experiment"]), strict=True)
    return (*(known.index(name) if name in known else len(known) for name, known in names), row["seed"])


def l_tests(rows: Iterable[Row]) -> Array:
    return np.array([row["scores"].get("l_test", math.inf) for row in rows], dtype=float)
