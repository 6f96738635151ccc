"""The guide to one's own arrays: its Python runs, shortened, its command lines are understood, its findings exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from palpate.doctor import verdict
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


def test_the_guide_lists_all_findings() -> None:
    listed = set(
        re.findall(r"`([a-z]+(?:-[a-z]+)*)`", GUIDE.split("| finding |")[1].split("The triples cannot reveal")[0])
    )
    rules = [rule for rule in vars(verdict).values() if isinstance(rule, Rule)]
    assert listed == {rule.name for rule in (*ARRAY_RULES, *rules)} | {"shifted-actions"}
