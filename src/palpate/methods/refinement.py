"""The refinement of our method: what of a model the correction is fitted to, and with what the bodies are.

Legend: b batch, k objects, n ambient dimension.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from palpate.data.transitions import Batch
from palpate.methods.geometric import Geometric
from palpate.objectives.contact import SHARP_DOUBT, Wrong
from palpate.refine import refine


class Evidence(NamedTuple):
    """What the refinement uses of triples: the networks' outputs and the contacts."""

    z_int: Tensor  # [b, n]
    z_int_next: Tensor
    raw: Tensor  # [b, ...] of phi_ext
    raw_next: Tensor
    a: Tensor  # [b, n]
    changed: Tensor  # [b, k], 0 or 1


def refine_model(model: Geometric, draw: Callable[[], Batch], steps: int) -> None:
    """Fit the correction and the bodies of a model, if it has a correction and its contacts separate."""
    correction, bodies = model.head.correction, [*model.head.learned, model.raw_softness]
    if correction is None or not model.separable():
        return
    refine(
        correction,
        bodies,
        draw=lambda: evidence_of(model, draw()),
        positions=lambda evidence: uncorrected(model, evidence),
        surprise=lambda evidence: surprise(model, evidence),
        steps=steps,
    )


def evidence_of(model: Geometric, batch: Batch) -> Evidence:
    x = model.inputs(torch.cat((batch.o, batch.o_next)))
    z_int, z_int_next = model.group.pose(model.phi_int(x)).chunk(2)
    raw, raw_next = model.phi_ext(x).chunk(2)
    changed = model.scenes.contact(model.scene_distance(batch.o, batch.o_next)).float()
    return Evidence(z_int, z_int_next, raw, raw_next, model.inputs.scaled(batch.a), changed)


def uncorrected(model: Geometric, evidence: Evidence) -> Tensor:
    """The positions that the correction applies to, `[b * k, n]`."""
    return model.head.uncorrected(evidence.raw, evidence.z_int).flatten(0, 1)


def surprise(model: Geometric, evidence: Evidence) -> Tensor:
    """-log P(contacts), a scalar."""
    z_int, z_int_next, raw, raw_next, a, changed = evidence
    path = model.group.path(model.start(z_int, a, z_int_next), a)
    share = changed.mean(0)
    before, after = model.head(raw, z_int), model.head(raw_next, z_int_next)
    return model.surprise(before, after, path, changed, share, Wrong.evenly(SHARP_DOUBT, share))
