"""Progress of long work: a bar on a terminal, else a line every few seconds."""

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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

QUIET_SECONDS = 15.0  # between two lines without a terminal


def say(text: str) -> None:
    """Write a line beside the bars."""
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
    """A progress bar on stderr; without a terminal, a plain line every few seconds."""
    with board(show, keep=True) as update:
        update(title, 0, total)
        yield lambda done, note="": update(title, done, total, note)


class Board(Protocol):
    def __call__(self, title: str, done: int, total: int, note: str = "") -> None:
        """`done` of `total` are done of the work with this title."""


@contextmanager
def board(show: bool = True, keep: bool = False) -> Iterator[Board]:
    """Several bars, each shown from its first report on. A complete bar is removed unless `keep` is true."""
    console = Console(file=sys.stderr)
    if not show:
        yield lambda title, done, total, note="": None
    elif console.is_terminal:
        with _progress(console) as progress:
            tasks: dict[str, TaskID] = {}

            def update(title: str, done: int, total: int, note: str = "") -> None:
                if title not in tasks:
                    tasks[title] = progress.add_task(title, total=total, note=note)
                progress.update(tasks[title], completed=done, note=note)
                if done >= total and not keep:
                    progress.remove_task(tasks.pop(title))

            yield update
    else:
        lines: dict[str, _Lines] = {}

        def write(title: str, done: int, total: int, note: str = "") -> None:
            if title not in lines:
                lines[title] = _Lines(title, total)
            lines[title](done, note)

        yield write


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
    """Replaces the bar if there is no terminal."""

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
