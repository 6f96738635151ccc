"""Hints for misspelt names."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", alike: float = 0.6) -> str:
    """The end of an error message: which of the `names` was probably meant; `otherwise` if none is `alike`."""
    near = difflib.get_close_matches(name, names, 1, alike)
    text = f"did you mean {near[0]!r}?" if near else otherwise
    return f"; {text}" if text else ""
