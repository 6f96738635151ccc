"""Scores of a representation: Eq. 8 and others, each with the score of the constant predictor for comparison.

Legend: N observations, k objects, n ambient dimension. Positions are in the action's unit, the truth's as well.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from palpate.data.labelled import Truth
from palpate.geometry import axis_angle, double_angle
from palpate.groups import Group
from palpate.methods.base import Encoding

PAIRS = 100_000  # of points whose distances are compared: their mean is good to about 1 %
NEAR = 0.05  # of the largest true distance: relative distortion of shorter ones measures noise

TITLES = {
    "l_test": "L_test",
    "agent_error": "agent error",
    "object_error": "object error",
    "object_bias": "object bias",
    "object_spread": "object error without bias",
    "object_rigid": "object error, best reference point",
    "isometry": "distance distortion",
    "orientation_error": "orientation error (rad)",
    "confidence_auroc": "confidence AUROC",
    "contact_auroc": "contact AUROC",
    "contact_accuracy": "contact accuracy",
    "would_touch_auroc": "would touch AUROC",
    "would_touch_accuracy": "would touch accuracy",
    "object_swap_rate": "objects swapped",
    "swap_rate": "agent and object swapped",
    "probed_l_test": "L_test, affine probe of each",
}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of `measure`; None where the model, the truth or the data does not define one.

    Errors are mean Euclidean distances in the action's unit, after the motion that fits the agent. For `object_spread`
    the object's constant offset is removed too. For `object_rigid` an offset that turns with the object is removed as
    well: any point of a rigid object can serve as its position. Positions are measured in rows in which all objects are
    visible, if that is known. Several objects have no order: one permutation for all rows fits them to the true ones,
    and scores are means over them; `each` has those of each object.
    """

    count: int  # observations evaluated
    l_test: float
    agent_error: float
    object_error: float
    object_bias: float  # length of the object's mean error: a constant offset, which contacts may leave open
    object_spread: float  # the object's error after its own constant offset
    object_rigid: float | None  # as object_spread, for the best point of the object; with true angles in the plane
    isometry: float  # mean relative distortion of distances
    orientation_error: float | None  # radians, modulo pi
    confidence_auroc: float | None  # of the confidence against true visibility
    contact_auroc: float | None
    contact_accuracy: float | None
    would_touch_auroc: float | None
    would_touch_accuracy: float | None
    object_swap_rate: float | None  # share of observations for which another order of the objects is nearer
    swap_rate: float | None  # share of observations for which the chosen order of agent and object is wrong
    probed_l_test: float | None  # agent and object each read by an affine map fitted to the truth
    hidden_rows: int = 0  # observations whose positions are not measured, because the object is hidden
    fitted_rows: int | None = None  # rows of the same set to which the translation was fitted; not evaluated
    probe_rows: int | None = None  # rows to whose true states the probe of a latent was fitted
    each: tuple["EachScore", ...] = ()  # several objects, in the order of the true ones
    constant: dict[str, float]  # scores of the constant predictor, by the names above

    def as_dict(self) -> dict[str, float]:
        """Flat, for JSON: the scores that are not None, then 'constant l_test' and so on."""
        scores = {name: getattr(self, name) for name in TITLES if getattr(self, name) is not None}
        probe = {} if self.probe_rows is None else {"probe_rows": self.probe_rows}
        constant = {f"constant {name}": self.constant[name] for name in scores}
        each = {f"{name} {i}": x for i, one in enumerate(self.each) for name, x in one._asdict().items()}
        return {"count": self.count, **probe, **scores, **constant, **each}

    def table(self) -> list[tuple[str, str, str]]:
        """Rows: title, score, score of the constant predictor."""
        known = [(name, getattr(self, name)) for name in TITLES if getattr(self, name) is not None]
        rows = [(TITLES[name], f"{value:.4g}", f"{self.constant[name]:.4g}") for name, value in known]
        each = [
            (f"L_test of object {i}", f"{one.l_test:.4g}", f"{one.constant_l_test:.4g}")
            for i, one in enumerate(self.each)
        ]
        return rows + each

    def notes(self) -> list[str]:
        """Notes for the table."""
        notes = [
            "errors are measured after the translation that fits the agent. The object's bias is a constant offset, "
            "which contacts cannot determine; model.align with known positions of agent and object removes it",
            "lengths are in the action's unit, L_test in its square",
        ]
        if self.each:
            notes.append("objects have no order: one permutation for all rows fits them to the true ones")
        if self.object_rigid is not None:
            notes.append(
                "any point of a rigid object can serve as its position. For the best reference point a constant offset "
                "and one that turns with the object are removed: four numbers, fitted to true positions and angles"
            )
        if self.l_test > self.constant["l_test"]:
            notes.append(
                "worse than the constant predictor: the true states' frame may be rotated, mirrored or scaled relative "
                "to that of the actions, or nothing was learned"
            )
        if self.fitted_rows:
            notes.append(f"the translation was fitted to the other {self.fitted_rows:,} observations, every second row")
        if self.hidden_rows:
            notes.append(
                f"the object is hidden in {self.hidden_rows:,} observations; positions are measured in the others"
            )
        if self.probe_rows is not None:
            notes.append(
                "the model's object is a latent: a least-squares affine map, fitted to the true states of "
                f"{self.probe_rows:,} observations, reads its position for L_test, object error and distance distortion"
            )
        if self.swap_rate is not None:
            notes.append(
                "the model does not distinguish agent and object: true states choose one order for all observations"
            )
        return notes

    def __str__(self) -> str:
        rows = [(f"{self.count:,} observations", "score", "constant"), *self.table()]
        left, middle, right = (max(map(len, column)) for column in zip(*rows, strict=True))
        return "\n".join([*(f"{a:<{left}}  {b:>{middle}}  {c:>{right}}" for a, b, c in rows), *self.notes()])


class EachScore(NamedTuple):
    """The scores of one of several objects."""

    l_test: float
    error: float  # mean distance from the true position, relative to the agent
    constant_l_test: float  # of the constant predictor


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
) -> Scores:
    """Compare a representation of N observations with the truth; `group` is the model's.

    The frame and the constant predictor are fitted on `reference`. Without one they are fitted on the even rows, and
    the odd rows alone are evaluated. `contact` and `would_touch` are probabilities `[N]`, or `[N, k]`.
    `places_object` and `tells_apart` are the model's (`Reading`); what it lacks is fitted on the same rows.
    """
    encoding, truth = _each(encoding, _host), _each(truth, _host)
    given = {"contact": contact, "would_touch": would_touch}
    forecasts = {name: _host(p) for name, p in given.items() if p is not None}
    _check(encoding, truth, places_object)
    scores: dict[str, Any] = dict.fromkeys(TITLES)
    if reference is None:
        if len(truth.agent) < 2:
            raise ValueError(f"there are {len(truth.agent)} rows; give at least 2, or a reference to fit on")
        reference = _each(encoding, lambda x: x[::2]), _each(truth, lambda x: x[::2])
        scores["fitted_rows"] = len(reference[1].agent)
        encoding, truth = _each(encoding, lambda x: x[1::2]), _each(truth, lambda x: x[1::2])
        forecasts = {name: p[1::2] for name, p in forecasts.items()}
    else:
        reference = _each(reference[0], _host), _each(reference[1], _host)
        _check(*reference, places_object)

    reading = Reading.fit(group, *_visible(*reference), places_object=places_object, tells_apart=tells_apart)
    encoding, reference = reading(encoding), (reading(reference[0]), reference[1])
    forecasts = {name: reading.ordered(p) for name, p in forecasts.items()}
    seen = _visible(encoding, truth)
    positions, constant = _positions(group, *seen, *_visible(*reference))
    scores |= positions
    scores["hidden_rows"] = len(truth.agent) - len(seen[1].agent)
    if scores["hidden_rows"] and encoding.confidences is not None and truth.visibles is not None:
        scores["confidence_auroc"], constant["confidence_auroc"] = (
            float(auroc(encoding.confidences.flatten(), truth.visibles.flatten() > 0)),
            0.5,
        )
    if truth.objects.shape[1] > 1:
        scores["each"] = _each_score(group, *seen, _visible(*reference)[1])
        chance = 1 - 1 / math.factorial(truth.objects.shape[1])  # of a random order
        scores["object_swap_rate"], constant["object_swap_rate"] = _swapped(group, *seen), chance
    if not places_object:
        scores["probe_rows"] = len(reference[1].agent)
    if not tells_apart:
        scores["swap_rate"], constant["swap_rate"] = _mean((_agreement(group, encoding, truth) < 0).double()), 0.5
        known, true = reference
        agent = _affine(encoding.agent, affine_probe(known.agent, true.agent))
        thing = _affine(encoding.object, affine_probe(known.object, true.object))
        scores["probed_l_test"] = float(l_test(group, Encoding(agent, thing[:, None]), truth))
        constant["probed_l_test"] = constant["l_test"]
    angle = _angles(truth)
    if encoding.orientations is not None and angle is not None:
        scores["orientation_error"] = _mean(axis_error(encoding.orientations, angle))
        # The best single axis for these rows.
        best = axis_angle(double_angle(angle).mean(0))
        constant["orientation_error"] = _mean(axis_error(best, angle))
    if truth.contacts is not None:
        true_contact = truth.contacts.bool().flatten()
        share = _mean(true_contact.double())
        for name, each in forecasts.items():
            p = each.flatten()
            if 0 < share < 1:
                scores[f"{name}_auroc"] = float(auroc(p, true_contact))
            scores[f"{name}_accuracy"] = _mean(((p > 0.5) == true_contact).double())
            # A constant ranks at random and predicts the more common class.
            constant |= {f"{name}_auroc": 0.5, f"{name}_accuracy": max(share, 1 - share)}
    return Scores(count=len(truth.agent), constant=constant, **scores)


def _visible(encoding: Encoding, truth: Truth) -> tuple[Encoding, Truth]:
    """The rows in which all objects are visible; all rows if that is unknown."""
    if truth.visibles is None:
        return encoding, truth
    seen = (truth.visibles > 0).all(1)
    if not seen.any():
        raise ValueError("in none of these rows is every object visible; give some in which it is")
    return _each(encoding, lambda x: x[seen]), _each(truth, lambda x: x[seen])


class Reading(NamedTuple):
    """How to read positions from an encoding; fitted to true states, so only for measuring."""

    swap: bool  # the first of two keypoints is the object
    probe: Tensor | None  # [k + 1, n] from a latent of the object and 1 to its position
    order: list[int]  # which learned object is the first true one, and so on

    @staticmethod
    def fit(group: Group, encoding: Encoding, truth: Truth, *, places_object: bool, tells_apart: bool) -> "Reading":
        """The order with the smaller L_test, and a probe of the object's latent.

        The probe's target is s_ext in the frame of z_int, by the motion that fits the agents.
        """
        if places_object and tells_apart:
            return Reading(False, None, _order(group, encoding, truth))
        swap = not tells_apart and bool(_agreement(group, encoding, truth).mean() < 0)
        target = group.moved(truth.object, group.frame(truth.agent, encoding.agent))
        return Reading(swap, None if places_object else affine_probe(encoding.object, target), [0])

    def ordered(self, x: Tensor) -> Tensor:
        """Values [N, k, ...] of the objects in the order of the true ones; [N] stays."""
        return x[:, self.order] if x.dim() > 1 else x

    def __call__(self, encoding: Encoding) -> Encoding:
        agent, *objects = encoding
        encoding = Encoding(agent, *(None if x is None else self.ordered(x) for x in objects))  # type: ignore[arg-type]
        if self.swap:
            encoding = encoding._replace(agent=encoding.object, objects=encoding.agent[:, None])
        if self.probe is not None:
            encoding = encoding._replace(objects=_affine(encoding.objects, self.probe))
        return encoding


def _apart2(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """Squared differences between each learned and each true position, relative to the agent: `[N, k, k]`."""
    learned, true = (group.difference(state.objects, state.agent[:, None]) for state in (encoding, truth))  # [N, k, n]
    return (learned[:, :, None] - true[:, None]).square().sum(-1)


def _order(group: Group, encoding: Encoding, truth: Truth) -> list[int]:
    """The permutation of the learned objects with the least L_test."""
    cost = _apart2(group, encoding, truth).mean(0).tolist()  # [learned][true]
    orders = itertools.permutations(range(len(cost)))
    return list(min(orders, key=lambda order: sum(cost[i][j] for j, i in enumerate(order))))


def _swapped(group: Group, encoding: Encoding, truth: Truth) -> float:
    """Share of rows in which another order of the objects is nearer to the truth."""
    cost = _apart2(group, encoding, truth)
    true = torch.arange(cost.shape[1])
    present, *others = itertools.permutations(true.tolist())  # the first one changes nothing
    ours, best = cost[:, list(present), true].sum(1), torch.full_like(cost[:, 0, 0], torch.inf)
    for order in others:
        best = torch.minimum(best, cost[:, list(order), true].sum(1))
    return _mean((best < ours).double())


def _each_score(group: Group, encoding: Encoding, truth: Truth, known: Truth) -> tuple[EachScore, ...]:
    """Scores of each object; the constant predictor answers the mean of the `known` ones."""
    middle = Encoding(known.agent.mean(0).expand_as(truth.agent), known.objects.mean(0).expand_as(truth.objects))
    ours, constant = (_apart2(group, answer, truth).diagonal(dim1=1, dim2=2) for answer in (encoding, middle))  # [N, k]
    columns = zip(ours.mean(0).tolist(), ours.sqrt().mean(0).tolist(), constant.mean(0).tolist(), strict=True)
    return tuple(EachScore(*column) for column in columns)


def aligned(
    group: Group, encoding: Encoding, truth: Truth, *, places_object: bool = True, tells_apart: bool = True
) -> Encoding:
    """The representation read as positions and moved onto the truth; for figures of these rows."""
    encoding, truth = _each(encoding, _host), _each(truth, _host)
    encoding = Reading.fit(group, encoding, truth, places_object=places_object, tells_apart=tells_apart)(encoding)
    return _placed(group, encoding, agent_frame(group, *_visible(encoding, truth)))


def affine_probe(x: Tensor, target: Tensor) -> Tensor:
    """The least-squares map `[k + 1, n]` from x [N, k] and 1 to target [N, n]; the smallest one where many fit."""
    return torch.linalg.lstsq(torch.cat((x, torch.ones_like(x[:, :1])), 1), target, driver="gelsd").solution


def _affine(x: Tensor, probe: Tensor) -> Tensor:
    return x @ probe[:-1] + probe[-1]


def _agreement(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """(z_int - z_ext) . (s_int - s_ext), `[N]`: a quarter of what swapping agent and object would add to L_test.

    Where it is negative, the other order is nearer to the truth.
    """
    learned, true = (group.difference(state.object, state.agent) for state in (encoding, truth))
    return (learned * true).sum(-1)


def _positions(
    group: Group, encoding: Encoding, truth: Truth, reference: Encoding, reference_truth: Truth
) -> tuple[dict[str, float], dict[str, float]]:
    """The scores of positions, and those of the constant predictor."""
    frame = agent_frame(group, reference, reference_truth)
    moved, known = _placed(group, encoding, frame), _placed(group, reference, frame)
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
        for answer in (moved, middle)
    )
    wrong, known_wrong = (
        group.difference(x.objects, true.objects) for x, true in ((moved, truth), (known, reference_truth))
    )  # [N, k, n]
    scores["object_spread"] = _mean((wrong - known_wrong.mean(0)).norm(dim=-1))
    constant["object_spread"] = constant["object_error"]
    angle, known_angle = _angles(truth), _angles(reference_truth)
    if angle is not None and known_angle is not None and wrong.shape[1:] == (1, 2):
        left = wrong[:, 0] - _rigid(angle[:, 0]) @ rigid_offset(known_wrong[:, 0], known_angle[:, 0])
        scores["object_rigid"], constant["object_rigid"] = _mean(left.norm(dim=-1)), constant["object_error"]
    points = len(truth.agent) * (1 + truth.objects.shape[1])
    pairs = torch.randint(points, (2, PAIRS), generator=torch.Generator().manual_seed(0))
    scores["isometry"] = float(isometry(group, encoding, truth, pairs))
    constant["isometry"] = 1.0  # all its distances are 0
    return scores, constant


def _angles(truth: Truth) -> Tensor | None:
    """True angles `[N, k]` if they differ: an object that never turns has no orientation to find."""
    return truth.angles if truth.angles is not None and float(truth.angles.std()) > 1e-3 else None


def rigid_offset(wrong: Tensor, angle: Tensor) -> Tensor:
    """The least-squares fit e + R(angle) c to errors [N, 2] in the plane: e and c, `[4]`.

    R(angle) turns the axes of the object into those of the frame. A position is that of some point of the object;
    another point of the same object differs by c, in the object's own axes.
    """
    return torch.linalg.lstsq(_rigid(angle).flatten(0, 1), wrong.flatten()[:, None], driver="gelsd").solution[:, 0]


def _rigid(angle: Tensor) -> Tensor:
    """The matrix `[N, 2, 4]` that takes e and c to e + R(angle) c."""
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
    return torch.cat((torch.eye(2, dtype=angle.dtype).expand_as(turn), turn), -1)


def l_test(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """L_test = E |(z_int - z_ext) - (s_int - s_ext)|^2 (Eq. 8). Zero for the truth in a translated frame."""
    learned, true = (group.difference(state.objects, state.agent[:, None]) for state in (encoding, truth))  # [N, k, n]
    return (learned - true).square().sum(-1).mean()


def agent_frame(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """The least-squares motion of the agents onto the truth.

    The objects move along: a motion of their own would hide the error that Eq. 8 measures, and a common one would share
    the object's bias with the agent.
    """
    return group.frame(encoding.agent, truth.agent)


def _placed(group: Group, encoding: Encoding, frame: Tensor) -> Encoding:
    return encoding._replace(agent=group.moved(encoding.agent, frame), objects=group.moved(encoding.objects, frame))


def isometry(group: Group, encoding: Encoding, truth: Truth, pairs: Tensor) -> Tensor:
    """Mean of | |z_i - z_j| / |s_i - s_j| - 1 | over pairs of points, agents and objects mixed.

    `pairs` [2, p] indexes the N agents followed by the N objects. Pairs whose true distance is below 5 % of the largest
    are left out. Zero for any rigid motion, so rotated and mirrored frames are not penalised.
    """
    learned, true = (
        group.difference(points[pairs[0]], points[pairs[1]]).norm(dim=-1)
        for points in (torch.cat((state.agent, state.objects.flatten(0, 1))) for state in (encoding, truth))
    )
    far = true > NEAR * true.max()
    return (learned[far] / true[far] - 1).abs().mean()


def axis_error(axis: Tensor, other: Tensor) -> Tensor:
    """Angle between two undirected axes, in [0, pi/2]: `[...]`."""
    turn = (axis - other) % math.pi
    return torch.minimum(turn, math.pi - turn)


def auroc(score: Tensor, contact: Tensor) -> Tensor:
    """P(a contact scores above another triple), a tie counting one half: area under the ROC curve.

    Needs both classes in `contact` [N] bool.
    """
    others = score[~contact].sort().values
    below, not_above = (torch.searchsorted(others, score[contact], right=right) for right in (False, True))
    return (below + not_above).double().mean() / (2 * len(others))


Rows = TypeVar("Rows", Encoding, Truth)


def _each(rows: Rows, change: Callable[[Tensor], Tensor]) -> Rows:
    """Apply `change` to every field that is not None."""
    return type(rows)(*(None if x is None else change(x) for x in rows))  # type: ignore[arg-type]


def _host(x: Any) -> Tensor:
    """Arrays and tensors of any device as float64, where sums over many rows stay exact enough."""
    return torch.as_tensor(x).detach().cpu().double()


def _mean(x: Tensor) -> float:
    return float(x.mean())


def _check(encoding: Encoding, truth: Truth, places_object: bool) -> None:
    count, learned = truth.objects.shape[1], encoding.objects.shape[1]
    if count != learned:
        raise ValueError(f"the model has {learned} objects and the truth {count}; train with objects={count}")
    for name, x, true in (("agent", encoding.agent, truth.agent), ("objects", encoding.objects, truth.objects)):
        wanted = true.shape if name == "agent" or places_object else (*true.shape[:-1], x.shape[-1])
        if x.shape != wanted:
            raise ValueError(
                f"the encoding's {name} has shape {tuple(x.shape)}, the truth's {tuple(wanted)}; encode the "
                "observations that the truth describes"
            )
