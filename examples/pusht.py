"""PushT: collect triples, train, measure, draw; see docs/guide/own-environment.md.

pip install 'palpate[pusht]'
python examples/pusht.py --out runs/pusht                 # collects 20,000 triples, then learns
python examples/pusht.py --out runs/ellipse --body ellipse      # from the same triples
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import palpate
from palpate.cli.parsing import parse
from palpate.collecting.readings import Moment
from palpate.figures import overlay
from palpate.metrics.formulas import affine_probe, axis_error

ID = "gym_pusht:gym_pusht/PushT-v0"
SIDE = 512  # of the arena, PushT's own unit
ALONG_STEM = np.pi / 2  # from the block's angle to its stem: PushT's T is upside down


def pixels(now: Moment) -> Any:
    """The picture, 96 x 96, drawn only where a triple begins or ends. PushT's own "pixels" are drawn at every step."""
    env: Any = now.env.unwrapped
    env.obs_type = "pixels"
    picture = env.get_obs()
    env.obs_type = "state"
    return picture


def centroid(now: Moment) -> Any:
    """The position of the T: its centre of area. `block_pose` holds another point."""
    env: Any = now.env.unwrapped
    block = env.block
    centres = np.array([part.center_of_gravity for part in block.shapes])
    areas = np.array([part.area for part in block.shapes])
    return np.array(block.local_to_world(tuple(areas @ centres / areas.sum())))


def axis(now: Moment) -> float:
    """The direction of the stem."""
    return float(now.info["block_pose"][2] + ALONG_STEM)


def approach(now: Moment, rng: np.random.Generator) -> Any:
    """A target near the T, so that contacts are frequent. It uses the true position of the T; training does not."""
    return centroid(now) + rng.normal(0, 60, 2)


STEPPING: dict[str, Any] = {
    "agent_position": "info:pos_agent",  # PushT's action is a target; the triple needs the displacement achieved
    "observation": pixels,
    "aggregate": 6,  # steps of 0.1 s
    "settle": 30,  # then the agent is held in place until agent and T rest
    "hold": "info:pos_agent",
    "watch": "info:block_pose",
    "tolerance": 0.01,
    "approach": approach,
    "approach_share": 0.3,
    "truth": {"object": centroid, "angle": axis, "contact": "moved"},  # for evaluation only
    "max_episode_steps": 120,  # ten triples, so that the T is not yet pushed to the wall
}


@dataclass(frozen=True, kw_only=True)
class PushT:
    """Learn where PushT's agent and its T-shaped block are."""

    out: Path
    """Folder of the run."""
    data: Path = Path("pusht.h5")
    """File of training triples; they are collected if it does not exist."""
    test: Path = Path("pusht-test.h5")
    """File of test triples; they are collected if it does not exist."""
    num: int = 20_000
    """Number of training triples to collect."""
    num_test: int = 2_000
    """Number of test triples to collect."""
    workers: int = 2
    """Number of processes that collect."""
    body: Literal["ball", "outline", "ellipse"] = "outline"
    """Shape of the T: ball and outline do not turn; an ellipse has an orientation."""
    steps: int | None = None
    """Optimiser steps. Default: `fit` chooses."""
    batch_size: int = 128
    """Triples per step."""
    shrink: int = 1
    """Side, in pixels, of the squares over which pictures are averaged; 1, because the agent is six pixels wide."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """On a CPU `fit` would choose adamw, with which small CNNs place the object better and the agent worse."""
    encoder: Literal["small", "resnet18"] | None = None
    device: Literal["cpu", "cuda"] | None = None
    seed: int = 0
    resume: bool = False
    """Continue a stopped run."""

    def __call__(self) -> None:
        for path, num, seed in ((self.data, self.num, 0), (self.test, self.num_test, 1)):
            if not path.exists():
                collect(path, num, seed=seed, workers=self.workers)
        with palpate.Transitions.open(self.data) as data:
            print(data)
            model = palpate.fit(
                data,
                out=self.out,
                body=self.body,
                encoder=self.encoder,
                steps=self.steps,
                batch_size=self.batch_size,
                shrink=self.shrink,
                optimizer=self.optimizer,
                device=self.device,
                seed=self.seed,
                resume=self.resume,
            )
        scores = measure(model, self.data, self.test, picture=self.out / "pusht.png")
        (self.out / "pusht.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
        print("\n".join(f"{name:<42} {value:.4g}" for name, value in scores.items()))
        print(f"Look at  {self.out / 'pusht.png'}")


def collect(path: Path, num: int, *, seed: int, workers: int) -> None:
    """Collect triples into a file, or continue a stopped collection."""
    resume = Path(f"{path}.parts").exists()
    palpate.collect(ID, num, seed=seed, out=path, workers=workers, resume=resume, **STEPPING).close()


def measure(model: palpate.Representation, data: Path, test: Path, *, picture: Path) -> dict[str, float]:
    """Errors in PushT's own unit. Training triples fit the agent's translation and the block's constant offset."""
    with palpate.Labelled.open(data) as known, palpate.Labelled.open(test) as unseen:
        few = known.subset(slice(0, min(2_000, len(known))))
        known_places = {"observation": few.transitions.rows(slice(None)).o}
        model = model.align(known_places | {"agent": few.truth.agent, "object": few.truth.object})
        o, truth = unseen.transitions.rows(slice(None)).o, unseen.truth
        found, known_found = model.encode(o), model.encode(known_places["observation"])
        all_scores = palpate.evaluate(model, unseen, reference=few).as_dict()
    agent, block = (found.agent - truth.agent).norm(dim=1), (found.object - truth.object).norm(dim=1)
    scores = {
        "agent error, median": float(agent.median()),
        "block error, median": float(block.median()),
        "block error, 90 %": float(block.quantile(0.9)),
        "agent error, median, % of the side": 100 * float(agent.median()) / SIDE,
        "block error, median, % of the side": 100 * float(block.median()) / SIDE,
    }
    latents = [torch.cat((encoding.agent, encoding.object), 1) for encoding in (known_found, found)]
    scores |= {
        "agent, linear probe, standardised": probe_error(latents[0], few.truth.agent, latents[1], truth.agent),
        "block, linear probe, standardised": probe_error(latents[0], few.truth.object, latents[1], truth.object),
    }
    if found.orientation is not None and truth.angle is not None:
        wrong = axis_error(found.orientation, truth.angle)
        scores |= {"orientation error, median (rad)": float(wrong.median())}
    some = torch.arange(0, len(o), -(-len(o) // 8))  # eight, evenly spaced
    drawn = type(found)(*(None if x is None else x[some] for x in found))  # type: ignore[arg-type]
    true = palpate.Truth(**{name: x[some] for name, x in truth.known().items()})
    line = model.border(o[some])
    overlay(o[some], drawn, true, extent=(0, SIDE, SIDE, 0), border=line).savefig(picture, dpi=110)  # y points down
    return scores | all_scores


def probe_error(known: torch.Tensor, known_true: torch.Tensor, found: torch.Tensor, true: torch.Tensor) -> float:
    """Mean squared error of a linear probe in standardised coordinates, as tables of world models report it.

    A least-squares affine map from latents `known` [N, d] to true positions `known_true` [N, n] is applied to the
    latents `found` [b, d] of other rows and compared with their `true` [b, n]. The mean and standard deviation of
    `known_true` standardise each coordinate; a constant predictor has an error of about 1.
    """
    mean, deviation = known_true.double().mean(0), known_true.double().std(0)
    probe = affine_probe(known.double(), (known_true.double() - mean) / deviation)  # [d + 1, n]
    answer = found.double() @ probe[:-1] + probe[-1]
    return float((answer - (true.double() - mean) / deviation).square().mean())


if __name__ == "__main__":
    parse(PushT, "python examples/pusht.py", sys.argv[1:])()
