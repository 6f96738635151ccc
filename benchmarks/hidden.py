"""Error with an agent that hides the object now and then.

    python benchmarks/hidden.py OUT [--jobs 2] [--seeds 0 1 2] [--worlds vectors rare pushes sprites]

Each run is `palpate.fit` on one CPU thread, tested where the object is visible. A mast on the agent hides what is
behind it; the widths hide no object, about 4 % and about 15 % of them. Finished runs are kept in OUT/runs.json and not
made again. The worlds are:

- vectors: 20,000 triples of 64 numbers, half of them in contact; a touched object lands anywhere.
- rare: the same with one triple in ten in contact.
- pushes: as vectors, with strides of 0.3; the agent pushes a touched object ahead.
- sprites: `palpate/Sprites-v0`, streamed, 50 x 50 pixels, small CNNs, 500 steps.
"""

from itertools import product
from typing import Any

from balls import balls
from many import Settings, command_line, fitted, make

import palpate
from palpate.collecting.collect import collect
from palpate.envs.registration import world

TRIPLES, TEST_TRIPLES, TEST_SEED = 20_000, 5_000, 10**6
MASTS = (0.0, 0.05, 0.16)  # half of the width, in sides
SPRITES = "palpate/Sprites-v0"
WORLDS: dict[str, dict[str, Any]] = {
    "vectors": {"contact_share": 0.5},
    "rare": {"contact_share": 0.1},
    "pushes": {"contact_share": 0.5, "stride": 0.3, "pushed": True},
}


def run(case: Settings) -> dict[str, Any]:
    name, mast, seed = case["world"], case["mast"], case["seed"]
    source: Any
    settings: dict[str, Any] = {}
    if name == "sprites":
        test = collect(SPRITES, TEST_TRIPLES, seed=TEST_SEED, labelled=True, progress=False, size=50, mast=mast)
        source, settings = world(SPRITES, size=50, mast=mast), {"encoder": "small", "steps": 500}
    else:
        test = balls(TEST_TRIPLES, seed=TEST_SEED, mast=mast, **WORLDS[name])
        source = balls(TRIPLES, seed=seed, mast=mast, **WORLDS[name]).transitions
    model, facts = fitted(source, seed=seed, **settings)
    scores = palpate.evaluate(model, test)
    visible = test.truth.visible
    return {
        "hidden_share": 0.0 if visible is None else float((~visible).double().mean()),
        "l_test": scores.l_test,
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "object_error": scores.object_error,
        "object_bias": scores.object_bias,
        "confidence_auroc": scores.confidence_auroc,
        "contact_accuracy": scores.contact_accuracy,
        **facts,
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--worlds", nargs="+", choices=(*WORLDS, "sprites"), default=[*WORLDS, "sprites"])
    arguments = parser.parse_args()
    kinds = product(arguments.worlds, arguments.seeds, MASTS)
    cases = [{"world": name, "mast": mast, "seed": seed} for name, seed, mast in kinds]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
