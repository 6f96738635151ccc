"""Sub-steps of the moves in a log: the path leads through the positions that divide a stride."""

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from written import CAMERAS, Truth, truth, write_lerobot

from palpate.config import ObjectiveConfig
from palpate.data.logs.log import LogOptions
from palpate.data.transitions import Transitions
from palpate.groups import group_of_actions

LENGTHS = (20, 9, 13)  # the last strides are not full


@pytest.fixture
def log() -> Truth:
    return truth(LENGTHS, CAMERAS[:1], side=16)


def read(tmp_path: Path, log: Truth, **options: Any) -> Transitions:
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    return Transitions.from_lerobot(folder, **{"position": "observation.state[:2]"} | options)


@pytest.mark.parametrize(("stride", "parts"), [(4, 2), (4, 4), (6, 3), (3, 1)])
def test_displacements_of_the_parts(tmp_path: Path, log: Truth, stride: int, parts: int) -> None:
    triples = read(tmp_path, log, stride=stride, substeps=parts)
    _, _, row = log.pairs(stride)
    corners = np.stack([log.state[row + part * stride // parts, :2] for part in range(parts + 1)], 1)
    expected = np.diff(corners.astype(float), axis=1)
    assert triples.action_shape == ((parts, 2) if parts > 1 else (2,))
    np.testing.assert_allclose(triples.action.view(len(row), parts, 2), expected, atol=1e-6)
    found = triples.log_rows
    assert found is not None
    np.testing.assert_array_equal(found[2], row)


@pytest.mark.parametrize("parts", [1, 2])
def test_only_rows_on_a_path_are_computed(tmp_path: Path, log: Truth, parts: int) -> None:
    """Rows after the last whole stride of an episode may be anything, such as an arm that was switched off."""
    _, _, row = log.pairs(4)
    needed = np.unique(row[:, None] + np.arange(parts + 1) * 4 // parts)
    assert int(log.lengths[0]) - 1 not in needed

    def forward(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        np.testing.assert_array_equal(values, log.state[needed, :2])
        return np.pad(values, ((0, 0), (0, 1))), np.tile(np.eye(3), (len(values), 1, 1))

    assert len(read(tmp_path, log, stride=4, substeps=parts, kinematics=forward)) == len(row)


def test_parts_of_moves_along_the_agents_own_axes(tmp_path: Path, log: Truth) -> None:
    """Together they are the whole move, and each begins with the heading at which the one before it ends."""
    options = {"position": "observation.state", "group": "se2", "stride": 4}
    whole, parts = read(tmp_path, log, **options), read(tmp_path / "again", log, **options, substeps=2)
    group = group_of_actions(parts.action_shape, ObjectiveConfig(group="se2"))
    composed = group.complete(parts.action.double()) - whole.action
    turn = (composed[:, 2] + torch.pi) % (2 * torch.pi) - torch.pi
    assert composed[:, :2].abs().max() < 1e-5
    assert turn.abs().max() < 1e-5
    _, _, row = log.pairs(4)
    step, heading = (log.state[row + 4] - log.state[row + 2]).astype(float), log.state[row + 2, 2].astype(float)
    ahead = np.cos(heading) * step[:, 0] + np.sin(heading) * step[:, 1]
    np.testing.assert_allclose(parts.action[:, 3], ahead, atol=1e-5)


@pytest.mark.parametrize("parts", [0, 2.0, True])
def test_numbers_of_parts_that_are_none(parts: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"substeps is {parts!r}; allowed are whole numbers from 1")):
        LogOptions(position="state", substeps=parts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stride": 6, "substeps": 4}, "substeps is 4; allowed with stride 6 is 1 or 2 or 3 or 6"),
        ({"substeps": 2}, "substeps is 2; allowed with stride 1 is 1"),
    ],
)
def test_parts_that_do_not_divide_the_stride(tmp_path: Path, log: Truth, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        read(tmp_path, log, **options)


def test_an_own_function_of_minari_makes_no_parts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="substeps, kinematics, site and group need position"):
        Transitions.from_minari(str(tmp_path), substeps=2)


@pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
def test_the_commands_read_the_parts(command: Any, tmp_path: Path) -> None:
    """A run records them, so that `encode` reads the log as the run did."""
    folder = write_lerobot(tmp_path / "log", truth((60, 50, 40), CAMERAS[:1], side=16), stored="PNG")
    reading = ["--position", "observation.state[:2]", "--stride", 4, "--substeps", 2]
    short = ["--steps", 2, "--batch-size", 8, "--device", "cpu"]
    code, _, err = command("train", "--data", folder, *reading, *short, "--out", tmp_path / "run")
    assert code == 0, err
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["substeps"] == 2
    code, out, err = command("encode", folder, "--model", tmp_path / "run", "--out", tmp_path / "table.npz")
    assert code == 0, err
    assert "substeps 2" in out
    assert "palpate.contact" in out
    again = ["--substeps", 2, "--out", tmp_path / "again.npz"]  # the stride is then the run's
    code, out, err = command("encode", folder, "--model", tmp_path / "run", *again)
    assert code == 0, err
    code, _, err = command("encode", folder, "--model", tmp_path / "run", "--substeps", 3, "--out", tmp_path / "no.npz")
    assert code == 2
    assert "substeps is 3; allowed with stride 4 is 1 or 2 or 4" in err
