"""`palpate.fit` without any settings on three data sets that it was not tuned for.

    python benchmarks/own_data.py OUT [vectors|pictures|space ...] [--seed 0] [--share 0.03]

Each data set has one JSON: L_test as a share of the constant predictor's, the bar for it, seconds, choices, quality.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch
from balls import balls, mixtures

import palpate

BARS = {"vectors": (0.003, 180), "pictures": (0.01, 480), "space": (0.005, None)}


def sets(name: str, seed: int, share: float | None) -> tuple[palpate.Labelled, palpate.Labelled]:
    """20,000 triples for training and 5,000, half of them contacts, for the test. `share` is the contact share."""
    if name == "vectors":
        return (
            mixtures("palpate/Sprites-v0", 20_000, seed=seed, contact_share=share or 0.5),
            mixtures("palpate/Sprites-v0", 5_000, seed=10**6, contact_share=0.5),
        )
    options: dict[str, Any] = {"sides": (640.0, 480.0), "view": "picture", "pixels": (48, 64)}
    usual = 0.1
    if name == "space":
        options, usual = {"sides": (1.0, 1.0, 1.0)}, 0.3
    return (
        balls(20_000, seed=seed, contact_share=share or usual, **options),
        balls(5_000, seed=10**6, contact_share=0.5, **options),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=list(BARS), metavar="vectors|pictures|space")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, help="contact share of the training triples, above 0")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        train, test = sets(name, arguments.seed, arguments.share)
        start, cpu = time.monotonic(), time.process_time()
        model = palpate.fit(train.transitions, seed=arguments.seed)
        seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu
        scores = palpate.evaluate(model, test)
        share = scores.l_test / scores.constant["l_test"]
        found = {
            "set": name,
            "seed": arguments.seed,
            "contact_share": float(train.truth.contact.float().mean()),
            "share_of_constant": share,
            "bar": dict(zip(("share_of_constant", "seconds"), BARS[name], strict=True)),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "scores": scores.as_dict(),
            "vitals": model.model.vitals(),
            "choices": model.facts["choices"],
            "quality": model.facts.get("quality"),
            "hardware": platform.machine(),
            "torch": torch.__version__,
        }
        path = arguments.out / f"{name}-{arguments.seed}.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(
            f"{name}: L_test is {share:.3%} of the constant predictor's, {seconds:.0f} s ({cpu_seconds:.0f} s of CPU)"
        )


if __name__ == "__main__":
    main()
