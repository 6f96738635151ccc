"""Comparison of PPO runs by their JSON: scores, areas and steps, with intervals over seeds.

The normalised score of a return R is (R - R_random) / (R_truth - R_random). R_random is the return of a random policy
on the same starts. R_truth is the interquartile mean of `truth` over its seeds, after the last step.
Legend: s seeds, e evaluations, r resamples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palpate.control.settings import REPRESENTATIONS
from palpate.reproduce.results import Row
from palpate.reproduce.statistics import Array, interquartile_mean, interval, resampled, stratified_bootstrap

Interval = tuple[float, float]

REACHED = 0.9  # normalised score at which the game counts as learned
RESAMPLES = 1000  # of whole curves


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One representation over its seeds. Intervals are bootstraps over seeds; one seed has none."""

    representation: str
    seeds: int
    steps: int
    final: float  # return after the last step, interquartile mean
    final_interval: Interval | None
    goals: float  # share of episodes with a goal after the last step, mean
    score: float | None  # normalised; None without a `truth` that is better than the random policy
    score_interval: Interval | None
    area: float | None  # mean normalised score up to the last step of the shortest runs
    area_interval: Interval | None
    steps_to_score: int | None  # until the interquartile mean of the curves reaches REACHED; None: never, or unknown
    steps_to_score_interval: tuple[int | None, int | None] | None
    steps_to_pixels: int | None  # until it reaches the final return of `pixels`


def contest(rows: Sequence[Row]) -> list[Contestant]:
    """One entry for each representation, in their order."""
    groups = grouped(rows)
    scale = normaliser(groups)
    pixels = float(interquartile_mean(_final(groups["pixels"]))) if "pixels" in groups else None
    budget = min(float(curve(group)[0][-1]) for group in groups.values())
    return [_contestant(name, group, scale, pixels, budget) for name, group in groups.items()]


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Runs by representation. Those of one representation must have one length."""
    groups: dict[str, list[Row]] = {}
    for name in REPRESENTATIONS:
        group = sorted((row for row in rows if row["representation"] == name), key=lambda row: row["seed"])
        lengths = sorted({row["curve"][-1][0] for row in group})
        if len(lengths) > 1:
            raise ValueError(
                f"runs of {name} have {' and '.join(map(str, lengths))} steps; keep those of one length in a folder"
            )
        if group:
            groups[name] = group
    return groups


def normaliser(groups: Mapping[str, Sequence[Row]]) -> Callable[[Array], Array] | None:
    """A function from returns to scores; None without a `truth` that is better than the random policy."""
    if "truth" not in groups:
        return None
    bottom = float(np.mean([row["random"]["return"] for group in groups.values() for row in group]))
    top = float(interquartile_mean(_final(groups["truth"])))
    return (lambda returns: (returns - bottom) / (top - bottom)) if top > bottom else None


def curve(group: Sequence[Row]) -> tuple[Array, Array]:
    """Steps [e] at which all seeds were evaluated, and returns [s, e]."""
    readings = [{step: value for step, value, _ in row["curve"]} for row in group]
    steps = sorted(set.intersection(*map(set, readings)))
    return np.array(steps, float), np.array([[reading[step] for step in steps] for reading in readings])


def area(steps: Array, values: Array, budget: float) -> Array:
    """Mean height [s] of curves [s, e] up to the step `budget`."""
    kept = np.append(steps[steps < budget], budget)
    heights = np.stack([np.interp(kept, steps, each) for each in values])
    result: Array = np.trapezoid(heights, kept) / (kept[-1] - kept[0])
    return result


def first_reached(steps: Array, values: Array, level: float) -> int | None:
    """The first step at which a curve [e] is at `level` or above, interpolated between two evaluations."""
    above = np.flatnonzero(values >= level)
    if not len(above):
        return None
    i = int(above[0])
    if i == 0:
        return int(steps[0])
    share = (level - values[i - 1]) / (values[i] - values[i - 1])
    return round(float(steps[i - 1] + share * (steps[i] - steps[i - 1])))


def _contestant(
    name: str, group: Sequence[Row], scale: Callable[[Array], Array] | None, pixels: float | None, budget: float
) -> Contestant:
    final = _final(group)
    steps, returns = curve(group)
    middle = interquartile_mean(returns.T)  # [e]
    scores = scale(final) if scale else None
    areas = scale(area(steps, returns, budget)) if scale else None
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
        steps_to_pixels=None if pixels is None or name == "pixels" else first_reached(steps, middle, pixels),
    )


def _final(group: Sequence[Row]) -> Array:
    return np.array([row["final"]["return"] for row in group])


def _bootstrap(values: Array | None) -> Interval | None:
    return None if values is None or len(values) < 2 else stratified_bootstrap([values])


def _reach_interval(steps: Array, scores: Array) -> tuple[int | None, int | None]:
    """Interval of `steps_to_score`; an end is None if the resamples there never reach the score."""
    middles = interquartile_mean(scores[resampled(len(scores), resamples=RESAMPLES)].swapaxes(1, 2))  # [r, e]
    each = [first_reached(steps, middle, REACHED) for middle in middles]
    low, high = interval(np.array([np.inf if step is None else step for step in each], float))
    return (None if np.isinf(low) else int(low)), (None if np.isinf(high) else int(high))
