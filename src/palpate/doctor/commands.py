"""What a log's own actions are: targets, displacements, velocities or other commands. They are not used in training.

Legend: b rows, k numbers.
"""

from typing import NamedTuple

import numpy as np

from palpate.data.logs.actions import Pair, own_actions
from palpate.data.transitions import Transitions
from palpate.findings import Finding

LATEST = 10  # frames, at most, after which a command takes effect
SIMPLER = 0.002  # of the explained share: worth of one frame less
ROUGHLY, CLEARLY = 0.5, 0.9  # explained shares
EQUAL = 0.1  # tolerance of a factor
FEWEST = 20  # rows

ADVICE = (
    "palpate does not use them: the action of a triple is the change of the position. In triples of your own, do the "
    "same"
)


class Fit(NamedTuple):
    """How well the actions are some factor times the values, or times the values' changes from frame to frame."""

    explained: float  # share of the actions' squares
    changes: bool
    what: str
    later: int  # frames from the action to the value
    times: float

    @property
    def score(self) -> float:
        return self.explained - SIMPLER * self.later


def note(triples: Transitions) -> list[Finding]:
    """A note on the log's own actions, if the triples come from a log that has some to compare."""
    own = own_actions(triples)
    if own is None:
        return []
    fits = [
        fit
        for pair in own.pairs
        for later in range(LATEST + 1)
        for fit in (_as_targets(pair, own.lengths, later), _as_changes(pair, own.lengths, later))
        if fit is not None
    ]
    best = max(fits, key=lambda fit: fit.score, default=None)
    if best is None:  # few rows, or fewer numbers than the position has
        return []
    if best.explained < ROUGHLY:
        what = f"the log's own actions, {own.column!r}, follow neither the position nor its changes"
        advice = f"They may be joint or motor commands. {ADVICE}."
        return [Finding("own-actions", "note", what, {"explained": best.explained}, advice)]
    evidence = {"explained": best.explained, "frames later": float(best.later), "times": best.times}
    roughly = "" if best.explained >= CLEARLY else "roughly "
    what = f"the log's own actions, {own.column!r}, are {roughly}{_kind(best, own.fps)}"
    return [Finding("own-actions", "note", what, evidence, f"{ADVICE}.")]


def _kind(fit: Fit, fps: float | None) -> str:
    of = {"position": "the position", "joints": "the joints"}.get(fit.what, repr(fit.what))
    if not fit.changes:
        return f"targets of {of}: values to reach"
    if abs(fit.times - 1) < EQUAL:
        return "the displacements" if fit.what == "position" else f"the changes of {of} between two frames"
    if fps is not None and abs(fit.times / fps - 1) < EQUAL:
        return f"velocities of {of}, in units per second"
    return f"commands: changes of {of} times a factor, because of a gain or another unit"


def _as_targets(pair: Pair, lengths: np.ndarray, later: int) -> Fit | None:
    """Each number of the action as a linear function of its value `later` frames later."""
    rows = _rows(pair, lengths, later)
    action, value = pair.action[rows], pair.state[rows + later]
    action, value = action - action.mean(0), value - value.mean(0)
    return _fit(action, value, False, pair.what, later, each=True)


def _as_changes(pair: Pair, lengths: np.ndarray, later: int) -> Fit | None:
    """The action as a factor times the change to the next frame, `later` frames later."""
    rows = _rows(pair, lengths, later + 1)
    value = pair.state[rows + later + 1] - pair.state[rows + later]
    return _fit(pair.action[rows], value, True, pair.what, later, each=False)


def _rows(pair: Pair, lengths: np.ndarray, later: int) -> np.ndarray:
    """Rows [b] with an action, and with a row of the same episode so many frames later."""
    left = np.concatenate([np.arange(length)[::-1] for length in lengths])
    finite = np.isfinite(pair.action).all(1) & np.isfinite(pair.state).all(1)
    rows = np.flatnonzero((left >= later) & finite)
    return rows[finite[np.minimum(rows + later, len(finite) - 1)]]


def _fit(action: np.ndarray, value: np.ndarray, changes: bool, what: str, later: int, *, each: bool) -> Fit | None:
    """One factor for each number, or one for all; None if there is nothing to compare."""
    if len(action) < FEWEST or not np.square(action).sum() or not np.square(value).sum():
        return None
    axis = 0 if each else None
    square = np.square(value).sum(axis)
    times = (action * value).sum(axis) / np.where(square > 0, square, 1)
    left = np.square(action - times * value).sum() / np.square(action).sum()
    whole = float(np.sum(times * square) / np.sum(square))
    return Fit(float(1 - left), changes, what, later, whole)
