"""Runs made in this process or in several, each with its share of the cores.

A worker makes one run after another, because importing torch and reading a set take long. A worker whose pipe closes
during a run stops it between two steps and saves it, so nothing is lost when the parent stops or dies.
"""

import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from palpate.collecting.parts import Stopped
from palpate.disk import Busy
from palpate.reproduce.presets import Case
from palpate.reproduce.runs import Place, perform
from palpate.training.loop import Interrupted
from palpate.workers import Worker, WorkerError, available_cores, dismiss, ready

PATIENCE = 60.0  # seconds for a worker to save its run
Report = Callable[[Case, int, str], None]  # a run, its step, and the text beside its bar


class Halted(RuntimeError):  # noqa: N818 - requested by the user, not an error
    """Ctrl-C: finished runs are kept, the others can be continued."""


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
    """Make a run. An exception becomes its outcome, except for Ctrl-C, which stops all runs."""
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
    if "return" in readings:
        return f"return {readings['return']:.2f}, goals {readings['goals']:.0%}"
    return f"L_test {readings['l_test']:.2g}" if "l_test" in readings else ""


def one_by_one(cases: Sequence[Case], place: Place, report: Report) -> Outcomes:
    """In this process, which compiles once."""
    for case in cases:
        yield attempt(case, place, report)


def side_by_side(cases: Sequence[Case], place: Place, report: Report, jobs: int) -> Outcomes:
    """In `jobs` processes at a time, in the order in which they finish."""
    todo = list(reversed(cases))
    threads = max(1, available_cores() // jobs)
    team: dict[Worker, Case] = {}
    try:
        while todo or team:
            while todo and len(team) < jobs:
                _assign(Worker(_serve, place, threads=threads), team, todo)
            for worker in ready(team):
                case = team[worker]
                answer, gone = _answer(worker, case)
                if isinstance(answer, Reading):
                    report(case, *answer)
                    continue
                if gone or not todo:
                    del team[worker]
                    dismiss([worker], PATIENCE)
                else:
                    _assign(worker, team, todo)
                yield answer
    except KeyboardInterrupt:
        raise Halted("stopped") from None
    finally:
        dismiss(team, PATIENCE)


def _assign(worker: Worker, team: dict[Worker, Case], todo: list[Case]) -> None:
    team[worker] = todo.pop()
    worker.send(team[worker])


def _answer(worker: Worker, case: Case) -> tuple[Reading | Outcome, bool]:
    """The answer of a worker, and whether the worker is gone: that is a failure of its run."""
    try:
        return worker.receive(), False
    except (WorkerError, ValueError) as error:
        return Outcome(case, str(error), getattr(error, "trace", "")), True


def _serve(pipe: Connection, place: Place) -> None:
    """Runs in a worker: cases in, readings and outcomes out."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal sends Ctrl-C to the parent alone, which closes the pipe

    def report(case: Case, step: int, note: str) -> None:
        if pipe.poll():  # closed by the parent
            signal.raise_signal(signal.SIGINT)  # the training loop finishes this step and saves
        else:
            pipe.send(Reading(step, note))

    with suppress(Halted):
        while True:
            pipe.send(attempt(pipe.recv(), place, report))
