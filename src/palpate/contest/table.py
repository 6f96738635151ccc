"""Table and learning curves that compare PPO runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from palpate.contest.compare import REACHED, Contestant, Interval, contest, curve, grouped
from palpate.disk import write_whole
from palpate.figures import blank, panel, png
from palpate.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION
from palpate.reproduce.results import Row, read_results, write_json
from palpate.reproduce.statistics import Array, interquartile_mean, stratified_bootstrap
from palpate.reproduce.tables import layout, origin

LONGER = 2.0  # times as many steps as the shortest runs: such runs get a panel of their own
STYLES = {  # name and colour in the figure
    "interaction": ("ours", BLUE),
    "paper": ("the paper's objective", ORANGE),
    "vae": ("VAE", PURPLE),
    "transporter": ("Transporter", GREEN),
    "pixels": ("pixels, end to end", VERMILION),
    "truth": ("true states", GREY),
}
LEARNED = 0.5  # share of episodes with a goal below which `truth` has not learned the game

HEADS = (
    "representation", "seeds", "steps", "return [95 %]", "score [95 %]", "episodes with a goal", "area [95 %]",
    f"steps to {REACHED} [95 %]", "steps to pixels' end",
)  # fmt: skip


def write_contest(folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Write table and curves from the runs in `folder`; returns the Markdown, under "control", and the files."""
    rows = [row for row in read_results(folder) if row.get("experiment") == "control"]
    if not rows:
        return {}, []
    found = contest(rows)
    text = markdown(rows, found)
    files = [folder / name for name in ("table.md", "table.json", "curves.png")]
    write_whole(files[0], text.encode())
    write_json(files[1], {"contestants": [asdict(each) for each in found]})
    write_whole(files[2], png(curves(rows)))
    return {"control": text}, files


def markdown(rows: Sequence[Row], found: Sequence[Contestant]) -> str:
    bottom, goals = (float(np.mean([row["random"][name] for row in rows])) for name in ("return", "goals"))
    notes = [
        "Returns of the policy without its noise on held-out starts, the same for all: interquartile means over seeds "
        f"with bootstrap intervals over seeds. A random policy has a return of {bottom:.2f} and a goal in {goals:.0%} "
        "of its episodes.",
        "Score: 0 is the random policy's return and 1 that of true states after their last step. Area: mean score over "
        f"the first {min(each.steps for each in found):,} steps. Steps: those of all environments together.",
    ]
    truth = next((each for each in found if each.representation == "truth"), None)
    if truth is None:
        notes.append("There are no scores, because there are no runs from true states.")
    elif truth.score is None:
        notes.append("There are no scores, because true states ended no better than the random policy.")
    elif truth.goals < LEARNED:
        notes.append(
            f"From true states only {truth.goals:.0%} of the episodes have a goal. The game was not learned, so the "
            "scores mean little."
        )
    return layout(HEADS, map(_cells, found), [*notes, origin(rows)])


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
        "-" if each.steps_to_pixels is None else f"{each.steps_to_pixels:,}",
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
            title, colour = STYLES[name]
            line, label = "--" if name == "truth" else "-", title if place == 0 else None
            axes.plot(steps, interquartile_mean(returns.T), line, color=colour, linewidth=1.6, label=label)
            if len(returns) > 1:
                axes.fill_between(steps, *band, color=colour, alpha=0.18, linewidth=0)
        label = "random policy" if place == 0 else None
        axes.axhline(bottom, color="black", linestyle=":", linewidth=1.2, label=label)
        axes.set_xlim(0, 1.02 * end)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
