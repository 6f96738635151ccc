"""Measure a representation; each score has that of the constant predictor beside it.

Legend: N observations, k objects, n ambient dimension. Positions are in the action's unit, the truth's as well.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from palpate.config import own_axes_hint
from palpate.data.labelled import Truth
from palpate.geometry import angle_of, axis_angle, double_angle, rotated, unit
from palpate.groups.base import Group
from palpate.methods.base import Encoding
from palpate.metrics.formulas import (
    affine,
    affine_probe,
    agent_frame,
    apart2,
    auroc,
    axis_error,
    isometry,
    l_test,
    own_frame,
    placed,
    rigid,
    rigid_offset,
)
from palpate.metrics.reading import Reading, matched, mistaken, swapped
from palpate.metrics.rows import host, mapped, visible
from palpate.metrics.scores import TITLES, EachScore, Scores
from palpate.rotations import angle_between, mean_rotation

TURNS = 1e-3  # radians, standard deviation of an object's angles above which it turns
Pair = tuple[dict[str, float], dict[str, float]]  # scores, and those of the constant predictor
PAIRS = 100_000  # of points whose distances are compared: their mean is good to about 1 %


def measure(
    group: Group,
    encoding: Encoding,
    truth: Truth,
    *,
    contact: Tensor | None = None,
    would_touch: Tensor | None = None,
    reference: tuple[Encoding, Truth] | None = None,
    places_object: bool = True,
    tells_apart: bool = True,
    alike: bool = False,
) -> Scores:
    """Compare a representation of N observations with the truth; `group` is the model's.

    The frame and the constant predictor are fitted on `reference`. Without one they are fitted on the even rows, and
    the odd rows alone are evaluated. `contact` and `would_touch` are probabilities `[N]`, or `[N, k]`.
    `places_object` and `tells_apart` are the model's (`Reading`); what it lacks is fitted on the same rows. Objects
    that look `alike` have no order, so in each row the best one counts.
    """
    encoding, truth = mapped(encoding, host), _determined(group, mapped(truth, host))
    given = {"contact": contact, "would_touch": would_touch}
    forecasts = {name: host(p) for name, p in given.items() if p is not None}
    _check(encoding, truth, places_object)
    scores: dict[str, Any] = dict.fromkeys(TITLES)
    scores["motion"], scores["bearings"] = group.freedom, group.bearings
    if reference is None:
        if len(truth.agent) < 2:
            raise ValueError(f"there are {len(truth.agent)} rows; give at least 2, or a reference to fit on")
        reference = mapped(encoding, lambda x: x[::2]), mapped(truth, lambda x: x[::2])
        scores["fitted_rows"] = len(reference[1].agent)
        encoding, truth = mapped(encoding, lambda x: x[1::2]), mapped(truth, lambda x: x[1::2])
        forecasts = {name: p[1::2] for name, p in forecasts.items()}
    else:
        reference = mapped(reference[0], host), _determined(group, mapped(reference[1], host))
        _check(*reference, places_object)

    fitted = visible(*reference)
    reading = Reading.fit(group, *fitted, places_object=places_object, tells_apart=tells_apart)
    encoding, known, known_truth = reading(encoding), reading(fitted[0]), fitted[1]
    forecasts = {name: reading.ordered(p) for name, p in forecasts.items()}
    frame = agent_frame(group, known, known_truth)
    encoding, known = placed(group, encoding, frame), placed(group, known, frame)
    if group.own_zero and known.heading is not None and known_truth.heading is not None:
        zero = angle_of(rotated(unit(known_truth.heading), unit(-known.heading)).mean(0))
        encoding, known = encoding.faced(zero), known.faced(zero)
    if alike and truth.objects.shape[1] > 1:
        truth, known_truth = matched(group, encoding, truth), matched(group, known, known_truth)
    seen, objects = visible(encoding, truth), truth.objects.shape[1]
    scores["hidden_rows"] = len(truth.agent) - len(seen[1].agent)
    if not places_object:
        scores["probe_rows"] = len(known_truth.agent)
    if objects > 1:
        scores["each"] = _each_score(group, *seen, known_truth)
    pairs = [positions := _positions(group, *seen, known, known_truth)]
    if scores["hidden_rows"]:
        pairs.append(_confidence(encoding, truth))
    if objects > 1 and not alike:
        pairs.append(_order("object_swap_rate", swapped(group, *seen), objects))
    if not tells_apart:
        pairs.append(_order("swap_rate", mistaken(group, *seen), objects + 1))
        probed = _probed(group, *seen, known, known_truth)
        pairs.append(({"probed_l_test": probed}, {"probed_l_test": positions[1]["l_test"]}))
    pairs += [_attitudes(*seen, known_truth), _orientations(*seen), _forecasts(forecasts, truth)]
    constant: dict[str, float] = {}
    for ours, constants in pairs:
        scores, constant = scores | ours, constant | constants
    return Scores(count=len(truth.agent), constant=constant, **scores)


def _determined(group: Group, truth: Truth) -> Truth:
    """The truth as far as the group's actions determine it."""
    return truth._replace(agent=group.known(truth.agent), object=group.known(truth.object))


def _positions(group: Group, encoding: Encoding, truth: Truth, reference: Encoding, reference_truth: Truth) -> Pair:
    """The scores of positions, and those of the constant predictor. Both encodings are in the true frame."""
    middle = Encoding(
        reference_truth.agent.mean(0).expand_as(truth.agent), reference_truth.objects.mean(0).expand_as(truth.objects)
    )
    scores, constant = (
        {
            "l_test": float(l_test(group, answer, truth)),
            "agent_error": _mean(group.difference(answer.agent, truth.agent).norm(dim=-1)),
            "object_error": _mean(group.difference(answer.objects, truth.objects).norm(dim=-1)),
            "object_bias": float(group.difference(answer.objects, truth.objects).mean(0).norm(dim=-1).max()),
        }
        for answer in (encoding, middle)
    )
    wrong, known_wrong = (
        group.difference(x.objects, true.objects) for x, true in ((encoding, truth), (reference, reference_truth))
    )  # [N, k, n]
    scores["object_spread"] = _mean((wrong - known_wrong.mean(0)).norm(dim=-1))
    constant["object_spread"] = constant["object_error"]
    angle, known_angle = _angles(truth), _angles(reference_truth)
    if angle is not None and known_angle is not None and wrong.shape[1:] == (1, 2):
        left = wrong[:, 0] - rigid(angle[:, 0]) @ rigid_offset(known_wrong[:, 0], known_angle[:, 0])
        scores["object_rigid"], constant["object_rigid"] = _mean(left.norm(dim=-1)), constant["object_error"]
    points = len(truth.agent) * (1 + truth.objects.shape[1])
    pairs = torch.randint(points, (2, PAIRS), generator=torch.Generator().manual_seed(0))
    scores["isometry"] = float(isometry(group, encoding, truth, pairs))
    constant["isometry"] = 1.0  # all its distances are 0
    return scores, constant


def _confidence(encoding: Encoding, truth: Truth) -> Pair:
    """How well the confidence tells the rows in which an object is hidden."""
    if encoding.confidences is None or truth.visibles is None:
        return {}, {}
    area = float(auroc(encoding.confidences.flatten(), truth.visibles.flatten() > 0))
    return {"confidence_auroc": area}, {"confidence_auroc": 0.5}


def _order(name: str, wrong: Tensor, points: int) -> Pair:
    """The share of rows in which the order of the points is wrong, as it is by chance in most rows."""
    return {name: _mean(wrong.double())}, {name: 1 - 1 / math.factorial(points)}


def _probed(group: Group, encoding: Encoding, truth: Truth, known: Encoding, known_truth: Truth) -> float:
    """L_test of points that an affine probe reads, fitted to each of the `known` ones."""
    agent = affine(encoding.agent, affine_probe(known.agent, known_truth.agent))
    columns = zip(*(x.objects.unbind(1) for x in (encoding, known, known_truth)), strict=True)
    objects = torch.stack([affine(x, affine_probe(some, true)) for x, some, true in columns], 1)
    return float(l_test(group, Encoding(agent, objects), truth))


def _attitudes(encoding: Encoding, truth: Truth, known: Truth) -> Pair:
    """The scores of an agent that turns."""
    if encoding.attitude is None or truth.attitude is None or known.attitude is None:
        return {}, {}
    ours, true, others = (own_frame(state) for state in (encoding, truth, known))  # [N, k, n]
    name = "heading_error" if encoding.rotation is None else "rotation_error"
    answers = (ours, encoding.attitude), (others.mean(0), mean_rotation(known.attitude))
    scores, constant = (
        {
            "own_l_test": _mean((place - true).square().sum(-1)),
            name: _mean(angle_between(axes, truth.attitude)),
        }
        for place, axes in answers
    )
    return scores, constant


def _each_score(group: Group, encoding: Encoding, truth: Truth, known: Truth) -> tuple[EachScore, ...]:
    """Scores of each object; the constant predictor answers the mean of the `known` ones."""
    middle = Encoding(known.agent.mean(0).expand_as(truth.agent), known.objects.mean(0).expand_as(truth.objects))
    ours, constant = (apart2(group, answer, truth).diagonal(dim1=1, dim2=2) for answer in (encoding, middle))  # [N, k]
    columns = zip(ours.mean(0).tolist(), ours.sqrt().mean(0).tolist(), constant.mean(0).tolist(), strict=True)
    return tuple(EachScore(*column) for column in columns)


def _orientations(encoding: Encoding, truth: Truth) -> Pair:
    """The error of the objects' angles, if any of them turns; the constant is the best single axis for these rows."""
    angle = _angles(truth)
    if encoding.orientations is None or angle is None:
        return {}, {}
    best = axis_angle(double_angle(angle).mean(0))
    ours, constant = (_mean(axis_error(x, angle)) for x in (encoding.orientations, best))
    return {"orientation_error": ours}, {"orientation_error": constant}


def _forecasts(forecasts: Mapping[str, Tensor], truth: Truth) -> Pair:
    """How well probabilities of contact, by name, tell contacts; a constant predicts the more common class."""
    scores, constant = dict[str, float](), dict[str, float]()
    if truth.contacts is None:
        return scores, constant
    contact = truth.contacts.bool().flatten()
    share = _mean(contact.double())
    for name, each in forecasts.items():
        p = each.flatten()
        if 0 < share < 1:
            scores[f"{name}_auroc"] = float(auroc(p, contact))
        scores[f"{name}_accuracy"] = _mean(((p > 0.5) == contact).double())
        constant |= {f"{name}_auroc": 0.5, f"{name}_accuracy": max(share, 1 - share)}
    return scores, constant


def _angles(truth: Truth) -> Tensor | None:
    """True angles `[N, k]` if an object turns: one that never turns has no orientation to find."""
    if truth.angles is None or float(truth.angles.std(0, correction=0).max()) <= TURNS:
        return None
    return truth.angles


def _check(encoding: Encoding, truth: Truth, places_object: bool) -> None:
    count, learned = truth.objects.shape[1], encoding.objects.shape[1]
    if count != learned:
        raise ValueError(f"the model has {learned} objects and the truth {count}; train with objects={count}")
    for name, x, true in (("agent", encoding.agent, truth.agent), ("objects", encoding.objects, truth.objects)):
        wanted = true.shape if name == "agent" or places_object else (*true.shape[:-1], x.shape[-1])
        if name == "agent" and x.shape[-1] != wanted[-1]:
            raise ValueError(
                f"the encoding's agent has {x.shape[-1]} numbers, the truth's {wanted[-1]}; {own_axes_hint(wanted[-1])}"
            )
        if x.shape != wanted:
            raise ValueError(
                f"the encoding's {name} has shape {tuple(x.shape)}, the truth's {tuple(wanted)}; encode the "
                "observations that the truth describes"
            )


def _mean(x: Tensor) -> float:
    return float(x.mean())
