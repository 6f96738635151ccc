"""`palpate control`: make the missing PPO runs, one JSON each."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palpate.config import TrainingConfig
from palpate.contest.compare import grouped
from palpate.control.claims import demand_same, settings_of
from palpate.control.settings import LEARNED, ControlConfig
from palpate.disk import Busy, alone, write_whole
from palpate.progress import Rate, bar
from palpate.representation import Representation, load
from palpate.reproduce.provenance import provenance
from palpate.reproduce.results import FORMAT, read_results
from palpate.training.loop import training_device

# The method of a model and how it places the object, by the name of the representation.
KINDS = {
    "interaction": ("interaction", ("likelihood",)),
    "paper": ("interaction", ("gaussian", "point")),
    "vae": ("vae", None),
    "transporter": ("transporter", None),
}
HOW = {
    "interaction": "palpate train --data log.h5 --out runs/x",
    "paper": "palpate train --data log.h5 --objective paper-gaussian --out runs/x",
    "vae": "palpate train --data log.h5 --method vae --out runs/x",
    "transporter": "palpate train --data log.h5 --method transporter --out runs/x",
}


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
    folders = [_model_folder(representation, model, seed) for seed in seeds]
    names = [f"{representation}-{seed}" for seed in seeds]
    _demand_fit(representation, seeds, config, out, folders, force)
    if force:
        for name in names:
            with _only_one(out / name):
                (out / f"{name}.json").unlink(missing_ok=True)
                shutil.rmtree(out / name, ignore_errors=True)
    finished: list[str] = []
    skipped: list[str] = []
    for name, seed, folder in zip(names, seeds, folders, strict=True):
        with _only_one(out / name):
            made = _perform(representation, seed, config, out, folder, show)
        (finished if made else skipped).append(name)
    return finished, skipped


def _demand_fit(
    representation: str, seeds: Sequence[int], config: ControlConfig, out: Path, folders: list[Path | None], force: bool
) -> None:
    """Refuse runs that cannot be made, or not be compared with those in `out`."""
    demand_ppo()
    there = {
        (row["representation"], row["seed"]): row for row in read_results(out) if row.get("experiment") == "control"
    }
    for seed, folder in zip(seeds, folders, strict=True):
        model = None if folder is None else _model(representation, folder)
        settings = settings_of(representation, config, seed, model)
        path, key = out / f"{representation}-{seed}.json", (representation, seed)
        if path.exists() and not force:
            if key not in there:
                raise ValueError(f"{path} is not the JSON of a run; delete it, or choose another folder with --out")
            demand_same(path, there[key]["settings"], settings)
        length = config.rollouts * config.rollout_steps
        there[key] = {"representation": representation, "seed": seed, "settings": settings, "curve": [[length]]}
    grouped(list(there.values()))


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """One process at a time works on a run: two would write to the same curve."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with alone(folder):
            yield
    except Busy:
        raise ValueError(
            f"another process is at {folder.name}; wait for it, or take other seeds with --first-seed"
        ) from None


def _perform(representation: str, seed: int, config: ControlConfig, out: Path, folder: Path | None, show: bool) -> bool:
    """Returns whether a run was made."""
    ppo = demand_ppo()
    name = f"{representation}-{seed}"
    path = out / f"{name}.json"
    if path.exists():
        return False
    model = None if folder is None else _model(representation, folder)
    total, began = config.rollouts * config.rollout_steps, time.monotonic()
    rate, shown = Rate(), ""
    with bar(name, total, show) as advance:

        def watch(step: int, readings: dict[str, float]) -> None:
            nonlocal shown
            if "return" in readings:
                shown = f"return {readings['return']:.2f}, goals {readings['goals']:.0%}"
            advance(step, f"{shown}, {rate(step):,.0f} steps/s")

        measured = ppo.train(representation, config, seed, model, out / name, watch)
    row = {
        "format": FORMAT,
        "experiment": "control",
        "representation": representation,
        "seed": seed,
        **measured,
        "seconds": round(time.monotonic() - began, 1),  # of this process; an interrupted run took longer
        **provenance(training_device(TrainingConfig(device=config.device))),
    }
    write_whole(path, (json.dumps(row, indent=1, allow_nan=False) + "\n").encode())
    return True


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
    method, external = KINDS[representation]
    found = model.config.method, model.config.objective.external
    if found[0] != method or (external is not None and found[1] not in external):
        kind = f"{found[0]!r}" + (f" with the object placed by {found[1]!r}" if found[0] == "interaction" else "")
        raise ValueError(
            f"representation is {representation!r}, but {folder} holds a model of the method {kind}; make one with "
            f"`{HOW[representation]}`"
        )
    shape = model.config.observation_shape
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        raise ValueError(
            f"{folder} reads observations {shape}; the game shows pictures of palpate/Soccer-v0, (3, size, size)"
        )
    return model


def demand_ppo() -> Any:
    """The module `palpate.control.ppo`; an error names the extra if it is not installed."""
    try:
        from palpate.control import ppo
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "stable_baselines3":
            raise
        raise ModuleNotFoundError(
            "control needs stable-baselines3, which is not installed; pip install 'palpate[rl]'", name=error.name
        ) from error
    return ppo
