"""`run.toml`: the settings of a run as a file that `palpate train --config` reads."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from palpate import __version__
from palpate.choices import Choice
from palpate.data.logs.options import NAMES
from palpate.plan import Asked

RUN_FILE = "run.toml"
OF_ORIGIN = ("data", *NAMES, "test", "env", "size", "contact_share")  # options of `palpate train`


def run_file(origin: Mapping[str, Any], asked: Asked, left_open: Iterable[Choice]) -> str:
    """The file's text: given settings by name, then the chosen ones as comments with their reasons.

    `origin` is the source of the data; it is empty for data in memory. Options of a world that `palpate train` does not
    have become comments.
    """
    named = {name: value for name, value in origin.items() if name in OF_ORIGIN and value is not None}
    given = {**named, **_changed(asked, Asked())}
    lines = [f"# palpate {__version__}. To repeat this run: palpate train --config {RUN_FILE} --out FOLDER"]
    if not origin:
        lines.append("# The data were in memory; add data = FILE or env = WORLD.")
    others = {name: value for name, value in origin.items() if name not in named}
    lines += [
        f"# The world had {name}={value!r}; palpate train has no option for it." for name, value in others.items()
    ]
    lines += [f"{name} = {_value(value)}" for name, value in given.items()]
    lines += ["", "# Chosen, because not given:"]
    lines += [f"# {choice.name} = {_value(choice.value)}  # {choice.reason}" for choice in left_open]
    return "\n".join(lines) + "\n"


def _changed(settings: Any, defaults: Any) -> dict[str, Any]:
    """The settings that differ from their defaults, those of nested dataclasses included."""
    found: dict[str, Any] = {}
    for each in fields(settings):
        value, default = getattr(settings, each.name), getattr(defaults, each.name)
        if hasattr(value, "__dataclass_fields__"):
            found |= _changed(value, default)
        elif value is not None and value != default:
            found[each.name] = value
    return found


def _value(value: Any) -> str:
    # TOML writes text, numbers and truth values as JSON does; numpy numbers become plain numbers.
    return json.dumps(value, ensure_ascii=False, default=lambda number: number.item())
