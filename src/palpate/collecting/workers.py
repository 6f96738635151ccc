"""Blocks made by several processes.

They are spawned: neither a GL context nor torch survives a fork. Each builds its own world, once. A pipe to each is
all that ties it to the parent, so that a worker ends when the parent is gone, however that happened, and the parent
learns at once when a worker is.
"""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch

from palpate.collecting.blocks import AnyWorld, BlockWorld, Packed, RowWorld, Span, make, pack
from palpate.interrupts import deaf_children

AHEAD = 2  # spans a worker holds: the one it makes, and one so that it need not wait for the next
PATIENCE = 5.0  # seconds for a worker to close its world


class WorkerError(RuntimeError):
    """A worker failed or died; `trace` is its own traceback where it could still give one."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class Recipe(NamedTuple):
    """What a worker needs to know; all of it can be pickled."""

    world: Callable[[], AnyWorld]
    seed: int
    attributes: Mapping[str, Any]  # of each packed block


class Failure(NamedTuple):
    message: str
    trace: str
    mistake: bool  # something the user can mend, such as a missing library: its message says it all


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def packed_blocks(recipe: Recipe, spans: Sequence[Span], workers: int) -> Iterator[Packed]:
    """The blocks of these spans, in the order in which they are done."""
    todo, missing = iter(spans), len(spans)
    team: dict[Connection, BaseProcess] = {}
    try:
        with deaf_children():
            for _ in range(min(workers, missing)):
                connection, process = _start(recipe)
                team[connection] = process
        for _ in range(AHEAD):
            for connection in team:
                _hand_over(connection, todo)
        while missing:
            ready = wait(list(team))
            for connection in (connection for connection in team if connection in ready):
                packed = _receive(connection, team[connection])
                _hand_over(connection, todo)
                missing -= 1
                yield packed
    finally:
        _dismiss(team, at_once=missing > 0)


def _start(recipe: Recipe) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, recipe), name="palpate-worker", daemon=True)
    process.start()
    theirs.close()  # the worker's copy is the only one now: when it ends, we read the end of the pipe
    return ours, process


def _hand_over(connection: Connection, todo: Iterator[Span]) -> None:
    span = next(todo, None)
    if span is not None:
        with suppress(OSError):  # it is gone, which `_receive` will find and explain
            connection.send(span)


def _receive(connection: Connection, process: BaseProcess) -> Packed:
    try:
        answer = connection.recv()
    except (EOFError, OSError):
        process.join(PATIENCE)
        code = process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        raise WorkerError(
            f"a worker process {how} in the midst of its work: memory may be short (take fewer workers); a script that "
            'collects with several workers must do so under `if __name__ == "__main__":`'
        ) from None
    if isinstance(answer, Failure):
        if answer.mistake:
            raise ValueError(answer.message)
        raise WorkerError(f"a worker failed: {answer.message}", answer.trace)
    return answer


def _dismiss(team: Mapping[Connection, BaseProcess], at_once: bool) -> None:
    for connection, process in team.items():
        connection.close()
        if at_once:
            process.terminate()
    for process in team.values():
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def _work(connection: Connection, recipe: Recipe) -> None:
    """A worker's life: spans in, packed blocks out, until the pipe ends."""
    torch.set_num_threads(1)
    os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa's software renderer would take every core for itself
    try:
        world = recipe.world()
        try:
            while True:
                span = connection.recv()
                connection.send(pack(make(world, recipe.seed, span), recipe.attributes))
        finally:
            if isinstance(world, RowWorld | BlockWorld):
                world.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has all it wants, or is gone
    except Exception as error:
        mistake = isinstance(error, ValueError | OSError | ModuleNotFoundError)
        message = str(error) if mistake else f"{type(error).__name__}: {error}"
        connection.send(Failure(message, traceback.format_exc(), mistake))
