"""Damaged files of triples: an error names the file, or the content is unchanged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions

ROWS = 1500  # more than one chunk of each column


def everything(path: Path) -> list[bytes]:
    with Labelled.open(path) as labelled:
        rows = labelled.transitions.rows(slice(None))
        attributes = repr(sorted(labelled.transitions.attributes.items())).encode()
        return [x.numpy().tobytes() for x in (*rows, *labelled.truth.known().values())] + [attributes]


def what_is_read(path: Path, read: Callable[[Path], Any] = everything) -> Any:
    """None if a ValueError names the file; other errors are raised."""
    try:
        return read(path)
    except ValueError as error:
        if str(path) in str(error):
            return None
        raise


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    o = random.integers(0, 256, (2, ROWS, 3, 8, 8), dtype=np.uint8)
    places = torch.from_numpy(random.random((ROWS, 2), np.float32))
    attributes = {"environment": "mine", "share": 0.5, "note": ""}
    action = random.random((ROWS, 2))
    triples = Transitions(observation=o[0], action=action, next_observation=o[1], attributes=attributes)
    path = tmp_path_factory.mktemp("good") / "log.h5"
    Labelled(triples, Truth(places, places + 1)).save(path)
    return path


@pytest.mark.parametrize("kind", ["bit", "zeros"])
@pytest.mark.slow
def test_anywhere(good: Path, tmp_path: Path, kind: str) -> None:
    """Headers, indices, rows of o, a and o', true states, attributes."""
    content, whole, found = good.read_bytes(), everything(good), 0
    places = [*range(0, 6000, 61), *range(6000, len(content), len(content) // 60)]
    for at in places:
        damaged = bytearray(content)
        damaged[at : at + 64] = bytes(64) if kind == "zeros" else [damaged[at] ^ 16, *damaged[at + 1 : at + 64]]
        path = tmp_path / "log.h5"
        path.write_bytes(damaged[: len(content)])
        read = what_is_read(path)
        assert read in (None, whole), f"unnoticed at {at}"
        found += read is None
    assert found > len(places) / 2


@pytest.mark.parametrize("name", ["observation", "next_observation"])
def test_the_error_names_the_rows(good: Path, tmp_path: Path, name: str) -> None:
    path, content = tmp_path / "log.h5", bytearray(good.read_bytes())
    with h5py.File(good) as file:
        step, chunk = file[name].chunks[0], file[name].id.get_chunk_info(2)
    content[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(content)
    with Transitions.open(path) as stored:  # pictures are read when they are needed
        stored.rows(slice(0, 2 * step))
        with pytest.raises(
            ValueError, match=rf"rows {2 * step} to {3 * step - 1} cannot be read from .*log\.h5, which is"
        ):
            stored.rows(slice(None))


@pytest.mark.slow
def test_the_error_names_files_of_others(tmp_path: Path) -> None:
    """They have no checksums, so not all damage is detected."""
    path, random = tmp_path / "log.h5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["observation"] = file["next_observation"] = random.random((50, 4))
        file["action"] = random.random((50, 2))
    content, found = path.read_bytes(), 0
    for at in range(0, 4000, 24):
        path.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])
        found += what_is_read(path, Transitions.open) is None
    assert found > 16
