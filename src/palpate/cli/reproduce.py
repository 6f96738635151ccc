"""palpate reproduce."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from palpate.cli.outcome import print_results


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run the comparisons of the paper, and write their tables and figures.

    sprites: three worlds x (ours, paper-gaussian, paper, transporter, vae, supervised). soccer: the same from a camera
    beside the field and from four on the agent. ablation: our method with one part replaced at a time. shares: few
    contacts and many, a fixed set of triples, numbers in place of pictures. control: the representations of soccer,
    third person, and PPO from each, from true states and from pixels. See docs/reproduce.md.

    A run leaves one small JSON in OUT/EXPERIMENT. Existing runs are skipped. Ctrl-C keeps everything, and the same
    command continues. A failed run does not stop the others. Try it:

      palpate reproduce sprites --seeds 1 --worlds vanilla --methods ours supervised
    """

    experiment: Positional[Literal["sprites", "soccer", "ablation", "shares", "control", "all"]]
    """What to run; all excludes control if --worlds, --methods or --slurm are given."""
    seeds: int = 3
    """Seeds 0 to SEEDS - 1 of every run."""
    preset: Literal["small", "paper"] | None = None
    """paper: ResNet-18s, 100 x 100 pixels, 2,500 steps, for a GPU. small: small CNNs, 50 x 50, 300 steps, for CPUs.
    Default: paper if there is a GPU."""
    out: Path = Path("results")
    """Folder of the results."""
    data: Path = Path("data")
    """Folder of the Soccer sets, which are collected once, on all cores."""
    worlds: tuple[str, ...] = ()
    """Only these worlds, for instance vanilla background."""
    methods: tuple[str, ...] = ()
    """Only these methods, for instance ours transporter; for control, interaction, paper, vae, transporter, pixels or
    truth."""
    steps: int | None = None
    """Optimiser steps. Default: the preset's."""
    ppo_steps: int | None = None
    """Steps of PPO in the environments, for control. Default: the preset's."""
    paper_schedule: bool = False
    """Train paper and paper-gaussian also on the paper's own schedule: 100 epochs over a fixed set, Adam at 1e-3."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to train. Default: a GPU if there is one."""
    compile: bool | None = None
    """Use torch.compile. Default: the preset's."""
    jobs: int | None = None
    """Runs at a time, each with its share of the cores. Default: one on a GPU, else one per core."""
    slurm: bool = False
    """Submit each run as a job of a Slurm cluster, and wait for them; needs the extra palpate[slurm]."""
    partition: str | None = None
    """Slurm: the partition."""
    time: int = 60
    """Slurm: minutes for a run; the next call continues a run that takes longer."""
    figures_only: bool = False
    """Write tables and figures from the existing JSON, without any run."""
    keep_models: bool = False
    """Keep the trained models of new runs in OUT/EXPERIMENT/models, for `palpate evaluate` and `export`."""
    force: bool = False
    """Repeat existing runs."""

    def __call__(self) -> None:
        from palpate.contest.games import demand_models, demand_ppo, learned_by
        from palpate.reproduce.presets import EXPERIMENTS

        if self.experiment == "control" and (self.worlds or self.slurm or self.paper_schedule):
            raise ValueError(
                "control runs in one world and on this machine; leave out --worlds, --slurm and --paper-schedule"
            )
        if self.ppo_steps is not None and not self._plays:
            raise ValueError(f"ppo_steps is {self.ppo_steps}, but no policy is trained; leave out --ppo-steps")
        experiments = {"all": EXPERIMENTS, "control": ()}.get(self.experiment, (self.experiment,))
        if self.figures_only:
            self._redraw(experiments)
            return
        preset, place = self._preset_and_place()
        if self._plays:
            demand_ppo()
            if experiments and not self.force:
                demand_models(learned_by(preset, self.seeds), place)  # before anything long starts
        failed = self._run(experiments, preset, place) if experiments else {}
        if self._plays and not failed:
            failed = self._play(preset, place)
        if failed:
            for name, message in failed.items():
                print(f"palpate: {name}: {' '.join(message.split())}", file=sys.stderr)
            print("Their tracebacks are in .runs; the same command repeats them", file=sys.stderr)
            sys.exit(1)

    @property
    def _plays(self) -> bool:
        """Whether policies are trained too."""
        only = self.worlds or self.methods or self.slurm
        return self.experiment == "control" or (self.experiment == "all" and not only)

    def _preset_and_place(self) -> tuple[Any, Any]:
        from palpate.contest.games import WORLD
        from palpate.reproduce.campaign import choose_preset
        from palpate.reproduce.runs import Place

        keep: dict[str, Any] = {"keep_models": self.keep_models, "keep_worlds": (WORLD,) if self._plays else ()}
        place = Place(out=self.out, data=self.data, device=self.device, compile=self.compile, **keep)
        return choose_preset(self.preset, self.device, self.steps), place

    def _run(self, experiments: tuple[Any, ...], preset: Any, place: Any) -> dict[str, str]:
        """Make the runs of these experiments; returns the failed ones with the reason."""
        from palpate.reproduce.campaign import reproduce
        from palpate.reproduce.presets import cases

        slurm = self._slurm()
        only = {"worlds": self.worlds, "methods": self.methods}
        planned = cases(experiments, preset, self.seeds, paper_schedule=self.paper_schedule, **only)
        report = reproduce(planned, place, jobs=self.jobs, slurm=slurm, force=self.force)
        print_results(report.tables, report.written)
        print(f"{len(report.finished)} runs made, {len(report.skipped)} existed, {len(report.failed)} failed")
        return report.failed

    def _play(self, preset: Any, place: Any) -> dict[str, str]:
        """Train the policies; returns the failed runs with the reason."""
        from palpate.contest.games import FOLDER, tournament
        from palpate.contest.table import write_contest

        learned, played = tournament(
            preset,
            self.seeds,
            place,
            representations=self.methods,
            steps=self.ppo_steps,
            jobs=self.jobs,
            learn_again=self.force and self.experiment == "control",  # `all` has just done so
            play_again=self.force,
        )
        if learned.failed:
            print("control: no policy is trained before all representations exist")
            return learned.failed
        print_results(*write_contest(self.out / FOLDER))
        print(f"{len(played.finished)} policies trained, {len(played.skipped)} existed, {len(played.failed)} failed")
        return played.failed

    def _redraw(self, experiments: tuple[Any, ...]) -> None:
        from palpate.contest.games import FOLDER
        from palpate.contest.table import write_contest
        from palpate.reproduce.campaign import tables_and_figures

        tables, written = tables_and_figures(self.out, experiments)
        if self._plays:
            table, more = write_contest(self.out / FOLDER)
            tables, written = tables | table, [*written, *more]
        if not tables:
            names = " or ".join([*experiments, *(["control"] if self._plays else [])])
            raise FileNotFoundError(f"{self.out} holds no JSON of {names}; run them first, without --figures-only")
        print_results(tables, written)

    def _slurm(self) -> Any:
        from palpate.reproduce.cluster import Slurm

        if not self.slurm:
            if self.partition is not None:
                raise ValueError(f"partition is {self.partition!r}, but nothing is submitted; add --slurm")
            return None
        if self.preset is None:
            raise ValueError("preset is left out, but the jobs run elsewhere; with --slurm give --preset")
        if self.jobs is not None:
            raise ValueError(f"jobs is {self.jobs}; with --slurm the cluster decides how many run at a time")
        return Slurm(partition=self.partition, minutes=self.time, gpus=int(self.preset == "paper"))
