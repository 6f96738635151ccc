"""The README's Python runs, shortened."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_the_python_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    short = code.replace("2_000", "200").replace("steps=100", "steps=3")
    assert short.count("200,") == 1
    assert short.count("steps=3,") == 1
    done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[[" in done.stdout
    assert (tmp_path / "runs" / "mine" / "model.safetensors").exists()
