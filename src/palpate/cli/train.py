"""palpate train."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from palpate.config import Encoder, ObjectiveConfig, TrainingConfig
from palpate.data.logs.options import OF_LOG, LogOptions

if TYPE_CHECKING:
    from palpate.data.labelled import Labelled
    from palpate.data.transitions import Transitions
    from palpate.material import Data
    from palpate.ranks import Ranks
    from palpate.representation import Representation


@dataclass(frozen=True, kw_only=True)
class Train:
    """Learn a representation from triples, a robot's log or a streamed world.

    The run is a folder. Ctrl-C saves it, and --resume continues it. Settings that are left out are chosen and shown.

      palpate train --data log.h5 --out runs/mine
      palpate train --data pusht/ --position 'observation.state[:2]' --out runs/p
      palpate train --env palpate/Sprites-v0 --out runs/sprites
      palpate train --config runs/mine/run.toml --seed 1 --out runs/again
    """

    SHOWN: ClassVar = (
        "data", "observation", "position", "stride", "env", "out", "test", "config", "resume", "force", "objects",
        "egocentric", "group", "steps", "seed", "device",
    )  # fmt: skip
    REPLACES: ClassVar = {"data": ("env", "size", "contact_share"), "env": ("data", *OF_LOG)}

    data: Path | None = None
    """File of triples, or a log: see docs/guide/logs.md."""
    env: str | None = None
    """Id of a world to stream, instead of --data."""
    size: int | None = None
    """Side of the pictures of a streamed world, in pixels. Default: 100."""
    contact_share: float | None = None
    """Contact share of a streamed world. Default: 0.5."""
    out: Path
    """Folder of the run."""
    config: Path | None = None
    """TOML file of settings, such as the run.toml of a run. Options take precedence over it. Relative paths in it start
    at the current folder."""
    method: str = "interaction"
    """interaction, vae and transporter learn from triples alone; supervised, the limit, learns from true states."""
    objective: str = "contact"
    """Objective of the interaction method. contact is ours; paper and paper-gaussian are the paper's; MODULE:CLASS is a
    variant."""
    encoder: Encoder | None = None
    """Network. Default: mlp for vectors, scan for laser scans; for pictures resnet18 on a GPU, small on a CPU."""
    shrink: int | None = None
    """Pictures are averaged over squares of so many pixels a side. Default: chosen by the encoder."""
    test: Path | None = None
    """File of labelled triples for measuring. Default: a streamed world makes its own."""
    resume: bool = False
    """Continue a stopped run."""
    force: bool = False
    """Overwrite an existing run."""
    devices: int | None = None
    """Number of processes that train this model together, each on a GPU of its own (docs/guide/devices.md). Default: 1,
    or as many as torchrun or srun started."""
    scene: ObjectiveConfig = field(default_factory=ObjectiveConfig)  # first: its help about --group is complete
    reading: LogOptions = field(default_factory=LogOptions)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __call__(self) -> None:
        from palpate.plan import Asked
        from palpate.ranks import started

        if (self.data is None) == (self.env is None):
            both = "" if self.data is None else ", not both"
            raise ValueError(f"give the triples to learn from: either --data FILE or --env ID{both}")
        if self._options and self.env is None:
            name, value = next(iter(self._options.items()))
            raise ValueError(f"{name} is {value}, but the triples of --data are fixed; {name} is only for --env")
        of_log = {name: value for name, value in self.reading.given.items() if name in OF_LOG}
        if of_log and self.env is not None:
            name, value = next(iter(of_log.items()))
            raise ValueError(f"{name} is {value!r}, but the triples come from a world; {name} is only for a log")
        _ = Asked(method=self.method, objective=self.objective, scene=self.scene).name  # refuses unknown names
        if started() is None:  # else the folder may be on another machine
            self._demand_place()
        self._start()

    def _start(self) -> None:
        """Train in this process, or in several."""
        from palpate.ranks import started

        found = started()
        fits = self.devices is None or (self.devices >= 1 and (found is None or self.devices == found.ranks))
        if not fits:
            allowed = "1 or more" if found is None else f"{found.ranks}, the number of processes that were started"
            raise ValueError(f"devices is {self.devices}; allowed is {allowed}")
        if found is not None or self.devices in (None, 1):
            self.train()
            return

        from palpate.cli.together import run_together
        from palpate.training.state import steps_done
        from palpate.workers import WorkerError

        try:
            run_together(self.devices, self.train)
        except WorkerError as error:
            done = steps_done(self.out)
            error.add_note(
                f"The run is saved after step {done}; --resume continues it" if done else "No step was saved"
            )
            raise

    def train(self, watch: Callable[[int, dict[str, float]], None] | None = None) -> None:
        """Train in this process, perhaps as one of several; `watch` as in `palpate.fit`."""
        from palpate.ranks import joined
        from palpate.training.loop import training_device

        with joined(training_device(self.training).type) as ranks:
            if ranks.first:
                self._lead(ranks, watch)
            else:
                with self._opened() as (source, _):
                    self._fit(source, ranks)

    def _lead(self, ranks: "Ranks", watch: Callable[[int, dict[str, float]], None] | None) -> None:
        """Train as the first rank, which also measures, draws and prints."""
        from palpate.disk import alone
        from palpate.pictures import illustrate

        self._demand_place()
        with self._opened() as (source, triples):
            test = self._test()
            recorded = {"out": self.out, "resume": self.resume, "overwrite": self.force, "watch": watch}
            model = self._fit(source, ranks, test=self.test or test, **recorded)
            print(f"{model!r}")
            with alone(self.out, inside=True):
                scores = illustrate(self.out, model, test, f"palpate train: {self.env or self.data}", triples=triples)
        if scores is not None:
            print(f"\n{scores}\n")
        print(f"Read     {self.out / 'report.html'}")
        print(f"Load it with palpate.load({str(self.out)!r})")

    @contextmanager
    def _opened(self) -> "Iterator[tuple[Data, Transitions | None]]":
        """What to learn from, and the triples of --data."""
        from palpate.data.logs.log import open_log
        from palpate.envs.registration import stream_world
        from palpate.training.loop import training_device

        if self.data is None:
            assert self.env is not None
            yield stream_world(self.env, device=training_device(self.training), **self._options), None
            return
        with open_log(self.data, self.reading) as triples:
            yield triples if triples.recipe else self.data, triples

    def _fit(self, source: "Data", ranks: "Ranks", **recorded: Any) -> "Representation":
        from palpate.api import fit

        return fit(
            source,
            method=self.method,
            objective=self.objective,
            encoder=self.encoder,
            shrink=self.shrink,
            training=self.training,
            ranks=ranks,
            **vars(self.scene),
            **recorded,
        )

    def _demand_place(self) -> None:
        from palpate.runlog import demand_place

        demand_place(self.out, resume=self.resume, overwrite=self.force)

    @property
    def _options(self) -> dict[str, Any]:
        """The given options of a streamed world."""
        return {name: getattr(self, name) for name in ("size", "contact_share") if getattr(self, name) is not None}

    def _test(self) -> "Labelled | None":
        from palpate.collecting.collect import collect
        from palpate.data.labelled import Labelled

        if self.test is not None:
            return Labelled.open(self.test)
        if self.env is None:
            return None
        seed = 10**6 + self.training.seed
        return collect(self.env, 10_000, seed=seed, labelled=True, **self._options)
