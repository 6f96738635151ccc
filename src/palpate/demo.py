"""Sprites at 50 pixels with small CNNs: about a minute on two CPU cores for each object."""

from pathlib import Path
from typing import Any

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.disk import alone
from palpate.envs.registration import world
from palpate.metrics.scores import Scores
from palpate.pictures import illustrate

SIZE = 50
TEST_TRIPLES = 10_000  # half of them fit the translation
WATCHED_TRIPLES = 500  # measured during the run


def demo(folder: Path, *, objects: int, steps: int, seed: int, resume: bool, overwrite: bool) -> Scores:
    """Train for `steps` for each object, measure on fresh scenes, and draw."""
    env, options = "palpate/Sprites-v0", dict[str, Any]()
    if objects != 1:
        env, options = "palpate/SpritesMany-v0", {"objects": objects}
    test = collect(env, TEST_TRIPLES, seed=10**6 + seed, labelled=True, size=SIZE, **options)
    model = fit(
        world(env, size=SIZE, **options),
        out=folder,
        encoder="small",
        objects=objects,
        steps=objects * steps,
        seed=seed,
        device="cpu",
        test=test.subset(slice(0, WATCHED_TRIPLES)),
        evaluate_every=max(1, steps // 5),
        resume=resume,
        overwrite=overwrite,
    )
    with alone(folder, inside=True):
        scores = illustrate(folder, model, test, "palpate demo: " + env.removeprefix("palpate/").removesuffix("-v0"))
    assert scores is not None
    return scores
