"""Compare the settings that something was made with to those asked for now."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

NAMED = 3  # differences in one message


def demand_one(*, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise ValueError(
            "resume (--resume) goes on with what is there and overwrite (--force) begins anew; give one of them"
        )


def demand_same(where: Path, found: Any, wanted: Mapping[str, Any], advice: str) -> None:
    """Refuse what is at `where` unless it was made with the settings wanted, which may be nested."""
    changes = list(islice(_differences(found, _plain(wanted)), NAMED))
    if changes:
        raise ValueError(f"{where} was made with other settings: {', '.join(changes)}; {advice}")


def _differences(found: Any, wanted: Any, name: str = "all") -> Iterator[str]:
    if not isinstance(found, Mapping) or not isinstance(wanted, Mapping):
        if found != wanted:
            yield f"{name} was {_shown(found)} and is {_shown(wanted)}"
        return
    for inner in [*wanted, *(name for name in found if name not in wanted)]:
        yield from _differences(found.get(inner, ...), wanted.get(inner, ...), inner)


def _plain(settings: Mapping[str, Any]) -> Any:
    """As JSON gives them back: tuples are lists, numbers of numpy are numbers."""
    return json.loads(json.dumps(settings, default=lambda number: number.item()))


def _shown(value: Any) -> str:
    return "unset" if value is ... else repr(value)
