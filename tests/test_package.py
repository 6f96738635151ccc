"""The wheel: what a user installs is complete, and works without the source tree."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import palpate

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_works_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob(f"palpate-{palpate.__version__}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "palpate").rglob("*.py")}
    assert modules | {"palpate/py.typed"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    code = "import palpate, palpate.cli, sys; print(palpate.__file__); palpate.cli.main()"
    how = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(tmp_path / "site")}}
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True, **how)
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert "usage: palpate VERB [options]" in done.stdout
