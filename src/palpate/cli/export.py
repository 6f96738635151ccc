"""palpate export."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palpate.cli.parsing import Positional


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained model to one file that runs without palpate.

    Input: raw observations, in batches of any size. Output: positions in the action's unit, and what else the model
    has, such as covariance, confidence and heading. The export is first compared with the model. If the two disagree,
    nothing is written. See docs/guide/deploy.md.
    """

    run: Positional[Path]
    """Folder of a run or of a saved model."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx for onnxruntime and others; torch for torch.export.load."""
    out: Path | None = None
    """The file. Default: RUN/model.onnx or RUN/model.pt2."""
    data: Path | None = None
    """HDF5 file of triples. The comparison uses random observations and the first 64 of this file."""
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
        print("\n".join(f"  {name:<12} {about['dtype']:<8} {about['shape']}" for name, about in shapes.items()))
        print(f"It differs from the model by at most {made.difference:.1g} of an action, over {made.rows} observations")
