"""The content of `config.json` and `run.json`, as plain values. A damaged or foreign file is refused in one message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palpate.disk import from_json
from palpate.findings import Finding
from palpate.runlog import MODEL_FORMAT
from palpate.verdicts import MEANINGS

NUMBERS = ("unit", *(key for _, key, _, _ in MEANINGS))  # of the quality, each known or None


def described(path: Path) -> dict[str, Any]:
    """The content of the file. A ValueError names it if the content is not as a run writes it."""
    try:
        facts = from_json(path.read_bytes())
        if not isinstance(facts, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); restore it or train again") from error
    if path.name == "config.json":
        _require_format(path, facts)
    flaw = _flaw(facts)
    if flaw:
        raise ValueError(f"{path} is damaged ({flaw} is not as a run writes it); restore it or train again")
    return facts


def _require_format(path: Path, facts: Mapping[str, Any]) -> None:
    if "format_version" not in facts:
        raise ValueError(f"{path} is not from a run of palpate: it has no format_version; give the folder of a run")
    version = facts["format_version"]
    if version != MODEL_FORMAT:
        raise ValueError(
            f"{path} has format_version {version!r}, and this palpate reads only {MODEL_FORMAT}: train again, or view "
            f"it with a palpate of that format (saved by {facts.get('palpate_version', 'an unknown version')})"
        )


def _flaw(facts: Mapping[str, Any]) -> str:
    """The first entry that is not as a run writes it; empty if all are. Entries may be missing."""
    model, training = facts.get("model", {}), facts.get("training", {})
    if not isinstance(model, dict) or not isinstance(model.get("objective", {}), dict):
        return "model"
    if not isinstance(training, dict) or not isinstance(training.get("steps"), int | None):
        return "training"
    data = facts.get("data", "")
    if not isinstance(data.get("data", "") if isinstance(data, dict) else data, str):
        return "data"
    world = facts.get("world", {})
    if not isinstance(world, dict) or not isinstance(world.get("env", ""), str):
        return "world"
    for name, sound in (("choices", _is_choice), ("findings", _is_finding)):
        entries = facts.get(name, [])
        if not isinstance(entries, list) or not all(map(sound, entries)):
            return name
    return "" if _is_quality(facts.get("quality")) else "quality"


def _is_choice(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("name", "reason"))


def _is_finding(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != set(Finding._fields) or not isinstance(value["evidence"], dict):
        return False
    texts = (value[name] for name in Finding._fields if name != "evidence")
    return all(isinstance(text, str) for text in texts) and all(map(_is_number, value["evidence"].values()))


def _is_quality(value: Any) -> bool:
    """A method without contacts has no quality."""
    if value is None or value == {}:
        return True
    if not isinstance(value, dict) or not isinstance(value.get("verdict"), str):
        return False
    return all(value.get(name) is None or _is_number(value[name]) for name in NUMBERS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
