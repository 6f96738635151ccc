"""Showing how far long work has come: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


class Bar(Protocol):
    def __call__(self, done: int, note: str = "") -> None:
        """`done` of the total are done."""


@contextmanager
def bar(title: str, total: int, start: int = 0, show: bool = True) -> Iterator[Bar]:
    """A progress bar on stderr; off a terminal, a plain line every few seconds."""
    console = Console(file=sys.stderr)
    if not show:
        yield lambda done, note="": None
    elif console.is_terminal:
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(title, total=total, completed=start, note="")
            yield lambda done, note="": progress.update(task, completed=done, note=note)
    else:
        yield _Lines(title, total, start)


class _Lines:
    def __init__(self, title: str, total: int, start: int) -> None:
        self._title, self._total, self._start = title, total, start
        self._began = self._last = time.monotonic()

    def __call__(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if done < self._total and now - self._last < QUIET_SECONDS:
            return
        self._last = now
        left = (now - self._began) / max(done - self._start, 1) * (self._total - done)
        sys.stderr.write(f"{self._title} {done}/{self._total} {note} {left:.0f} s left\n")
        sys.stderr.flush()
