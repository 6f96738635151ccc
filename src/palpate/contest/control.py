"""`palpate control`: PPO runs that are not there yet, one JSON each, then the comparison of all that are."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

import palpate
from palpate.contest.compare import grouped, write_contest
from palpate.control.claims import ADVICE, settings_of
from palpate.control.settings import LEARNED, ControlConfig
from palpate.disk import Busy, alone, write_whole
from palpate.progress import bar
from palpate.representation import Representation, load
from palpate.reproduce.results import FORMAT, read_results
from palpate.reproduce.runs import commit, hardware
from palpate.settings import demand_same

# What a model must be to be called by these names: its method, and how it places the object.
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


class Report(NamedTuple):
    """What came of it."""

    finished: list[str]  # names of runs made now
    skipped: list[str]  # and of those that were there
    table: str  # Markdown
    written: list[Path]


def control(
    representation: str,
    seeds: Sequence[int],
    config: ControlConfig,
    out: Path,
    *,
    model: str | None = None,
    force: bool = False,
    show: bool = True,
) -> Report:
    """Train one policy for each seed, then compare everything in `out`.

    `model` is the folder of a trained representation; `{seed}` in it stands for the seed. A run whose JSON is there is
    skipped, one that was interrupted goes on; `palpate.training.loop.Interrupted` is raised by Ctrl-C, and all is kept.
    What cannot be run or compared is refused before anything is run, or deleted with `force`.
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
    table, written = write_contest(out)
    return Report(finished, skipped, table, written)


def _demand_fit(
    representation: str, seeds: Sequence[int], config: ControlConfig, out: Path, folders: list[Path | None], force: bool
) -> None:
    """That these runs can be made, and compared with what is in `out`; none there is quietly taken for another one."""
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
            demand_same(path, there[key]["settings"], settings, ADVICE)
        length = config.rollouts * config.rollout_steps
        there[key] = {"representation": representation, "seed": seed, "settings": settings, "curve": [[length]]}
    grouped(list(there.values()))


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """One process at a time at a run: two would write into each other's curve."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with alone(folder):
            yield
    except Busy:
        raise ValueError(
            f"another process is at {folder.name}; wait for it, or take other seeds with --first-seed"
        ) from None


def _perform(representation: str, seed: int, config: ControlConfig, out: Path, folder: Path | None, show: bool) -> bool:
    """Whether a run was made."""
    ppo = demand_ppo()
    name = f"{representation}-{seed}"
    path = out / f"{name}.json"
    if path.exists():
        return False
    model = None if folder is None else _model(representation, folder)
    total, began = config.rollouts * config.rollout_steps, time.monotonic()
    first: tuple[int, float] | None = None
    shown = ""
    with bar(name, total, show) as advance:

        def watch(step: int, readings: dict[str, float]) -> None:
            nonlocal first, shown
            now = time.monotonic()
            first = first or (step, now)
            if "return" in readings:
                shown = f"return {readings['return']:.2f}, goals {readings['goals']:.0%}"
            rate = (step - first[0]) / max(now - first[1], 1e-3)
            advance(step, f"{shown}, {rate:,.0f} steps/s")

        measured = ppo.train(representation, config, seed, model, out / name, watch)
    device = torch.device("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu")
    row = {
        "format": FORMAT,
        "experiment": "control",
        "representation": representation,
        "seed": seed,
        **measured,
        "seconds": round(time.monotonic() - began, 1),  # of this process; a run that was interrupted took longer
        "hardware": hardware(device),
        "torch": torch.__version__,
        "palpate": palpate.__version__,
        "commit": commit(),
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
    """The model, if it is what its name says."""
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
    """The room where it is done; says so if what it needs is not installed."""
    try:
        from palpate.control import ppo
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "stable_baselines3":
            raise
        raise ModuleNotFoundError(
            "control needs stable-baselines3, which is not installed; pip install 'palpate[rl]'", name=error.name
        ) from error
    return ppo
