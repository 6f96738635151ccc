"""The label-free quality of a trained model, from triples it was not trained on.

Legend: b triples, k objects, n ambient dimension. Lengths are in the action's unit.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from palpate.contacts.slots import Holds, Slot, judge_slots
from palpate.contacts.split import FEWEST_OF_A_CLASS, SEPARABLE
from palpate.data.episodes import chains
from palpate.data.transitions import Batch
from palpate.findings import Finding
from palpate.groups.base import Group
from palpate.methods.base import Examination, Model
from palpate.traits import traits_of

BLOCK_ROWS, BLOCK_BYTES = 256, 256 * 1024**2  # encoded at a time
RADII = 64  # candidates for the body's radius
WINDOW = 10  # steps over which displacements are composed
UNSTEADY = 0.25  # of the actions' root mean square: largest residual of a good frame, and of an object at rest
ASTRAY = 0.6  # of the same: largest residual of a frame that means anything; it is 1 if nothing follows the actions
ROUND = 1.3  # long over short semi-axis: round objects stay below it after short runs
HIDDEN = 0.02  # share of triples with a hidden object above which it is reported
STUCK = 0.75  # least tracking of an object whose position follows it
INCONSISTENT = 0.8  # least balanced accuracy of the contacts that geometry predicts
EXPLAINED = 0.9  # accuracy above which geometry is believed although the scenes do not separate
# Paths beyond the boundary by more than this share of the radius, and by more than so many position errors, have wrong
# labels.
DEEP, DEEP_ERRORS = 0.5, 2.0


@torch.no_grad()
def examine(model: Model, batch: Batch) -> Examination | None:
    """A model's outputs for triples, block by block on its device; the result is on the CPU in float64."""
    device, parts = model.inputs.unit.device, []
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * batch.o[0].numel())))
    for block in zip(*(x.split(rows) for x in batch), strict=True):
        seen = model.examine(Batch(*(x.to(device) for x in block)))
        if seen is None:
            return None
        parts.append([None if x is None else x.cpu() if x.dtype == torch.bool else x.cpu().double() for x in seen])
    return Examination(*(None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)))  # type: ignore[arg-type]


def residual(group: Group, before: Tensor, action: Tensor, after: Tensor, unit: float) -> float:
    """Root mean square of z_int' against z_int moved by the action; turns count as lengths in actions."""
    before, after = (group.scaled_pose(z, 1 / unit) for z in (before, after))
    return unit * float(group.distance2(after, group.act(before, group.scaled(action, 1 / unit))).mean().sqrt())


@final
@dataclass(frozen=True, kw_only=True)
class Quality:
    """The label-free quality of a model, for its worst object. None where the triples do not determine a value.

    Slots that hold no object of their own are left out, unless none does.
    """

    triples: int  # that were measured
    separation: float  # emptiness of the valley between triples with and without contact, 1 at best
    contact_share: float  # with any object
    hidden: float  # share of triples in which the object is hidden before or after
    equivariance: float  # root mean square of z_int' - z_int - a
    stay: float | None  # root mean square of z_ext' - z_ext without contact
    closure: float | None  # as equivariance, over several consecutive steps of an episode
    tracking: float | None  # how often the object moves farther in a contact than in another triple; 0.5 by chance
    consistency: float | None  # balanced accuracy of contacts predicted from the paths' distances to the body
    elongation: float | None  # median long over short semi-axis of a body that turns; 1 if no angle is known
    misplaced: float | None  # position error along one direction that would explain the wrong predictions
    error: float  # estimated root mean square error of the object's position relative to the agent
    slots: tuple[Slot, ...] = ()  # what each slot of a model of several objects holds
    objects: int  # that the model places
    counted: int | None = None  # objects that a short run with a spare slot finds; None if there was no such run
    unit: float  # root mean square of the actions, to compare all lengths with

    @property
    def findings(self) -> list[Finding]:
        return judge(self)

    @property
    def verdict(self) -> str:
        """Good, doubtful or not to be trusted, by the findings. A hidden object is no fault of the model: the
        confidence shows where it is hidden."""
        severities = {finding.severity for finding in self.findings if finding.name != "hidden-object"}
        return "not to be trusted" if "blocking" in severities else "doubtful" if severities else "good"

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name, and the verdict; findings describe the slots that hold no object."""
        return {**{name: x for name, x in asdict(self).items() if name != "slots"}, "verdict": self.verdict}

    def __str__(self) -> str:
        names = ("error", "equivariance", "stay", "consistency")
        known = {name: value for name in names if (value := getattr(self, name)) is not None}
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in known.items())
        return f"{self.verdict}; estimates without labels, where an action is {self.unit:.3g} long: {numbers}"


def assess(model: Model, batch: Batch, episode: Tensor | None = None) -> Quality | None:
    """The quality of a model on held-out triples; None for a model without contacts. `episode` [b] numbers episodes."""
    seen, separations = examine(model, batch), model.separations()
    if seen is None or separations is None:
        return None
    group, unit = model.group, float(model.inputs.unit)
    equivariance = residual(group, seen.agent, batch.a.cpu().double(), seen.agent_next, unit)
    moved = group.difference(seen.objects_next, seen.objects)
    slots: list[Slot] = []
    if moved.shape[1] > 1:
        slots, _ = judge_slots(seen.distance, moved.norm(dim=-1), seen.far, seen.visible)
    held = [i for i, slot in enumerate(slots) if slot.holds not in SPARE] or list(range(moved.shape[1]))
    rests, tracked, edges = [], [], []
    for i in held:  # objects, where they are visible
        rows = seen.visible[:, i]
        contact, distance = seen.contact[rows, i], seen.distance[rows, i]
        if not contact.all():
            rests.append(_rms(moved[rows, i][~contact]))
            if contact.any():
                edges.append(boundary(distance, contact))
                lengths = moved[rows, i].norm(dim=-1)
                tracked.append(float((lengths[contact, None] > lengths[~contact]).double().mean()))
    rest, misplaced = max(rests, default=None), max((edge.spread for edge in edges), default=None)
    # Without other evidence the object may be anywhere among the agent's positions, and is hardly ever farther away.
    position = group.position(seen.agent)
    lost = _rms(group.difference(position, position.mean(0)))
    if misplaced is not None and len(edges) == len(held):
        lost = min(lost, position.shape[1] ** 0.5 * misplaced)
    error = (lost**2 + (equivariance**2 + (rest or 0.0) ** 2) / 2) ** 0.5
    has_body = traits_of(model.config.method).has_body  # else the user cannot choose another body
    return Quality(
        triples=len(batch.a),
        separation=min(separations[i] for i in held),
        contact_share=float((seen.contact & seen.visible)[:, held].any(1).double().mean()),
        hidden=1 - float(seen.visible.double().mean(0)[held].min()),
        equivariance=equivariance,
        stay=rest,
        closure=_closure(group, seen, batch, episode, unit),
        tracking=min(tracked, default=None),
        consistency=min((edge.accuracy for edge in edges), default=None),
        elongation=float(seen.elongation.median(0).values.min()) if seen.elongation is not None and has_body else None,
        misplaced=misplaced,
        error=error,
        slots=tuple(slots),
        objects=len(held),
        unit=unit * group.usual(batch.a),
    )


SPARE: dict[Holds, tuple[str, str]] = {
    "nothing": ("empty-slot", "a slot holds no object: nothing in it moves when the agent touches it"),
    "duplicate": ("duplicate-object", "two slots hold the same object: they move in the same triples"),
    "mover": ("moves-by-itself", "a slot holds no object: what it holds moves whether or not the agent touches it"),
}


def judge(quality: Quality) -> list[Finding]:
    """Findings about a run. If contacts do not separate and geometry does not explain them, nothing else is judged but
    the number of objects."""
    found: list[Finding] = []

    def warn(name: str, text: str, evidence: dict[str, Any], advice: str) -> None:
        found.append(Finding(name, "warning", text, evidence, advice))

    count = max(quality.objects, quality.counted or 0)
    if quality.objects < count:
        warn(
            "more-objects",
            "the agent also touches objects that the model does not place",
            {"placed": quality.objects, "counted": count},
            f"Train with objects={count}, or with objects='auto', which counts them first.",
        )
    blurred = {"separation": quality.separation, "wanted at least": SEPARABLE}
    contacts = round(quality.contact_share * quality.triples)
    several = contacts >= FEWEST_OF_A_CLASS  # a boundary fits any few contacts
    if quality.separation < SEPARABLE and several and (quality.consistency or 0.0) >= EXPLAINED:
        warn(
            "weak-contacts",
            "some contacts are not recognised",
            blurred,
            "Geometry explains the others, so positions can be used. If contacts move the object little, longer moves "
            "help; otherwise train longer.",
        )
    elif quality.separation < SEPARABLE:
        return [
            *found,
            Finding(
                "inseparable",
                "blocking",
                "triples with and without contact do not separate",
                blurred,
                "Do not trust the object's positions. Are there triples of both kinds? Does the object rest without "
                "contact? Otherwise train longer.",
            ),
        ]
    nothing_held = all(slot.holds in SPARE for slot in quality.slots)
    for number, slot in enumerate(quality.slots):
        if slot.holds in SPARE:
            name, text = SPARE[slot.holds]
            evidence = {"index": number, "moves if touched": slot.touched, "moves otherwise": slot.otherwise}
            if slot.holds == "duplicate":
                evidence["overlap of the movements"] = slot.together
            advice = f"Ignore it, or train with objects={count}, or longer if there are more."
            found.append(Finding(name, "blocking" if nothing_held else "warning", text, evidence, advice))
    if not several:
        warn(
            "few-held-out-contacts",
            "too few held-out triples are in contact to judge the object's positions",
            {"in contact": contacts, "wanted at least": FEWEST_OF_A_CLASS},
            "The estimated error means little. Collect more contacts, or evaluate with true states.",
        )
    if several and quality.tracking is not None and quality.tracking < STUCK:
        found.append(
            Finding(
                "stuck-object",
                "blocking",
                "the object's learned position does not follow the contacts that were seen",
                {"moves farther in a contact": quality.tracking, "wanted at least": STUCK},
                "Do not trust the object's positions. Train with another seed, longer, or with more triples.",
            )
        )
    if quality.hidden > HIDDEN:
        warn(
            "hidden-object",
            "the object is hidden in some observations",
            {"share of triples": quality.hidden, "tolerated": HIDDEN},
            "Trust positions whose confidence is high. Another camera, or several views, would show the object more "
            "often.",
        )
    if quality.equivariance > UNSTEADY * quality.unit:
        found.append(
            Finding(
                "agent-residual",
                "blocking" if quality.equivariance > ASTRAY * quality.unit else "warning",
                "the agent's learned displacements differ from the actions",
                {"residual, in actions": quality.equivariance / quality.unit, "wanted below": UNSTEADY},
                "Train longer; if that does not help, `palpate check` shows what the actions are: displacements along "
                "fixed axes, moves along the agent's own axes (group='se2' or 'se3'), or something else.",
            )
        )
    if quality.stay is not None and quality.stay > UNSTEADY * quality.unit:
        warn(
            "restless-object",
            "the object's learned position changes in triples without contact",
            {"change, in actions": quality.stay / quality.unit, "wanted below": UNSTEADY},
            "Train longer, with more triples. Otherwise the object moves by itself or is sometimes hidden.",
        )
    if quality.consistency is not None and quality.consistency < INCONSISTENT:
        warn(
            "unexplained-contacts",
            "the positions of agent and object do not explain the contacts",
            {"explained": quality.consistency, "wanted at least": INCONSISTENT},
            "A long object needs body='ellipse' (in the plane), several objects need objects=k. An object that "
            "moves without contact cannot be explained. Otherwise train longer.",
        )
    if quality.elongation is not None and quality.elongation < ROUND:
        warn(
            "no-angle",
            "the learned body is nearly round, so its angle means little",
            {"long over short axis": quality.elongation, "wanted at least": ROUND},
            "For an object that is as long as wide, or does not turn, use body='ball' or 'outline'. Otherwise train "
            "longer.",
        )
    return found


class Boundary(NamedTuple):
    """The ball around the object that explains the contacts best."""

    radius: float
    accuracy: float  # balanced accuracy of the contacts that it predicts
    spread: float  # root mean square position error, along one direction, that would explain the wrong predictions


def boundary(distance: Tensor, contact: Tensor) -> Boundary:
    """Fit the radius r so that paths at a distance d < r are in contact. Both classes have the same weight.

    With a position error s, paths lie beyond the boundary by s^2 / 2 times their density there, averaged over all
    paths. Both are measured, so s follows. Paths that lie far beyond it have wrong labels, such as contacts that hardly
    moved the object. Their share is measured there, and what they add elsewhere is subtracted.
    """
    share = contact.double().mean()
    weight = torch.where(contact, 0.5 / share, 0.5 / (1 - share))
    radii = distance.quantile(torch.linspace(0.01, 0.99, RADII, dtype=distance.dtype))[:, None]  # [r, 1]
    beyond = torch.where(contact, distance - radii, radii - distance).clamp(min=0)  # [r, b]
    loss = (weight * beyond).mean(1)
    best = loss.argmin()
    radius = radii[best, 0]
    right = (distance < radius) == contact
    # In one dimension many paths lead through the centre, and a boundary there has no width to count in.
    width = torch.maximum(radius, distance.max() / RADII).clamp(min=1e-30)
    near = (distance - radius).abs() < width / 2
    density = ((weight * near).mean() / width).clamp(min=1e-9)
    deep = torch.maximum(DEEP * radius, DEEP_ERRORS * (2 * loss[best] / density).sqrt())
    mislabelled = sum(_mislabelled(weight, distance, radius, deep, contact, inside) for inside in (True, False))
    spread = (2 * (loss[best] - mislabelled).clamp(min=0) / density).sqrt()
    return Boundary(float(radius), float((weight * right).mean()), float(spread))


def _mislabelled(
    weight: Tensor, distance: Tensor, radius: Tensor, deep: Tensor, contact: Tensor, inside: bool
) -> Tensor:
    """Mean distance beyond the boundary that wrong labels on one side of it cause, at the rate seen far from it."""
    depth = (radius - distance if inside else distance - radius).clamp(min=0)
    far = depth > deep
    rate = (weight * far * (contact != inside)).sum() / (weight * far).sum().clamp(min=1e-9)
    return rate * (weight * depth).mean()


def _closure(group: Group, seen: Examination, batch: Batch, episode: Tensor | None, unit: float) -> float | None:
    """Residual of the displacement over `WINDOW` consecutive steps; None if episodes [b] are unknown or too short."""
    if episode is None:
        return None
    chain = chains(batch.o, batch.o_next, episode).cpu()
    whole = (chain[WINDOW - 1 :] == chain[: max(0, len(chain) - WINDOW + 1)]).nonzero()[:, 0]
    if not len(whole):
        return None
    composed = group.compose(batch.a.cpu().double()[whole[:, None] + torch.arange(WINDOW)])
    return residual(group, seen.agent[whole], composed, seen.agent_next[whole + WINDOW - 1], unit)


def _rms(x: Tensor) -> float:
    return float(x.square().sum(-1).mean().sqrt())
