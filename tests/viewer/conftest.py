"""A run that is good enough to look at: a few steps of a small model, and a file of labelled triples."""

import warnings
from pathlib import Path

import pytest

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.envs.registration import stream_world
from palpate.representation import Representation, load


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `run`, its data `log.h5`, and `stream`, a run on a streamed world."""
    folder = tmp_path_factory.mktemp("view")
    collect("palpate/Sprites-v0", 120, size=20, labelled=True, out=folder / "log.h5", progress=False)
    small = {"steps": 4, "batch_size": 16, "progress": False, "device": "cpu", "encoder": "small", "log_every": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of four steps nothing is learned
        fit(folder / "log.h5", out=folder / "run", test=folder / "log.h5", evaluate_every=2, **small)
        fit(stream_world("palpate/Sprites-v0", size=20), out=folder / "stream", **small)
    return folder


@pytest.fixture
def model(made_runs: Path) -> Representation:
    return load(made_runs / "run")
