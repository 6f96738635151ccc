"""`palpate reproduce control`: make the missing representations, then train PPO from each of them."""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from palpate.contest.control import control, demand_ppo
from palpate.control.settings import REPRESENTATIONS, ControlConfig
from palpate.reproduce.campaign import Report, reproduce
from palpate.reproduce.presets import Case, Preset, cases
from palpate.reproduce.runs import Place

METHODS = {"interaction": "ours", "paper": "paper-gaussian", "vae": "vae", "transporter": "transporter"}
WORLD = "third"  # the view of Soccer in which the game is played
FOLDER = "control"  # in the folder of the results
DIVERGED = "its loss was not finite, so there is no model to play with"
EVALUATIONS, MOST_BETWEEN = 12, 20_000  # of a run at least, and steps between two


class Games(NamedTuple):
    """The outcome of a tournament."""

    representations: Report
    finished: list[str]  # names of PPO runs made now
    skipped: list[str]  # names of PPO runs that existed


def tournament(
    preset: Preset,
    seeds: int,
    place: Place,
    *,
    representations: Collection[str] = (),
    jobs: int | None = None,
    learn_again: bool = False,
    play_again: bool = False,
    show: bool = True,
) -> Games:
    """Train a policy for each seed from the representation of that seed, from true states and from pixels.

    Representations are runs of `soccer` in third person, `jobs` at a time; their models are kept. If one of them
    fails, no policy is trained.
    """
    demand_ppo()
    wanted = _order(representations)
    planned = learned_by(preset, seeds, wanted)
    learned = Report([], [], {}, {}, [])
    if planned:
        place = replace(place, keep_worlds=(WORLD,))
        if not learn_again:
            demand_models(planned, place)
        learned = reproduce(planned, place, jobs=jobs, force=learn_again, show=show)
        for case in planned:
            if not place.model(case).exists():
                learned.failed.setdefault(f"{case.experiment}/{case.name}", DIVERGED)
    finished: list[str] = []
    skipped: list[str] = []
    for name in wanted if not learned.failed else ():
        folder = place.out / "soccer" / "models" / f"{WORLD}-{METHODS[name]}-{{seed}}" if name in METHODS else None
        made, existing = control(
            name,
            range(seeds),
            settings(preset, name, place.device),
            place.out / FOLDER,
            model=None if folder is None else str(folder),
            force=play_again,
            show=show,
        )
        finished += made
        skipped += existing
    return Games(learned, finished, skipped)


def settings(preset: Preset, representation: str, device: str | None) -> ControlConfig:
    steps = preset.pixel_steps if representation == "pixels" else preset.control_steps
    every = max(1, min(steps // EVALUATIONS, MOST_BETWEEN))
    return ControlConfig(steps=steps, evaluate_every=every, device=device)  # type: ignore[arg-type]


def _order(representations: Collection[str]) -> list[str]:
    """True states first, because scores need them; the longest runs last."""
    for name in representations:
        if name not in REPRESENTATIONS:
            raise ValueError(f"method is {name!r}; control has {', '.join(REPRESENTATIONS)}")
    order = ["truth", *METHODS, "pixels"]
    return [name for name in order if not representations or name in representations]


def learned_by(preset: Preset, seeds: int, wanted: Collection[str] = tuple(METHODS)) -> list[Case]:
    """The runs that make these representations."""
    needed = [METHODS[name] for name in wanted if name in METHODS]
    return cases(["soccer"], preset, seeds, worlds=[WORLD], methods=needed) if needed else []


def demand_models(planned: list[Case], place: Place) -> None:
    """Refuse existing representations of which only the numbers were kept."""
    for case in planned:
        path = place.result(case)
        if not path.exists() or place.model(case).exists():
            continue
        if json.loads(path.read_text(encoding="utf-8")).get("diverged"):
            raise ValueError(f"{path}: {DIVERGED}; choose the others with --methods")
        raise ValueError(
            f"{path} is there, but its model was not kept; choose another folder with --out, or make it again with "
            "palpate reproduce control --force"
        )
