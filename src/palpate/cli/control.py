"""palpate control."""

from dataclasses import dataclass, field
from pathlib import Path

from palpate.cli.outcome import print_results
from palpate.control.settings import ControlConfig, Representations


@dataclass(frozen=True, kw_only=True)
class Control:
    """Learn to kick the ball into the goal by PPO, from positions, pixels or true states; see docs/control.md.

    A run leaves one small JSON in OUT and a folder with its curve, its policy and a film. Existing runs are skipped.
    Ctrl-C keeps everything, and the same command continues. At the end all runs in OUT are compared. Needs the extra
    palpate[rl]. Try it, two or three minutes on two CPU cores:

      palpate control --representation truth --steps 60000 --out results/try
    """

    representation: Representations | None = None
    """Input of the policy. interaction: ours; paper: the paper's objective; truth: the true states, the limit; pixels:
    learned end to end. Default: make no run, only compare the runs in OUT."""
    model: str | None = None
    """Folder of the trained model, for interaction, paper, vae and transporter; {seed} in it stands for the seed."""
    seeds: int = 1
    """Seeds FIRST_SEED to FIRST_SEED + SEEDS - 1."""
    first_seed: int = 0
    out: Path = Path("results/control")
    """Folder of the results."""
    force: bool = False
    """Repeat existing runs."""
    settings: ControlConfig = field(default_factory=ControlConfig)

    def __call__(self) -> None:
        from palpate.contest.control import control
        from palpate.contest.table import write_contest

        if self.seeds < 1 or self.first_seed < 0:
            raise ValueError(
                f"seeds is {self.seeds} from {self.first_seed} on; allowed is 1 or more, from 0 or more on"
            )
        finished: list[str] = []
        if self.representation is not None:
            seeds = range(self.first_seed, self.first_seed + self.seeds)
            finished, skipped = control(
                self.representation, seeds, self.settings, self.out, model=self.model, force=self.force
            )
            print(f"{len(finished)} runs made, {len(skipped)} existed")
        table, written = write_contest(self.out)
        films = [self.out / name / "film.gif" for name in finished]
        print_results({"": table}, [*written, *(path for path in films if path.exists())])
