"""The triples that runs learn from and are measured on."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palpate.api import HELD_OUT_MOST, HELD_OUT_SHARE
from palpate.collecting.collect import Progress, collect
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.registration import world
from palpate.envs.soccer.config import VERSION
from palpate.reproduce.presets import REFERENCE_SEED, TEST_SEED, Case
from palpate.workers import available_cores


def training_data(case: Case, folder: Path, device: torch.device) -> Any:
    """What `fit` takes: a world to stream from, triples, or for the supervised limit triples with their truth."""
    options = {"size": case.size, **case.options}
    if case.source == "stream":
        return world(case.env, device=device, **options)
    assert case.triples is not None
    if case.source == "shared":
        labelled = kept(set_path(case, folder, case.triples, 0), case.env, case.triples, 0, case.size)
    else:
        labelled = _gathered(case.source, case.env, case.triples, case.seed, **options)
    if case.fit.get("method") != "supervised":
        return labelled.transitions
    # The limit learns from the rows that the others learn from: `fit` holds out as many to choose their weights.
    return labelled.split(min(HELD_OUT_SHARE, HELD_OUT_MOST / len(labelled)), case.seed)[1]


def held_back(case: Case, folder: Path) -> tuple[Labelled, Labelled]:
    """Test and reference triples, the same for all seeds; as many contacts as the world has by default."""
    wanted = ((case.test_triples, TEST_SEED), (case.reference_triples, REFERENCE_SEED))
    if case.source == "shared":
        test, reference = (
            kept(set_path(case, folder, count, seed), case.env, count, seed, case.size) for count, seed in wanted
        )
    else:
        source = "vectors" if case.source == "vectors" else "set"
        test, reference = (_fresh(source, case.env, count, seed, case.size) for count, seed in wanted)
    return test, reference


@lru_cache(maxsize=6)
def _fresh(source: str, env: str, count: int, seed: int, size: int) -> Labelled:
    return _gathered(source, env, count, seed, size=size)


def _gathered(source: str, env: str, count: int, seed: int, **options: Any) -> Labelled:
    if source == "vectors":
        return mixtures(env, count, seed=seed, **options)
    return collect(env, count, seed=seed, labelled=True, **options)


def sets_on_disk(cases: Sequence[Case], folder: Path) -> dict[Path, tuple[str, int, int, int]]:
    """The files that these runs read, with environment, number of triples, seed and size of each."""
    return {
        set_path(case, folder, count, seed): (case.env, count, seed, case.size)
        for case in cases
        if case.source == "shared"
        for count, seed in (
            (case.triples or 0, 0),
            (case.test_triples, TEST_SEED),
            (case.reference_triples, REFERENCE_SEED),
        )
    }


def set_path(case: Case, folder: Path, count: int, seed: int) -> Path:
    """Named by all that its rows follow from, the world's version too: an older one's rows are not taken for these."""
    return folder / f"{case.env.split('/')[1]}.{VERSION}-{count}-{case.size}-{seed}.h5"


def gather(path: Path, env: str, count: int, seed: int, size: int, progress: Progress | None = None) -> None:
    """Collect a set into its file with all cores, unless it is there; goes on where it was stopped."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = Path(f"{path}.parts").exists()
    collect(
        env, count, seed=seed, out=path, workers=available_cores(), resume=begun, progress=progress, size=size
    ).close()


@lru_cache(maxsize=6)  # training, test and reference triples of both views
def kept(path: Path, env: str, count: int, seed: int, size: int) -> Labelled:
    """A set in memory, since reading it takes long and many runs learn from it."""
    gather(path, env, count, seed, size)
    with Labelled.open(path) as labelled:
        o, a, o_next = (x.numpy() for x in labelled.transitions.rows(slice(None)))
        truth = labelled.truth
    return Labelled(Transitions(observation=o, action=a, next_observation=o_next, layout="channel-first"), truth)


def mixtures(env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    """Triples whose observations are 64 numbers, the state through two random layers: always the same layers."""
    made = world(env, **options)
    states = made.sample(num, torch.Generator().manual_seed(seed))
    layers = torch.Generator().manual_seed(0)
    inner, outer = torch.randn(4, 128, generator=layers), torch.randn(128, 64, generator=layers) / 128**0.5

    def observe(agent: Tensor, thing: Tensor) -> np.ndarray:
        return torch.tanh(torch.tanh(4 * (torch.cat((agent, thing), 1) - 0.5) @ inner) @ outer).numpy()

    triples = Transitions(
        observation=observe(states.agent, states.object),
        action=states.displacement.numpy(),
        next_observation=observe(states.agent_next, states.object_next),
    )
    return Labelled(triples, Truth(states.agent, states.object, contact=states.contact))
