"""Options of a world, by name."""

from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any, TypeVar

from palpate.spelling import did_you_mean

Config = TypeVar("Config")


def configured(config: type[Config], options: Mapping[str, Any]) -> Config:
    """The settings with these options; an error for an unknown option lists the known ones."""
    known = {field.name: field.type for field in fields(config)}  # type: ignore[arg-type]
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"there is no option {name!r}; this world has {', '.join(known)}{did_you_mean(name, known)}"
            )
        if known[name] is bool and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; allowed is True or False")
    return config(**options)


def require_size(size: Any, most: int) -> None:
    if not isinstance(size, Integral) or not 16 <= int(size) <= most:
        raise ValueError(f"size is {size!r}; allowed is 16 to {most} pixels, one number for both sides")


def require_share(share: float | None) -> None:
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"contact_share is {share}; allowed is a share from 0 to 1, or None for random motion")
