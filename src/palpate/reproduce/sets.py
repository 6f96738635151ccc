"""The triples that runs learn from and are measured on."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from palpate.collecting.collect import Progress, collect
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.envs.registration import world
from palpate.envs.soccer.config import VERSION
from palpate.material import HELD_OUT_MOST, HELD_OUT_SHARE
from palpate.reproduce.presets import REFERENCE_SEED, TEST_SEED, Case
from palpate.workers import available_cores


class Set(NamedTuple):
    """Triples with their truth. Its rows depend on these values and the world's version alone."""

    env: str
    triples: int
    seed: int
    size: int

    def path(self, folder: Path) -> Path:
        return folder / f"{self.env.split('/')[1]}.{VERSION}-{self.triples}-{self.size}-{self.seed}.h5"


def training_data(case: Case, folder: Path, device: torch.device) -> Any:
    """The data for `fit`: a world to stream from, triples, or triples with their truth for the supervised limit."""
    options = {"size": case.size, **case.options}
    if case.source == "stream":
        return world(case.env, device=device, **options)
    assert case.triples is not None
    if case.source == "shared":
        labelled = kept(Set(case.env, case.triples, 0, case.size), folder)
    else:
        labelled = _fresh(case.source, case.env, case.triples, case.seed, **options)
    if case.fit.get("method") != "supervised":
        return labelled.transitions
    # The limit learns from the same rows as the other methods, for which `fit` holds out this share.
    return labelled.split(min(HELD_OUT_SHARE, HELD_OUT_MOST / len(labelled)), case.seed)[1]


def held_back(case: Case, folder: Path) -> tuple[Labelled, Labelled]:
    """Test and reference triples, the same for all seeds, with the world's default share of contacts."""
    test, reference = (
        kept(each, folder) if case.source == "shared" else _remembered(case.source, each)
        for each in (
            Set(case.env, case.test_triples, TEST_SEED, case.size),
            Set(case.env, case.reference_triples, REFERENCE_SEED, case.size),
        )
    )
    return test, reference


@lru_cache(maxsize=6)
def _remembered(source: str, wanted: Set) -> Labelled:
    return _fresh(source, wanted.env, wanted.triples, wanted.seed, size=wanted.size)


def _fresh(source: str, env: str, count: int, seed: int, **options: Any) -> Labelled:
    if source == "vectors":
        return mixtures(env, count, seed=seed, **options)
    return collect(env, count, seed=seed, labelled=True, **options)


def sets_on_disk(cases: Sequence[Case]) -> list[Set]:
    """The sets that these runs read from files."""
    wanted = [
        Set(case.env, count, seed, case.size)
        for case in cases
        if case.source == "shared"
        for count, seed in (
            (case.triples or 0, 0),
            (case.test_triples, TEST_SEED),
            (case.reference_triples, REFERENCE_SEED),
        )
    ]
    return list(dict.fromkeys(wanted))


def gather(wanted: Set, folder: Path, progress: Progress | None = None) -> None:
    """Collect a set into its file with all cores, unless it exists; an interrupted collection is continued."""
    path = wanted.path(folder)
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    how: dict[str, Any] = {"workers": available_cores(), "resume": Path(f"{path}.parts").exists(), "progress": progress}
    collect(wanted.env, wanted.triples, seed=wanted.seed, size=wanted.size, out=path, **how).close()


@lru_cache(maxsize=6)  # training, test and reference triples of both views
def kept(wanted: Set, folder: Path) -> Labelled:
    """A set in memory, because reading it takes long and many runs learn from it."""
    gather(wanted, folder)
    with Labelled.open(wanted.path(folder)) as labelled:
        o, a, o_next = (x.numpy() for x in labelled.transitions.rows(slice(None)))
        truth = labelled.truth
    return Labelled(Transitions(observation=o, action=a, next_observation=o_next, layout="channel-first"), truth)


def mixture(agent: Tensor, thing: Tensor) -> Tensor:
    """States [N, n] in the unit cube as 64 numbers, through two fixed random layers: `[N, 64]`."""
    layers = torch.Generator().manual_seed(0)
    inner = torch.randn(2 * agent.shape[1], 128, generator=layers)
    outer = torch.randn(128, 64, generator=layers) / 128**0.5
    return torch.tanh(torch.tanh(4 * (torch.cat((agent, thing), 1) - 0.5) @ inner) @ outer)


def mixtures(env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    """Triples whose observations are 64 numbers in place of pictures."""
    states = world(env, **options).sample(num, torch.Generator().manual_seed(seed))
    triples = Transitions(
        observation=mixture(states.agent, states.object),
        action=states.displacement,
        next_observation=mixture(states.agent_next, states.object_next),
    )
    return Labelled(triples, Truth(states.agent, states.object, contact=states.contact))
