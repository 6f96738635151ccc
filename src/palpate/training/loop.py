"""The training loop.

A step is pure device work (`step.py`); on a GPU it is captured in a CUDA graph and replayed. The host sets the learning
rate, adapts feed and model, reads averages every few steps, and saves. Evaluation is a callback, so no true states come
here.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

from palpate.config import SettledTraining, TrainingConfig
from palpate.interrupts import interrupt_between_steps
from palpate.methods.base import Model
from palpate.ranks import ALONE, Ranks
from palpate.runlog import RunLog
from palpate.training.feeds import Feed
from palpate.training.state import restore, save
from palpate.training.step import Run


class Interrupted(RuntimeError):  # noqa: N818 - not an error
    """The run stopped between two steps, and can be resumed from its folder."""


def train(
    model: Model,
    feed: Feed,
    config: SettledTraining,
    *,
    folder: Path | None = None,
    evaluate: Callable[[Model], dict[str, float]] | None = None,
    criterion: str | None = None,
    watch: Callable[[int, dict[str, float]], None] | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Minimise `model.loss` over batches of `feed`; continue from `folder`'s checkpoint if it has one.

    `criterion` names a label-free reading of `evaluate`: the model ends with the weights for which it was smallest, the
    last of several that are equal. All `ranks` call this function; only the first one gives `folder`, `evaluate` and
    `watch`.
    """
    assert ranks.first or folder is evaluate is watch is None
    run = Run(model, feed, config, training_device(config), ranks)
    restore(run, folder)
    log = RunLog(folder, run.step, tensorboard=config.tensorboard)
    advance = run.captured() if run.device.type == "cuda" and ranks is ALONE else run.advance
    with closing(log), interrupt_between_steps() as interrupted:
        while run.step < config.steps and not ranks.agree(run.step, interrupted()):
            run.set_schedule()
            advance()
            run.step += 1
            last = run.step == config.steps
            if last:
                run.refine()
            evaluating = evaluate is not None and (run.ends_stage or run.step % config.evaluate_every == 0)
            if last or evaluating or run.step % config.log_every == 0:
                readings = run.read()  # waits for the device
                if evaluate is not None and evaluating:
                    readings |= run.evaluated(evaluate, criterion)
                log.write(run.step, readings)
                if watch:
                    watch(run.step, readings)
            if folder and (last or run.step % config.checkpoint_every == 0):
                save(run, folder)
        if run.step < config.steps:
            if folder and run.notes is not None:  # else no step was made
                save(run, folder)
            stopped = Interrupted(f"stopped after step {run.step} of {config.steps}")
            kept = f"The run is saved in {folder}; continue it with resume=True." if folder else "Nothing was saved."
            stopped.add_note(kept)
            raise stopped
    run.hand_over()


def training_device(config: TrainingConfig) -> torch.device:
    """The device of a run."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch sees no GPU here; use device='cpu', or leave it out")
    return torch.device(config.device or ("cuda" if torch.cuda.is_available() else "cpu"))
