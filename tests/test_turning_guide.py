"""The guide to robots that turn: its Python runs, shortened, and its formula is the group's."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from palpate.doctor.arrays import ARRAY_RULES
from palpate.doctor.frames import WORDS
from palpate.groups.se2 import SE2

GUIDE = (Path(__file__).parent.parent / "docs" / "guide" / "turning.md").read_text(encoding="utf-8")
MOVES, USE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.slow
def test_the_python_runs(tmp_path: Path) -> None:
    short = USE.replace("steps=600", "steps=3").replace("4000", "400").replace("1000", "100")
    short = short.replace('group="se2"))', 'group="se2", probe=False))')
    done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("no blocking problems (arrays alone", "heading error (rad)", "L_test, seen by the agent"):
        assert said in done.stdout


def test_moves_are_computed_from_poses() -> None:
    room: dict[str, Any] = {}
    exec(MOVES, room)
    pose = np.random.default_rng(0).normal(size=(50, 3)) * (1, 1, 3)
    group, z = SE2(), SE2().posed(torch.from_numpy(pose))
    assert_close(torch.from_numpy(room["moves"](pose)), group.between(z[:-1], z[1:]))


def test_the_findings_are_those_of_the_code() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \|", GUIDE, re.MULTILINE))
    assert named == {name for name, _, _ in WORDS.values()} | {"never-turns"}
    assert "never-turns" in {rule.name for rule in ARRAY_RULES}
