"""A run that is good enough to look at: two steps of a small model, and a file of labelled triples."""

import functools
import tempfile
from pathlib import Path

import pytest

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.representation import Representation, load


@functools.cache
def made() -> Path:
    """A folder with the run `run`, its data `log.h5`, and `stream`, a run on a streamed world."""
    from palpate.envs.registration import stream_world

    folder = Path(tempfile.mkdtemp(prefix="palpate-view-"))
    collect("palpate/Sprites-v0", 120, size=20, labelled=True, out=folder / "log.h5", progress=False)
    small = {"steps": 4, "batch_size": 16, "progress": False, "device": "cpu", "encoder": "small", "log_every": 1}
    fit(folder / "log.h5", out=folder / "run", test=folder / "log.h5", evaluate_every=2, **small)
    fit(stream_world("palpate/Sprites-v0", size=20), out=folder / "stream", **small)
    return folder


@pytest.fixture
def made_runs() -> Path:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of four steps nothing is learned
        return made()


@pytest.fixture
def model(made_runs: Path) -> Representation:
    return load(made_runs / "run")
