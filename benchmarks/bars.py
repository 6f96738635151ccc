"""The numbers in docs/results: trains each experiment with several seeds and writes one small JSON per run.

    python benchmarks/bars.py --out docs/results/sprites vanilla background --seeds 3

Runs whose JSON is there are skipped, so a table grows as machine time comes. One process runs everything, so that
compilation is paid once.
"""

import json
import platform
import subprocess
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import tyro
from tyro.conf import Positional

from palpate.api import evaluate, fit
from palpate.config import TrainingConfig
from palpate.data.collect import collect
from palpate.envs.registration import world
from palpate.training import training_device

VANILLA, BACKGROUND, ANISOTROPIC = (f"palpate/Sprites{kind}-v0" for kind in ("", "Background", "Anisotropic"))
TEST_TRIPLES, REFERENCE_TRIPLES = 5000, 1000


@dataclass(frozen=True)
class Experiment:
    env: str = VANILLA
    fit: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    triples: int | None = None  # a fixed set of so many, instead of a stream


EXPERIMENTS = {
    "vanilla": Experiment(),
    "background": Experiment(BACKGROUND),
    "anisotropic": Experiment(ANISOTROPIC, {"body": "axes"}),
    "supervised": Experiment(fit={"method": "supervised"}),
    "supervised-anisotropic": Experiment(ANISOTROPIC, {"method": "supervised", "body": "axes"}),
    "paper": Experiment(fit={"objective": "paper"}),
    "paper-gaussian": Experiment(fit={"objective": "paper-gaussian"}),
    "fixed-10000": Experiment(triples=10_000),
    **{f"share-{share}": Experiment(world={"contact_share": share}) for share in (0.03, 0.1, 0.9)},
}
# One switch at a time, away from the default objective.
ABLATION = {
    "split-on-d": {"split_on": "d"},
    "split-of-one-batch": {"split_window": 0},
    "no-split-floor": {"split_floor": 0.0},
    "no-attraction-floor": {"attraction_floor": 0.0},
    "contrast-gradient": {"contrast_gradient": True},
    "segment-gradient": {"segment_gradient": True},
    "stay-weight-10": {"stay_weight": 10.0},
    "no-stay-level": {"stay_level": 1e6},
    "agent-temperature-1": {"agent_temperature": 1.0},
    "shared-network": {"shared_network": True},
}
EXPERIMENTS |= {f"ablation-{name}": Experiment(fit={"switches": switch}) for name, switch in ABLATION.items()}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    names: Positional[tuple[str, ...]]
    """Experiments, in order; see EXPERIMENTS."""
    out: Path
    seeds: int = 3
    size: int = 100
    encoder: str = "auto"
    training: tyro.conf.OmitArgPrefixes[TrainingConfig] = field(default_factory=TrainingConfig)


def main(arguments: Arguments) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        for seed in range(arguments.seeds):
            path = arguments.out / f"{name}-{seed}.json"
            if path.exists():
                continue
            row = run(name, EXPERIMENTS[name], seed, arguments)
            path.write_text(json.dumps(row, indent=1) + "\n")
            print(name, seed, {key: row[key] for key in ("scores", "seconds", "ms_per_step")}, flush=True)


def run(name: str, experiment: Experiment, seed: int, arguments: Arguments) -> dict[str, Any]:
    options = {"size": arguments.size, **experiment.world}
    config = TrainingConfig(**{**asdict(arguments.training), "seed": seed})
    device = training_device(config)
    if experiment.triples is None:
        data: Any = world(experiment.env, device=device, **options)
    else:
        data = collect(experiment.env, experiment.triples, seed=seed, **options)
    marks: list[tuple[int, float]] = []
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(
            data,
            encoder=arguments.encoder,
            training=config,
            progress=False,
            watch=lambda step, readings: marks.append((step, time.monotonic())),
            **experiment.fit,
        )
    seconds = time.monotonic() - began
    # The test world is the one with half contacts, whatever the share in training.
    test, reference = (
        collect(experiment.env, count, seed=10**6 + i, labelled=True, size=arguments.size)
        for i, count in enumerate((TEST_TRIPLES, REFERENCE_TRIPLES))
    )
    (step_a, time_a), (step_b, time_b) = marks[len(marks) // 3], marks[-1]
    return {
        "experiment": name,
        "seed": seed,
        "scores": {
            key: float(f"{value:.4g}") for key, value in evaluate(model, test, reference=reference).as_dict().items()
        },
        "vitals": {key: float(f"{value:.4g}") for key, value in model.model.vitals().items()},
        "findings": model.facts["findings"],
        "seconds": round(seconds, 1),
        "ms_per_step": round((time_b - time_a) / (step_b - step_a) * 1e3, 2),
        "env": experiment.env,
        "world": options,
        "fit": experiment.fit,
        "encoder": model.config.encoder,
        "training": asdict(config),
        "triples": experiment.triples,
        "hardware": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "commit": _commit(),
    }


def _commit() -> str:
    answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
