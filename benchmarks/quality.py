"""The label-free error estimate beside the true error, over many runs: their ratio and their rank correlation.

    python benchmarks/quality.py run OUT [--jobs 12]     make the runs that OUT/runs.json lacks
    python benchmarks/quality.py draw OUT                ratios, rank correlation and OUT/scatter.png

A seed fixes the grid of runs. Some have the settings that `fit` chooses; they differ in triples, noise, contact share,
hidden objects, dimension and kind of observation. The others also differ in steps, objective and learning rate, so that
there are bad models.
"""

import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import numpy as np
import torch
from balls import balls
from many import command_line, make, runs
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, NullFormatter

import palpate

VECTOR_RUNS, PICTURE_RUNS = 36, 6  # with settings of their own
USUAL_VECTOR_RUNS, USUAL_PICTURE_RUNS = 24, 12  # as `fit` trains
NEAR = 2.5  # factor within which an estimate is near the true error
FAILED = 0.5  # of the constant predictor's error; a run above it has learned nothing


def grid() -> list[dict[str, Any]]:
    """Settings of all runs."""
    rng = np.random.default_rng(7)  # the estimate was designed with another seed

    def pick(values: list[Any]) -> Any:
        return values[rng.integers(len(values))]

    runs = []
    for number in range(VECTOR_RUNS + PICTURE_RUNS):
        picture = number >= VECTOR_RUNS
        runs.append(
            {
                "view": "picture" if picture else "mixture",
                "n": 2 if picture else pick([2, 2, 2, 3]),
                "triples": pick([1000, 3000, 10_000]),
                "share": pick([0.05, 0.2, 0.5, 0.5, 0.8]),
                "noise": pick([0.0, 0.0, 0.05, 0.2]),
                "objective": pick(["contact", "contact", "contact", "paper", "paper-gaussian"]),
                "steps": pick([60, 120, 250]) if picture else pick([60, 120, 250, 500, 1000]),
                "learning_rate": pick([5e-4, 2e-3, 4e-3]),
                "mast": 0.0,
                "seed": number,
            }
        )
    for number in range(len(runs), len(runs) + USUAL_VECTOR_RUNS + USUAL_PICTURE_RUNS):
        picture = number >= VECTOR_RUNS + PICTURE_RUNS + USUAL_VECTOR_RUNS
        runs.append(
            {
                "view": "picture" if picture else "mixture",
                "n": 2 if picture else pick([2, 2, 2, 3]),
                "triples": pick([1000, 3000, 10_000] if picture else [300, 1000, 3000, 10_000]),
                "share": pick([0.1, 0.3, 0.5]),
                "noise": pick([0.0, 0.0, 0.05, 0.2]),
                "objective": "contact",
                "steps": None,
                "learning_rate": None,
                "mast": pick([0.0, 0.0, 0.1]),
                "seed": number,
            }
        )
    return runs


def made(settings: dict[str, Any], num: int, share: float, seed: int) -> palpate.Labelled:
    """Triples of this run's world; noise is relative to the spread of the observations."""
    sides = (1.0,) * settings["n"]
    pixels = (24, 24)
    labelled = balls(
        num, seed=seed, sides=sides, contact_share=share, view=settings["view"], pixels=pixels, mast=settings["mast"]
    )
    if not settings["noise"]:
        return labelled
    rows, generator = labelled.transitions.rows(slice(None)), torch.Generator().manual_seed(seed)
    o, o_next = (
        x.float() + settings["noise"] * rows.o.float().std() * torch.randn(x.shape, generator=generator)
        for x in (rows.o, rows.o_next)
    )
    return palpate.Labelled(
        palpate.Transitions(observation=o, action=rows.a, next_observation=o_next, layout="channel-first"),
        labelled.truth,
    )


def run(settings: dict[str, Any]) -> dict[str, Any]:
    train = made(settings, settings["triples"], settings["share"], settings["seed"])
    test = made(settings, 2000, 0.5, 10**6)
    start = time.monotonic()
    own: dict[str, Any] = {}
    if settings["steps"] is not None:
        own = {
            "objective": settings["objective"],
            "steps": settings["steps"],
            "optimizer": "adamw",  # the learning rates of the grid are for AdamW
            "learning_rate": settings["learning_rate"],
            "batch_size": 64,
            "evaluate_every": max(20, settings["steps"] // 10),
        }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short runs
        model = palpate.fit(train.transitions, seed=settings["seed"], device="cpu", progress=False, **own)
    seconds = time.monotonic() - start
    scores = palpate.evaluate(model, test)
    return {
        "estimate": model.facts["quality"]["error"],
        "error": scores.l_test**0.5,
        "constant": scores.constant["l_test"] ** 0.5,
        "quality": model.facts["quality"],
        "seconds": round(seconds, 1),
    }


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; equal values share a rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        return (last - (count - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def draw(out: Path) -> None:
    found = runs(out)
    estimate, error, constant = (np.array([one[name] for one in found]) for name in ("estimate", "error", "constant"))
    failed = error > FAILED * constant
    usual = np.array([one["settings"]["steps"] is None for one in found])
    ratio = estimate / error
    near = (ratio < NEAR) & (ratio > 1 / NEAR)
    text = f"{len(found)} runs: median ratio {np.median(ratio):.2f}, {near.mean():.0%} within {NEAR:g} times; "
    text += f"rank correlation {spearman(estimate, error):.2f}\n{usual.sum()} as fit trains: median "
    text += f"{np.median(ratio[usual]):.2f}, {near[usual].mean():.0%}, {spearman(estimate[usual], error[usual]):.2f}; "
    text += f"without {failed.sum()} failed ones: {spearman(estimate[~failed], error[~failed]):.2f}"
    print(text)
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    kinds = [(one["settings"]["view"], one["settings"]["objective"]) for one in found]
    for kind in sorted(set(kinds)):
        rows = np.array([k == kind for k in kinds])
        axes.scatter(estimate[rows], error[rows], s=22, label=f"{kind[0]}, {kind[1]}")
    low, high = min(estimate.min(), error.min()) * 0.8, max(estimate.max(), error.max()) * 1.2
    axes.plot([low, high], [low, high], color="grey", linewidth=0.8)
    axes.axhline(FAILED * constant.mean(), color="grey", linewidth=0.8, linestyle="--")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="error estimated without labels (box side 1)",
        ylabel="true error, root of L_test",
        title=text,
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.title.set_fontsize(8)
    axes.legend(fontsize=8)
    figure.savefig(out / "scatter.png", dpi=110)


def main() -> None:
    parser = command_line(__doc__)
    arguments = parser.parse_args()
    if arguments.action == "draw":
        draw(arguments.out)
    else:
        make(arguments.out, grid(), run, arguments.jobs)


if __name__ == "__main__":
    main()
