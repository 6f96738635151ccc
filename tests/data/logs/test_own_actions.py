"""`check` says what a log's own actions are: of folders and files whose actions are known."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_kinematics import arm
from written import CAMERAS, FPS, Truth, truth, write_lerobot, write_minari, write_robomimic, write_zarr

import palpate
from palpate.data.logs.log import LogOptions, open_log
from palpate.data.logs.robomimic import Robomimic
from palpate.data.transitions import Transitions
from palpate.findings import Finding

LENGTHS = (60, 50, 70)
POSITION = "observation.state[:2]"


def smooth() -> np.ndarray:
    """Three numbers of each row, which move as a person moves an arm."""
    rng, parts = np.random.default_rng(0), []
    for length in LENGTHS:
        time = np.arange(length)[:, None, None]
        speed, phase = rng.uniform(0.05, 0.3, (2, 3, 4))
        parts.append(np.sin(speed * time + 20 * phase).sum(2) / 3)
    return np.concatenate(parts).astype(np.float32)


STATE = smooth()
ENDS = np.cumsum(LENGTHS)


def later(values: np.ndarray, rows: int) -> np.ndarray:
    """The values so many rows later; an episode's last values stay."""
    parts = np.split(values, ENDS[:-1])
    return np.concatenate([np.append(part[rows:], np.repeat(part[-1:], rows, 0), 0) for part in parts])


def log(action: np.ndarray) -> Truth:
    """With small pictures, of which the note takes no notice."""
    return truth(LENGTHS, CAMERAS[:1], side=8)._replace(state=STATE, action=action.astype(np.float32))


def noted(triples: Transitions) -> Finding | None:
    found = [finding for finding in palpate.check(triples, probe=False).findings if finding.severity == "note"]
    assert len(found) <= 1
    assert all(finding.name == "own-actions" for finding in found)
    return found[0] if found else None


def folder(path: Path, action: np.ndarray, **options: object) -> Finding:
    made = write_lerobot(path / "log", log(action), stored="PNG")
    found = noted(open_log(made, LogOptions(**({"position": POSITION} | options))))  # type: ignore[arg-type]
    assert found is not None
    return found


CHANGE = later(STATE, 1) - STATE
NOISE = np.random.default_rng(1).normal(size=STATE.shape)


@pytest.mark.parametrize(
    ("action", "says", "frames", "times"),
    [
        (later(STATE, 3)[:, :2], "'action', are targets of the position: values to reach", 3, 1),
        (later(STATE, 1)[:, :2] + 0.02 * NOISE[:, :2], "are targets of the position", 1, 1),
        (57.3 * later(STATE, 2)[:, :2], "are targets of the position", 2, 57.3),
        (later(STATE, 2), "are targets of the position", 2, 1),  # of the whole state; the first two are compared
        (CHANGE[:, :2], "'action', are the displacements", 0, 1),
        (later(CHANGE, 2)[:, :2], "are the displacements", 2, 1),
        (FPS * CHANGE[:, :2], "are velocities of the position, in units per second", 0, FPS),
        (3 * CHANGE[:, :2], "are commands: changes of the position times a factor", 0, 3),
        (3 * CHANGE[:, :2] + 0.2 * NOISE[:, :2], "are roughly commands: changes of the position", 0, 3),
        (NOISE[:, :2], "'action', follow neither the position nor its changes", None, None),
        (np.ones((len(STATE), 2)), "follow neither", None, None),
    ],
)
def test_a_folder(tmp_path: Path, action: np.ndarray, says: str, frames: int | None, times: float | None) -> None:
    found = folder(tmp_path, action)
    assert says in found.what
    assert "palpate does not use them" in found.advice
    if frames is not None and times is not None:
        assert found.evidence["frames later"] == frames
        assert found.evidence["times"] == pytest.approx(times, rel=0.05)


def test_a_stride_changes_nothing(tmp_path: Path) -> None:
    assert folder(tmp_path, CHANGE[:, :2], stride=5).evidence["times"] == pytest.approx(1)


def test_joint_commands(tmp_path: Path) -> None:
    """The state is joint angles, the position that of the hand."""
    found = folder(tmp_path, later(STATE, 2), position="observation.state", kinematics=arm(tmp_path), site="tip")
    assert "are targets of the joints" in found.what
    assert found.evidence["frames later"] == 2


def test_joint_commands_of_another_column(tmp_path: Path) -> None:
    joints = np.hstack((STATE, np.flip(STATE, 1), STATE[:, :1] ** 2))
    path = write_robomimic(tmp_path / "demo.hdf5", log(later(joints, 1)))
    with h5py.File(path, "a") as file:
        for number, rows in enumerate(np.split(joints, ENDS[:-1])):
            file[f"data/demo_{number}/obs/joints"] = rows
            file[f"data/demo_{number}/obs/place"] = NOISE[: len(rows)]
    found = noted(open_log(path, LogOptions(position="place[:2]", observation="top_image")))
    assert found is not None
    assert "'actions', are targets of 'obs/joints': values to reach" in found.what


def test_columns_of_other_widths_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds of points may be larger than the memory."""
    path = write_robomimic(tmp_path / "demo.hdf5", log(STATE))
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            demo["obs/cloud"] = np.zeros((len(demo["actions"]), 500, 3))
    triples = open_log(path, LogOptions(position="robot0_eef_pos[:2]", observation="top_image"))
    read = []
    numbers = Robomimic.numbers
    monkeypatch.setattr(Robomimic, "numbers", lambda self, name: read.append(name) or numbers(self, name))
    assert noted(triples) is not None
    assert "actions" in read
    assert "obs/cloud" not in read


@pytest.mark.parametrize("write", [write_robomimic, write_zarr, write_minari])
@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_other_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, Truth], Path]) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    name = {write_robomimic: "demo.hdf5", write_zarr: "log.zarr"}.get(write, "push-v0")
    position = {write_robomimic: "robot0_eef_pos[:2]", write_zarr: "state[:2]"}.get(write, "place[:2]")
    action = CHANGE if write is write_robomimic else CHANGE[:, :2]  # Minari's have no last row
    camera = {write_robomimic: "top_image", write_zarr: "img"}.get(write, "top")
    path = write(tmp_path / name, log(action))
    found = noted(open_log(path, LogOptions(position=position, observation=camera)))
    assert found is not None
    assert "are the displacements" in found.what
    assert found.evidence["times"] == pytest.approx(1, rel=1e-3)


def test_no_note(tmp_path: Path) -> None:
    """On files of triples, parts of a log, actions that cannot be compared, logs without them, and lost logs."""
    path = write_robomimic(tmp_path / "demo.hdf5", log(CHANGE))
    triples = open_log(path, LogOptions(position="robot0_eef_pos[:2]"))
    assert noted(triples) is not None
    assert noted(triples.subset(range(50))) is None
    triples.save(tmp_path / "log.h5")
    with Transitions.open(tmp_path / "log.h5") as saved:
        assert noted(saved) is None
    with h5py.File(path, "a") as file:
        for number in range(3):
            del file[f"data/demo_{number}/actions"]
            file[f"data/demo_{number}/actions"] = np.ones((LENGTHS[number], 1))
    assert noted(triples) is None
    with h5py.File(path, "a") as file:
        del file["data/demo_1/actions"]
    assert noted(triples) is None
    path.unlink()
    assert noted(triples) is None


def test_the_note_comes_last_and_blocks_nothing(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "demo.hdf5", log(CHANGE))
    checkup = palpate.check(open_log(path, LogOptions(position="robot0_eef_pos[:2]")), probe=False)
    assert [finding.severity for finding in checkup.findings][-1] == "note"
    assert "\nnote: own-actions: the log's own actions, 'actions', are the displacements (explained 1," in str(checkup)
