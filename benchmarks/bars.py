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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor
from tyro.conf import Positional

from palpate.api import HELD_OUT_MOST, evaluate, fit
from palpate.config import Encoder, TrainingConfig
from palpate.data.collect import collect
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.data.workers import available_cores
from palpate.envs.registration import world
from palpate.training import training_device

VANILLA, BACKGROUND, ANISOTROPIC = (f"palpate/Sprites{kind}-v0" for kind in ("", "Background", "Anisotropic"))
TEST_TRIPLES, REFERENCE_TRIPLES = 5000, 1000
SHARES = (0.03, 0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Experiment:
    env: str = VANILLA
    fit: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    triples: int | None = None  # a fixed set of so many, instead of a stream
    shared_set: bool = False  # one set on disk for all seeds, the test triples too, and the test's positions kept
    vectors: bool = False  # 64 numbers, a random mixture of the state, instead of pictures
    training: dict[str, Any] = field(default_factory=dict)  # fields of TrainingConfig that belong to the experiment


EXPERIMENTS = {
    "vanilla": Experiment(),
    "background": Experiment(BACKGROUND),
    "anisotropic": Experiment(ANISOTROPIC, {"body": "axes"}),
    "supervised": Experiment(fit={"method": "supervised"}),
    "supervised-anisotropic": Experiment(ANISOTROPIC, {"method": "supervised", "body": "axes"}),
    "paper": Experiment(fit={"objective": "paper"}),
    "paper-gaussian": Experiment(fit={"objective": "paper-gaussian"}),
    "fixed-10000": Experiment(triples=10_000),
    **{f"share-{share}": Experiment(world={"contact_share": share}) for share in SHARES},
    **{
        f"vectors-share-{share}": Experiment(
            world={"contact_share": share},
            triples=20_000,
            vectors=True,
            training={"steps": 4000, "batch_size": 256},
        )
        for share in SHARES
    },
}
# One switch at a time, away from the default objective.
ABLATION = {
    "split-on-d": {"split_on": "d"},
    "split-of-one-batch": {"split_window": 0},
    "no-split-floor": {"split_floor": 0.0},
    "no-contrast-floor": {"contrast_floor": 0.0},
    "contrast-gradient": {"contrast_gradient": True},
    "segment-gradient": {"segment_gradient": True},
    "stay-weight-10": {"stay_weight": 10.0},
    "no-stay-level": {"stay_level": 1e6},
    "agent-temperature-1": {"agent_temperature": 1.0},
    "agent-temperature-0.1": {"agent_temperature": 0.1},
    "shared-network": {"shared_network": True},
}
SOCCER = {
    "": {},
    "-paper": {"objective": "paper"},
    "-paper-gaussian": {"objective": "paper-gaussian"},
    "-supervised": {"method": "supervised"},
}
EXPERIMENTS |= {
    f"soccer-{view}{kind}": Experiment(f"palpate/Soccer{name}-v0", fit, triples=10_000, shared_set=True)
    for view, name in (("third", ""), ("first", "FirstPerson"))
    for kind, fit in SOCCER.items()
}
EXPERIMENTS |= {f"ablation-{name}": Experiment(fit={"switches": switch}) for name, switch in ABLATION.items()}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    names: Positional[tuple[str, ...]]
    """Experiments, in order; see EXPERIMENTS."""
    out: Path
    data: Path = Path("data")
    """Folder for sets that are collected once."""
    seeds: int = 3
    size: int = 100
    encoder: Encoder = "auto"
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
    config = TrainingConfig(**{**asdict(arguments.training), **experiment.training, "seed": seed})
    device = training_device(config)
    gather: Callable[..., Labelled] = mixtures if experiment.vectors else pictures
    if experiment.shared_set:
        gather = partial(kept, arguments.data)
    if experiment.triples is None:
        data: Any = world(experiment.env, device=device, **options)
    else:
        data = gather(experiment.env, experiment.triples, seed=0 if experiment.shared_set else seed, **options)
        # The limit learns from the rows that the others learn from: `fit` holds out as many to choose their weights.
        limit = experiment.fit.get("method") == "supervised"
        data = data.split(HELD_OUT_MOST / experiment.triples, seed)[1] if limit else data.transitions
    marks: list[tuple[int, float]] = []
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(
            data,
            encoder="auto" if experiment.vectors else arguments.encoder,
            training=config,
            progress=False,
            watch=lambda step, readings: marks.append((step, time.monotonic())),
            **experiment.fit,
        )
    seconds = time.monotonic() - began
    # The test world is the one with half contacts, whatever the share in training.
    test, reference = (
        gather(experiment.env, count, seed=10**6 + i, size=arguments.size)
        for i, count in enumerate((TEST_TRIPLES, REFERENCE_TRIPLES))
    )
    if experiment.shared_set:
        encoding = model.align(known(reference)).encode(test.transitions.rows(slice(None)).o)
        positions = {"agent": encoding.agent.numpy(), "object": encoding.object.numpy()}
        np.savez_compressed(arguments.out / f"{name}-{seed}.npz", allow_pickle=False, **positions)
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
        "vectors": experiment.vectors,
        "hardware": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "commit": _commit(),
    }


def pictures(env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    return collect(env, num, seed=seed, labelled=True, **options)


@cache
def kept(folder: Path, env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    """Collected into a file by all cores, unless it is there; read into memory, since many runs learn from it."""
    path = folder / f"{env.split('/')[1]}-{num}-{options['size']}-{seed}.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        collect(env, num, seed=seed, out=path, workers=available_cores(), **options).close()
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB in {time.monotonic() - began:.1f} s", flush=True)
    with Labelled.open(path) as labelled:
        o, a, o_next = (x.numpy() for x in labelled.transitions.rows(slice(None)))
    triples = Transitions(observation=o, action=a, next_observation=o_next, layout="channel-first")
    return Labelled(triples, labelled.truth)


def known(labelled: Labelled) -> dict[str, Tensor]:
    """What `align` takes."""
    o = labelled.transitions.rows(slice(None)).o
    return {"observation": o, "agent": labelled.truth.agent, "object": labelled.truth.object}


def mixtures(env: str, num: int, *, seed: int, **options: Any) -> Labelled:
    """Triples whose observations are the state through two random layers: always the same ones, whatever the seed."""
    made = world(env, **options)
    states = made.sample(num, torch.Generator().manual_seed(seed))
    layers = torch.Generator().manual_seed(0)
    inner, outer = torch.randn(4, 128, generator=layers), torch.randn(128, 64, generator=layers) / 128**0.5

    def observe(agent: Tensor, thing: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(4 * (torch.cat((agent, thing), 1) - 0.5) @ inner) @ outer)

    triples = Transitions(
        observation=observe(states.agent, states.object).numpy(),
        action=states.displacement.numpy(),
        next_observation=observe(states.agent_next, states.object_next).numpy(),
    )
    return Labelled(triples, Truth(states.agent, states.object, contact=states.contact))


def _commit() -> str:
    answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
