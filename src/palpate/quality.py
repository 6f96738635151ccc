"""How good a trained model is, from triples it has not seen and without labels.

Legend: b triples, n ambient dimension. Lengths are in the action's unit.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from palpate.contacts.split import SEPARABLE
from palpate.data.check import Finding
from palpate.data.transitions import Batch
from palpate.geometry import Segment, segment_distance2, segment_mahalanobis2
from palpate.methods.interaction import Interaction

BLOCK = 256  # rows encoded at a time
RADII = 64  # candidates for the body's radius
FLATTEST = 1e-8  # least square of a semi-axis, of the longest one's
WINDOW = 10  # steps over which displacements are summed up
UNSTEADY = 0.25  # of the actions' root mean square: more is no good frame, or no rest
ROUND = 1.3  # long over short semi-axis: less was seen of round objects after short runs
INCONSISTENT = 0.8  # of the contacts and of the misses that geometry is to explain, on average


class Reading(NamedTuple):
    """What a model says of triples, on the CPU in float64."""

    agent: Tensor  # [b, n]
    agent_next: Tensor  # [b, n]
    object: Tensor  # [b, n]
    object_next: Tensor  # [b, n]
    scene: Tensor  # [b] d_W(w, w')
    touched: Tensor  # [b] bool, by the split
    distance: Tensor  # [b] from the body's border to the path, and its radius on top; less than 0 deep inside
    action: Tensor  # [b, n]
    elongation: Tensor  # [b] longest over shortest semi-axis of the body, 1 where it has none

    @property
    def residual(self) -> Tensor:
        """z_int' - z_int - a, `[b, n]`."""
        return self.agent_next - self.agent - self.action


@torch.no_grad()
def read(model: Interaction, batch: Batch) -> Reading:
    """Block by block, on the device where the model is."""
    device, parts = model.inputs.unit.device, []
    for o, a, o_next in zip(*(x.split(BLOCK) for x in batch), strict=True):
        o, a, o_next = o.to(device), a.to(device), o_next.to(device)
        before, after, scene = model.encode(o), model.encode(o_next), model.distance(o, o_next)
        path = Segment(before.agent, a)
        if model.config.objective.external == "likelihood":
            distance = model.passing(o, a)
        elif before.covariance is not None:
            distance = _along_axes(before.object, path, before.covariance)
        else:
            distance = segment_distance2(before.object, path).sqrt()
        elongation = torch.ones_like(distance)
        if before.covariance is not None:
            lengths, _ = _semi_axes(before.covariance)
            elongation = lengths[:, -1] / lengths[:, 0]
        touched = model.split(scene)
        columns = (before.agent, after.agent, before.object, after.object, scene, touched, distance, a, elongation)
        parts.append([x.cpu() if x.dtype == torch.bool else x.cpu().double() for x in columns])
    return Reading(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _along_axes(centre: Tensor, path: Segment, covariance: Tensor) -> Tensor:
    """Distance `[b]` to the path in the space where the ellipsoid is a ball of the same volume."""
    lengths, axes = _semi_axes(covariance)
    size = lengths.log().mean(-1).exp()
    root = axes.mT / lengths[..., None]
    path = Segment(path.start.double(), path.move.double())
    return size * segment_mahalanobis2(centre.double(), path, root).sqrt()


def _semi_axes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Their lengths `[b, n]`, the longest last, and directions `[b, n, n]`, in columns.

    By eigenvalues: an ellipsoid next to flat, as of a run that went wrong, has no Cholesky root in float32.
    """
    values, axes = torch.linalg.eigh(covariance.double())
    return torch.maximum(values, FLATTEST * values[..., -1:]).sqrt(), axes


@final
@dataclass(frozen=True, kw_only=True)
class Quality:
    """A label-free account of a model; None where the triples cannot say."""

    triples: int  # it was measured on
    separation: float  # emptiness of the valley between touched and untouched, 1 at best
    contact_share: float
    equivariance: float  # root mean square of z_int' - z_int - a
    stay: float | None  # root mean square of z_ext' - z_ext over the untouched
    closure: float | None  # the same as equivariance, over several steps of an episode in a row
    consistency: float | None  # how much of the split the paths' distances to the body explain: balanced accuracy
    elongation: float | None  # of a body with axes, long over short semi-axis, median: 1 where no angle is known
    misplaced: float | None  # error along one direction that would explain the contacts that geometry does not
    error: float  # estimate of the root mean square error of the object's place relative to the agent
    unit: float  # root mean square of the actions, beside which all lengths are to be seen
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [finding._asdict() for finding in self.findings]}

    def __str__(self) -> str:
        known = {"error": self.error, "agent residual": self.equivariance, "rest residual": self.stay}
        lengths = ", ".join(f"{name} {value:.3g}" for name, value in known.items() if value is not None)
        explained = "" if self.consistency is None else f", contacts explained {self.consistency:.1%}"
        return f"estimated without labels, where an action is {self.unit:.3g} long: {lengths}{explained}"


def assess(model: Interaction, batch: Batch, episode: Tensor | None = None) -> Quality:
    """Judge a model by triples that it was not trained on; `episode` [b] says which one each is from."""
    reading = read(model, batch)
    unit = float(model.inputs.unit)
    separation, touched = model.split.separation(), reading.touched
    both = bool(touched.any() and not touched.all())
    stay = _rms(reading.object_next - reading.object, ~touched) if not touched.all() else None
    equivariance = _rms(reading.residual)
    edge = border(reading.distance, touched) if both else None
    # With nothing to go by, the object may be anywhere among the agent's places; it is hardly ever farther off.
    lost = _rms(reading.agent - reading.agent.mean(0))
    if edge is not None:
        lost = min(lost, reading.agent.shape[1] ** 0.5 * edge.spread)
    error = (lost**2 + (equivariance**2 + (stay or 0.0) ** 2) / 2) ** 0.5
    account = Quality(
        triples=len(touched),
        separation=separation,
        contact_share=float(touched.double().mean()),
        equivariance=equivariance,
        stay=stay,
        closure=None if episode is None else _closure(reading, _unbroken(batch, episode)),
        consistency=None if edge is None else edge.accuracy,
        elongation=float(reading.elongation.median()) if model.config.objective.body == "axes" else None,
        misplaced=None if edge is None else edge.spread,
        error=error,
        unit=unit,
        findings=(),
    )
    return Quality(**{**vars(account), "findings": tuple(judge(account))})


def judge(quality: Quality) -> list[Finding]:
    """What a user should know of a run; when the classes are not there, nothing else is worth saying."""
    if quality.separation < SEPARABLE:
        return [
            Finding(
                "inseparable",
                "forbids",
                "touched and untouched triples do not separate",
                {"valley": quality.separation, "wanted at least": SEPARABLE},
                "The object's positions are not to be trusted. Are there contacts, and triples without one? Does the "
                "object rest when it is not touched? Otherwise train longer.",
            )
        ]
    found, unit = [], quality.unit
    if quality.equivariance > UNSTEADY * unit:
        found.append(
            Finding(
                "agent-residual",
                "warns",
                "the agent's learned displacements are not the actions",
                {"residual, in actions": quality.equivariance / unit, "wanted below": UNSTEADY},
                "Train longer; if it stays, `palpate check` says whether the actions are displacements at all.",
            )
        )
    if quality.stay is not None and quality.stay > UNSTEADY * unit:
        found.append(
            Finding(
                "restless-object",
                "warns",
                "the object's learned position changes in triples where it was not touched",
                {"change, in actions": quality.stay / unit, "wanted below": UNSTEADY},
                "Train longer, with more triples; if it stays, the object moves by itself or is not always to be seen.",
            )
        )
    if quality.consistency is not None and quality.consistency < INCONSISTENT:
        found.append(
            Finding(
                "unexplained-contacts",
                "warns",
                "contacts do not follow from where the agent passes and where the object is",
                {"explained": quality.consistency, "wanted at least": INCONSISTENT},
                "A long object asks for body='axes' (in the plane); an object that moves untouched, or more than one, "
                "cannot be explained. Otherwise train longer.",
            )
        )
    if quality.elongation is not None and quality.elongation < ROUND:
        found.append(
            Finding(
                "no-angle",
                "warns",
                "the object's body came out nearly round, so its angle says little",
                {"long over short axis": quality.elongation, "wanted at least": ROUND},
                "An object that is as long as wide, or does not turn, is better described by body='round'. Otherwise "
                "train longer.",
            )
        )
    return found


class Border(NamedTuple):
    """The ball around the object that explains the contacts best."""

    radius: float
    accuracy: float  # mean of the shares of contacts and of misses on their side of it
    spread: float  # root mean square error, along one direction, that would leave as many on the wrong side


def border(distance: Tensor, touched: Tensor) -> Border:
    """Paths that pass at a distance d touch where d < r. With an error of spread s, misplaced paths lie behind the
    border by s^2 / 2 times their density there, on average over all paths; both are measured, so s follows.

    Contacts and misses weigh the same, however rare one is.
    """
    share = touched.double().mean()
    weight = torch.where(touched, 0.5 / share, 0.5 / (1 - share))
    radii = distance.quantile(torch.linspace(0.01, 0.99, RADII, dtype=distance.dtype))[:, None]  # [r, 1]
    beyond = torch.where(touched, distance - radii, radii - distance).clamp(min=0)  # [r, b]
    loss = (weight * beyond).mean(1)
    best = loss.argmin()
    radius = radii[best, 0]
    right = (distance < radius) == touched
    # On a line many paths lead through the centre, and a border there has no width to count in.
    width = torch.maximum(radius, distance.max() / RADII).clamp(min=1e-30)
    near = (distance - radius).abs() < width / 2
    density = (weight * near).mean() / width
    return Border(
        float(radius), float((weight * right).mean()), float((2 * loss[best] / density.clamp(min=1e-9)).sqrt())
    )


def _unbroken(batch: Batch, episode: Tensor) -> Tensor:
    """Numbers `[b]` the stretches in which each row begins where the one before ends; of an episode some rows may be
    elsewhere."""
    device, broken = batch.o.device, torch.ones(len(episode), dtype=torch.bool)
    same = (batch.o_next[:-1] == batch.o[1:]).flatten(1).all(1) & (episode[:-1] == episode[1:]).to(device)
    broken[1:] = ~same.cpu()
    return broken.cumsum(0)


def _closure(reading: Reading, episode: Tensor) -> float | None:
    """Residual of the displacement over `WINDOW` steps that follow each other; `episode` [b] numbers such rows."""
    total = torch.cat((torch.zeros_like(reading.action[:1]), reading.action.cumsum(0)))
    whole = (episode[WINDOW - 1 :] == episode[: len(episode) - WINDOW + 1]).nonzero()[:, 0]
    if not len(whole):
        return None
    moved = reading.agent_next[whole + WINDOW - 1] - reading.agent[whole]
    return _rms(moved - (total[whole + WINDOW] - total[whole]))


def _rms(x: Tensor, rows: Tensor | None = None) -> float:
    return float((x if rows is None else x[rows]).square().sum(-1).mean().sqrt())
