"""From the JSON of PPO runs to a comparison: curves, scores, areas, steps, with intervals over seeds.

The normalised score of a return R is (R - R_random) / (R_truth - R_random), where R_random is what a random policy gets
on the same starts, and R_truth the interquartile mean over the seeds of `truth` after their last step.
Legend: s seeds, e evaluations, r resamples.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from palpate.control.settings import REPRESENTATIONS
from palpate.disk import write_whole
from palpate.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, blank, panel
from palpate.reproduce.results import CONFIDENCE, RESAMPLES, interquartile_mean, read_results, stratified_bootstrap

Array = NDArray[np.float64]
Row = Mapping[str, Any]
Interval = tuple[float, float]

# What returns depend on beside the policy: one game and one way to measure for all that are compared.
GAME = ("max_step", "end_on_goal", "ball", "episodes")
# What seeds of one representation may differ in; how long they are is seen by their curves.
OWN = ("representation", "seed", "model", "weights", "steps", "evaluate_every")
REACHED = 0.9  # normalised score at which the game counts as learned
LONGER = 2.0  # times as many steps as others: too long to be drawn beside them alone
DPI = 110
COLOURS = {
    "interaction": BLUE,
    "paper": ORANGE,
    "vae": PURPLE,
    "transporter": GREEN,
    "pixels": VERMILION,
    "truth": GREY,
}
TITLES = {
    "interaction": "ours",
    "paper": "the paper's objective",
    "vae": "VAE",
    "transporter": "Transporter",
    "pixels": "pixels, end to end",
    "truth": "true states",
}


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """What the seeds of one representation say; intervals are bootstraps over seeds, one seed has none."""

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


def write_contest(folder: Path) -> tuple[str, list[Path]]:
    """Write `table.md`, `table.json` and `curves.png` from the runs in `folder`; returns the Markdown and the files."""
    rows = [row for row in read_results(folder) if row.get("experiment") == "control"]
    if not rows:
        raise FileNotFoundError(f"{folder} holds no JSON of a run; make some with `palpate control`")
    found = contest(rows)
    text = markdown(rows, found)
    files = [folder / name for name in ("table.md", "table.json", "curves.png")]
    write_whole(files[0], text.encode())
    table = json.dumps({"contestants": [asdict(each) for each in found]}, indent=1, allow_nan=False)
    write_whole(files[1], (table + "\n").encode())
    picture = io.BytesIO()
    curves(rows).savefig(picture, format="png", dpi=DPI)
    write_whole(files[2], picture.getvalue())
    return text, files


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
    """That all rows have the same value of each of these settings, as far as they know it."""
    for name in names:
        values = dict.fromkeys(repr(row["settings"][name]) for row in rows if name in row["settings"])
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


def resampled(count: int, seed: int = 0, resamples: int = RESAMPLES) -> NDArray[np.int64]:
    """Seeds drawn with replacement, [r, s]."""
    return np.random.default_rng(seed).integers(count, size=(resamples, count))


def _interval(values: Array) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def _contestant(
    name: str, group: Sequence[Row], scale: Callable[[Array], Array] | None, pixels: Array | None, budget: float
) -> Contestant:
    final = np.array([row["final"]["return"] for row in group])
    steps, returns = curve(group)
    many = len(group) > 1
    middle = interquartile_mean(returns.T)  # [e]
    scores = scale(final) if scale else None
    areas = scale(area(steps, returns, budget)) if scale else None
    reached = first_reached(steps, scale(middle), REACHED) if scale else None
    compared = pixels is not None and name != "pixels"
    return Contestant(
        representation=name,
        seeds=len(group),
        steps=int(steps[-1]),
        final=float(interquartile_mean(final)),
        final_interval=stratified_bootstrap([final]) if many else None,
        goals=float(np.mean([row["final"]["goals"] for row in group])),
        score=None if scores is None else float(interquartile_mean(scores)),
        score_interval=stratified_bootstrap([scores]) if many and scores is not None else None,
        area=None if areas is None else float(interquartile_mean(areas)),
        area_interval=stratified_bootstrap([areas]) if many and areas is not None else None,
        steps_to_score=reached,
        steps_to_score_interval=_reach_interval(steps, scale(returns)) if many and scale else None,
        steps_to_pixels=(
            first_reached(steps, middle, float(interquartile_mean(pixels))) if compared and pixels is not None else None
        ),
        better_than_pixels=probability_of_improvement(final, pixels) if compared and pixels is not None else None,
        better_interval=(
            _better_interval(final, pixels) if compared and pixels is not None and many and len(pixels) > 1 else None
        ),
        steps_per_second=float(np.median([row["steps_per_second"] for row in group])),
    )


def _reach_interval(steps: Array, scores: Array, resamples: int = 1000) -> tuple[int | None, int | None]:
    """Of the step at which the interquartile mean reaches the score; None at the upper end: some resamples never do."""
    draws = resampled(len(scores), resamples=resamples)
    middles = interquartile_mean(scores[draws].swapaxes(1, 2))  # [r, e]
    each = [first_reached(steps, middle, REACHED) for middle in middles]
    low, high = _interval(np.array([np.inf if step is None else step for step in each], float))
    return (None if np.isinf(low) else int(low)), (None if np.isinf(high) else int(high))


def _better_interval(ours: Array, theirs: Array, resamples: int = 2000) -> Interval:
    one, two = resampled(len(ours), 0, resamples), resampled(len(theirs), 1, resamples)
    return _interval(
        np.array([probability_of_improvement(ours[i], theirs[j]) for i, j in zip(one, two, strict=True)], float)
    )


LEARNED = 0.5  # share of episodes with a goal; a ball left alone scores more than a random policy

HEADS = (
    "representation", "seeds", "steps", "return [95 %]", "score [95 %]", "episodes with a goal", "area [95 %]",
    f"steps to {REACHED} [95 %]", "steps to pixels' end", "better than pixels [95 %]", "steps/s",
)  # fmt: skip


def markdown(rows: Sequence[Row], found: Sequence[Contestant]) -> str:
    """The table and what must be said beside it."""
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(_cells(each))} |" for each in found]
    bottom = float(np.mean([row["random"]["return"] for row in rows]))
    goals = float(np.mean([row["random"]["goals"] for row in rows]))
    episodes = ", ".join(sorted({str(row["settings"]["episodes"]) for row in rows}))
    budget = min(each.steps for each in found)
    said = [
        "Returns are those of the policy without its noise on held-out starts, the same for all: interquartile means "
        f"over seeds with bootstrap intervals over seeds; {episodes} episodes an evaluation. A random policy gets "
        f"{bottom:.2f}, and has a goal in {goals:.0%} of its episodes.",
        "Score: 0 is the random policy's return and 1 that of true states after their last step. Area: mean score over "
        f"the first {budget:,} steps. Steps: those of all environments together.",
    ]
    if not any(each.representation == "truth" for each in found):
        said.append("There are no runs from true states yet, so there are no scores.")
    elif all(each.score is None for each in found):
        said.append("True states ended no better than the random policy, so there are no scores.")
    else:
        said += [
            f"True states have a goal in {each.goals:.0%} of their episodes only: these scores are not those of a game "
            "that has been learned."
            for each in found
            if each.representation == "truth" and each.goals < LEARNED
        ]
    seen: dict[str, set[str]] = {}
    for row in rows:
        if row["settings"].get("weights"):
            seen.setdefault(row["representation"], set()).add(row["settings"]["weights"])
    if seen:
        counts = ", ".join(f"{name} {len(weights)}" for name, weights in seen.items())
        said.append(f"Trained models that the seeds of PPO saw: {counts}.")
    made = {name: ", ".join(dict.fromkeys(str(row[name]) for row in rows)) for name in ("hardware", "torch", "commit")}
    said.append(f"{made['hardware']}; torch {made['torch']}; commit {made['commit']}.")
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in said)]) + "\n"


def _cells(each: Contestant) -> list[str]:
    def with_interval(value: float | None, interval: Interval | None) -> str:
        if value is None:
            return "-"
        return f"{value:.2f}" + ("" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]")

    def count(step: int | None) -> str:
        return "never" if step is None else f"{step:,}"

    reach = "-" if each.score is None else count(each.steps_to_score)
    if each.steps_to_score_interval is not None and each.steps_to_score is not None:
        reach += f" [{', '.join(map(count, each.steps_to_score_interval))}]"
    return [
        each.representation,
        str(each.seeds),
        f"{each.steps:,}",
        with_interval(each.final, each.final_interval),
        with_interval(each.score, each.score_interval),
        f"{each.goals:.0%}",
        with_interval(each.area, each.area_interval),
        reach,
        "-" if each.better_than_pixels is None else count(each.steps_to_pixels),
        with_interval(each.better_than_pixels, each.better_interval),
        f"{each.steps_per_second:,.0f}",
    ]


def _band(returns: Array) -> Array:
    """Where the interquartile mean of curves [s, e] lies, [2, e]."""
    return np.array([stratified_bootstrap([column], resamples=1000) for column in returns.T]).T


def curves(rows: Sequence[Row]) -> Figure:
    """Return over environment steps: interquartile mean, and its bootstrap interval as a band.

    Where some runs are much longer than others, once as far as all go and once as far as any.
    """
    drawn = {name: (*curve(group), _band(curve(group)[1])) for name, group in grouped(rows).items()}
    bottom = float(np.mean([row["random"]["return"] for row in rows]))
    ends = sorted(float(steps[-1]) for steps, *_ in drawn.values())
    ends = [ends[0], ends[-1]] if ends[-1] > LONGER * ends[0] else [ends[-1]]
    figure = blank(7.2 if len(ends) == 1 else 10.4, 4.2)
    for place, end in enumerate(ends):
        axes = panel(figure, place + 1, len(ends), xlabel="environment steps")
        if place == 0:
            axes.set_ylabel("return of an episode")
        for name, (steps, returns, band) in drawn.items():
            line = "--" if name == "truth" else "-"
            label = TITLES[name] if place == 0 else None
            axes.plot(steps, interquartile_mean(returns.T), line, color=COLOURS[name], linewidth=1.6, label=label)
            if len(returns) > 1:
                axes.fill_between(steps, *band, color=COLOURS[name], alpha=0.18, linewidth=0)
        label = "random policy" if place == 0 else None
        axes.axhline(bottom, color="black", linestyle=":", linewidth=1.2, label=label)
        axes.set_xlim(0, 1.02 * end)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
