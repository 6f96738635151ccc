"""Progress of long work: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


def say(text: str) -> None:
    """Print a line without disturbing the bars."""
    if text:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class Rate:
    """Items per second since the first call; the items of an earlier process do not count."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int) -> float:
        now = time.monotonic()
        self._first = self._first or (done, now)
        return (done - self._first[0]) / max(now - self._first[1], 1e-3)


class Bar(Protocol):
    def __call__(self, done: int, note: str = "") -> None:
        """`done` of the total are done."""


@contextmanager
def bar(title: str, total: int, show: bool = True) -> Iterator[Bar]:
    """A progress bar on stderr; off a terminal, a plain line every few seconds."""
    console = Console(file=sys.stderr)
    if not show:
        yield lambda done, note="": None
    elif console.is_terminal:
        with _progress(console) as progress:
            task = progress.add_task(title, total=total, note="")
            yield lambda done, note="": progress.update(task, completed=done, note=note)
    else:
        yield _Lines(title, total)


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


class _Lines:
    """Replaces the bar where there is no terminal."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._last, self._rate = time.monotonic(), Rate()

    def __call__(self, done: int, note: str = "") -> None:
        now, rate = time.monotonic(), self._rate(done)
        if done < self._total and now - self._last < QUIET_SECONDS:
            return
        self._last = now
        left = f"{(self._total - done) / rate:.0f} s left" if rate else ""
        sys.stderr.write(f"{self._title} {done}/{self._total} {note} {left}\n")
        sys.stderr.flush()
