"""Error over the length of a move.

    python benchmarks/strides.py run OUT [--jobs 2] [--seeds 0 1] [--worlds random approach pushed] [--strides 0.1]
    python benchmarks/strides.py draw OUT              OUT/strides.png from OUT/runs.json

Two balls in a unit square touch at a distance of 0.13. The stride is the longest move along an axis. Observations are
64 numbers. Each run is `palpate.fit` without settings on 5,000 triples and one CPU thread, tested on 5,000 triples with
random states. Finished runs are kept in OUT/runs.json and not made again. The worlds are:

- random: contacts are as frequent as random moves make them; a touched object lands anywhere.
- approach: three triples in ten are in contact, as with moves towards the object; a touched object lands anywhere.
- pushed: three triples in ten are in contact; the agent pushes a touched object ahead.
"""

from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib

matplotlib.use("agg")

from balls import AGENT_RADIUS, OBJECT_RADIUS, balls
from many import Settings, command_line, fitted, make, runs
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, StrMethodFormatter

import palpate

STRIDES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
WORLDS: dict[str, dict[str, Any]] = {
    "random": {"contact_share": None},
    "approach": {"contact_share": 0.3},
    "pushed": {"contact_share": 0.3, "pushed": True},
}
LABELS = {
    "random": "random moves",
    "approach": "30 % contacts",
    "pushed": "30 % contacts, object is pushed",
}
TRIPLES, TEST_TRIPLES, TEST_SEED = 5000, 5000, 10**6


def cases(worlds: list[str], seeds: list[int], strides: list[float]) -> list[Settings]:
    return [{"world": world, "stride": stride, "seed": seed} for world, seed, stride in product(worlds, seeds, strides)]


def run(case: Settings) -> dict[str, Any]:
    train = balls(TRIPLES, seed=case["seed"], stride=case["stride"], **WORLDS[case["world"]])
    test = balls(TEST_TRIPLES, seed=TEST_SEED, contact_share=None)
    assert train.truth.contact is not None
    model, facts = fitted(train.transitions, seed=case["seed"])
    scores = palpate.evaluate(model, test)
    return {
        "contact_share": float(train.truth.contact.double().mean()),
        "mean_length": float(train.transitions.action.norm(dim=1).mean()),
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "object_bias": scores.object_bias,
        "constant_object_error": scores.constant["object_error"],
        **facts,
    }


def draw(out: Path) -> None:
    found = runs(out)
    figure, (errors, shares) = plt.subplots(1, 2, figsize=(10, 4))
    for number, (world, label) in enumerate(LABELS.items()):
        curve: dict[float, list[dict[str, Any]]] = {}
        for one in found:
            if one["settings"]["world"] == world:
                curve.setdefault(one["settings"]["stride"], []).append(one)
        strides, colour = sorted(curve), f"C{number}"
        values = [[one["percent_of_constant"] for one in curve[stride]] for stride in strides]
        errors.plot(strides, [median(of) for of in values], "o-", color=colour, markersize=4, label=label)
        low, high = [min(of) for of in values], [max(of) for of in values]
        errors.fill_between(strides, low, high, color=colour, alpha=0.2, linewidth=0)
        if world == "random":
            share = [mean(one["contact_share"] for one in curve[stride]) for stride in strides]
            shares.plot(strides, share, "o-", color=colour, markersize=4, label=label)
    errors.set(yscale="log", ylabel="L_test, % of the constant predictor's")
    errors.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
    errors.yaxis.set_major_locator(FixedLocator([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]))
    shares.set(yscale="log", ylabel="contact share")
    shares.yaxis.set_major_locator(FixedLocator([0.005, 0.01, 0.02, 0.05, 0.1, 0.2]))
    shares.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    for axes in (errors, shares):
        axes.axvline(AGENT_RADIUS + OBJECT_RADIUS, color="black", linestyle=":", linewidth=1, label="sum of the radii")
        axes.set(xscale="log", xlabel="stride: longest move along an axis, in sides of the field")
        axes.xaxis.set_major_locator(FixedLocator(sorted({one["settings"]["stride"] for one in found})))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "strides.png", dpi=110)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--strides", type=float, nargs="+", default=list(STRIDES))
    arguments = parser.parse_args()
    if arguments.action == "draw":
        draw(arguments.out)
        return
    make(arguments.out, cases(arguments.worlds, arguments.seeds, arguments.strides), run, arguments.jobs)


if __name__ == "__main__":
    main()
