"""palpate evaluate."""

from dataclasses import dataclass
from pathlib import Path

from palpate.cli.parsing import Positional


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a trained model on labelled triples: table, figures, report."""

    run: Positional[Path]
    """Folder of a run or of a saved model."""
    data: Path
    """HDF5 file with true states, as `palpate collect` writes it."""
    out: Path | None = None
    """Folder of the report. Default: RUN/evaluations/NAME, with the name of the file."""
    force: bool = False
    """Overwrite an existing evaluation."""

    def __call__(self) -> None:
        from palpate.data.labelled import Labelled
        from palpate.pictures import illustrate
        from palpate.representation import load

        out = self.out or self.run / "evaluations" / self.data.stem
        if (out / "report.html").exists() and not self.force:
            raise FileExistsError(f"{out} holds an evaluation; overwrite it with --force, or choose another with --out")
        model = load(self.run)
        with Labelled.open(self.data) as labelled:
            print(illustrate(out, model, labelled, f"palpate evaluate: {self.data}", run=self.run))
        print(f"\nRead     {out / 'report.html'}")
