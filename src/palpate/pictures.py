"""Figures and report of one run."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from palpate.api import evaluate
from palpate.data.labelled import Labelled, Truth
from palpate.disk import as_json, write_whole
from palpate.envs.registration import SOCCER, SPRITES, TABLE
from palpate.envs.soccer import Scene, Soccer
from palpate.envs.soccer.config import ABOVE_RANGE
from palpate.envs.table import Scene as TableScene
from palpate.envs.table import Table, TableConfig
from palpate.envs.table.scene import TOP_RANGE
from palpate.figures import OVERLAID, curves, distance_histogram, error_map, overlay, png
from palpate.findings import Finding
from palpate.methods.base import Encoding
from palpate.metrics import Scores, aligned
from palpate.report import write_report
from palpate.representation import Representation
from palpate.runlog import read_log
from palpate.traits import traits_of

DRAWN_ROWS = 2000
ABOVE_PIXELS = 240


def illustrate(
    folder: Path, model: Representation, test: Labelled | None, title: str, run: Path | None = None
) -> Scores | None:
    """Write `report.html` and `figures/` to `folder`; with labelled triples also measure and write `scores.json`.

    `run` is the folder of the model's run if that is not `folder`.
    """
    log = (run or folder) / "metrics.jsonl"
    figures = {"curves": curves(read_log(log))} if log.exists() else {}
    scores = None
    if test is not None:
        scores = evaluate(model, test)
        folder.mkdir(parents=True, exist_ok=True)  # only now: triples that do not fit the model leave nothing behind
        write_whole(folder / "scores.json", as_json(scores.as_dict()))
        figures = _measured(model, test) | figures
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        write_whole(folder / "figures" / f"{name}.png", png(figure))
    verdict = model.facts["quality"]["verdict"] if "quality" in model.facts else ""
    notes = [f"Verdict without labels: {verdict}."] if verdict else []
    notes += [str(Finding(**finding)) for finding in model.facts.get("findings", [])]
    write_report(folder / "report.html", title=title, facts=_facts(model), scores=scores, figures=figures, notes=notes)
    return scores


def _measured(model: Representation, test: Labelled) -> dict[str, Figure]:
    """The figures that need true states."""
    some = test.subset(slice(0, min(DRAWN_ROWS, len(test))))
    triples, truth = some.transitions, some.truth
    shown_rows = triples.rows(slice(0, min(OVERLAID, len(some)))).o
    encoding = aligned_positions(model, some)
    figures = {}
    try:
        shown = backdrop(triples.attributes, shown_rows, truth)
    except (ModuleNotFoundError, OSError) as error:  # no renderer on this machine; the scores are still written
        warnings.warn(f"the positions are not drawn: {error}", stacklevel=2)
        shown = None
    if shown is not None:
        border = model.border(shown_rows)
        figures["overlay"] = overlay(shown.pictures, encoding, truth, extent=shown.extent, border=border)
    threshold = model.model.threshold()
    if threshold is not None:
        value, on = threshold
        blocks = map(triples.rows, triples.blocks())
        distances = torch.cat([model.distances(rows.o, rows.o_next) for rows in blocks])
        figures["distances"] = distance_histogram(distances, value, truth.contact, on=on)
    if model.config.n == 2:
        figures["error"] = error_map(encoding, truth)
    return figures


def aligned_positions(model: Representation, labelled: Labelled) -> Encoding:
    """The estimates for all rows, moved onto the true positions."""
    triples, kind = labelled.transitions, model.model
    parts = zip(*(model.encode(triples.rows(block).o) for block in triples.blocks()), strict=True)
    encoding = Encoding(*(None if part[0] is None else torch.cat(part) for part in parts))  # type: ignore[arg-type]
    return aligned(kind.group, encoding, labelled.truth, places_object=kind.places_object, tells_apart=kind.tells_apart)


class Backdrop(NamedTuple):
    """Pictures on which positions can be drawn."""

    pictures: Tensor  # [b, c, h, w]
    extent: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 1.0)  # left, right, bottom, top of the plane shown


def backdrop(attributes: Mapping[str, Any], o: Tensor, truth: Truth) -> Backdrop | None:
    """The pictures of Sprites, which show the unit square; Soccer and Table drawn from above, for any camera.

    None for other worlds: the positions shown by their pixels are unknown. `truth` holds at least the rows of `o`.
    """
    environment = attributes.get("environment")
    if environment in SPRITES:
        return Backdrop(o)
    if environment in SOCCER:
        upright = np.tile(np.array([1, 0, 0, 0], np.float32), (len(o), 1))
        scenes = Scene(truth.agent[: len(o)].numpy(), truth.object[: len(o)].numpy(), upright)
        with Soccer() as soccer:
            return _from_above(soccer.render(scenes, "above", ABOVE_PIXELS, ABOVE_PIXELS), ABOVE_RANGE)
    if environment in TABLE and truth.angle is not None:
        on_top = TableScene(*(x[: len(o)].numpy() for x in (truth.agent, truth.object, truth.angle)))
        with Table(TableConfig(block=str(attributes.get("block", "cube")), arm=False)) as table:  # type: ignore[arg-type]
            return _from_above(table.render(on_top, "top", ABOVE_PIXELS, ABOVE_PIXELS), TOP_RANGE)
    return None


def _from_above(pictures: np.ndarray, shown: tuple[float, float]) -> Backdrop:
    return Backdrop(torch.from_numpy(pictures).permute(0, 3, 1, 2), shown * 2)


def _facts(model: Representation) -> dict[str, str]:
    config = asdict(model.config)
    facts = {k: str(v) for k, v in config.items() if k != "objective"}
    facts = {"data": str(model.facts.get("data", "")), **facts}
    if not traits_of(model.config.method).reconstructs:
        facts |= {f"objective {k}": str(v) for k, v in config["objective"].items()}
    return facts | {f"training {k}": str(v) for k, v in model.facts.get("training", {}).items()}
