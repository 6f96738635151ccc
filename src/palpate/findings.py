"""Findings: problems with data, or with a model trained on them."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Severity = Literal["blocking", "warning", "note"]  # a note is no problem
Bounds = tuple[float, float]  # a value beyond the first is a warning, beyond the second blocking


class Finding(NamedTuple):
    """One problem or note, with evidence and advice."""

    name: str
    severity: Severity
    what: str
    evidence: dict[str, float]
    advice: str

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.evidence.items())
        return f"{self.what} ({numbers}). {self.advice}"


class Rule(NamedTuple):
    """Makes a finding from measurements. The first of `keys` is judged by the bounds; all of them are evidence."""

    name: str
    keys: str  # of measurements, separated by spaces
    what: str
    advice: str
    above: Bounds | None = None
    below: Bounds | None = None

    def severity(self, seen: Mapping[str, float]) -> Severity | None:
        """None if the measurement is within the bounds or missing."""
        value = seen.get(self.keys.split()[0])
        if value is None:
            return None
        above, below = self.above or (float("inf"),) * 2, self.below or (-float("inf"),) * 2
        warning, blocking = (value > high or value < low for high, low in zip(above, below, strict=True))
        return "blocking" if blocking else "warning" if warning else None

    def finding(self, severity: Severity, seen: Mapping[str, float]) -> Finding:
        return Finding(self.name, severity, self.what, {key: seen[key] for key in self.keys.split()}, self.advice)

    def judge(self, seen: Mapping[str, float]) -> list[Finding]:
        """The finding, if the measurement exceeds a bound."""
        severity = self.severity(seen)
        return [] if severity is None else [self.finding(severity, seen)]
