"""Error if contacts move the object by little.

    python benchmarks/nudges.py OUT [--jobs 2] [--seeds 0 1 2] [--nudges 0.02 0.05]

Two balls in a unit square; a contact moves the object by `nudge` sides away from the agent's path. 20,000 triples of 64
numbers, 30 % of them in contact. Each run is `palpate.fit` without settings on one CPU thread, tested on 5,000 triples
of the same kind. Finished runs are kept in OUT/runs.json and not made again.
"""

from itertools import product
from typing import Any

from balls import balls
from many import Settings, command_line, fitted, make

import palpate

TRIPLES, TEST_TRIPLES, TEST_SEED, CONTACT_SHARE = 20_000, 5_000, 10**6, 0.3


def run(case: Settings) -> dict[str, Any]:
    nudge, seed = case["nudge"], case["seed"]
    test = balls(TEST_TRIPLES, seed=TEST_SEED, contact_share=CONTACT_SHARE, nudge=nudge)
    train = balls(TRIPLES, seed=seed, contact_share=CONTACT_SHARE, nudge=nudge)
    model, facts = fitted(train.transitions, seed=seed)
    scores = palpate.evaluate(model, test)
    return {
        "percent_of_constant": 100 * scores.l_test / scores.constant["l_test"],
        "agent_error": scores.agent_error,
        "object_error": scores.object_error,
        "object_bias": scores.object_bias,
        "contact_accuracy": scores.contact_accuracy,
        **facts,
    }


def main() -> None:
    parser = command_line(__doc__, draws=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--nudges", type=float, nargs="+", default=[0.02])
    arguments = parser.parse_args()
    cases = [{"nudge": nudge, "seed": seed} for nudge, seed in product(arguments.nudges, arguments.seeds)]
    make(arguments.out, cases, run, arguments.jobs)


if __name__ == "__main__":
    main()
