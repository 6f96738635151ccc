"""The triples that runs train on and are measured on."""

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from palpate.collecting.collect import collect
from palpate.collecting.parts import parts_of
from palpate.data.labelled import Labelled
from palpate.data.transitions import Transitions
from palpate.disk import Busy, alone
from palpate.envs.registration import SOCCER, world
from palpate.envs.soccer.config import VERSION
from palpate.material import HELD_OUT_MOST, HELD_OUT_SHARE
from palpate.progress import bar, say
from palpate.reproduce.presets import REFERENCE_SEED, TEST_SEED, Case
from palpate.traits import traits_of
from palpate.workers import available_cores

WAIT_SECONDS = 5.0  # between two looks at a set that another process collects


class Set(NamedTuple):
    """Triples with true states. The rows depend only on these values and on the world's version."""

    env: str
    triples: int
    seed: int
    size: int

    def path(self, folder: Path) -> Path:
        return folder / f"{self.env.split('/')[1]}.{VERSION}-{self.triples}-{self.size}-{self.seed}.h5"


def training_data(case: Case, folder: Path, device: torch.device) -> Any:
    """The data for `fit`: a world to stream, triples, or triples with true states for the supervised limit."""
    if case.triples is None:
        return world(case.env, device=device, size=case.size, **case.options)
    labelled = load(_sets(case)[0], folder)
    if traits_of(case.fit.get("method", "contact")).unsupervised:
        return labelled.transitions
    # The limit trains on the same rows as the other methods, for which `fit` holds out this share.
    return labelled.split(min(HELD_OUT_SHARE, HELD_OUT_MOST / len(labelled)), case.seed)[1]


def held_back(case: Case, folder: Path) -> tuple[Labelled, Labelled]:
    """Test and reference triples, the same for all seeds, with the world's default contact share."""
    _, test, reference = _sets(case)
    return load(test, folder), load(reference, folder)


def _sets(case: Case) -> list[Set]:
    """The sets for training, testing and reference."""
    sizes = ((case.triples or 0, 0), (case.test_triples, TEST_SEED), (case.reference_triples, REFERENCE_SEED))
    return [Set(case.env, count, seed, case.size) for count, seed in sizes]


def sets_on_disk(cases: Sequence[Case]) -> list[Set]:
    """The sets that these cases read from files."""
    soccer = [case for case in cases if isinstance(case, Case) and case.env in SOCCER]
    return list(dict.fromkeys(wanted for case in soccer for wanted in _sets(case)))


@lru_cache(maxsize=6)  # training, test and reference triples of both views
def load(wanted: Set, folder: Path) -> Labelled:
    """A set in memory. Soccer is slow, so its sets are files; those of Sprites are made anew."""
    if wanted.env not in SOCCER:
        return collect(wanted.env, wanted.triples, seed=wanted.seed, size=wanted.size, labelled=True)
    gather(wanted, folder)
    with Labelled.open(wanted.path(folder)) as labelled:
        o, a, o_next = (x.numpy() for x in labelled.transitions.rows(slice(None)))
        truth = labelled.truth
    return Labelled(Transitions(observation=o, action=a, next_observation=o_next, layout="channel-first"), truth)


def gather(wanted: Set, folder: Path, show: bool = False) -> None:
    """Collect a set into its file, unless it exists. Waits for another process that collects it; an interrupted
    collection is continued."""
    path = wanted.path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    waiting = False
    while not path.exists():
        try:
            with alone(path):
                if not path.exists():
                    _collect(wanted, path, show)
        except Busy:
            if show and not waiting:
                say(f"waiting for {path}, which another process collects")
            waiting = True
            time.sleep(WAIT_SECONDS)


def _collect(wanted: Set, path: Path, show: bool) -> None:
    how: dict[str, Any] = {"seed": wanted.seed, "size": wanted.size, "workers": available_cores()}
    with bar(f"collecting {path.name}", wanted.triples, show) as advance:
        how |= {"out": path, "resume": parts_of(path).exists(), "progress": lambda done, total: advance(done)}
        collect(wanted.env, wanted.triples, **how).close()
