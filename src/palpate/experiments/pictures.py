"""The pictures of a run and its report."""

import json
from dataclasses import asdict
from pathlib import Path

from palpate.api import evaluate
from palpate.data.labelled import Labelled, Truth
from palpate.figures import curves, distance_histogram, error_map, overlay
from palpate.metrics import Scores
from palpate.models.inputs import Encoding
from palpate.report import write_report
from palpate.representation import Representation
from palpate.runlog import read_log

DRAWN_ROWS = 2000


def illustrate(folder: Path, model: Representation, test: Labelled, title: str) -> Scores:
    """Measure a model on labelled triples and leave `scores.json`, `figures/` and `report.html` in its folder."""
    scores = evaluate(model, test)
    some = test.subset(slice(0, min(DRAWN_ROWS, len(test))))
    rows, truth = some.transitions.rows(slice(None)), some.truth
    aligned = model.align({"observation": rows.o, "agent": truth.agent, "object": truth.object})
    encoding = aligned.encode(rows.o)
    figures = {}
    if rows.o.dim() == 4 and model.config.n == 2:
        figures["overlay"] = overlay(rows.o[:8], _head(encoding, 8), _head_truth(truth, 8))
    log = folder / "metrics.jsonl"
    if log.exists():
        figures["curves"] = curves(read_log(log))
    if model.config.method == "interaction":
        distances, threshold = model.distances(rows.o, rows.o_next)
        on = model.config.objective.split_on
        figures["distances"] = distance_histogram(distances, threshold, truth.contact, on=on)
    if model.config.n == 2:
        figures["error"] = error_map(encoding, truth)
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(pictures / f"{name}.png", dpi=110)
    (folder / "scores.json").write_text(json.dumps(scores.as_dict(), indent=2) + "\n", encoding="utf-8")
    config = asdict(model.config)
    facts = {"data": str(model.facts.get("data", "")), **{k: str(v) for k, v in config.items() if k != "objective"}}
    facts |= {f"objective {k}": str(v) for k, v in config["objective"].items()}
    facts |= {f"training {k}": str(v) for k, v in model.facts.get("training", {}).items()}
    write_report(
        folder / "report.html",
        title=title,
        facts=facts,
        scores=scores,
        figures=figures,
        notes=list(model.facts.get("findings", [])),
    )
    return scores


def _head(encoding: Encoding, count: int) -> Encoding:
    return Encoding(*(None if x is None else x[:count] for x in encoding))  # type: ignore[arg-type]


def _head_truth(truth: Truth, count: int) -> Truth:
    return Truth(**{name: x[:count] for name, x in truth.known().items()})
