"""palpate explore."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from palpate.cli.environment import Environment
from palpate.cli.parsing import Positional
from palpate.config import Encoder, ObjectiveConfig, TrainingConfig

CHOSEN_MOVES = 0.5


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Collect triples while learning from them: the model chooses part of the moves.

    The first round has random moves. After each round a model is trained on all triples so far. In the next round it
    chooses half of the moves: of 32 drawn moves, the one whose contact is least certain. Each round doubles the number
    of triples.

    In the folder OUT, triples.h5 holds the triples, rounds.jsonl a line for each round, and model/ the last run with
    its report. After Ctrl-C, --resume continues. Other options are those of collect and train. See
    docs/guide/own-environment.md.

      palpate explore palpate/Soccer-v0 --num 4000 --out runs/soccer
    """

    SHOWN: ClassVar = (
        "env", "num", "out", "rounds", "first", "test", "resume", "force", "agent_position", "settle", "option",
        "steps", "seed", "device",
    )  # fmt: skip

    env: Positional[str]
    """Any Gymnasium id; MODULE:ID imports the module that registers it."""
    num: int = 10_000
    """Number of triples."""
    out: Path
    """Folder of the exploration."""
    rounds: int = 3
    """Number of rounds after the first one."""
    first: int | None = None
    """Triples of the first round. Default: so many that each round doubles them, at least 256."""
    test: Path | None = None
    """File of labelled triples, for measuring after each round."""
    encoder: Encoder | None = None
    """Network. Default: mlp for vectors, scan for laser scans; for pictures resnet18 on a GPU, small on a CPU."""
    shrink: int | None = None
    """Pictures are averaged over squares of so many pixels a side. Default: chosen by the encoder."""
    resume: bool = False
    """Continue a stopped exploration with the same settings."""
    force: bool = False
    """Start again; the old exploration stays until the new one is complete."""
    environment: Environment = field(default_factory=Environment)
    scene: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __call__(self) -> None:
        from palpate.data.labelled import Labelled
        from palpate.data.transitions import Transitions
        from palpate.disk import alone
        from palpate.exploring.explore import MODEL, ROUNDS, TRIPLES, explore
        from palpate.exploring.rounds import Round, Table
        from palpate.pictures import illustrate

        share, training = self.training.chosen_moves, replace(self.training, chosen_moves=None)
        model = explore(
            self.env,
            self.num,
            out=self.out,
            rounds=self.rounds,
            first=self.first,
            chosen_moves=CHOSEN_MOVES if share is None else share,
            seed=training.seed,
            device=training.device,
            fit={
                "encoder": self.encoder,
                "shrink": self.shrink,
                "training": training,
                "test": self.test,
                **vars(self.scene),
            },
            workers=self.environment.processes(),
            resume=self.resume,
            overwrite=self.force,
            **self.environment.options(),
        )
        folder = self.out / MODEL
        with (
            alone(self.out, inside=True),
            Transitions.open(self.out / TRIPLES) as triples,
            nullcontext() if self.test is None else Labelled.open(self.test) as test,
        ):
            scores = illustrate(folder, model, test, f"palpate explore: {self.env}", triples=triples)
        print(f"\n{Round.heading()}", *Table(self.out / ROUNDS).rounds, sep="\n")
        if scores is not None:
            print(f"\n{scores}")
        print(f"\n{model!r}")
        print(f"Triples  {self.out / TRIPLES}")
        print(f"Read     {folder / 'report.html'}")
        print(f"Load it with palpate.load({str(folder)!r})")
