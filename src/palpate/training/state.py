"""A run's checkpoint: a resumed run ends exactly like one that was never stopped."""

from operator import index
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palpate.checkpoint import read_checkpoint, read_facts, require_alike, used, write_state
from palpate.optimizers import expected_moments
from palpate.training.notes import Notes
from palpate.training.step import Run


def steps_done(folder: Path) -> int:
    """Number of steps that the run in `folder` has finished."""
    path = _checkpoint(folder)
    if not path.exists():
        return 0
    with used(path):
        return index(read_facts(path)["step"])


def save(run: Run, folder: Path) -> None:
    assert run.notes is not None
    run.notes.check()  # a bad state must not replace a good checkpoint
    moments = {f"{i}.{name}": x for i, (_, moments) in enumerate(_learned(run)) for name, x in moments.items()}
    groups = {
        "model": run.plain.state_dict(),
        "optimizer": moments,
        "best": run.best,
        "notes": _kept(run.notes),
        "random": {"generator": run.generator.get_state()},
        "feed": run.feed.memory(),
    }
    facts = {"step": run.step, "best_value": run.best_value if run.best else None}
    write_state(_checkpoint(folder), groups, facts)


def restore(run: Run, folder: Path | None) -> None:
    """Continue from the folder's checkpoint, if there is one."""
    found = run.ranks.from_first(lambda: _read(folder))
    if found is None:
        return
    path, groups, facts = found
    with used(path):
        _take(run, groups, facts)
    notes_there = groups["notes"]

    def restore_notes(notes: Notes) -> None:
        with used(path):
            require_alike({"notes": notes_there}, {"notes": _kept(notes)})
            for name, value in _kept(notes).items():
                value.copy_(notes_there[name])

    run.restore_notes = restore_notes


def _read(folder: Path | None) -> tuple[Path, dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """The folder's checkpoint, if there is one, and its path."""
    if folder is None or not _checkpoint(folder).exists():
        return None
    return _checkpoint(folder), *read_checkpoint(_checkpoint(folder))


def _take(run: Run, groups: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
    step, best = index(facts["step"]), facts["best_value"]
    if not 0 < step <= run.config.steps or not isinstance(best, float | None):
        raise TypeError(f"step is {step} of {run.config.steps} and best_value {best!r}")
    moments_there = groups["optimizer"]
    if not moments_there:
        raise TypeError("the optimiser's moments are missing")
    expected = {
        "model": run.plain.state_dict(),
        "optimizer": expected_moments([wrapped.optimizer for wrapped in run.optimizers], moments_there),
        "best": {} if best is None else run.plain.lasting_state(),
        # How many readings there are is not known before the first step.
        "notes": {"sums": torch.empty(groups["notes"]["sums"].numel()), "count": torch.empty(())},
        "random": {"generator": run.generator.get_state()},
        "feed": run.feed.memory(),
    }
    require_alike(groups, expected)
    run.plain.load_state_dict(groups["model"])
    learned = _learned(run)
    for key, value in moments_there.items():
        number, name = key.split(".")
        parameter, moments = learned[int(number)]
        # Moments take the parameter's memory layout, the step counter its device.
        like = torch.empty_like(parameter if value.dim() else torch.empty((), device=run.device))
        moments[name] = like.copy_(value)
    if best is not None:
        # Copies: a tensor of the file may be a view of it, and the next checkpoint replaces the file.
        run.best = {name: value.to(run.device, copy=True) for name, value in groups["best"].items()}
        run.best_value = best
    run.generator.set_state(groups["random"]["generator"])
    for name, value in run.feed.memory().items():
        value.copy_(groups["feed"][name])
    run.step, run.plain.stage = step, (step - 1) * run.plain.stages // run.config.steps
    run.plain.train()  # parts of earlier stages only predict
    run.feed.seek(step)


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoint" / "state.safetensors"


def _kept(notes: Notes) -> dict[str, Tensor]:
    return {"sums": notes.sums, "count": notes.count}


def _learned(run: Run) -> list[tuple[nn.Parameter, dict[str, Tensor]]]:
    """Every learned parameter with its optimiser's moments."""
    optimizers = [wrapped.optimizer for wrapped in run.optimizers]
    return [(p, each.state[p]) for each in optimizers for group in each.param_groups for p in group["params"]]
