"""The command line: argv, print, exit, and nothing else. Whatever is heavy is imported inside a verb."""

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from palpate.config import Body, Encoder, Method, Objective, TrainingConfig
from palpate.control.settings import ControlConfig, Representations

if TYPE_CHECKING:
    from palpate.data.labelled import Labelled


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Learn Sprites on this machine: train, measure, draw, report. About two minutes on two CPU cores."""

    out: Path = Path("runs/demo")
    """Folder of the run."""
    steps: int = 500
    """Optimiser steps; 1500 are three times as long and half the error."""
    seed: int = 0
    resume: bool = False
    """Continue a run that was stopped."""
    force: bool = False
    """Overwrite a run that is there."""

    def __call__(self) -> None:
        from palpate.experiments.demo import SIZE, demo

        outcome = demo(self.out, steps=self.steps, seed=self.seed, resume=self.resume, overwrite=self.force)
        agent, thing = outcome.pixels
        scores = outcome.scores
        print(f"\n{scores}\n")
        print(f"L_test is {scores.l_test:.2g}; answering the mean always would score {scores.constant['l_test']:.2g}.")
        print(f"On average the agent is off by {agent:.2f} pixels and the object by {thing:.2f}, of {SIZE}.")
        print(f"Look at  {outcome.folder / 'figures' / 'overlay.png'}")
        print(f"Read     {outcome.folder / 'report.html'}")


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Write triples of a world to an HDF5 file, with the true states in a group of their own.

    Until it is complete, what there is lies in OUT.parts, as small files of triples that can be read: Ctrl-C, a full
    disk or a crash lose nothing, and --resume goes on, to the same rows as without the interruption. The two Soccer ids
    give the same triples for a seed, seen by other cameras.

    Any other Gymnasium environment is stepped with random actions; a reading of it is written info:KEY,
    observation:KEY or observation, with [2] or [0:2] for a part. See docs/own-world.md.
    """

    env: Positional[str]
    """palpate/Sprites-v0, palpate/SpritesBackground-v0, palpate/SpritesAnisotropic-v0, palpate/Soccer-v0,
    palpate/SoccerFirstPerson-v0, or any Gymnasium id, as MODULE:ID where a module must be imported to make it known."""
    num: int = 10_000
    """How many triples."""
    out: Path
    """The file."""
    seed: int = 0
    size: int | None = None
    """Pixels on a side (Sprites, Soccer)."""
    contact_share: float | None = None
    """Wanted share of contacts (Sprites, Soccer); as the world has it when left out."""
    natural: bool = False
    """Take contacts as random motion gives them (Sprites, Soccer)."""
    agent_position: str | None = None
    """Other worlds: where to read the agent's position, such as info:pos; the triple's action is how far it went. When
    left out, info:displacement where there is one, else the action itself."""
    observation: str | None = None
    """Other worlds: what is seen, such as observation:pixels, or render; the whole observation when left out."""
    aggregate: int | None = None
    """Other worlds: environment steps of a triple, all with one action; 1 when left out."""
    settle: int | None = None
    """Other worlds: steps to wait at most until nothing moves; triples that never rest are dropped and counted."""
    hold: str | None = None
    """Other worlds: the action while waiting, such as 0,0, or where to read it; 0 when left out."""
    watch: tuple[str, ...] = ()
    """Other worlds: readings that must rest, beside the agent's position; the observation when left out."""
    tolerance: float | None = None
    """Other worlds: a number that changes by no more than this in a step rests; 0.001 when left out."""
    truth: tuple[str, ...] = ()
    """Other worlds: true states to measure with, such as object=info:block_pose[:2] angle=info:block_pose[2]
    contact=moved."""
    option: tuple[str, ...] = ()
    """Options of the environment, such as obs_type=pixels max_episode_steps=120."""
    workers: int | None = None
    """Processes that make triples (not Sprites); as many as there are cores for us when left out. The triples are the
    same with any number."""
    resume: bool = False
    """Continue a collection that was stopped; the settings must be the same, --num may be larger or smaller."""
    force: bool = False
    """Overwrite the file, and the parts of a collection that was stopped."""

    def __call__(self) -> None:
        import time

        from palpate.data.blocks import dropped
        from palpate.data.collect import collect
        from palpate.data.workers import available_cores
        from palpate.progress import bar

        if self.resume and self.force:
            raise ValueError("--resume goes on with what is there and --force begins anew; give one of them")
        options = self._options()
        if self.contact_share is not None or self.natural:
            options["contact_share"] = None if self.natural else self.contact_share
        start, before = time.monotonic(), None

        def rate(done: int) -> float:
            """Triples per second of this process; those there before do not count."""
            nonlocal before
            before = done if before is None else before
            return (done - before) / max(time.monotonic() - start, 1e-3)

        with bar("collecting", self.num) as advance:
            triples = collect(
                self.env,
                self.num,
                seed=self.seed,
                out=self.out,
                workers=available_cores() if self.workers is None else self.workers,
                resume=self.resume,
                overwrite=self.force,
                progress=lambda done, total: advance(done, f"{rate(done):,.0f}/s"),
                **options,
            )
        seconds, megabytes = time.monotonic() - start, self.out.stat().st_size / 1e6
        with triples:
            print(f"{triples!r}: {megabytes:.1f} MB, {seconds:.1f} s, {rate(len(triples)):,.0f} triples/s")
            lost = dropped(triples.attributes)
        if lost:
            print(f"dropped: {', '.join(f'{count} {reason}' for reason, count in lost.items())}")

    def _options(self) -> dict[str, Any]:
        """Of the world, and of how it is stepped: what was said."""
        names = ("size", "agent_position", "observation", "aggregate", "settle", "tolerance")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.hold is not None:
            said["hold"] = _literal(self.hold)
        if self.watch:
            said["watch"] = self.watch
        if self.truth:
            said["truth"] = _pairs("truth", self.truth)
        return said | {name: _literal(text) for name, text in _pairs("option", self.option).items()}


@dataclass(frozen=True, kw_only=True)
class Check:
    """Say whether a file of triples can give positions: findings with evidence and advice, before hours are spent.

    First what the arrays tell, then what a training run of less than a minute sees. Exit code 3: something forbids
    training. See docs/own-data.md.
    """

    log: Positional[Path]
    """HDF5 file of triples or of episodes."""
    probe: bool = True
    """Whether to make the short training run."""

    def __call__(self) -> None:
        from palpate.doctor import check

        found = check(self.log, probe=self.probe, progress=True)
        print(found)
        if not found.good:
            sys.exit(3)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Learn a representation from a file of triples or from a world that streams fresh ones."""

    data: Path | None = None
    """HDF5 file of triples."""
    env: str | None = None
    """World to stream from instead, for instance palpate/Sprites-v0."""
    size: int = 100
    """Pixels on a side of a streamed world."""
    contact_share: float = 0.5
    """Share of contacts of a streamed world."""
    out: Path
    """Folder of the run."""
    method: Method = "interaction"
    """interaction learns from triples alone, and so do the baselines vae and transporter; supervised, the limit, from
    true states."""
    objective: Objective = "contact"
    """contact is ours; paper and paper-gaussian are the paper's. For the interaction method."""
    encoder: Encoder = "auto"
    """auto: mlp for vectors; for pictures resnet18 on a GPU, small elsewhere."""
    shrink: int | None = None
    """Average pictures over squares of so many pixels first; as the encoder needs when left out."""
    body: Body | None = None
    """axes: an ellipse with an orientation, for actions in the plane; round when left out."""
    radius: float | None = None
    """Sum of the two bodies' radii, where it is known."""
    switch: tuple[str, ...] = ()
    """Single changes of the objective, such as split_on=d stay_weight=10; see docs/paper.md."""
    test: Path | None = None
    """Labelled file to measure on during and after the run; a streamed world makes its own."""
    resume: bool = False
    """Continue a run that was stopped."""
    force: bool = False
    """Overwrite a run that is there."""
    training: OmitArgPrefixes[TrainingConfig] = field(default_factory=lambda: TrainingConfig(steps=0, batch_size=0))

    def __call__(self) -> None:
        from palpate.api import fit
        from palpate.envs.registration import stream_world
        from palpate.experiments.pictures import illustrate
        from palpate.training import training_device

        if (self.data is None) == (self.env is None):
            raise ValueError("give the triples to learn from: either --data FILE or --env ID")
        source: Any = self.data
        if self.env is not None:
            options = {"size": self.size, "contact_share": self.contact_share}
            source = stream_world(self.env, device=training_device(self.training), **options)
        test = self._test()
        model = fit(
            source,
            out=self.out,
            method=self.method,
            objective=self.objective,
            encoder=self.encoder,
            shrink=self.shrink,
            body=self.body,
            radius=self.radius,
            switches=_switches(self.switch),
            training=self.training,
            test=None if test is None else test.subset(slice(0, min(len(test), 1000))),  # for the curve
            resume=self.resume,
            overwrite=self.force,
        )
        print(f"{model!r}")
        scores = illustrate(self.out, model, test, f"palpate train: {self.env or self.data}")
        if scores is not None:
            print(f"\n{scores}\n")
        print(f"Read     {self.out / 'report.html'}")
        print(f"Load it with palpate.load({str(self.out)!r})")

    def _test(self) -> "Labelled | None":
        from palpate.data.collect import collect
        from palpate.data.labelled import Labelled

        if self.test is not None:
            return Labelled.open(self.test)
        if self.env is None:
            return None
        seed = 10**6 + self.training.seed
        return collect(self.env, 10_000, seed=seed, labelled=True, size=self.size, contact_share=self.contact_share)


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a trained model on labelled triples it has not seen; print a table, draw, report."""

    run: Positional[Path]
    """Folder of a run or of a saved model."""
    data: Path
    """HDF5 file with true states, as `palpate collect` writes it."""
    out: Path | None = None
    """Folder of the report; RUN/evaluations/NAME-OF-DATA when left out."""
    force: bool = False
    """Overwrite an evaluation that is there."""

    def __call__(self) -> None:
        from palpate.data.labelled import Labelled
        from palpate.experiments.pictures import illustrate
        from palpate.representation import load

        out = self.out or self.run / "evaluations" / self.data.stem
        if (out / "report.html").exists() and not self.force:
            raise FileExistsError(f"{out} holds an evaluation; overwrite it with --force, or choose another with --out")
        model = load(self.run)
        with Labelled.open(self.data) as labelled:
            print(illustrate(out, model, labelled, f"palpate evaluate: {self.data}", run=self.run))
        print(f"\nRead     {out / 'report.html'}")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained model to one file that runs without palpate; see docs/deploy.md.

    Raw observations go in, in batches of any size; agent, object, covariance and orientation come out, in the action's
    unit. The file is compared with the model first, and not written where they disagree.
    """

    run: Positional[Path]
    """Folder of a run or of a saved model."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx for onnxruntime and its kin; torch for torch.export.load."""
    out: Path | None = None
    """The file; RUN/model.onnx or RUN/model.pt2 when left out."""
    data: Path | None = None
    """HDF5 file of triples whose first observations are compared too, beside random ones."""
    force: bool = False
    """Overwrite the file."""

    def __call__(self) -> None:
        import time

        from palpate.data.transitions import Transitions
        from palpate.deploy import SUFFIX, export
        from palpate.representation import load

        start, model, observation = time.monotonic(), load(self.run), None
        if self.data is not None:
            with Transitions.open(self.data) as triples:
                observation = triples.rows(slice(0, min(len(triples), 64))).o
        out = self.out or self.run / f"model{SUFFIX[self.format]}"
        made = export(model, out, format=self.format, observation=observation, overwrite=self.force)
        print(f"{made.path}: {made.bytes / 1e6:.1f} MB, {time.monotonic() - start:.1f} s")
        shapes = {"observation": made.metadata["input"]} | made.metadata["outputs"]
        print("\n".join(f"  {name:<12} {said['dtype']:<8} {said['shape']}" for name, said in shapes.items()))
        print(f"It differs from the model by at most {made.difference:.1g} of an action, over {made.rows} observations")


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
        place = Place(out=self.out, data=self.data, device=self.device, compile=self.compile)
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


@dataclass(frozen=True, kw_only=True)
class Control:
    """Learn to kick the ball into the goal by PPO, from positions, pixels or true states; see docs/control.md.

    A run leaves one small JSON in OUT and a folder with its curve, its policy and a film. Those that are there are
    skipped, and one that was stopped goes on: Ctrl-C keeps everything, and the same command continues. At the end all
    runs in OUT are compared. Needs the extra palpate[rl]. Try it, about five minutes on two CPU cores:

      palpate control --representation truth --steps 60000 --out results/try
    """

    representation: Representations | None = None
    """What the policy sees. interaction: ours; paper: the paper's objective; truth: the true states, the limit; pixels:
    learned end to end. Left out: nothing is run, and what is in OUT is compared."""
    model: str | None = None
    """Folder of the trained model, for interaction, paper, vae and transporter; {seed} in it stands for the seed."""
    seeds: int = 1
    """Seeds FIRST_SEED to FIRST_SEED + SEEDS - 1."""
    first_seed: int = 0
    out: Path = Path("results/control")
    """Folder of the results."""
    force: bool = False
    """Make runs again that are there."""
    settings: OmitArgPrefixes[ControlConfig] = field(default_factory=ControlConfig)

    def __call__(self) -> None:
        from palpate.experiments.contest import write_contest
        from palpate.experiments.control import control

        if self.seeds < 1 or self.first_seed < 0:
            raise ValueError(
                f"seeds is {self.seeds} from {self.first_seed} on; allowed is 1 or more, from 0 or more on"
            )
        if self.representation is None:
            table, written = write_contest(self.out)
        else:
            seeds = range(self.first_seed, self.first_seed + self.seeds)
            report = control(self.representation, seeds, self.settings, self.out, model=self.model, force=self.force)
            table, written = report.table, report.written
            print(f"{len(report.finished)} runs made, {len(report.skipped)} were there")
            films = [self.out / name / "film.gif" for name in report.finished]
            written += [path for path in films if path.exists()]
        print(f"\n{table}")
        for path in written:
            print(f"Wrote    {path}")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Speed of every hot path on this machine, as a table."""

    device: str = "auto"
    """cpu, cuda, or auto: a GPU if there is one."""
    compile: bool = False
    """With torch.compile."""

    def __call__(self) -> None:
        from palpate.experiments.bench import bench
        from palpate.training import training_device

        device = training_device(TrainingConfig(device=self.device))  # type: ignore[arg-type]
        print(f"{'path':<60} {'ms':>10} {'per second':>12}")
        for speed in bench(device, self.compile):
            print(f"{speed.path:<60} {speed.each * 1e3:>10.2f} {speed.rate:>12,.0f} {speed.items}", flush=True)


Verb = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Control, tyro.conf.subcommand("control")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

DESCRIPTION = "Learn where an agent and an object are, in metric coordinates, from what it saw and how it moved."


def main() -> None:
    """Exit 0: done. 2: the user's mistake, in one line. 3: `check` found what forbids training. 130: stopped by Ctrl-C.
    1: our bug, with its traceback."""
    arguments = sys.argv[1:] or ["--help"]
    verb: Any = tyro.cli(Verb, prog="palpate", description=DESCRIPTION, args=arguments)
    try:
        verb()
    except KeyboardInterrupt:
        print("palpate: stopped", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("PALPATE_TRACEBACK"):
            raise
        print(f"palpate: {_one_line(error)}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        _explain(error, arguments)


def _explain(error: Exception, arguments: list[str]) -> None:
    """Ends that are neither done nor a bug; whatever else it is goes on as it came."""
    from palpate.data.parts import Stopped
    from palpate.data.workers import WorkerError
    from palpate.experiments.crew import Halted
    from palpate.training import Interrupted, NonFiniteLoss

    if isinstance(error, Halted):
        again = shlex.join(["palpate", *(a for a in arguments if a != "--force")])
        print(f"palpate: {error}. To go on:\n  {again}", file=sys.stderr)
        sys.exit(130)
    if isinstance(error, WorkerError):
        print(f"{error.trace}palpate: {_one_line(error)}", file=sys.stderr)
        sys.exit(1)
    resume = [] if arguments[0] == "control" else ["--resume"]  # it goes on by itself
    if isinstance(error, Interrupted | Stopped):
        again = shlex.join(["palpate", *(a for a in arguments if a not in ("--resume", "--force")), *resume])
        print(f"palpate: {error}. To go on:\n  {again}", file=sys.stderr)
        sys.exit(130)
    # An extra that is not installed; any other module that is missing is our bug.
    extra = isinstance(error, ModuleNotFoundError) and "pip install 'palpate[" in str(error)
    if extra or isinstance(error, NonFiniteLoss) or type(error).__module__.startswith("gymnasium.error"):
        print(f"palpate: {error}", file=sys.stderr)
        sys.exit(2)
    raise error


def _one_line(error: Exception) -> str:
    return " ".join("; ".join([str(error), *getattr(error, "__notes__", ())]).split())


def _pairs(flag: str, pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].isidentifier() or "=" not in pair]
    if wrong:
        raise ValueError(f"{flag} is {wrong[0]!r}; allowed are pairs name=value")
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs)}


def _literal(text: str) -> Any:
    """A number, True, a tuple and so on where it reads as one in Python, else the text itself."""
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _switches(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs with values of the type the field has."""
    from palpate.config import ObjectiveConfig

    defaults = {name: value for name, value in vars(ObjectiveConfig()).items() if name not in ("body", "radius")}
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in defaults:
            raise ValueError(f"switch is {pair!r}; allowed are name=value with a name of {', '.join(defaults)}")
        kind = type(defaults[name])
        try:
            changes[name] = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError) as error:
            raise ValueError(f"switch {name} is {text!r}; allowed is a {kind.__name__}") from error
    return changes


if __name__ == "__main__":
    main()
