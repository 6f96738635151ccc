"""The pictures of a run and its report."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from matplotlib.figure import Figure

from palpate.api import evaluate
from palpate.data.labelled import Labelled, Truth
from palpate.figures import curves, distance_histogram, error_map, overlay
from palpate.metrics import Scores
from palpate.models.inputs import Encoding
from palpate.report import write_report
from palpate.representation import Representation
from palpate.runlog import read_log

DRAWN_ROWS = 2000


def illustrate(
    folder: Path, model: Representation, test: Labelled | None, title: str, run: Path | None = None
) -> Scores | None:
    """Leave `report.html` and `figures/` in `folder`; with labelled triples also measure, and write `scores.json`.

    `run` is the folder of the run the model is from, where it is not `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = (run or folder) / "metrics.jsonl"
    figures = {"curves": curves(read_log(log))} if log.exists() else {}
    scores = None
    if test is not None:
        scores = evaluate(model, test)
        figures = _measured(model, test) | figures
        (folder / "scores.json").write_text(json.dumps(scores.as_dict(), indent=2) + "\n", encoding="utf-8")
    pictures = folder / "figures"
    pictures.mkdir(exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(pictures / f"{name}.png", dpi=110)
    notes = list(model.facts.get("findings", []))
    write_report(folder / "report.html", title=title, facts=_facts(model), scores=scores, figures=figures, notes=notes)
    return scores


def _measured(model: Representation, test: Labelled) -> dict[str, Figure]:
    """The pictures that need the truth."""
    some = test.subset(slice(0, min(DRAWN_ROWS, len(test))))
    rows, truth = some.transitions.rows(slice(None)), some.truth
    aligned = model.align({"observation": rows.o, "agent": truth.agent, "object": truth.object})
    encoding = aligned.encode(rows.o)
    figures = {}
    positions = torch.cat((truth.agent, truth.object))
    # A picture shows the unit square, x to the right and y up; other worlds have no such agreement.
    if rows.o.dim() == 4 and model.config.n == 2 and positions.min() >= 0 and positions.max() <= 1:
        figures["overlay"] = overlay(rows.o[:8], _head(encoding, 8), _head_truth(truth, 8))
    if model.config.method == "interaction":
        distances, threshold = model.distances(rows.o, rows.o_next)
        on = model.config.objective.split_on
        figures["distances"] = distance_histogram(distances, threshold, truth.contact, on=on)
    if model.config.n == 2:
        figures["error"] = error_map(encoding, truth)
    return figures


def _facts(model: Representation) -> dict[str, str]:
    config = asdict(model.config)
    facts = {"data": str(model.facts.get("data", "")), **{k: str(v) for k, v in config.items() if k != "objective"}}
    facts |= {f"objective {k}": str(v) for k, v in config["objective"].items()}
    return facts | {f"training {k}": str(v) for k, v in model.facts.get("training", {}).items()}


def _head(encoding: Encoding, count: int) -> Encoding:
    return Encoding(*(None if x is None else x[:count] for x in encoding))  # type: ignore[arg-type]


def _head_truth(truth: Truth, count: int) -> Truth:
    return Truth(**{name: x[:count] for name, x in truth.known().items()})
