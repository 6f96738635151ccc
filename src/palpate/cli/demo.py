"""palpate demo."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Learn the positions in Sprites on this machine: train, measure, draw, report. About a minute on two CPU cores."""

    out: Path = Path("runs/demo")
    """Folder of the run."""
    steps: int = 500
    """Optimiser steps. With 1500 the run takes three times as long, and L_test is four times smaller."""
    seed: int = 0
    """Random seed."""
    resume: bool = False
    """Continue a stopped run."""
    force: bool = False
    """Overwrite an existing run."""

    def __call__(self) -> None:
        from palpate.demo import SIZE, demo

        scores = demo(self.out, steps=self.steps, seed=self.seed, resume=self.resume, overwrite=self.force)
        agent, thing = scores.agent_error * SIZE, scores.object_error * SIZE
        print(f"\n{scores}\n")
        print(f"L_test is {scores.l_test:.2g}; a constant predictor has {scores.constant['l_test']:.2g}.")
        print(f"The mean error is {agent:.2f} pixels for the agent and {thing:.2f} for the object, of {SIZE}.")
        print(f"Look at  {self.out / 'figures' / 'overlay.png'}")
        print(f"Read     {self.out / 'report.html'}")
