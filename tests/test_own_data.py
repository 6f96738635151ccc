"""The guide to one's own arrays: its Python runs, shortened, its command lines are understood, its findings exist."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from palpate.doctor import causes, demonstrations, frames, several, verdict
from palpate.doctor.arrays import ARRAY_RULES
from palpate.findings import Rule

GUIDE = (Path(__file__).parent.parent / "docs" / "guide" / "own-data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.slow
def test_the_python_runs(tmp_path: Path) -> None:
    short = "\n".join(blocks("python")).replace("steps=200", "steps=3").replace("2_000", "400")
    short = short.replace("palpate.check(data)", "palpate.check(data, probe=False)")
    assert short.count("steps=3)") == 1
    done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no blocking problems" in done.stdout
    assert "980 triples" in done.stdout
    assert "encoder mlp: observations are 4 numbers" in done.stderr
    assert "L_test" in done.stdout
    assert (tmp_path / "known.h5").exists()
    assert (tmp_path / "runs" / "own" / "model.safetensors").exists()


TABLE = GUIDE.split("| finding | meaning |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
PROBE_RULES = [
    rule for room in (verdict, demonstrations, several) for rule in vars(room).values() if isinstance(rule, Rule)
]
CAUSES = {name for room in (causes, frames) for name, _, _ in room.WORDS.values()}  # what the actions are; they block


def findings(rows: list[str]) -> dict[str, bool]:
    """The findings in rows of the table, and whether each has the mark *b*."""
    return {name: bool(mark) for name, mark in re.findall(r"`([a-z]+(?:-[a-z]+)*)`( \*b\*)?", "\n".join(rows))}


def can_block(rule: Rule) -> bool:
    bounds = (rule.above or (0, math.inf))[1], (rule.below or (0, -math.inf))[1]
    return rule.above is rule.below is None or any(map(math.isfinite, bounds))  # without bounds, `judge` decides


def test_the_guide_lists_all_findings_and_marks_those_that_block() -> None:
    expected = {rule.name: can_block(rule) for rule in (*ARRAY_RULES, *PROBE_RULES)}
    notes = {"own-actions": False, "objects-not-counted": False, "carried-scanner": False}
    assert findings(TABLE) == expected | dict.fromkeys(CAUSES, True) | notes


def test_the_last_rows_need_the_training_run() -> None:
    assert "Those from `not-displacements` on need the training run." in GUIDE
    first = next(i for i, row in enumerate(TABLE) if "`not-displacements`" in row)
    assert set(findings(TABLE[first:])) == {rule.name for rule in PROBE_RULES} | CAUSES | {
        "objects-not-counted",
        "carried-scanner",
    }
