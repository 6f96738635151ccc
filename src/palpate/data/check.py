"""Check the arrays of a log before training: findings with evidence and advice.

Legend: N triples, n dimension of the action.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from palpate.data.transitions import Batch, Transitions

Severity = Literal["forbids", "warns"]

FEWEST, FEW = 300, 1000  # triples
STILL = 1e-3  # of the actions' root mean square: a shorter action counts as no motion
CONTRADICTION = 0.3  # of the same: difference between two displacements of the same two observations
DUPLICATES = (0.02, 0.5)  # shares that warn and forbid
UNCHANGED = (0.05, 0.5)
IDLE = (0.2, 0.9)
ALIASED = (0.01, 0.1)
FLAT = 1e-3  # of the largest axis: actions that hardly leave a plane
EXTREME = 0.15  # share of actions at the largest or smallest value: they may be clipped
EXTREME_VALUES = 20  # with fewer different values, actions are discrete, not clipped


class Finding(NamedTuple):
    """A problem with data, or with a model trained on them."""

    name: str
    severity: Severity
    what: str
    evidence: dict[str, float]
    advice: str

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.evidence.items())
        return f"{self.what} ({numbers}). {self.advice}"


@final
@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The findings of `palpate.check`; `measured` holds all measured numbers, good ones too."""

    findings: list[Finding] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    probed: bool = False  # whether a short training run was judged too

    @property
    def good(self) -> bool:
        """Whether there are no blocking problems."""
        return all(finding.severity != "forbids" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"good": self.good, **asdict(self), "findings": [finding._asdict() for finding in self.findings]}

    def __str__(self) -> str:
        lines = [f"{finding.severity}: {finding.name}: {finding}" for finding in self.findings]
        if self.probed:
            looked = "arrays and a short training run"
        else:
            tried = "probe_steps" in self.measured
            looked = f"arrays alone, {'a training run too short to judge by' if tried else 'no training run'}"
        verdict = "no blocking problems" if self.good else "blocking problems: do not train on these data as they are"
        numbers = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in self.measured.items())
        return "\n".join([*lines, f"measured: {numbers}", f"{verdict} ({looked})"])


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def demand_variety(rows: Batch) -> None:
    """Refuse rows whose observations or triples are all the same."""

    def constant(x: Tensor) -> bool:
        return bool((x == x[:1]).all())

    if constant(rows.o) and torch.equal(rows.o, rows.o_next):
        raise ValueError("all observations are the same; check how they were recorded, or run `palpate check`")
    if len(rows.a) > 1 and all(map(constant, rows)):
        raise ValueError("all triples are copies of one; check how they were recorded, or run `palpate check`")


def check_arrays(triples: Transitions, seen: "Survey | None" = None) -> Checkup:
    """Check the arrays in one pass over the rows, with bounded memory; none if `seen` is given."""
    seen = seen or Survey.read(triples)
    a = triples.action.double().numpy()
    length = np.sqrt((a**2).sum(1))
    unit = float(np.sqrt((length**2).mean()))
    measured: dict[str, float] = {"triples": len(a), "action_rms": unit}
    findings: list[Finding] = []

    def judge(name: str, value: float, bounds: tuple[float, float], what: str, advice: str, **more: float) -> None:
        """A value above the first bound warns, above the second it forbids."""
        measured[name.replace("-", "_")] = value
        if value > bounds[0]:
            severity: Severity = "forbids" if value > bounds[1] else "warns"
            findings.append(Finding(name, severity, what, {"share": value, **more}, advice))

    if len(a) < FEW:
        findings.append(
            Finding(
                "too-few",
                "forbids" if len(a) < FEWEST else "warns",
                "there are few triples",
                {"triples": len(a), "wanted at least": FEW},
                "Collect more; some thousands are a good start, and every place should be visited.",
            )
        )
    if unit == 0:
        advice = "Record how far the agent moved between the two observations."
        findings.append(Finding("no-motion", "forbids", "all actions are zero", {"largest": 0.0}, advice))
        return Checkup(findings=findings, measured=measured)
    if seen.constant:
        findings.append(
            Finding(
                "constant-observation",
                "forbids",
                "all observations are the same",
                {"different": 1.0},
                "Check how they were recorded: the camera or the sensor did not deliver.",
            )
        )
        return Checkup(findings=findings, measured=measured)

    moved = length > STILL * unit
    judge(
        "idle",
        float(1 - moved.mean()),
        IDLE,
        "in many triples the agent does not move",
        "They are not informative; leave them out, or join several short steps into one.",
    )
    judge(
        "unchanged",
        float((seen.same & moved).mean()),
        UNCHANGED,
        "in many triples the action is not zero, but the observation does not change",
        "Is the agent in the picture? Did it really move (was it blocked, was the picture taken too early)? Record "
        "the displacement achieved, and leave out rows that were never carried out.",
    )
    judge(
        "duplicates",
        seen.duplicate_share,
        # With few possible states, as on a grid, triples repeat; then enough different ones remain.
        DUPLICATES if (1 - seen.duplicate_share) * len(a) < FEW else (DUPLICATES[0], 1.0),
        "many triples are exact copies of others",
        "Leave out the copies: they count twice, and held-out triples would also be training triples.",
    )
    judge(
        "contradictions",
        seen.contradicted(a, CONTRADICTION * unit),
        ALIASED,
        "the same two observations have different actions",
        "The observations do not distinguish states (aliasing), or the actions are not the displacements between them. "
        "Add a view or a sensor that shows the agent, or record the displacement achieved.",
    )
    # The eigenvalue of an unused axis may be slightly negative, and its root NaN.
    spread = np.sqrt(np.linalg.eigvalsh(a.T @ a / len(a)).clip(min=0))
    measured["flattest_axis"] = float(spread[0] / spread[-1])
    if spread[0] < FLAT * spread[-1]:
        findings.append(
            Finding(
                "flat",
                "forbids",
                f"the actions have {a.shape[1]} numbers, but the agent never moves in one of the directions",
                {"smallest over largest spread": float(spread[0] / spread[-1])},
                "No position can be learned along it: leave that number out of the actions, or move that way too.",
            )
        )
    if a.shape[1] == 1:
        findings.append(
            Finding(
                "one-dimension",
                "warns",
                "the actions have one number: the agent cannot pass the object without contact, so position and radius "
                "cannot be separated",
                {"numbers": 1},
                "Give the sum of the two radii, in the action's unit, as radius= or --radius; `fit` needs it.",
            )
        )
    if a.shape[1] > 3:
        findings.append(
            Finding(
                "many-dimensions",
                "warns",
                "the actions have more numbers than space has dimensions",
                {"numbers": a.shape[1]},
                "`fit` uses them as displacements in a space of that many dimensions. Joint angles and motor commands "
                "are not displacements: record how far the hand moved, as 2 or 3 numbers.",
            )
        )
    clipped = max(_extreme_share(column) for column in a.T)
    measured["extreme_actions"] = clipped
    if clipped > EXTREME:
        findings.append(
            Finding(
                "clipped-actions",
                "warns",
                "many actions have the same largest value, as if they were clipped",
                {"share": clipped},
                "Make sure that they are the displacements achieved, not clipped commands.",
            )
        )
    measured["in_order"] = float(seen.goes_on.mean())
    return Checkup(findings=findings, measured=measured)


def _extreme_share(column: np.ndarray) -> float:
    """Share of rows at the largest or at the smallest value; 0 for discrete actions."""
    values, counts = np.unique(column, return_counts=True)
    return 0.0 if len(values) < EXTREME_VALUES else float((counts[0] + counts[-1]) / len(column))


@final
class Survey:
    """Fingerprints from one pass over the observations: equal numbers for equal o and o'."""

    def __init__(self, first: np.ndarray, second: np.ndarray, action: np.ndarray) -> None:
        self.first, self.second = first, second  # [N] int64
        self.same = first == second
        self.constant = bool((first == first[0]).all() and (second == first[0]).all())
        pair = np.stack((first, second), 1)
        whole = np.concatenate((pair, np.ascontiguousarray(action, np.float32).view(np.int32)), 1)
        self.duplicate_share = 1 - len(np.unique(whole, axis=0)) / len(whole)
        _, self._group = np.unique(pair, axis=0, return_inverse=True)
        self.goes_on = np.append(second[:-1] == first[1:], False)  # [N] the next row begins where this one ends

    @classmethod
    def read(cls, triples: Transitions) -> "Survey":
        first, second = [], []
        for block in triples.blocks():
            rows = triples.rows(block)
            first.append(_fingerprints(rows.o))
            second.append(_fingerprints(rows.o_next))
        return cls(np.concatenate(first), np.concatenate(second), triples.action.numpy())

    def contradicted(self, a: np.ndarray, gap: float) -> float:
        """Share of rows whose action differs by more than `gap` from that of a row with the same o and o'."""
        group = self._group.reshape(-1)
        count = np.bincount(group)
        centre = np.stack([np.bincount(group, column) / count for column in a.T], 1)[group]
        return float((np.sqrt(((a - centre) ** 2).sum(1)) > gap / 2).mean())


def _fingerprints(o: torch.Tensor) -> np.ndarray:
    """A number for each row `[b]`, equal for equal rows; different rows collide once in 2^64."""
    return np.concatenate([_fingerprint(part) for part in o.split(256)])


def _fingerprint(o: torch.Tensor) -> np.ndarray:
    raw = o.contiguous().flatten(1).numpy()
    flat = raw.view(np.uint8).reshape(len(raw), -1)
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4))).view(np.uint32).astype(np.uint64)
    weights = np.random.default_rng(0).integers(1, 2**63, padded.shape[1], dtype=np.uint64) | np.uint64(1)
    with np.errstate(over="ignore"):
        return (padded * weights).sum(1, dtype=np.uint64).view(np.int64)


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.severity != "forbids")
