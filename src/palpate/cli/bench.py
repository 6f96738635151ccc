"""palpate bench."""

from dataclasses import dataclass
from typing import Literal

from palpate.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure the speed of data generation, training and encoding on this machine."""

    device: Literal["cpu", "cuda"] | None = None
    """What to measure. Default: a GPU if there is one."""

    def __call__(self) -> None:
        from palpate.bench import bench
        from palpate.training.loop import training_device

        print(f"{'path':<60} {'ms':>10} {'per second':>12}")
        for speed in bench(training_device(TrainingConfig(device=self.device))):
            print(f"{speed.path:<60} {speed.each * 1e3:>10.2f} {speed.rate:>12,.0f} {speed.items}", flush=True)
