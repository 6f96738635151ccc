"""Ctrl-C and the wish of a machine to end a process, where they must not come at any moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C and SIGTERM into a question asked between steps, so that no step is half done and all is saved; a
    second one is immediate."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminations_interrupt() -> Iterator[None]:
    """The wish of a machine to end a process is heard as Ctrl-C, also by one that is deaf to that."""

    def ask(*_: object) -> None:
        if not callable(signal.getsignal(signal.SIGINT)):  # in the background of a shell, for one
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    with _handled(signal.SIGTERM, ask):
        yield


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, from their first moment on: the parent hears it and ends them."""
    with _handled(signal.SIGINT, signal.SIG_IGN):
        yield


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block: HDF5 calls `Disk`, and no exception may come out of that."""
    before, asked = signal.getsignal(signal.SIGINT), False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    with _handled(signal.SIGINT, ask):
        yield
    if asked and callable(before):
        before(signal.SIGINT, None)


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Another handler in this block, where Python may set one: in its main thread, over one of its own."""
    before = signal.getsignal(number)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
