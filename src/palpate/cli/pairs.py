"""name=value on the command line."""

import ast
from typing import Any

from palpate.config import ObjectiveConfig


def pairs(flag: str, pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].isidentifier() or "=" not in pair]
    if wrong:
        raise ValueError(f"{flag} is {wrong[0]!r}; allowed are pairs name=value")
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs)}


def literal(text: str) -> Any:
    """A number, true, a tuple and so on where it reads as one in Python, else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def switches(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs with values of the type the field has."""
    defaults = {name: value for name, value in vars(ObjectiveConfig()).items() if name not in ("body", "radius")}
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in defaults:
            raise ValueError(f"switch is {pair!r}; allowed are name=value with a name of {', '.join(defaults)}")
        kind = type(defaults[name])
        try:
            changes[name] = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError) as error:
            raise ValueError(f"switch {name} is {text!r}; allowed is a {kind.__name__}") from error
    return changes
