"""`palpate reproduce control`: train the missing representations, then PPO from each of them."""

import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from palpate.config import TrainingConfig
from palpate.control import settings as control
from palpate.extras import demand
from palpate.representation import load
from palpate.reproduce.campaign import Report, make_runs
from palpate.reproduce.presets import Case, Preset, cases
from palpate.reproduce.provenance import provenance
from palpate.reproduce.results import FORMAT, read_json
from palpate.reproduce.runs import Place, Watch, measured
from palpate.training.loop import training_device

METHODS = {"interaction": "ours", "paper": "paper-gaussian", "vae": "vae", "transporter": "transporter"}
ORDER = ("truth", *METHODS, "pixels")  # scores need true states, and pixels take longest
WORLD = "third"  # the view of Soccer in which the game is played
FOLDER = "control"  # in the folder of the results
DIVERGED = "its loss was not finite, so there is no model to play with"


@final
@dataclass(frozen=True, kw_only=True)
class Game:
    """One PPO run. It has the members of `presets.Case` that `make_runs` uses."""

    representation: str
    seed: int
    steps: int  # of all environments together
    size: int  # pixels on a side, for a policy on pixels
    model: Path | None  # folder of the trained model
    experiment: ClassVar[str] = FOLDER

    @property
    def name(self) -> str:
        return f"{self.representation}-{self.seed}"

    def settings(self) -> dict[str, Any]:
        """All that the numbers depend on, ready for JSON."""
        trained = {} if self.model is None else read_json(self.model / "config.json")
        return {
            "representation": self.representation,
            "seed": self.seed,
            "steps": self.steps,
            **({"size": self.size} if self.representation == "pixels" else {}),
            "model": trained.get("model"),
            "weights": trained.get("weights"),
            "envs": control.ENVS,
            "epochs": control.epochs(self.representation),
            "episodes": control.EPISODES,
            **control.PPO_SETTINGS,
        }


def measured_game(
    game: Game, place: Place, folder: Path, watch: Watch | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Train a policy; returns its JSON, and no arrays."""
    ppo, began = demand_ppo(), time.monotonic()
    model = None if game.model is None else load(game.model)
    run = ppo.Run(game.representation, game.seed, game.steps, model=model, size=game.size, device=place.device)
    with closing(run.env):
        found = ppo.train(run, folder, watch)
    row = {
        "format": FORMAT,
        "experiment": game.experiment,
        "representation": game.representation,
        "seed": game.seed,
        **found,
        "seconds": round(time.monotonic() - began, 1),  # of this process; an interrupted run took longer
        "settings": game.settings(),
        **provenance(training_device(TrainingConfig(device=place.device))),  # type: ignore[arg-type]
    }
    return row, {}


measured.register(Game, measured_game)


class Games(NamedTuple):
    """The outcome of a tournament."""

    representations: Report
    policies: Report


def tournament(
    preset: Preset,
    seeds: int,
    place: Place,
    *,
    representations: Collection[str] = (),
    steps: int | None = None,
    jobs: int | None = None,
    learn_again: bool = False,
    play_again: bool = False,
    show: bool = True,
) -> Games:
    """Train a policy for each seed from the representation of that seed, from true states and from pixels.

    Representations are runs of `soccer` in third person; their models are kept. If one of them fails, no policy is
    trained. If another process trains one of them, its policy is left out. `steps` are those of PPO, in place of the
    preset's.
    """
    demand_ppo()
    for name in representations:
        if name not in ORDER:
            raise ValueError(f"method is {name!r}; control has {', '.join(control.REPRESENTATIONS)}")
    if steps is not None and steps < 1:
        raise ValueError(f"ppo_steps is {steps}; allowed is 1 or more")
    wanted = [name for name in ORDER if not representations or name in representations]
    planned = learned_by(preset, seeds, wanted)
    learned = played = Report([], [], {}, {}, [])
    busy: set[Path | None] = set()  # models that other processes train
    if planned:
        keeping = replace(place, keep_worlds=(WORLD,))
        if not learn_again:
            demand_models(planned, keeping)
        learned = make_runs(planned, keeping, jobs=jobs, force=learn_again, show=show)
        for case in planned:
            name, model = f"{case.experiment}/{case.name}", place.model(case)
            if name in learned.busy:
                busy.add(model)
            elif not model.exists():
                learned.failed.setdefault(name, DIVERGED)
    if not learned.failed:
        games = [game(preset, name, seed, place, steps) for seed in range(seeds) for name in wanted]
        playable: list[Any] = [each for each in games if each.model not in busy]
        played = make_runs(playable, place, jobs=jobs, force=play_again, show=show)
    return Games(learned, played)


def game(preset: Preset, representation: str, seed: int, place: Place, steps: int | None = None) -> Game:
    steps = steps or (preset.pixel_steps if representation == "pixels" else preset.control_steps)
    method = METHODS.get(representation)
    model = None if method is None else place.out / "soccer" / "models" / f"{WORLD}-{method}-{seed}"
    return Game(
        representation=representation,
        seed=seed,
        steps=control.whole_rollouts(steps),
        size=preset.size,
        model=model,
    )


def learned_by(preset: Preset, seeds: int, wanted: Collection[str] = ORDER) -> list[Case]:
    """The runs that make these representations."""
    needed = [METHODS[name] for name in wanted if name in METHODS]
    return cases(["soccer"], preset, seeds, worlds=[WORLD], methods=needed) if needed else []


def demand_models(planned: list[Case], place: Place) -> None:
    """Refuse existing representations of which only the numbers were kept."""
    for case in planned:
        path = place.result(case)
        if not place.is_done(case) or place.model(case).exists():
            continue
        if read_json(path).get("diverged"):
            raise ValueError(f"{path}: {DIVERGED}; choose the others with --methods")
        raise ValueError(
            f"{path} exists, but its model was not kept; choose another folder with --out, or make it again with "
            "palpate reproduce control --force"
        )


def demand_ppo() -> Any:
    """The module `palpate.control.ppo`, which needs the extra `rl`."""
    needs = "control needs stable-baselines3"
    return demand("palpate.control.ppo", library="stable_baselines3", extra="rl", needs=needs)
