"""The verdict on a run and its measurements, in plain words, for reports and pages. Light to import."""

from collections.abc import Mapping
from typing import Any

VERDICTS = {
    "good": "The positions can be used.",
    "doubtful": "The positions may be wrong; read the findings below before you use them.",
    "not to be trusted": "The object's positions are wrong, or nothing shows that they are right.",
}
# name, key, kind of number, meaning
MEANINGS = (
    ("position error", "error", "length", "estimated error of the object's position relative to the agent"),
    ("agent's frame", "equivariance", "length", "the agent's learned displacement differs from the action by this"),
    ("object at rest", "stay", "length", "the object's position varies by this where nothing touched it"),
    ("contacts explained", "consistency", "share", "balanced accuracy of the contacts that geometry alone predicts"),
    ("follows contacts", "tracking", "share", "how often the object moves farther in a contact; 50 % by chance"),
    ("separation", "separation", "share", "how clearly contacts and other triples separate: 100 % at best"),
    ("contact share", "contact_share", "share", "of the triples that were measured"),
    ("hidden", "hidden", "share", "of the triples have a hidden object"),
    ("drift", "closure", "length", "difference of the displacements over ten steps"),
    ("long over short", "elongation", "plain", "of the body's axes; the angle means little near 1"),
)


def judged(quality: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """A sentence about the verdict, and name, value and meaning of each measurement that is known."""
    unit = quality.get("unit") or 1.0
    text = VERDICTS.get(quality["verdict"], "")
    if quality.get("error") is not None:
        share = quality["error"] / unit
        text += f" The estimated error is {quality['error']:.2g}, {share:.0%} of the length of an action ({unit:.2g})."
    rows = [
        (name, _shown(quality[key], kind), meaning)
        for name, key, kind, meaning in MEANINGS
        if quality.get(key) is not None
    ]
    return f"{text} No true state was used.", rows


def _shown(value: float, kind: str) -> str:
    return f"{value:.0%}" if kind == "share" else f"{value:.3g}"
