"""Runs made by several processes of one machine, each with its share of the cores.

Spawned, since torch does not survive a fork, and kept, since importing it and reading a set take long. A pipe ties each
to the parent: over it come runs, and go readings and outcomes. Where the pipe ends or brings anything during a run, the
run is stopped between two steps and saved, so that nothing is lost when the parent stops or dies.
"""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import torch

from palpate.collecting.parts import Stopped
from palpate.collecting.workers import available_cores
from palpate.disk import Busy
from palpate.interrupts import deaf_children
from palpate.reproduce.presets import Case
from palpate.reproduce.runs import Place, perform
from palpate.training.loop import Interrupted

PATIENCE = 60.0  # seconds for a worker to save what it is at
Report = Callable[[Case, int, str], None]  # a run, its step, and what stands beside the bar


class Halted(RuntimeError):  # noqa: N818 - the user's wish, not an error
    """Ctrl-C: what was finished is kept, what was not can go on."""


class Outcome(NamedTuple):
    """How a run ended: without a message it is finished."""

    case: Case
    message: str = ""
    trace: str = ""


Outcomes = Generator[Outcome, None, None]


class Reading(NamedTuple):
    step: int
    note: str


def attempt(case: Case, place: Place, report: Report) -> Outcome:
    """Make a run; whatever goes wrong in it is its outcome, except for Ctrl-C, which halts everything."""
    try:
        perform(case, place, lambda step, readings: report(case, step, _note(readings)))
    except (Interrupted, Stopped, KeyboardInterrupt) as error:
        raise Halted(str(error)) from None
    except Busy as error:
        return Outcome(case, str(error))
    except Exception as error:
        return Outcome(case, f"{type(error).__name__}: {error}", traceback.format_exc())
    return Outcome(case)


def _note(readings: dict[str, float]) -> str:
    return f"L_test {readings['l_test']:.2g}" if "l_test" in readings else ""


def one_by_one(cases: Sequence[Case], place: Place, report: Report) -> Outcomes:
    """In this process, which pays for compilation once."""
    for case in cases:
        yield attempt(case, place, report)


def side_by_side(cases: Sequence[Case], place: Place, report: Report, jobs: int) -> Outcomes:
    """In `jobs` processes at a time, in the order in which they finish."""
    todo = list(reversed(cases))
    threads = max(1, available_cores() // jobs)
    team: dict[Connection, Worker] = {}
    try:
        while todo or team:
            while todo and len(team) < jobs:
                worker = Worker(place, threads)
                team[worker.connection] = worker
                worker.begin(todo.pop())
            for connection in wait(list(team)):
                assert isinstance(connection, Connection)
                worker = team[connection]
                case, answer = worker.case, worker.answer()
                if isinstance(answer, Reading):
                    report(case, *answer)
                    continue
                if worker.gone or not todo:
                    team.pop(connection).dismiss()
                else:
                    worker.begin(todo.pop())
                yield answer
    except KeyboardInterrupt:
        raise Halted("stopped") from None
    finally:
        for worker in team.values():
            worker.connection.close()  # all are asked before any is waited for
        for worker in team.values():
            worker.dismiss()


class Worker:
    """A process that makes runs, seen from the parent."""

    def __init__(self, place: Place, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, place, threads), name="palpate-run", daemon=True
        )
        with deaf_children():
            self.process.start()
        theirs.close()  # the worker's copy is the only one now: when it ends, we read the end of the pipe
        self.gone = False

    def begin(self, case: Case) -> None:
        self.case = case
        with suppress(OSError):  # it is gone, which `answer` will find and explain
            self.connection.send(case)

    def answer(self) -> Reading | Outcome:
        try:
            answer: Reading | Outcome = self.connection.recv()
        except (EOFError, OSError):
            self.gone = True
            self.process.join(PATIENCE)
            return Outcome(
                self.case,
                f"its process ended with code {self.process.exitcode}: memory may be short (take fewer --jobs); a "
                'script that runs several jobs must do so under `if __name__ == "__main__":`',
            )
        return answer

    def dismiss(self) -> None:
        self.connection.close()
        try:
            self.process.join(PATIENCE)
        finally:  # also when Ctrl-C comes again
            if self.process.is_alive():
                self.process.terminate()  # it ends its step
                self.process.join(PATIENCE)
                self.process.kill()
                self.process.join()


def _serve(connection: Connection, place: Place, threads: int) -> None:
    """A worker's life: runs in, readings and outcomes out, until the pipe ends."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal's Ctrl-C is for the parent, who lets go of the pipe
    torch.set_num_threads(threads)

    def report(case: Case, step: int, note: str) -> None:
        if connection.poll():
            signal.raise_signal(signal.SIGINT)  # the loop takes it for Ctrl-C: it ends this step, and saves
        else:
            connection.send(Reading(step, note))

    try:
        while True:
            connection.send(attempt(connection.recv(), place, report))
    except (EOFError, OSError, Halted):
        pass  # the parent has all it wants, or is gone
