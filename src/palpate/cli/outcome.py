"""Output of verbs when they are done."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path


def short_warnings() -> None:
    """Print warnings in one line each, and none of dependencies about their own future."""
    warnings.simplefilter("ignore", FutureWarning)
    warnings.formatwarning = lambda message, *where: f"palpate: {message}\n"


def print_results(tables: Mapping[str, str], written: Iterable[Path]) -> None:
    """Tables by their title, then the files that were written."""
    for title, text in tables.items():
        print(f"\n{title}\n\n{text}" if title else f"\n{text}")
    for path in written:
        print(f"Wrote    {path}")
