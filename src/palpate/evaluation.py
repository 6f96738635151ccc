"""`evaluate`: a representation against true states."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from palpate.data.labelled import Labelled
from palpate.methods.base import Encoding
from palpate.metrics.measure import measure
from palpate.metrics.scores import Scores
from palpate.representation import Representation

WATCHED_ROWS = 1000  # test triples evaluated during a run


def evaluate(
    model: Representation, labelled: Labelled, *, reference: Labelled | None = None, alike: bool = False
) -> Scores:
    """Measure a representation on labelled triples it was not trained on; see `palpate.metrics.scores.Scores`.

    Three things are fitted to true states: one motion of the frame, the order of keypoints and the probe of a latent.
    These states are those of `reference`, another labelled set, or else of every second row of `labelled`. Several
    objects have one order for all rows; if they look `alike`, each row has the order that fits best.
    """
    if not isinstance(labelled, Labelled):
        raise ValueError(
            f"labelled is {labelled!r}; needed are triples with true states: palpate.Labelled(triples, truth), "
            "collect(..., labelled=True), or palpate.Labelled.open(file)"
        )
    encoding, contact, would_touch = _answers(model, labelled)
    known = None if reference is None else (_answers(model, reference)[0], reference.truth)
    return measure(
        model.model.group,
        encoding,
        labelled.truth,
        contact=contact,
        would_touch=would_touch,
        reference=known,
        places_object=model.model.places_object,
        tells_apart=model.model.tells_apart,
        alike=alike,
    )


def _answers(model: Representation, labelled: Labelled) -> tuple[Encoding, Tensor | None, Tensor | None]:
    """A representation's outputs for all triples, block by block; None for what its method does not have."""
    encodings, contacts, touches = [], [], []
    for block in labelled.transitions.blocks():
        rows = labelled.transitions.rows(block)
        encodings.append(model.encode(rows.o))
        contacts.append(model.contact(*rows))
        touches.append(model.would_touch(rows.o, rows.a))
    encoding = Encoding(*map(_joined, zip(*encodings, strict=True)))  # type: ignore[arg-type]
    return encoding, _joined(contacts), _joined(touches)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    return torch.cat(parts) if parts and parts[0] is not None else None  # type: ignore[arg-type]


@contextmanager
def opened_test(test: Any) -> Iterator[Labelled | None]:
    """The test triples that are evaluated during the run; a file is closed afterwards."""
    if test is None:
        yield None
        return
    with Labelled.open(test) if isinstance(test, str | os.PathLike) else nullcontext(test) as labelled:
        if not isinstance(labelled, Labelled):
            raise ValueError(f"test is {test!r}; allowed are labelled triples (palpate.Labelled) or a file of them")
        yield labelled.subset(slice(0, min(len(labelled), WATCHED_ROWS)))
