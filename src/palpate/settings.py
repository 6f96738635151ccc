"""Compare the settings of existing results with the current ones."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

NAMED = 3  # differences in one message


def require_one(*, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise ValueError(
            "resume (--resume) continues the existing work and overwrite (--force) replaces it; give only one"
        )


def demand_same(where: Path, found: Any, wanted: Mapping[str, Any], advice: str) -> None:
    """Refuse results at `where` that were made with settings other than `wanted`; settings may be nested."""
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
    """As JSON returns them: tuples as lists, numpy numbers as plain numbers."""
    return json.loads(json.dumps(settings, default=lambda number: number.item()))


def _shown(value: Any) -> str:
    return "unset" if value is ... else repr(value)
