"""Whether the agent touches more than one object: short training runs with two slots, or three.

Legend: b triples by which the slots are judged.
"""

import time
from typing import NamedTuple

import numpy as np

from palpate.config import ObjectiveConfig
from palpate.counting import count_objects, countable
from palpate.doctor.probe import Trial
from palpate.findings import Finding, Rule

COUNTING_SECONDS = 60.0  # of this thread
SEVERAL = Rule(
    "several-objects",
    "objects moves_if_touched moves_otherwise",
    "the agent touches more than one object",
    "A model of one object would place one of them and ignore the others: train with objects=2 or more, or with "
    "objects='auto', which counts them.",
    above=(1, float("inf")),
)
NOT_COUNTED = Finding(
    "objects-not-counted",
    "note",
    "the objects were not counted",
    {"seconds of processor time": COUNTING_SECONDS},
    "There may be several. Repeat the check on a faster machine.",
)


class Several(NamedTuple):
    """What the runs show."""

    findings: list[Finding]
    measured: dict[str, float]
    rows: np.ndarray  # [b] bool, in which the second object moved, but not the first


def several(trial: Trial, scene: ObjectiveConfig) -> Several:
    """A finding if two slots or more hold an object, or if there is no time to find out. Nothing is measured if there
    are too few triples to count."""
    deadline = time.thread_time() + COUNTING_SECONDS

    def watch(step: int) -> None:
        if time.thread_time() > deadline:
            raise _TimeUp

    none = np.zeros(len(trial.held.a), dtype=bool)
    if not countable(trial.held):
        return Several([], {}, none)
    try:
        count = count_objects(
            trial.kept, trial.held, scene, substeps=trial.model.config.substeps, enough=2, watch=watch
        )
    except _TimeUp:
        return Several([NOT_COUNTED], {}, none)
    seen = {"objects": float(len(count.found))}
    if len(count.found) < 2:
        return Several([], seen, none)
    first, second, *_ = count.indices
    slot = count.slots[second]
    seen |= {"moves_if_touched": slot.touched, "moves_otherwise": slot.otherwise}
    return Several(SEVERAL.judge(seen), seen, (count.moved[:, second] & ~count.moved[:, first]).numpy())


class _TimeUp(Exception):  # noqa: N818 - not an error
    pass
