"""The bars of "your own data": `palpate.fit` with no choices on three sets that nobody tuned it for.

    python benchmarks/own_data.py OUT [vectors|pictures|space ...] [--seed 0]

writes one JSON for each: L_test as a share of the constant answer's, seconds, what was chosen, the label-free quality.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch
from balls import balls

import palpate
from palpate.reproduce.sets import mixtures

BARS = {"vectors": (0.003, 180), "pictures": (0.01, 480), "space": (0.005, None)}


def sets(name: str, seed: int) -> tuple[palpate.Labelled, palpate.Labelled]:
    """20,000 triples to learn from and 5,000, half of them contacts, to measure on."""
    if name == "vectors":
        return (
            mixtures("palpate/Sprites-v0", 20_000, seed=seed, contact_share=0.5),
            mixtures("palpate/Sprites-v0", 5_000, seed=10**6, contact_share=0.5),
        )
    options: dict[str, Any] = {"sides": (640.0, 480.0), "view": "picture", "pixels": (48, 64)}
    share = 0.1
    if name == "space":
        options, share = {"sides": (1.0, 1.0, 1.0)}, 0.3
    return (
        balls(20_000, seed=seed, contact_share=share, **options),
        balls(5_000, seed=10**6, contact_share=0.5, **options),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=list(BARS), metavar="vectors|pictures|space")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        train, test = sets(name, arguments.seed)
        start, cpu = time.monotonic(), time.process_time()
        model = palpate.fit(train.transitions, seed=arguments.seed)
        seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu
        scores = palpate.evaluate(model, test)
        share = scores.l_test / scores.constant["l_test"]
        found = {
            "set": name,
            "seed": arguments.seed,
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
        print(f"{name}: L_test is {share:.3%} of the constant answer's, {seconds:.0f} s ({cpu_seconds:.0f} s of CPU)")


if __name__ == "__main__":
    main()
