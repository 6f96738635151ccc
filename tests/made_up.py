"""Results as `palpate reproduce` writes them, made up."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from palpate.config import TrainingConfig
from palpate.reproduce.presets import Preset

TINY = Preset(
    name="tiny",
    encoder="small",
    size=20,
    training=TrainingConfig(steps=4, batch_size=8, evaluate_every=2, log_every=1, checkpoint_every=2, device="cpu"),
    test_triples=24,
    reference_triples=24,
    watched_triples=20,
    set_triples=24,
)


def row(world: str, method: str, seed: int, l_test: float | None, **changes: Any) -> dict[str, Any]:
    """The JSON of a run; without an L_test the run diverged."""
    scores = (
        {} if l_test is None else {"l_test": l_test, "agent_error": 0.1, "object_error": 0.2, "constant l_test": 0.2}
    )
    curve = [] if l_test is None else [[2, 3 * l_test], [4, l_test]]
    return {
        "format": 1, "experiment": "sprites", "world": world, "method": method, "seed": seed, "preset": "tiny",
        "scores": scores, "curve": curve, "seconds": 10.0, "resumed_at": 0, "settings": {},
        "device": "cpu", "hardware": "a machine", "torch": "2", "palpate": "0", "commit": "abc1234", **changes,
    }  # fmt: skip


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for made in rows:
        (folder / f"{made['world']}-{made['method']}-{made['seed']}.json").write_text(json.dumps(made))


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays that a first seed leaves for the figures."""
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 255, (4, 20, 20, 3), dtype=np.uint8)
    points = rng.random((4, 4, 2))
    return {
        "pictures": picture, "homography": np.array([[20.0, 0, 0], [0, -20, 20], [0, 0, 1]]),
        "agent": points[0], "object": points[1],
        "border": 0.1 * rng.random((4, 3, 2)), "true_agent": points[2], "true_object": points[3],
        "distances": np.array([1e-4, 2e-4, 0.0, 0.5, 1.5]), "contact": np.array([0, 0, 0, 1, 1], bool),
        "threshold": np.log(0.02), "on": np.array("log"),
        "all_agent": points[0], "all_object": points[1], "all_true_object": points[3],
    }  # fmt: skip
