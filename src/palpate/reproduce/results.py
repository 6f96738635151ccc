"""The JSON files of runs.

A run that diverged has no scores. It counts as a failure, with an infinite L_test.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palpate.disk import write_whole
from palpate.reproduce.presets import listed
from palpate.reproduce.statistics import Array

FORMAT = 1
FAILED = 0.02  # a run has failed if its L_test is above this share of the constant predictor's

Row = Mapping[str, Any]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The runs whose JSON lies in `folder`; other JSON files are skipped."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); delete it, and repeat the run") from error
        if isinstance(row, dict) and row.get("format") == FORMAT:
            rows.append(row)
    return rows


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
