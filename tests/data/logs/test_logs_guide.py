"""The guide to logs: its Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import palpate

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "logs.md").read_text(encoding="utf-8")


def test_the_python_runs(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Transitions(360 triples from" in done.stdout
    assert "[0 0 0 0 0 0 0 0 0 1 1 1] [ 0  5 10 15 20 25 30 35 40  0  5 10]" in done.stdout


def test_the_methods_exist() -> None:
    for name in re.findall(r"`(from_\w+)`", GUIDE):
        assert hasattr(palpate.Transitions, name)
