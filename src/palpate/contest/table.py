"""Table and learning curves that compare PPO runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from palpate.contest.compare import REACHED, Contestant, Interval, contest, curve, grouped
from palpate.disk import write_whole
from palpate.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, blank, panel, png
from palpate.reproduce.results import Row, read_results, write_json
from palpate.reproduce.statistics import Array, interquartile_mean, stratified_bootstrap
from palpate.reproduce.tables import layout, origin

LONGER = 2.0  # times as many steps as the shortest runs: such runs get a panel of their own
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
LEARNED = 0.5  # share of episodes with a goal; a ball left alone scores more than a random policy

HEADS = (
    "representation", "seeds", "steps", "return [95 %]", "score [95 %]", "episodes with a goal", "area [95 %]",
    f"steps to {REACHED} [95 %]", "steps to pixels' end", "better than pixels [95 %]", "steps/s",
)  # fmt: skip


def write_contest(folder: Path) -> tuple[str, list[Path]]:
    """Write `table.md`, `table.json` and `curves.png` from the runs in `folder`; returns the Markdown and the files."""
    rows = [row for row in read_results(folder) if row.get("experiment") == "control"]
    if not rows:
        raise FileNotFoundError(f"{folder} holds no JSON of a run; make some with `palpate control`")
    found = contest(rows)
    text = markdown(rows, found)
    files = [folder / name for name in ("table.md", "table.json", "curves.png")]
    write_whole(files[0], text.encode())
    write_json(files[1], {"contestants": [asdict(each) for each in found]})
    write_whole(files[2], png(curves(rows)))
    return text, files


def markdown(rows: Sequence[Row], found: Sequence[Contestant]) -> str:
    bottom = float(np.mean([row["random"]["return"] for row in rows]))
    goals = float(np.mean([row["random"]["goals"] for row in rows]))
    episodes = rows[0]["settings"]["episodes"]  # the same for all
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
    return layout(HEADS, map(_cells, found), [*said, origin(rows)])


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
    """Intervals [2, e] of the interquartile mean of curves [s, e]."""
    return np.array([stratified_bootstrap([column], resamples=1000) for column in returns.T]).T


def curves(rows: Sequence[Row]) -> Figure:
    """Return over environment steps: interquartile mean, and its bootstrap interval as a band.

    If some runs are much longer than others, one panel ends with the shortest runs and one with the longest.
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
