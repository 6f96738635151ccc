"""`run.toml`: the settings of a run as a file that `palpate train --config` reads."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from palpate import __version__
from palpate.choices import Choice
from palpate.plan import Asked

RUN_FILE = "run.toml"


def run_file(origin: Mapping[str, Any], asked: Asked, left_open: Iterable[Choice]) -> str:
    """The file's text: given settings by name, then the chosen ones as comments with their reasons.

    `origin` is the source of the data, with the names of `palpate train`; it is empty for data in memory.
    """
    given = {**origin, **_changed(asked)}
    lines = [f"# palpate {__version__}. To repeat this run: palpate train --config {RUN_FILE} --out FOLDER"]
    if not origin:
        lines.append("# The data were in memory; add data = FILE or env = WORLD.")
    lines += [f"{name} = {_value(value)}" for name, value in given.items()]
    lines += ["", "# Chosen, because not given:"]
    lines += [f"# {choice.name} = {_value(choice.value)}  # {choice.reason}" for choice in left_open]
    return "\n".join(lines) + "\n"


def _changed(settings: Any) -> dict[str, Any]:
    """The settings that differ from their defaults, those of nested dataclasses included."""
    found: dict[str, Any] = {}
    defaults = type(settings)()
    for each in fields(settings):
        value, default = getattr(settings, each.name), getattr(defaults, each.name)
        if hasattr(value, "__dataclass_fields__"):
            found |= _changed(value)
        elif value != default:
            found[each.name] = value
    return found


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # TOML writes text, numbers and truth values as JSON does
