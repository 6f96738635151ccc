"""Minari data sets: where they are, and their episodes in memory."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from palpate.data.episodes import Episodes
from palpate.extras import demand

MAIN = "main_data.hdf5"  # of Minari's HDF5 storage; the others have a folder for each episode


def data_folder(path: Path) -> Path | None:
    """The folder with Minari's metadata and episodes: NAME/data for NAME, itself, or that of its main file."""
    for folder in (path / "data", path, *([path.parent] if path.name == MAIN else [])):
        if (folder / "metadata.json").exists() and ((folder / MAIN).exists() or (folder / "0").is_dir()):
            return folder
    return None


def read_minari(
    source: Any, observation: str | None, displacement: Callable[[Any], Any] | None, download: bool
) -> Episodes:
    """`source` is a data set, the name of one or its folder; see `Transitions.from_minari`."""
    if isinstance(source, str | os.PathLike):
        source = _loaded(source, download)
    seen, moved, length = [], [], []
    for episode in source.iterate_episodes():
        o = _chosen(episode.observations, observation)
        a = np.asarray(episode.actions if displacement is None else displacement(episode))
        if len(a) != len(o) - 1:
            raise ValueError(
                f"episode {episode.id} has {len(o)} observations and {len(a)} displacements; it needs {len(o) - 1}, "
                "one between two observations"
            )
        seen.append(o)
        moved.append(a)
        length.append(len(o))
    if not seen:
        raise ValueError("the data set has no episodes")
    return Episodes(np.concatenate(seen), np.concatenate(moved), np.cumsum(length) - 1)


def folder_of(source: Any, download: bool) -> Path:
    """The folder of a data set, of its name, or the folder itself."""
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"with position give the data set's name or folder; dataset is {source!r}")
    return Path(source) if data_folder(Path(source)) is not None else Path(_loaded(source, download).storage.data_path)


def _loaded(source: str | os.PathLike[str], download: bool) -> Any:
    minari = demand("minari", library="minari", extra="minari", needs="Minari data sets need minari")
    folder = data_folder(Path(source))
    return minari.load_dataset(str(source), download=download) if folder is None else minari.MinariDataset(folder)


def _chosen(observations: Any, name: str | None) -> np.ndarray:
    """The array of this name, `a/b` for a dictionary in a dictionary."""
    for part in name.split("/") if name else ():
        if not isinstance(observations, dict) or part not in observations:
            there = sorted(observations) if isinstance(observations, dict) else "one array"
            raise ValueError(f"observation is {name!r}; the data set's observations are {there}")
        observations = observations[part]
    if isinstance(observations, dict):
        raise ValueError(f"the data set's observations are {sorted(observations)}; select one with observation=")
    array = np.asarray(observations)
    return array if array.dtype == np.uint8 else array.astype(np.float32)
