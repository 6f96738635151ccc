"""The findings of `palpate check` about a log, with example rows."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from palpate.data.transitions import Transitions
from palpate.doctor.arrays import ARRAY_RULES, CONTRADICTION, STILL, fingerprints, measure_arrays
from palpate.findings import Finding

Array = NDArray[Any]
SHOWN_ROWS = 8


class Shown(NamedTuple):
    """A finding and its example rows. A finding about the whole log has none."""

    finding: Finding
    rows: list[int]


@final
class Examination:
    """The checks of the arrays, which need no training."""

    def __init__(self, triples: Transitions) -> None:
        self._action = triples.action.double().numpy()
        self._pair = fingerprints(triples)
        self.measured = measure_arrays(triples, self._pair)
        found = [finding for rule in ARRAY_RULES for finding in rule.judge(self.measured)]
        found.sort(key=lambda finding: finding.severity != "blocking")
        self.findings = [self.shown(finding) for finding in found]

    def shown(self, finding: Finding) -> Shown:
        """The finding with its first example rows."""
        rows = self._shows.get(finding.name)
        return Shown(finding, [] if rows is None else np.flatnonzero(rows())[:SHOWN_ROWS].tolist())

    @property
    def _shows(self) -> dict[str, Callable[[], Array]]:
        return {
            "idle": lambda: ~self._moved,
            "unchanged": lambda: (self._pair[:, 0] == self._pair[:, 1]) & self._moved,
            "duplicates": self._duplicates,
            "contradictions": self._contradictions,
            "clipped-actions": self._extreme,
        }

    @property
    def _moved(self) -> Array:
        moved: Array = np.linalg.norm(self._action, axis=1) > STILL * self.measured["action_rms"]
        return moved

    def _duplicates(self) -> Array:
        whole = np.concatenate((self._pair, self._action.astype(np.float32).view(np.int32)), 1)
        _, group, count = np.unique(whole, axis=0, return_inverse=True, return_counts=True)
        return count[group.reshape(-1)] > 1

    def _contradictions(self) -> Array:
        group = np.unique(self._pair, axis=0, return_inverse=True)[1].reshape(-1)
        centre = np.stack([np.bincount(group, column) / np.bincount(group) for column in self._action.T], 1)[group]
        gap = CONTRADICTION * self.measured["action_rms"]
        apart: Array = np.linalg.norm(self._action - centre, axis=1) > gap / 2
        return apart

    def _extreme(self) -> Array:
        a = self._action
        extreme: Array = ((a == a.min(0)) | (a == a.max(0))).any(1)
        return extreme
