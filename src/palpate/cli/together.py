"""A verb in several processes of this machine, the ranks, which train one model together."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from palpate.cli.outcome import short_warnings
from palpate.interrupts import terminations_interrupt
from palpate.ranks import STARTED_BY_US
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss
from palpate.workers import Worker, WorkerError, available_cores, dismiss, ready

AFTERMATH = 2.0  # seconds in which other ranks may report the cause of a failure

Watch = Callable[[int, dict[str, float]], None]
Ends = dict[Worker, Exception | None]  # how ranks ended, in this order; None: they finished


@terminations_interrupt()
def run_together(count: int, work: Callable[[Watch], None]) -> None:
    """Call `work`, which is pickled, in `count` processes. One error ends them all, and is raised.

    After Ctrl-C or SIGTERM they save their run. KeyboardInterrupt is raised if they were not training, or finished.
    """
    variables = {
        STARTED_BY_US: str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "NODE_RANK": "0",  # other launchers set it and GROUP_RANK, perhaps to another machine's number
        "GROUP_RANK": "0",
    }
    threads = max(1, available_cores() // count)
    team: list[Worker] = []
    ends: Ends = {}
    try:
        for index in range(count):
            own = {**variables, "LOCAL_RANK": str(index)}
            team.append(Worker(_serve, index == 0, work, threads=threads, variables=own))
        _wait(team, ends)
    except KeyboardInterrupt:
        for worker in team:
            worker.process.terminate()  # while they train, they finish a step and save
        with suppress(WorkerError):  # they were not training
            _wait(team, ends)
        raise
    finally:
        dismiss(team, at_once=any(ends.values()) or len(ends) < count)


def _wait(team: list[Worker], ends: Ends) -> None:
    """Wait until all ranks have ended, or until one has failed; raise the cause."""
    while waiting := [worker for worker in team if worker not in ends]:
        found = ready(waiting, AFTERMATH if any(ends.values()) else None)
        if not found:
            break
        for worker in found:
            ends[worker] = _end(worker, f"rank {team.index(worker)} of {len(team)}")
    errors = [error for error in ends.values() if error is not None]
    if errors:
        raise min(errors, key=_consequence)


def _end(worker: Worker, name: str) -> Exception | None:
    """What a rank reported when it ended, or how it died."""
    try:
        end: Exception | None = worker.receive()
    except WorkerError as error:
        return error if error.trace else WorkerError(f"{name} {worker.death()}, so the run has ended")
    except (ValueError, OSError) as error:
        return error
    return end


def _consequence(error: Exception) -> int:
    """The larger, the more likely is an error the consequence of another one: ranks fail if they lose one of them."""
    if isinstance(error, WorkerError):
        return 2 if error.trace else 0
    return 1


def _serve(pipe: Connection, first: bool, work: Callable[[Watch], None]) -> None:
    """The life of a rank: it works, and reports how it ended."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal sends Ctrl-C to the parent alone, which ends the ranks
    short_warnings()
    abandoned = False

    def watch(step: int, readings: dict[str, float]) -> None:
        nonlocal abandoned
        if not abandoned and pipe.poll():  # the parent is gone
            abandoned = True  # a second signal would end the run at once
            signal.raise_signal(signal.SIGINT)

    end: Exception | None = None
    try:
        work(watch)
    except Interrupted as error:
        end = error if first else None  # the first rank has saved the run
    except NonFiniteLoss as error:
        end = error
    pipe.send(end)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
