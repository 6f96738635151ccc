"""The pictures of a run and its report."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from palpate.api import evaluate
from palpate.data.labelled import Labelled, Truth
from palpate.disk import as_json, write_whole
from palpate.envs.registration import SOCCER, SPRITES
from palpate.envs.soccer import Scene, Soccer, SoccerConfig
from palpate.envs.soccer.config import ABOVE_RANGE
from palpate.figures import curves, distance_histogram, error_map, overlay
from palpate.methods.base import Encoding
from palpate.metrics import Scores, aligned
from palpate.report import write_report
from palpate.representation import Representation
from palpate.runlog import read_log

DRAWN_ROWS = 2000
ABOVE_PIXELS = 240


def illustrate(
    folder: Path, model: Representation, test: Labelled | None, title: str, run: Path | None = None
) -> Scores | None:
    """Leave `report.html` and `figures/` in `folder`; with labelled triples also measure, and write `scores.json`.

    `run` is the folder of the run the model is from, where it is not `folder`.
    """
    log = (run or folder) / "metrics.jsonl"
    figures = {"curves": curves(read_log(log))} if log.exists() else {}
    scores = None
    if test is not None:
        scores = evaluate(model, test)
        folder.mkdir(parents=True, exist_ok=True)  # not before: triples that do not fit the model leave nothing behind
        write_whole(folder / "scores.json", as_json(scores.as_dict()))
        figures = _measured(model, test) | figures
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(pictures / f"{name}.png", dpi=110)
    notes = list(model.facts.get("findings", []))
    write_report(folder / "report.html", title=title, facts=_facts(model), scores=scores, figures=figures, notes=notes)
    return scores


def _measured(model: Representation, test: Labelled) -> dict[str, Figure]:
    """The pictures that need the truth."""
    some = test.subset(slice(0, min(DRAWN_ROWS, len(test))))
    rows, truth = some.transitions.rows(slice(None)), some.truth
    encoding = aligned(
        model.encode(rows.o), truth, places_object=model.model.places_object, tells_apart=model.model.tells_apart
    )
    figures = {}
    backdrop = _backdrop(test.transitions.attributes, rows.o[:8], _head_truth(truth, 8))
    if backdrop is not None:
        pictures, extent = backdrop
        figures["overlay"] = overlay(
            pictures, _head(encoding, 8), _head_truth(truth, 8), extent=extent, border=model.border(rows.o[:8])
        )
    if model.config.method == "interaction":
        distances, threshold = model.distances(rows.o, rows.o_next)
        on = model.config.objective.split_on
        figures["distances"] = distance_histogram(distances, threshold, truth.contact, on=on)
    if model.config.n == 2:
        figures["error"] = error_map(encoding, truth)
    return figures


def _backdrop(
    attributes: Mapping[str, Any], o: Tensor, truth: Truth
) -> tuple[Tensor, tuple[float, float, float, float]] | None:
    """Pictures [b, c, h, w] on which positions can be drawn, and the rectangle of the plane that they show.

    Sprites' own pictures show the unit square; Soccer is drawn from above, whatever its cameras saw. Of other worlds
    it is not known where in a picture a position is.
    """
    environment = attributes.get("environment")
    if environment in SPRITES:
        return o, (0.0, 1.0, 0.0, 1.0)
    if environment not in SOCCER:
        return None
    # The bodies as large as they were, should that have been set.
    sizes = {name: attributes[name] for name in ("agent_radius", "ball_radius") if name in attributes}
    upright = np.tile(np.array([1, 0, 0, 0], np.float32), (len(o), 1))
    try:
        with Soccer(SoccerConfig(**sizes)) as soccer:
            scenes = Scene(truth.agent.numpy(), truth.object.numpy(), upright)
            pictures = soccer.render(scenes, "above", ABOVE_PIXELS, ABOVE_PIXELS)
    except (ModuleNotFoundError, OSError) as error:  # trained elsewhere than collected; the scores matter more
        warnings.warn(f"the positions are not drawn: {error}", stacklevel=2)
        return None
    return torch.from_numpy(pictures).permute(0, 3, 1, 2), ABOVE_RANGE * 2


def _facts(model: Representation) -> dict[str, str]:
    config = asdict(model.config)
    parts = ("objective",) if model.config.method in ("interaction", "supervised") else ("baseline",)
    facts = {k: str(v) for k, v in config.items() if k not in ("objective", "baseline")}
    facts = {"data": str(model.facts.get("data", "")), **facts}
    facts |= {f"{part} {k}": str(v) for part in parts for k, v in config[part].items()}
    return facts | {f"training {k}": str(v) for k, v in model.facts.get("training", {}).items()}


def _head(encoding: Encoding, count: int) -> Encoding:
    return Encoding(*(None if x is None else x[:count] for x in encoding))  # type: ignore[arg-type]


def _head_truth(truth: Truth, count: int) -> Truth:
    return Truth(**{name: x[:count] for name, x in truth.known().items()})
