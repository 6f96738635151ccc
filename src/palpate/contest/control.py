"""`palpate control`: make the missing PPO runs, one JSON each."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palpate.config import TrainingConfig
from palpate.contest.compare import grouped
from palpate.control.claims import ADVICE, settings_of
from palpate.control.settings import LEARNED, ControlConfig
from palpate.disk import alone
from palpate.extras import demand
from palpate.progress import Rate, bar
from palpate.representation import Representation, load
from palpate.reproduce.provenance import provenance
from palpate.reproduce.results import FORMAT, read_results, write_json
from palpate.settings import demand_same
from palpate.training.loop import training_device

# The method of a model and how it places the object, by the name of the representation.
KINDS = {
    "interaction": ("contact", "egocentric"),
    "paper": ("paper-gaussian", "paper"),
    "vae": ("vae",),
    "transporter": ("transporter",),
}
HOW = {
    "interaction": "palpate train --data log.h5 --out runs/x",
    "paper": "palpate train --data log.h5 --objective paper-gaussian --out runs/x",
    "vae": "palpate train --data log.h5 --method vae --out runs/x",
    "transporter": "palpate train --data log.h5 --method transporter --out runs/x",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One PPO run: its settings, the folder of the trained model if it needs one, and the folder of the results."""

    representation: str
    seed: int
    config: ControlConfig
    out: Path
    folder: Path | None

    @property
    def name(self) -> str:
        return f"{self.representation}-{self.seed}"

    @property
    def path(self) -> Path:
        return self.out / f"{self.name}.json"

    def model(self) -> Representation | None:
        return None if self.folder is None else _model(self.representation, self.folder)


def control(
    representation: str,
    seeds: Sequence[int],
    config: ControlConfig,
    out: Path,
    *,
    model: str | None = None,
    force: bool = False,
    show: bool = True,
) -> tuple[list[str], list[str]]:
    """Train one policy for each seed; returns the names of runs made now and of runs that existed.

    `model` is the folder of a trained representation; `{seed}` in it stands for the seed. An interrupted run is
    continued; Ctrl-C raises `palpate.training.loop.Interrupted` and keeps everything. Settings that cannot be run, or
    not be compared with the runs in `out`, are refused before anything is run or deleted.
    """
    if not seeds:
        raise ValueError("there are no seeds to run; give at least one")
    what: dict[str, Any] = {"representation": representation, "config": config, "out": out}
    entries = [Entry(seed=seed, folder=_model_folder(representation, model, seed), **what) for seed in seeds]
    _demand_fit(entries, force)
    out.mkdir(parents=True, exist_ok=True)
    if force:
        for entry in entries:
            with alone(out / entry.name):
                entry.path.unlink(missing_ok=True)
                shutil.rmtree(out / entry.name, ignore_errors=True)
    finished: list[str] = []
    skipped: list[str] = []
    for entry in entries:
        with alone(out / entry.name):  # two processes would write to the same curve
            (skipped if entry.path.exists() else finished).append(entry.name)
            if not entry.path.exists():
                _perform(entry, show)
    return finished, skipped


def _demand_fit(entries: Sequence[Entry], force: bool) -> None:
    """Refuse runs that cannot be made, or not be compared with those in the folder of the results."""
    demand_ppo()
    rows = [row for row in read_results(entries[0].out) if row.get("experiment") == "control"]
    there = {f"{row['representation']}-{row['seed']}": row for row in rows}
    for entry in entries:
        settings = settings_of(entry.representation, entry.config, entry.seed, entry.model())
        if entry.path.exists() and not force:
            if entry.name not in there:
                raise ValueError(
                    f"{entry.path} is not the JSON of a run; delete it, or choose another folder with --out"
                )
            demand_same(entry.path, there[entry.name]["settings"], settings, ADVICE)
        length = entry.config.rollouts * entry.config.rollout_steps
        planned = {"representation": entry.representation, "seed": entry.seed, "settings": settings}
        there[entry.name] = planned | {"curve": [[length]]}
    grouped(list(there.values()))


def _perform(entry: Entry, show: bool) -> None:
    config, began = entry.config, time.monotonic()
    rate, shown = Rate(), ""
    with bar(entry.name, config.rollouts * config.rollout_steps, show) as advance:

        def watch(step: int, readings: dict[str, float]) -> None:
            nonlocal shown
            if "return" in readings:
                shown = f"return {readings['return']:.2f}, goals {readings['goals']:.0%}"
            advance(step, f"{shown}, {rate(step):,.0f} steps/s")

        folder = entry.out / entry.name
        measured = demand_ppo().train(entry.representation, config, entry.seed, entry.model(), folder, watch)
    row = {
        "format": FORMAT,
        "experiment": "control",
        "representation": entry.representation,
        "seed": entry.seed,
        **measured,
        "seconds": round(time.monotonic() - began, 1),  # of this process; an interrupted run took longer
        **provenance(training_device(TrainingConfig(device=config.device))),
    }
    write_json(entry.path, row)


def _model_folder(representation: str, model: str | None, seed: int) -> Path | None:
    if representation not in LEARNED:
        if model is not None:
            raise ValueError(f"model is {model!r}, but {representation} needs none; leave it out")
        return None
    if model is None:
        raise ValueError(
            f"representation is {representation!r}, which is learned first: `{HOW[representation]}`, then give --model "
            "runs/x ({seed} in it stands for the seed)"
        )
    folder = Path(model.replace("{seed}", str(seed)))
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"{folder} holds no trained model; make one with `{HOW[representation]}`")
    return folder


def _model(representation: str, folder: Path) -> Representation:
    """The model, if it is of the kind that `representation` names."""
    model = load(folder)
    if model.config.method not in KINDS[representation]:
        raise ValueError(
            f"representation is {representation!r}, but {folder} holds a model of the method {model.config.method!r}; "
            f"make one with `{HOW[representation]}`"
        )
    shape = model.config.observation_shape
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        raise ValueError(
            f"{folder} reads observations {shape}; the game shows pictures of palpate/Soccer-v0, (3, size, size)"
        )
    return model


def demand_ppo() -> Any:
    """The module `palpate.control.ppo`, which needs the extra `rl`."""
    needs = "control needs stable-baselines3"
    return demand("palpate.control.ppo", library="stable_baselines3", extra="rl", needs=needs)
