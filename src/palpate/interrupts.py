"""Defer SIGINT and SIGTERM to moments at which they do no harm."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether Ctrl-C or SIGTERM arrived; call it between steps. A second signal raises
    KeyboardInterrupt at once."""
    received = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True

    with _handled(signal.SIGINT, receive), _handled(signal.SIGTERM, receive):
        yield lambda: received


@contextmanager
def terminations_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, even in a process that ignores Ctrl-C."""

    def receive(*_: object) -> None:
        if not callable(signal.getsignal(signal.SIGINT)):  # for example in the background of a shell
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    with _handled(signal.SIGTERM, receive):
        yield


@contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Processes started in this block ignore Ctrl-C from their start; the parent receives it and ends them."""
    with _handled(signal.SIGINT, signal.SIG_IGN):
        yield


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: HDF5 calls `Disk`, which must not raise an exception."""
    before, received = signal.getsignal(signal.SIGINT), False

    def receive(*_: object) -> None:
        nonlocal received
        received = True

    with _handled(signal.SIGINT, receive):
        yield
    if received and callable(before):
        before(signal.SIGINT, None)


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Set another handler in this block, if Python may: in the main thread, and over a handler set by Python."""
    before = signal.getsignal(number)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
