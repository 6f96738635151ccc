"""palpate demo."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Learn the positions in Sprites on this machine: train, measure, draw, report.

    About a minute on two CPU cores for each object.
    """

    out: Path = Path("runs/demo")
    """Folder of the run."""
    objects: int = 1
    """Number of objects, 1 to 6. They are found one after the other."""
    steps: int = 500
    """Optimiser steps for each object. With 1500 the run takes three times as long, and L_test is four times
    smaller."""
    seed: int = 0
    """Random seed."""
    resume: bool = False
    """Continue a stopped run."""
    force: bool = False
    """Overwrite an existing run."""

    def __call__(self) -> None:
        from palpate.demo import SIZE, demo

        chosen = {"objects": self.objects, "steps": self.steps, "seed": self.seed}
        scores = demo(self.out, **chosen, resume=self.resume, overwrite=self.force)
        things = [one.error for one in scores.each] or [scores.object_error]
        pixels = ", ".join(f"{SIZE * error:.2f}" for error in things)
        print(f"\n{scores}\n")
        print(f"L_test is {scores.l_test:.2g}; a constant predictor has {scores.constant['l_test']:.2g}.")
        agent, named = SIZE * scores.agent_error, "the object" if len(things) == 1 else "the objects"
        print(f"The mean error is {agent:.2f} pixels for the agent and {pixels} for {named}, of {SIZE}.")
        print(f"Look at  {self.out / 'figures' / 'overlay.png'}")
        print(f"Read     {self.out / 'report.html'}")
