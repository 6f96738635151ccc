"""Figures and report of one run."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from palpate.data.arrays import count_views
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.disk import as_json, write_whole
from palpate.envs.registration import DRAWN, DRIVING, FIELDS, TABLE
from palpate.envs.soccer import Scene, Soccer, SoccerDriving, driving
from palpate.envs.soccer.config import ABOVE_RANGE
from palpate.envs.table.scene import homography
from palpate.evaluation import evaluate
from palpate.figures import OVERLAID, UNIT_SQUARE, curves, distance_histogram, error_map, overlay, png
from palpate.findings import Finding
from palpate.methods.base import Encoding
from palpate.metrics.reading import aligned
from palpate.metrics.scores import Scores
from palpate.projection import MOST_PICTURES, Extent, Homography, fit_projection
from palpate.report import write_report
from palpate.representation import Representation
from palpate.runlog import FIGURES, read_log
from palpate.traits import traits_of
from palpate.verdicts import judged

Array = NDArray[Any]

DRAWN_ROWS = 2000
ABOVE_PIXELS = 240
ESTIMATED = (
    "Overlay: the projection from positions to pixels was estimated from the {} positions of the object and the pixels "
    "that change with them."
)


def illustrate(
    folder: Path,
    model: Representation,
    test: Labelled | None,
    title: str,
    *,
    run: Path | None = None,
    triples: Transitions | None = None,
) -> Scores | None:
    """Write `report.html` and `figures/` to `folder`; with labelled triples also measure and write `scores.json`.

    Without labelled triples, estimates are drawn on pictures of `triples`. `run` is the folder of the model's run if
    that is not `folder`.
    """
    log = (run or folder) / "metrics.jsonl"
    figures = {"curves": curves(read_log(log))} if log.exists() else {}
    quality = model.facts.get("quality")
    sentence, measurements = ("", []) if not quality else judged(quality)
    notes = [f"Verdict: {quality['verdict']}. {sentence}"] if quality else []
    notes += [str(Finding(**finding)) for finding in model.facts.get("findings", [])]
    scores = None
    if test is not None:
        scores = evaluate(model, test)
        folder.mkdir(parents=True, exist_ok=True)  # only now: triples that do not fit the model leave nothing behind
        write_whole(folder / "scores.json", as_json(scores.as_dict()))
        drawn, more = measured(model, test)
    else:
        drawn, more = ({}, []) if triples is None else estimated(model, triples)
    figures, notes = drawn | figures, notes + more
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        write_whole(folder / "figures" / f"{name}.png", png(figure))
    write_report(
        folder / "report.html",
        title=title,
        facts=_facts(model),
        quality=measurements,
        scores=scores,
        figures={FIGURES[name]: figure for name, figure in figures.items()},
        notes=notes,
    )
    return scores


Drawn = tuple[dict[str, Figure], list[str]]  # figures by name, and notes about them


def measured(model: Representation, test: Labelled) -> Drawn:
    """The figures that need true states."""
    some = test.subset(slice(0, min(DRAWN_ROWS, len(test))))
    triples, truth = some.transitions, some.truth
    encoding = aligned_positions(model, some)
    figures, notes = {}, []
    try:
        shown = backdrop(triples.attributes, triples.rows(slice(0, min(MOST_PICTURES, len(some)))).o, truth)
    except (ModuleNotFoundError, OSError) as error:  # no renderer on this machine; the scores are still written
        warnings.warn(f"the positions are not drawn: {error}", stacklevel=2)
        shown = None
    if shown is not None:
        border = model.border(triples.rows(slice(0, len(shown.pictures))).o)
        figures["overlay"] = overlay(shown.pictures, encoding, truth, project=shown.project, border=border)
        notes = [shown.note] if shown.note else []
    figures |= distances_of(model, triples, truth.contact)
    if model.config.n == 2:
        figures["error"] = error_map(encoding, truth)
    return figures, notes


def distances_of(model: Representation, triples: Transitions, contact: Tensor | None = None) -> dict[str, Figure]:
    """The histogram of distances with the threshold, by the true contacts if they are given; empty without one."""
    threshold = model.model.threshold()
    if threshold is None:
        return {}
    blocks = map(triples.rows, triples.blocks())
    distances = torch.cat([model.distances(rows.o, rows.o_next) for rows in blocks])
    if contact is None:
        distances = distances.flatten()  # of all objects
    return {"distances": distance_histogram(distances, threshold, contact)}


def spread(triples: Transitions, count: int) -> Array:
    """Numbers of at most `count` rows, evenly spaced."""
    return np.unique(np.linspace(0, len(triples) - 1, min(count, len(triples))).astype(int))


def learned_projection(model: Representation, o: Tensor, attributes: Mapping[str, Any]) -> Homography | None:
    """The projection of the learned plane, estimated from pictures `o` of a data set; None if that is impossible."""
    kind, config = model.model, model.config
    if not (kind.places_object and kind.tells_apart and config.n == 2 and config.picture):
        return None
    encoding = model.encode(o)
    confidence = None if encoding.confidences is None else encoding.confidences[:, 0]
    return _estimate(first_view(o, attributes), encoding.objects[:, 0], confidence)


def estimated(model: Representation, triples: Transitions) -> Drawn:
    """The figures that need no true states: distances, and estimates on pictures if the learned plane's projection can
    be estimated."""
    figures = distances_of(model, triples.subset(spread(triples, DRAWN_ROWS)))
    o = triples.rows(spread(triples, MOST_PICTURES)).o
    project = learned_projection(model, o, triples.attributes)
    if project is None:
        return figures, []
    pictures, encoding = first_view(o, triples.attributes), model.encode(o)
    shown = torch.linspace(0, len(o) - 1, min(OVERLAID, len(o))).long()
    some = Encoding(*(None if x is None else x[shown] for x in encoding))  # type: ignore[arg-type]
    shift = " It fits the object, so a constant offset of the object appears as a shift of the agent."
    note = ESTIMATED.format("learned") + shift
    figures["overlay"] = overlay(pictures[shown], some, project=project, border=model.border(o[shown]))
    return figures, [note]


def first_view(o: Tensor, attributes: Mapping[str, Any]) -> Tensor:
    """Pictures of the first camera, from pictures [b, c, h, w] of all cameras."""
    return o[:, : o.shape[1] // count_views(tuple(o.shape[1:]), attributes)]


def _estimate(o: Tensor, positions: Tensor, confidence: Tensor | None) -> Homography | None:
    """A projection from pictures and the object's positions where it is visible."""
    seen = torch.ones(len(o), dtype=torch.bool) if confidence is None else confidence > 0.5
    return fit_projection(o[seen], positions[seen])


def aligned_positions(model: Representation, labelled: Labelled) -> Encoding:
    """The estimates for all rows, moved onto the true positions."""
    triples, kind = labelled.transitions, model.model
    parts = zip(*(model.encode(triples.rows(block).o) for block in triples.blocks()), strict=True)
    encoding = Encoding(*(None if part[0] is None else torch.cat(part) for part in parts))  # type: ignore[arg-type]
    return aligned(kind.group, encoding, labelled.truth, places_object=kind.places_object, tells_apart=kind.tells_apart)


class Backdrop(NamedTuple):
    """Pictures on which positions can be drawn."""

    pictures: Tensor  # [b, c, h, w]
    project: Homography  # from positions to their pixels
    note: str = ""  # for a reader


def backdrop(attributes: Mapping[str, Any], o: Tensor, truth: Truth) -> Backdrop | None:
    """The first pictures of `o` by the first camera, with their projection; Soccer is drawn from above instead.

    The projection of Sprites and Table is known. For other worlds it is estimated from the true positions of the object
    in all of `o`; None if that fails. `truth` holds at least the rows of `o`.
    """
    environment, shown = attributes.get("environment"), min(OVERLAID, len(o))
    o = first_view(o, attributes)
    if environment in DRAWN:
        return from_above(o[:shown])
    if environment in FIELDS:
        states = {"agent": truth.agent, "object": truth.object, "heading": truth.heading}
        known = {name: x[:shown].numpy() for name, x in states.items() if x is not None}
        known["orientation"] = np.tile(np.array([1, 0, 0, 0], np.float32), (*known["object"].shape[:-1], 1))
        turns = environment in DRIVING
        with SoccerDriving() if turns else Soccer() as field:
            scenes: Any = driving.Scene(**known) if turns else Scene(**known)
            pictures = field.render(scenes, "above", ABOVE_PIXELS, ABOVE_PIXELS)
        return from_above(torch.from_numpy(pictures).permute(0, 3, 1, 2), ABOVE_RANGE * 2)
    if environment in TABLE:
        camera: Any = str(attributes.get("cameras", "front")).split(",")[0]
        return Backdrop(o[:shown], Homography(homography(camera, o.shape[-1], o.shape[-2])))
    if o.dim() != 4 or truth.agent.shape[1] != 2:
        return None
    visible = None if truth.visibles is None else truth.visibles[: len(o), 0].float()
    project = _estimate(o, truth.objects[: len(o), 0], visible)
    return None if project is None else Backdrop(o[:shown], project, ESTIMATED.format("true"))


def from_above(pictures: Tensor, extent: Extent = UNIT_SQUARE) -> Backdrop:
    """Pictures [b, c, h, w] of a rectangle of the plane."""
    return Backdrop(pictures, Homography.of_extent(extent, pictures.shape[-1], pictures.shape[-2]))


def _facts(model: Representation) -> dict[str, str]:
    config = asdict(model.config)
    facts = {k: str(v) for k, v in config.items() if k != "objective"}
    facts = {"data": str(model.facts.get("data", "")), **facts}
    if not traits_of(model.config.method).reconstructs:
        facts |= {f"objective {k}": str(v) for k, v in config["objective"].items()}
    return facts | {f"training {k}": str(v) for k, v in model.facts.get("training", {}).items()}
