"""Folders that lerobot itself wrote (recorded/README.md), against the scene that was given to it."""

from pathlib import Path

import numpy as np
import pytest
from recorded.write import FPS, HERE, IMAGE, LENGTHS, VIDEO, scene

import palpate
from palpate.data.logs.log import LogOptions, open_log
from palpate.data.transitions import Transitions

VERSIONS = ("v3", "v2.1")
LOSS = 3.5  # grey levels on average in a picture, of AV1 with lerobot's settings; the next frame differs by 20
POSITION = "observation.state[:2]"


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("camera", [VIDEO, IMAGE])
@pytest.mark.parametrize("version", VERSIONS)
def test_states_are_equal_and_pictures_nearly(version: str, camera: str, stride: int) -> None:
    triples = open_log(HERE / version, LogOptions(observation=camera, position=POSITION, stride=stride))
    assert triples.attributes["fps"] == FPS
    known = triples.log_rows
    assert known is not None
    starts = np.cumsum(LENGTHS) - LENGTHS
    expected = [
        (number, t, start + t)
        for number, (start, length) in enumerate(zip(starts, LENGTHS, strict=True))
        for t in range(0, length - stride, stride)
    ]
    np.testing.assert_array_equal(np.transpose(known), expected)
    state, _, pictures = (np.concatenate(each) for each in zip(*_plain(camera), strict=True))
    row = known[2]
    np.testing.assert_allclose(triples.action, state[row + stride, :2] - state[row, :2], atol=1e-6)
    batch = triples.rows(slice(None))
    for seen, rows in ((batch.o, row), (batch.o_next, row + stride)):
        off = np.abs(seen.numpy().astype(float) - pictures[rows].transpose(0, 3, 1, 2)).mean((1, 2, 3))
        assert off.max() <= (LOSS if camera == VIDEO else 0), off
    beside = np.abs(batch.o.numpy().astype(float) - pictures[row + 1].transpose(0, 3, 1, 2)).mean((1, 2, 3))
    assert beside.mean() > 4 * LOSS  # so a shift by a frame would be seen


def _plain(camera: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return [(state, action, pictures[camera]) for state, action, pictures in scene()]


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_are_read_exactly(version: str) -> None:
    """The whole state as observation, and the actions as positions."""
    triples = Transitions.from_lerobot(HERE / version, observation="observation.state", position="action")
    states = np.concatenate([state[:-1] for state, _, _ in scene()])
    np.testing.assert_array_equal(triples.rows(slice(None)).o, states)
    moved = np.concatenate([np.diff(action.astype(float), axis=0) for _, action, _ in scene()])
    np.testing.assert_allclose(triples.action, moved, atol=1e-7)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_video_and_pictures_become_views(version: str) -> None:
    triples = open_log(HERE / version, LogOptions(observation=f"{VIDEO},{IMAGE}", position=POSITION))
    assert (triples.views, triples.observation_shape[0]) == (2, 6)
    both = triples.rows(slice(None)).o.numpy().astype(float)
    assert np.abs(both[:, :3] - both[:, 3:, :, ::-1]).mean() < LOSS  # the second camera sees the first one's mirror


@pytest.mark.parametrize("version", VERSIONS)
def test_check(version: str) -> None:
    """Columns are listed as they were recorded, and a note says what the actions are."""
    with pytest.raises(ValueError, match=rf"{VIDEO} \(video 64x64x3, 10 fps\), {IMAGE} \(image 64x64x3\)"):
        open_log(HERE / version)
    triples = open_log(HERE / version, LogOptions(observation=IMAGE, position=POSITION))
    found = {finding.name: finding for finding in palpate.check(triples, probe=False).findings}
    assert found.keys() == {"too-few", "own-actions"}
    assert "'action', are targets of the position" in found["own-actions"].what
    assert found["own-actions"].evidence["frames later"] == 1


def test_the_folders_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(HERE).rglob("*") if path.is_file()) < 500_000
