"""Worker processes: start them, send requests, receive answers or failures, dismiss them.

Workers are spawned, because neither OpenGL nor torch survives a fork. One pipe connects each worker to its parent. A
worker ends when its pipe closes, so it never outlives the parent; the parent reads the end of the pipe when a worker
dies. Every worker imports this module, so it imports nothing heavy.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, final

from palpate.interrupts import children_ignore_interrupts

PATIENCE = 5.0  # seconds for a worker to end by itself


class WorkerError(RuntimeError):
    """A worker failed or died; `trace` is the worker's own traceback, empty if the worker died."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class Failure(NamedTuple):
    """The last answer of a worker in which an exception was raised."""

    message: str
    trace: str
    mistake: bool  # the user can correct it, such as a missing library; the message suffices


def available_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
class Worker:
    """A process that runs `serve(pipe, *arguments)`, seen from the parent.

    `serve` reads requests from the pipe and writes answers to it, usually in an endless loop: the end of the pipe ends
    the process. The process ignores Ctrl-C and uses `threads` threads. It has these environment `variables`, too.
    """

    def __init__(
        self,
        serve: Callable[..., None],
        *arguments: Any,
        threads: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_live, args=(theirs, threads, serve, arguments), daemon=True)
        with children_ignore_interrupts(), _environment(variables or {}):
            self.process.start()
        theirs.close()  # only the worker holds that end now: when the worker ends, the parent reads the end of the pipe

    def send(self, request: Any) -> None:
        with suppress(OSError):  # the worker is gone; `receive` reports it
            self.pipe.send(request)

    def receive(self) -> Any:
        """The next answer. Raises ValueError for a mistake of the user, WorkerError if the worker failed or died."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerError(
                f"a worker process {self.death()}: memory may be short (use fewer --workers or --jobs); a script that "
                'starts workers must do so under `if __name__ == "__main__":`'
            ) from None
        if isinstance(answer, Failure):
            if answer.mistake:
                raise ValueError(answer.message)
            raise WorkerError(f"a worker failed: {answer.message}", answer.trace)
        return answer

    def death(self) -> str:
        """How the process ended, in words."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        return f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"


def ready(workers: Collection[Worker], patience: float | None = None) -> list[Worker]:
    """Wait until at least one worker has an answer or is gone; return all of these. None after `patience` seconds."""
    found = wait([worker.pipe for worker in workers], patience)
    return [worker for worker in workers if worker.pipe in found]


def dismiss(workers: Collection[Worker], patience: float = PATIENCE, *, at_once: bool = False) -> None:
    """End these workers. Those that do not end by themselves within `patience` seconds are terminated, then killed."""
    for worker in workers:  # close all pipes before waiting for any worker
        worker.pipe.close()
        if at_once:
            worker.process.terminate()
    for process in (worker.process for worker in workers):
        try:
            process.join(patience)
        finally:  # also on a second Ctrl-C
            if process.is_alive():
                process.terminate()
                process.join(patience)
                process.kill()
                process.join()
        process.close()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in this block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _live(pipe: Connection, threads: int, serve: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa's software renderer would use every core
    if "torch" in sys.modules:  # imported with `serve` and its arguments
        sys.modules["torch"].set_num_threads(threads)
    try:
        serve(pipe, *arguments)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent needs no more answers, or is gone
    except Exception as error:
        mistake = isinstance(error, ValueError | OSError | ModuleNotFoundError)
        message = str(error) if mistake else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            pipe.send(Failure(message, traceback.format_exc(), mistake))
