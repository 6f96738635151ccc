"""Error over the number of triples: single triples and episodes, vectors and pictures, beside a supervised model.

    python benchmarks/triples.py run OUT [--jobs 12] [--seeds 0 1] [--views vectors pictures] [--most 40000]
    python benchmarks/triples.py draw OUT              OUT/triples.png from OUT/runs.json

The world is vanilla Sprites with half of the triples in contact. Vectors are 64 numbers, pictures have 50 x 50 pixels.
Each run is `palpate.fit` without settings on one CPU thread, tested on 5,000 triples with random states. The supervised
model has the same rows and their true positions. Finished runs are kept in OUT/runs.json and not made again.
"""

import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("agg")

from balls import mixture, walks
from many import Settings, command_line, make, runs
from matplotlib import pyplot as plt

import palpate
from palpate.envs.registration import world

SIZES = (250, 500, 1000, 2000, 5000, 10_000, 20_000, 40_000)
LENGTH = 50  # moves of an episode
PIXELS, TEST_TRIPLES, TEST_SEED = 50, 5000, 10**6
COLOURS = {"single": "tab:blue", "episodes": "tab:orange"}


def cases(views: list[str], seeds: list[int], most: int) -> Iterator[Settings]:
    sizes = [size for size in SIZES if size <= most]
    for seed, triples, view, rows, method in product(
        seeds, sizes, views, ("single", "episodes"), ("interaction", "supervised")
    ):
        yield {"view": view, "rows": rows, "triples": triples, "method": method, "seed": seed}


def labelled(view: str, rows: str, num: int, seed: int) -> palpate.Labelled:
    """Triples of Sprites; those of an episode continue each other."""
    sprites = world("palpate/Sprites-v0", size=PIXELS)
    return walks(
        sprites, num, LENGTH if rows == "episodes" else 1, seed=seed, seen=mixture if view == "vectors" else None
    )


def run(case: Settings) -> dict[str, Any]:
    view, seed, method = case["view"], case["seed"], case["method"]
    train = labelled(view, case["rows"], case["triples"], seed)
    test = labelled(view, "single", TEST_TRIPLES, TEST_SEED)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few triples give findings
        data = train if method == "supervised" else train.transitions
        model = palpate.fit(data, method=method, seed=seed, device="cpu", progress=False)
    scores, quality = palpate.evaluate(model, test), model.facts.get("quality")
    return {
        "l_test": scores.l_test,
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "object_bias": scores.object_bias,
        "contact_accuracy": scores.contact_accuracy,
        "estimated_error": quality and quality["error"],
        "verdict": quality and quality["verdict"],
        "seconds": round(time.monotonic() - start),
    }


def draw(out: Path) -> None:
    found = runs(out)
    views = [view for view in ("vectors", "pictures") if any(one["settings"]["view"] == view for one in found)]
    figure, all_axes = plt.subplots(1, len(views), figsize=(5 * len(views), 4), sharey=True, squeeze=False)
    for axes, view in zip(all_axes[0], views, strict=True):
        for rows, method in product(COLOURS, ("interaction", "supervised")):
            curve: dict[int, list[float]] = {}
            for one in found:
                case = one["settings"]
                if (case["view"], case["rows"], case["method"]) == (view, rows, method):
                    curve.setdefault(case["triples"], []).append(one["l_test"])
            sizes, ours = sorted(curve), method == "interaction"
            name = f"{'ours' if ours else 'supervised'}, {'single triples' if rows == 'single' else 'episodes'}"
            values = [median(curve[size]) for size in sizes]
            axes.plot(sizes, values, "o-" if ours else "--", color=COLOURS[rows], markersize=4, label=name)
            if ours:
                low, high = [min(curve[size]) for size in sizes], [max(curve[size]) for size in sizes]
                axes.fill_between(sizes, low, high, color=COLOURS[rows], alpha=0.2, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="triples", title=view)
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("L_test (box side 1)")
    all_axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "triples.png", dpi=110)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--views", nargs="+", choices=("vectors", "pictures"), default=["vectors", "pictures"])
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of triples")
    arguments = parser.parse_args()
    if arguments.action == "draw":
        draw(arguments.out)
        return
    make(arguments.out, list(cases(arguments.views, arguments.seeds, arguments.most)), run, arguments.jobs)


if __name__ == "__main__":
    main()
