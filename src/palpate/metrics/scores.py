"""The scores as values, as a table, and what to know about them."""

from dataclasses import dataclass
from typing import NamedTuple

TITLES = {
    "l_test": "L_test",
    "own_l_test": "L_test, seen by the agent",
    "agent_error": "agent error",
    "heading_error": "heading error (rad)",
    "rotation_error": "rotation error (rad)",
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

    Errors are mean Euclidean distances in the action's unit, after the motion that fits the agent. `own_l_test` is
    L_test along the axes of an agent that turns, where no motion is fitted. For `object_spread`
    the object's constant offset is removed too. For `object_rigid` an offset that turns with the object is removed as
    well: any point of a rigid object can serve as its position. Positions are measured in rows in which all objects are
    visible, if that is known. Several objects have no order: one permutation for all rows fits them to the true ones,
    and scores are means over them; `each` has those of each object.
    """

    count: int  # observations evaluated
    l_test: float
    own_l_test: float | None
    agent_error: float
    heading_error: float | None  # radians, after the same motion
    rotation_error: float | None  # radians, the angle of the rotation between estimate and truth, after the same motion
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
    swap_rate: float | None  # share of observations for which the chosen order of agent and objects is wrong
    probed_l_test: float | None  # agent and object each read by an affine map fitted to the truth
    hidden_rows: int = 0  # observations whose positions are not measured, because the object is hidden
    fitted_rows: int | None = None  # rows of the same set to which the translation was fitted; not evaluated
    probe_rows: int | None = None  # rows to whose true states the probe of a latent was fitted
    each: tuple["EachScore", ...] = ()  # several objects, in the order of the true ones
    constant: dict[str, float]  # scores of the constant predictor, by the names above
    motion: str = "translation"  # what was fitted, in words
    bearings: bool = False  # whether positions are points of the unit circle

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
            f"errors are measured after the {self.motion} that fits the agent. The object's bias is a constant offset, "
            "which contacts cannot determine; model.align with known positions of agent and object removes it",
            "lengths are in the action's unit, L_test in its square",
        ]
        if self.bearings:
            notes.append(
                "positions are bearings from the pivot, points of the circle of radius 1: turns do not determine how "
                "far away an object is"
            )
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
            notes.append(
                f"the {self.motion} was fitted to the other {self.fitted_rows:,} observations, every second row"
            )
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
                "the model does not distinguish agent and objects: true states choose one order for all observations"
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
