"""palpate reproduce."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from palpate.cli.outcome import print_results
from palpate.cli.parsing import Positional


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run the comparisons of the paper, and write their tables and figures.

    sprites: three worlds x (ours, ours-plain, paper-gaussian, paper, transporter, vae, supervised). soccer: two views x
    the same methods without ours-plain. ablation: our method with one part replaced or added. shares: contact shares
    from 3 to 90 %, and a data set of 10,000 triples. control: PPO on the representations of soccer in third person, on
    true states and on pixels. See docs/guide/reproduce.md.

    Each run writes one small JSON to OUT/EXPERIMENT. A run whose JSON exists is skipped, so after Ctrl-C the same
    command continues. A failed run does not stop the others. Several processes may share OUT. Example:

      palpate reproduce sprites --seeds 1 --worlds vanilla --methods ours supervised
    """

    SHOWN: ClassVar = ("experiment", "seeds", "preset", "out", "worlds", "methods", "jobs", "figures_only", "force")

    experiment: Positional[Literal["sprites", "soccer", "ablation", "shares", "control", "all"]]
    """What to run. With --worlds or --methods, all does not include control."""
    seeds: int = 3
    """Seeds 0 to SEEDS - 1 of every run."""
    preset: Literal["small", "paper"] | None = None
    """paper: ResNet-18s, 100 x 100 pixels, 2,500 steps, for a GPU. small: small CNNs, 50 x 50, 300 steps, for CPUs.
    Default: paper if there is a GPU."""
    out: Path = Path("results")
    """Folder of the results."""
    data: Path = Path("data")
    """Folder of the Soccer data sets. They are collected once, on all cores."""
    worlds: tuple[str, ...] = ()
    """Only these worlds, for instance vanilla background."""
    methods: tuple[str, ...] = ()
    """Only these methods, for instance ours transporter; for control, interaction, paper, vae, transporter, pixels or
    truth."""
    steps: int | None = None
    """Optimiser steps. Default: the preset's."""
    ppo_steps: int | None = None
    """Steps of PPO in the environments, for control. Default: the preset's."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to train. Default: a GPU if there is one."""
    compile: bool | None = None
    """Use torch.compile. Default: the preset's."""
    jobs: int | None = None
    """Number of parallel runs; they share the cores and GPUs. Default: one per GPU, or one per core without GPUs."""
    figures_only: bool = False
    """Write tables and figures from existing results, without any run."""
    keep_models: bool = False
    """Keep the trained models of new runs in OUT/EXPERIMENT/models, for `palpate evaluate` and `export`."""
    force: bool = False
    """Repeat these runs from their start. An old result stays until its new run is measured."""

    def __call__(self) -> None:
        from palpate.contest.games import WORLD, demand_models, demand_ppo, learned_by
        from palpate.reproduce.campaign import choose_preset
        from palpate.reproduce.presets import EXPERIMENTS
        from palpate.reproduce.runs import Place

        if self.experiment == "control" and self.worlds:
            raise ValueError("control runs in one world; leave out --worlds")
        if self.ppo_steps is not None and not self._plays:
            raise ValueError(f"ppo_steps is {self.ppo_steps}, but no policy is trained; leave out --ppo-steps")
        experiments = {"all": EXPERIMENTS, "control": ()}.get(self.experiment, (self.experiment,))
        if self.figures_only:
            self._redraw(experiments)
            return
        preset = choose_preset(self.preset, self.device, self.steps)
        keep: dict[str, Any] = {"keep_models": self.keep_models, "keep_worlds": (WORLD,) if self._plays else ()}
        place = Place(out=self.out, data=self.data, device=self.device, compile=self.compile, **keep)
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
        return self.experiment == "control" or (self.experiment == "all" and not (self.worlds or self.methods))

    def _run(self, experiments: tuple[Any, ...], preset: Any, place: Any) -> dict[str, str]:
        """Run these experiments; returns the failed runs with the reason."""
        from palpate.reproduce.campaign import reproduce
        from palpate.reproduce.presets import cases

        planned = cases(experiments, preset, self.seeds, worlds=self.worlds, methods=self.methods)
        report = reproduce(planned, place, jobs=self.jobs, force=self.force)
        print_results(report.tables, report.written)
        print(f"{len(report.finished)} runs made, {len(report.skipped)} existed, {len(report.failed)} failed")
        _print_busy(report.busy)
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
        _print_busy([*learned.busy, *played.busy])
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


def _print_busy(busy: Sequence[str]) -> None:
    if busy:
        print(f"{len(busy)} runs of other processes were passed over; the last to end completes the tables")
