"""A model's outputs for one triple, as numbers and as sentences that give the reasons.

Legend: k objects, c border points.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from palpate.data.transitions import Batch, Transitions
from palpate.methods.base import Threshold
from palpate.representation import Representation
from palpate.viewer.marks import Marks
from palpate.viewer.search import SURE
from palpate.viewer.words import chance

Array = NDArray[Any]


class Answer(NamedTuple):
    """A model's outputs for one triple; None where its method has none."""

    before: Marks
    after: Marks
    path: Array | None  # [2, n] the agent's positions before and after the action, by the group
    distance: Array | None  # [k], by which contacts are recognised
    threshold: float | None  # of the distance
    positions: bool  # whether the distance is between positions
    would_touch: Array | None  # [k]
    contact: Array | None  # [k]


def cut(threshold: Threshold | None) -> float | None:
    """The threshold as a distance, also if the split is made on logarithms."""
    if threshold is None:
        return None
    return float(np.exp(threshold.value)) if threshold.on == "log" else float(threshold.value)


def aligned(model: Representation, known: Mapping[str, torch.Tensor]) -> tuple[Representation, str]:
    """The model in the frame of known positions, as in `Representation.align`, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = model.align(known)
    return found, " ".join(str(one.message) for one in caught)


def marks_of(model: Representation, o: torch.Tensor, borders: Array | None = None) -> Marks:
    """The estimates for one observation [1, ...]. Given `borders` [k, c, 2] save time if nothing turns."""
    if not model.model.tells_apart:
        return Marks()
    encoding = model.encode(o)
    if not model.model.places_object:
        return Marks(agent=encoding.agent[0].numpy())
    if borders is None or encoding.orientations is not None or encoding.heading is not None:
        border = model.border(o)
        borders = None if border is None else border.reshape(-1, *border.shape[-2:]).numpy()
    return Marks(
        agent=encoding.agent[0].numpy(),
        objects=encoding.objects[0].numpy(),
        borders=borders,
        angles=None if encoding.orientations is None else encoding.orientations[0].numpy(),
        confidences=None if encoding.confidences is None else encoding.confidences[0].numpy(),
        heading=None if encoding.heading is None else float(encoding.heading[0]),
    )


@torch.no_grad()
def _path(model: Representation, row: Batch) -> Array | None:
    """From where to where the action moves the agent [2, n], for a batch of one."""
    group, device = model.model.group, model.model.inputs.unit.device
    pose = model.model.pose(model.canonical(row.o).to(device))
    if pose is None:
        return None
    corners = group.path(pose, row.a.to(device)).corners[0].cpu()
    found: Array = group.moved(corners, model.frame.origin).numpy()
    return found


def require_fit(model: Representation, triples: Transitions) -> None:
    """Refuse triples whose observations or actions the model does not read."""
    theirs, ours = (
        f"observations {shape} and actions of {' sub-steps of '.join(map(str, action))} numbers"
        for shape, action in (
            (triples.observation_shape, triples.action_shape),
            (model.config.observation_shape, model.config.action_shape),
        )
    )
    if theirs != ours:
        raise ValueError(f"the triples have {theirs}; the model reads {ours}")


def estimate(model: Representation, row: Batch, borders: Array | None = None) -> Answer:
    """The estimates for a batch of one triple, without the outputs about contact, which take longer."""
    before = marks_of(model, row.o, borders)
    threshold = model.model.threshold()
    return Answer(
        before=before,
        after=marks_of(model, row.o_next, before.borders),
        path=_path(model, row),
        distance=None,
        threshold=cut(threshold),
        positions=threshold is not None and threshold.positions,
        would_touch=None,
        contact=None,
    )


def explained(model: Representation, row: Batch, found: Answer) -> Answer:
    """The same with the outputs about contact."""
    distance, would, contact = (
        None if x is None else np.atleast_1d(x[0].numpy())
        for x in (model.distances(row.o, row.o_next), model.would_touch(row.o, row.a), model.contact(*row))
    )
    return found._replace(distance=distance, would_touch=would, contact=contact)


def answer(model: Representation, row: Batch) -> Answer:
    """All outputs for a batch of one triple."""
    return explained(model, row, estimate(model, row))


def verdict(found: Answer) -> str:
    """One line: contact, no contact, or doubtful."""
    if found.contact is None:
        return "This model predicts no contacts"
    parts = []
    for i, p in enumerate(found.contact):
        name = "" if len(found.contact) == 1 else f"object {i + 1}: "
        word = "contact" if p > SURE else "no contact" if p < 1 - SURE else "doubtful"
        sure = {"contact": f", {chance(float(p))}", "doubtful": f": contact with {chance(float(p))}"}.get(word, "")
        parts.append(f"{name}{word}{sure}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def reasons(found: Answer) -> list[str]:
    """Why: the change of the scene, and geometry before the move."""
    lines = []
    count = max((len(x) for x in (found.distance, found.would_touch) if x is not None), default=0)
    where = "between the object's two positions" if found.positions else "in W between the two scenes"
    for i in range(count):
        of = "" if count == 1 else f"Object {i + 1}: "
        if found.distance is not None and found.threshold is not None:
            d, most = float(found.distance[min(i, len(found.distance) - 1)]), found.threshold
            times = d / max(most, 1e-30)
            word = "changed" if d > most else "did not change"
            size = f"{times:,.1f} times" if 0.05 < times < 1e4 else "far above" if times > 1 else "far below"
            lines.append(
                f"{of}The scene {word}: the squared distance {where} is {d:.2g}, {size} the threshold {most:.2g}."
            )
        if found.would_touch is not None:
            p = float(found.would_touch[i])
            word = "reaches" if p > 0.5 else "misses"
            lines.append(f"{of}By geometry, the path {word} the learned body: {chance(p)} before the move.")
    if found.distance is not None and found.threshold is not None and found.would_touch is not None:
        agree = (found.distance > found.threshold) == (found.would_touch > 0.5)
        text = "They disagree: the probability combines the change with geometry, which is the prior."
        lines.append("Both agree." if agree.all() else text)
    for i, sure in enumerate([] if found.before.confidences is None else found.before.confidences):
        if sure < 0.5:
            lines.append(f"Object {i + 1} is probably hidden in o: confidence {chance(float(sure))}.")
    return lines
