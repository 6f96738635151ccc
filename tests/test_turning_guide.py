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

from palpate.data.transitions import Transitions
from palpate.doctor.arrays import ARRAY_RULES
from palpate.doctor.frames import WORDS
from palpate.groups.se2 import SE2
from palpate.groups.se3 import SE3

GUIDE = (Path(__file__).parent.parent / "docs" / "guide" / "turning.md").read_text(encoding="utf-8")
MOVES, USE, PARTS, MOTIONS, IN_SPACE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


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
    exec(PARTS, room)
    parts = torch.from_numpy(room["sub_steps"](pose, 4))
    assert parts.shape == (12, 4, 3)
    whole = group.act(z[:48:4], group.compose(parts))
    assert_close(whole, z[4:49:4])


@pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
def test_the_python_in_space_runs(capsys: pytest.CaptureFixture[str]) -> None:
    group, draw = SE3(), torch.Generator().manual_seed(0)
    moves = 0.5 * torch.randn(60, 6, generator=draw, dtype=torch.float64)
    z = group.travelled(moves, torch.zeros(60, dtype=torch.long))
    pose = np.tile(np.eye(4), (60, 1, 1))
    pose[:, :3, 3], pose[:, :3, :3] = group.position(z), group.rotation(z)
    observation = torch.randn(60, 8, generator=draw)
    room: dict[str, Any] = {"pose": pose, "observation": observation}
    exec(MOTIONS, room)
    made = Transitions(observation=observation[:-1], action=room["motions"](pose), next_observation=observation[1:])
    assert_close(group.act(z[:-1], made.action.double()), z[1:], atol=1e-5, rtol=0)
    short = IN_SPACE.replace('(log, group="se3")', '(log, group="se3", steps=2, device="cpu", progress=False)', 2)
    exec(
        short.replace('check(log, group="se3", steps=2, device="cpu", progress=False)', 'check(log, group="se3")'), room
    )
    assert room["rep"].rotation.shape == (60, 3, 3)
    assert "too-few" in capsys.readouterr().out


def test_the_findings_are_those_of_the_code() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \|", GUIDE, re.MULTILINE))
    assert named == {name for name, _, _ in WORDS.values()} | {"never-turns"}
    assert "never-turns" in {rule.name for rule in ARRAY_RULES}
