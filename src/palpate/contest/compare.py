"""Comparison of PPO runs by their JSON: scores, areas, steps, with intervals over seeds.

The normalised score of a return R is (R - R_random) / (R_truth - R_random), where R_random is what a random policy gets
on the same starts, and R_truth the interquartile mean over the seeds of `truth` after their last step.
Legend: s seeds, e evaluations, r resamples.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palpate.control.settings import REPRESENTATIONS
from palpate.reproduce.results import Row
from palpate.reproduce.statistics import Array, interquartile_mean, interval, resampled, stratified_bootstrap

Interval = tuple[float, float]

# Returns depend on these settings beside the policy, so all compared runs must share them.
GAME = ("max_step", "end_on_goal", "ball", "episodes")
# Settings in which seeds of one representation may differ; their lengths are compared by their curves.
OWN = ("representation", "seed", "model", "weights", "steps", "evaluate_every")
REACHED = 0.9  # normalised score at which the game counts as learned


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One representation over its seeds; intervals are bootstraps over seeds, one seed has none."""

    representation: str
    seeds: int
    steps: int
    final: float  # return after the last step, interquartile mean
    final_interval: Interval | None
    goals: float  # share of episodes with a goal after the last step, mean
    score: float | None  # normalised; None as long as there is no `truth` that is better than chance
    score_interval: Interval | None
    area: float | None  # mean normalised score over the steps that all representations were given
    area_interval: Interval | None
    steps_to_score: int | None  # of the interquartile mean of the curves, to REACHED; None: not reached, or unknown
    steps_to_score_interval: tuple[int | None, int | None] | None
    steps_to_pixels: int | None  # to the final return of `pixels`
    better_than_pixels: float | None  # probability that a seed of this one ends above a seed of `pixels`
    better_interval: Interval | None
    steps_per_second: float  # median, updates included


def contest(rows: Sequence[Row]) -> list[Contestant]:
    """One entry for each representation, in their order."""
    groups = grouped(rows)
    scale = normaliser(groups)
    pixels = np.array([row["final"]["return"] for row in groups["pixels"]]) if "pixels" in groups else None
    budget = min(float(curve(group)[0][-1]) for group in groups.values())
    return [_contestant(name, group, scale, pixels, budget) for name, group in groups.items()]


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Runs by representation; all play one game, and those of one representation have one length and settings."""
    groups: dict[str, list[Row]] = {}
    _demand_one(rows, GAME, "runs", "keep each game in a folder of its own")
    for name in REPRESENTATIONS:
        group = sorted((row for row in rows if row["representation"] == name), key=lambda row: row["seed"])
        lengths = {row["curve"][-1][0] for row in group}
        if len(lengths) > 1:
            raise ValueError(
                f"runs of {name} have {' and '.join(map(str, sorted(lengths)))} steps; keep those of one length in a "
                "folder"
            )
        names = dict.fromkeys(setting for row in group for setting in row["settings"] if setting not in OWN)
        _demand_one(group, names, f"runs of {name}", "keep those of one kind in a folder")
        if group:
            groups[name] = group
    return groups


def _demand_one(rows: Sequence[Row], names: Iterable[str], who: str, advice: str) -> None:
    """Refuse rows that differ in one of these settings."""
    for name in names:
        values = dict.fromkeys(repr(row["settings"].get(name)) for row in rows)
        if len(values) > 1:
            raise ValueError(f"{who} have {name} {' and '.join(values)}; {advice}")


def normaliser(groups: Mapping[str, Sequence[Row]]) -> Callable[[Array], Array] | None:
    """Returns to scores; None as long as there is no `truth` that is better than chance."""
    if "truth" not in groups:
        return None
    bottom = float(np.mean([row["random"]["return"] for group in groups.values() for row in group]))
    top = float(interquartile_mean(np.array([row["final"]["return"] for row in groups["truth"]])))
    return (lambda returns: (returns - bottom) / (top - bottom)) if top > bottom else None


def curve(group: Sequence[Row]) -> tuple[Array, Array]:
    """Steps [e] that all seeds were evaluated at, and returns [s, e]."""
    readings = [{step: value for step, value, _ in row["curve"]} for row in group]
    steps = sorted(set.intersection(*map(set, readings)))
    return np.array(steps, float), np.array([[reading[step] for step in steps] for reading in readings])


def area(steps: Array, values: Array, budget: float) -> Array:
    """Mean height [s] of curves [s, e] up to the step `budget`, by trapezoids."""
    kept = np.append(steps[steps < budget], budget)
    values = np.stack([np.interp(kept, steps, each) for each in values])
    steps = kept
    middle: Array = (values[..., 1:] + values[..., :-1]) / 2
    result: Array = (middle * np.diff(steps)).sum(-1) / (steps[-1] - steps[0])
    return result


def first_reached(steps: Array, values: Array, level: float) -> int | None:
    """The step at which a curve [e] is at `level` or above for the first time, between two evaluations by a line."""
    above = np.flatnonzero(values >= level)
    if not len(above):
        return None
    i = int(above[0])
    if i == 0:
        return int(steps[0])
    share = (level - values[i - 1]) / (values[i] - values[i - 1])
    return round(float(steps[i - 1] + share * (steps[i] - steps[i - 1])))


def probability_of_improvement(ours: Array, theirs: Array) -> float:
    """That a value of `ours` [s] is larger than one of `theirs` [s]; equal ones count half (Agarwal et al. 2021)."""
    gaps = ours[:, None] - theirs[None]
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)


def _contestant(
    name: str, group: Sequence[Row], scale: Callable[[Array], Array] | None, pixels: Array | None, budget: float
) -> Contestant:
    final = np.array([row["final"]["return"] for row in group])
    steps, returns = curve(group)
    middle = interquartile_mean(returns.T)  # [e]
    scores = scale(final) if scale else None
    areas = scale(area(steps, returns, budget)) if scale else None
    pixels = None if name == "pixels" else pixels
    return Contestant(
        representation=name,
        seeds=len(group),
        steps=int(steps[-1]),
        final=float(interquartile_mean(final)),
        final_interval=_bootstrap(final),
        goals=float(np.mean([row["final"]["goals"] for row in group])),
        score=None if scores is None else float(interquartile_mean(scores)),
        score_interval=_bootstrap(scores),
        area=None if areas is None else float(interquartile_mean(areas)),
        area_interval=_bootstrap(areas),
        steps_to_score=first_reached(steps, scale(middle), REACHED) if scale else None,
        steps_to_score_interval=_reach_interval(steps, scale(returns)) if scale and len(group) > 1 else None,
        steps_to_pixels=None if pixels is None else first_reached(steps, middle, float(interquartile_mean(pixels))),
        better_than_pixels=None if pixels is None else probability_of_improvement(final, pixels),
        better_interval=None if pixels is None else _better_interval(final, pixels),
        steps_per_second=float(np.median([row["steps_per_second"] for row in group])),
    )


def _bootstrap(values: Array | None) -> Interval | None:
    return None if values is None or len(values) < 2 else stratified_bootstrap([values])


def _reach_interval(steps: Array, scores: Array, resamples: int = 1000) -> tuple[int | None, int | None]:
    """Of the step at which the interquartile mean reaches the score; an end is None if resamples never reach it."""
    draws = resampled(len(scores), resamples=resamples)
    middles = interquartile_mean(scores[draws].swapaxes(1, 2))  # [r, e]
    each = [first_reached(steps, middle, REACHED) for middle in middles]
    low, high = interval(np.array([np.inf if step is None else step for step in each], float))
    return (None if np.isinf(low) else int(low)), (None if np.isinf(high) else int(high))


def _better_interval(ours: Array, theirs: Array, resamples: int = 2000) -> Interval | None:
    if min(len(ours), len(theirs)) < 2:
        return None
    one, two = resampled(len(ours), 0, resamples), resampled(len(theirs), 1, resamples)
    return interval(
        np.array([probability_of_improvement(ours[i], theirs[j]) for i, j in zip(one, two, strict=True)], float)
    )
