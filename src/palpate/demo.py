"""Two minutes on a laptop: Sprites at 50 pixels, the small encoder, the default objective."""

from pathlib import Path
from typing import NamedTuple

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.envs.registration import world
from palpate.metrics import Scores
from palpate.pictures import illustrate

SIZE = 50
TEST_TRIPLES = 10_000  # half of them fit the common translation
WATCHED_TRIPLES = 500  # measured on during the run


class Outcome(NamedTuple):
    scores: Scores
    pixels: tuple[float, float]  # mean error of agent and object
    folder: Path


def demo(folder: Path, *, steps: int, seed: int, resume: bool, overwrite: bool) -> Outcome:
    """Train, measure on fresh scenes, draw."""
    env = "palpate/Sprites-v0"
    test = collect(env, TEST_TRIPLES, seed=10**6 + seed, labelled=True, size=SIZE)
    model = fit(
        world(env, size=SIZE),
        out=folder,
        encoder="small",
        steps=steps,
        seed=seed,
        device="cpu",
        test=test.subset(slice(0, WATCHED_TRIPLES)),
        evaluate_every=max(1, steps // 5),
        resume=resume,
        overwrite=overwrite,
    )
    scores = illustrate(folder, model, test, "palpate demo: Sprites")
    assert scores is not None
    return Outcome(scores, (scores.agent_error * SIZE, scores.object_error * SIZE), folder)
