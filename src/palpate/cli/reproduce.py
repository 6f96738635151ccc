"""palpate reproduce."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run the comparisons of the paper, and write their tables and figures.

    sprites: three worlds x (ours, paper-gaussian, paper, transporter, vae, supervised). soccer: the same from a camera
    beside the field and from four on the agent. ablation: our objective with one switch changed at a time. shares: few
    contacts and many, a fixed set of triples, numbers in place of pictures. See docs/reproduce.md.

    A run leaves one small JSON in OUT/EXPERIMENT. Those that are there are skipped, so a table grows as machine time
    comes: Ctrl-C keeps everything, and the same command goes on. A run that fails does not stop the others. Try it:

      palpate reproduce sprites --seeds 1 --worlds vanilla --methods ours supervised
    """

    experiment: Positional[Literal["sprites", "soccer", "ablation", "shares", "all"]]
    """What to run."""
    seeds: int = 3
    """Seeds 0 to SEEDS - 1 of every run."""
    preset: Literal["auto", "small", "paper"] = "auto"
    """paper: ResNet-18s, 100 x 100 pixels, 2,500 steps, for a GPU. small: small CNNs, 50 x 50, 300 steps, for CPUs.
    auto: paper where there is a GPU."""
    out: Path = Path("results")
    """Folder of the results."""
    data: Path = Path("data")
    """Folder of the Soccer sets, which are collected once, by all cores."""
    worlds: tuple[str, ...] = ()
    """Only these worlds, for instance vanilla background."""
    methods: tuple[str, ...] = ()
    """Only these methods, for instance ours transporter."""
    steps: int | None = None
    """Optimiser steps in place of the preset's."""
    paper_schedule: bool = False
    """Train paper and paper-gaussian also on the paper's own schedule: 100 epochs over a fixed set, Adam at 1e-3."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU if there is one."""
    compile: bool | None = None
    """With torch.compile; as the preset says when left out."""
    jobs: int | None = None
    """Runs at a time, each with its share of the cores; when left out, one on a GPU, else one for each core."""
    slurm: bool = False
    """Submit each run as a job of a Slurm cluster, and wait for them; needs the extra palpate[slurm]."""
    partition: str | None = None
    """Slurm: the partition."""
    time: int = 60
    """Slurm: minutes for a run; one that takes longer goes on the next time."""
    figures_only: bool = False
    """Run nothing: write tables and figures from the JSON that is there."""
    keep_models: bool = False
    """Keep the trained models in OUT/EXPERIMENT/models, for `palpate evaluate`, `export` and `control`; runs that are
    there already stay without."""
    force: bool = False
    """Make runs again that are there."""

    def __call__(self) -> None:
        from palpate.experiments.presets import EXPERIMENTS, cases
        from palpate.experiments.reproduce import choose_preset, most_jobs, reproduce, tables_and_figures
        from palpate.experiments.runs import Place

        experiments = EXPERIMENTS if self.experiment == "all" else (self.experiment,)
        if self.figures_only:
            tables, written = tables_and_figures(self.out, experiments)
            if not tables:
                raise FileNotFoundError(
                    f"{self.out} holds no JSON of {' or '.join(experiments)}; run them first, without --figures-only"
                )
            self._say(tables, written)
            return
        slurm = self._slurm()
        preset = choose_preset(self.preset, self.device, self.steps)
        only = {"worlds": self.worlds, "methods": self.methods}
        planned = cases(experiments, preset, self.seeds, paper_schedule=self.paper_schedule, **only)
        place = Place(
            out=self.out, data=self.data, device=self.device, compile=self.compile, keep_models=self.keep_models
        )
        jobs = most_jobs(planned, self.device) if self.jobs is None else self.jobs
        report = reproduce(planned, place, jobs=jobs, slurm=slurm, force=self.force)
        self._say(report.tables, report.written)
        print(f"{len(report.finished)} runs made, {len(report.skipped)} were there, {len(report.failed)} failed")
        if report.failed:
            for name, message in report.failed.items():
                print(f"palpate: {name}: {' '.join(message.split())}", file=sys.stderr)
            print("Their tracebacks are in .runs; the same command tries them again", file=sys.stderr)
            sys.exit(1)

    def _slurm(self) -> Any:
        from palpate.experiments.cluster import Slurm

        if not self.slurm:
            if self.partition is not None:
                raise ValueError(f"partition is {self.partition!r}, but nothing is submitted; add --slurm")
            return None
        if self.preset == "auto":
            raise ValueError("preset is 'auto', but the jobs run elsewhere; with --slurm give --preset small or paper")
        if self.jobs is not None:
            raise ValueError(f"jobs is {self.jobs}; with --slurm the cluster decides how many run at a time")
        return Slurm(partition=self.partition, minutes=self.time, gpus=int(self.preset == "paper"))

    def _say(self, tables: dict[str, str], written: list[Path]) -> None:
        for experiment, text in tables.items():
            print(f"\n{experiment}\n\n{text}")
        for path in written:
            print(f"Wrote    {path}")
