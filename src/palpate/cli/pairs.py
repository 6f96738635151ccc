"""name=value on the command line."""

import ast
from typing import Any


def pairs(flag: str, pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].isidentifier() or "=" not in pair]
    if wrong:
        raise ValueError(f"{flag} is {wrong[0]!r}; allowed are pairs name=value")
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs)}


def literal(text: str) -> Any:
    """The value of a Python literal, or of true and false; else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
