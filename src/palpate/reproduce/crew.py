"""Cases run in this process, or in several with a share of the cores and a GPU each.

A worker runs one case after another, because importing torch and reading a set take long. When its pipe closes, a
worker stops between two steps and saves its run, so that a run survives the end of the parent.
"""

import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

from palpate.collecting.parts import Stopped
from palpate.disk import Busy
from palpate.reproduce.presets import Case
from palpate.reproduce.runs import Place, perform
from palpate.training.loop import Interrupted
from palpate.workers import Worker, WorkerError, available_cores, dismiss, ready

PATIENCE = 60.0  # seconds for a worker to save its run
GPUS = "CUDA_VISIBLE_DEVICES"  # environment variable: the GPUs that a process may use, by number or name
Show = Callable[[Case, int, str], None]  # a case, its step, and the text beside the bar


class Halted(RuntimeError):  # noqa: N818 - requested by the user, not an error
    """Ctrl-C: finished runs are kept, the others can be continued."""


class Outcome(NamedTuple):
    """How a case ended. "existed" and "busy" are cases that another process has finished or is running."""

    case: Case
    state: Literal["finished", "existed", "busy", "failed"]
    message: str = ""
    trace: str = ""


def attempt(case: Case, place: Place, show: Show) -> Outcome:
    """Run a case. Ctrl-C raises `Halted`; every other exception becomes the outcome."""
    try:
        made = perform(case, place, lambda step, readings: show(case, step, _note(readings)))
    except (Interrupted, Stopped, KeyboardInterrupt) as error:
        raise Halted(str(error)) from None
    except Busy as error:
        return Outcome(case, "busy", str(error))
    except Exception as error:
        return Outcome(case, "failed", f"{type(error).__name__}: {error}", traceback.format_exc())
    return Outcome(case, "finished" if made else "existed")


def _note(readings: dict[str, float]) -> str:
    if "return" in readings:
        return f"return {readings['return']:.2f}, goals {readings['goals']:.0%}"
    return f"L_test {readings['l_test']:.2g}" if "l_test" in readings else ""


def side_by_side(
    cases: Sequence[Case], place: Place, show: Show, jobs: int, gpus: Sequence[str] = ()
) -> Generator[Outcome]:
    """Run cases in `jobs` processes, which have one of the `gpus` each; yields the outcomes as they come."""
    todo = list(reversed(cases))
    threads = max(1, available_cores() // jobs)
    team: dict[Worker, Case] = {}
    idle: list[Worker] = []
    free = [gpus[i % len(gpus)] for i in range(jobs)] if gpus else []
    given: dict[Worker, str] = {}

    def start() -> Worker:
        worker = Worker(_serve, place, threads=threads, variables={GPUS: free[0]} if free else {})
        if free:
            given[worker] = free.pop(0)
        return worker

    try:
        while todo or team:
            while todo and len(team) < jobs:
                worker = idle.pop() if idle else start()
                team[worker] = todo.pop()
                worker.send(team[worker])
            for worker in ready(team):
                case = team[worker]
                try:
                    answer = worker.receive()
                except (WorkerError, ValueError) as error:  # the worker is gone
                    del team[worker]
                    dismiss([worker], PATIENCE)
                    free += [given.pop(worker)] if worker in given else []
                    yield Outcome(case, "failed", str(error), getattr(error, "trace", ""))
                    continue
                if isinstance(answer, Outcome):
                    del team[worker]
                    idle.append(worker)
                    yield answer
                else:
                    show(case, *answer)
    except KeyboardInterrupt:
        raise Halted("stopped") from None
    finally:
        dismiss([*team, *idle], PATIENCE)


def _serve(pipe: Connection, place: Place) -> None:
    """The loop of a worker: cases in; steps with their notes, and outcomes, out."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal sends Ctrl-C to the parent alone, which closes the pipe

    def show(case: Case, step: int, note: str) -> None:
        if pipe.poll():  # closed by the parent
            signal.raise_signal(signal.SIGINT)  # the training loop finishes this step and saves
        else:
            pipe.send((step, note))

    with suppress(Halted):
        while True:
            pipe.send(attempt(pipe.recv(), place, show))
