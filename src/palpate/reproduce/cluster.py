"""Runs as jobs of a Slurm cluster, through submitit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palpate.reproduce.crew import Halted, Outcome, Outcomes, attempt
from palpate.reproduce.presets import Case
from palpate.reproduce.runs import Place

POLL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Resources of each run on the cluster."""

    partition: str | None = None
    minutes: int = 60
    gpus: int = 1
    cpus: int = 4
    memory_gb: int = 32
    cluster: str = "slurm"  # "local" runs the jobs on this machine, for tests

    def __post_init__(self) -> None:
        for name, least in (("minutes", 1), ("gpus", 0), ("cpus", 1), ("memory_gb", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is {least} or more")


class Job:
    """A run on the cluster. A preempted run is queued again and continued from its checkpoint."""

    def __init__(self, case: Case, place: Place) -> None:
        self.case, self.place = case, place

    def __call__(self) -> Outcome:
        return attempt(self.case, self.place, lambda case, step, note: None)

    def checkpoint(self) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def on_cluster(cases: Sequence[Case], place: Place, slurm: Slurm) -> Outcomes:
    """One job for each run, in the order in which they finish. Ctrl-C cancels what is left."""
    jobs = dict(zip(_submitted(cases, place, slurm), cases, strict=True))
    try:
        while jobs:
            for job in [job for job in jobs if job.done()]:
                case = jobs.pop(job)
                error = job.exception()
                yield (
                    job.result() if error is None else Outcome(case, f"its job failed: {_last_line(error)}", str(error))
                )
            if jobs:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        raise Halted("stopped; the jobs are cancelled") from None
    finally:
        for job in jobs:
            job.cancel(check=False)


def _submitted(cases: Sequence[Case], place: Place, slurm: Slurm) -> list[Any]:
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            "submitit is not installed, and --slurm needs it; do pip install 'palpate[slurm]', or leave out --slurm"
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=place.out / ".slurm", cluster=slurm.cluster)
    except RuntimeError as error:
        raise ValueError(
            f"no Slurm was found here ({error}); submit from a login node, or leave out --slurm"
        ) from error
    executor.update_parameters(
        name="palpate",
        timeout_min=slurm.minutes,
        gpus_per_node=slurm.gpus,
        cpus_per_task=slurm.cpus,
        mem_gb=slurm.memory_gb,
        **({"slurm_partition": slurm.partition} if slurm.partition else {}),
    )
    with executor.batch():  # one array of jobs
        return [executor.submit(Job(case, place)) for case in cases]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
