"""Tables of an experiment as Markdown and JSON, from the JSON files of its runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from palpate.disk import write_whole
from palpate.reproduce.presets import LONG, PAPER_SCHEDULE
from palpate.reproduce.results import (
    ALL_WORLDS,
    FAILED,
    Row,
    Summary,
    median,
    order,
    read_results,
    summarise,
    write_json,
)
from palpate.reproduce.statistics import Array

HEADS = (
    "world", "method", "seeds", "median L_test", "interquartile mean [95 %]", "mean ± std", "failed", "x supervised",
    "agent error", "object error", "seconds", "ms a step",
)  # fmt: skip
# How methods are scored that do not place agent and object by themselves, and methods that are trained otherwise; by
# the beginning or the end of a method's name.
SCORING = {
    "vae": "vae: its z_ext has 32 dimensions and no geometry; a position is read from it by an affine probe, fitted to "
    "the labels of the reference triples by least squares. The probe sees labels, the other methods do not.",
    "transporter": "transporter: keypoints as they are, in [0, 1] along the picture's axes; which of the two is the "
    "agent is chosen once for each run, on the labels of the reference triples. Medians over seeds: {}.",
    LONG: f"{LONG}: trained for several times as many steps; the steps stand in the JSON files.",
    PAPER_SCHEDULE: f"{PAPER_SCHEDULE}: the paper's own schedule on a fixed set of triples: 100 epochs, Adam at a "
    "constant 1e-3, no weight decay, no clipping.",
    "supervised": "supervised: the same encoders trained on the true states; the limit, not a competitor.",
}


def write_tables(folder: Path) -> str | None:
    """Write `table.md` and `table.json` from the runs in `folder`; returns the Markdown, None without runs."""
    rows = read_results(folder)
    if not rows:
        return None
    summaries, notes = summarise(rows), frame_notes(folder, rows)
    text = markdown(rows, summaries, notes)
    write_whole(folder / "table.md", text.encode())
    # JSON has no infinity.
    table = [{name: _plain(value) for name, value in asdict(summary).items()} for summary in summaries]
    write_json(folder / "table.json", {"summaries": table, "notes": notes})
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def markdown(rows: Sequence[Row], summaries: Sequence[Summary], notes: Sequence[str] = ()) -> str:
    said = [
        "L_test (Eq. 8) on held-out triples; errors are mean distances after one common translation, in units of the "
        "square's side, medians over seeds. The interval of the interquartile mean is a bootstrap over seeds, "
        f"stratified by world. Failed: the share of seeds above {FAILED:.0%} of the constant answer's L_test.",
    ]
    if any(summary.world == ALL_WORLDS for summary in summaries):
        said.append(f"Rows of {ALL_WORLDS}: L_test as a share of the constant answer's.")
    said += [
        text.format(_keypoints(rows))
        for name, text in SCORING.items()
        if any(row["method"].startswith(name) or row["method"].endswith(name) for row in rows)
    ]
    for name, title, unit in (
        ("orientation_error", "Orientation error", " rad"),
        ("contact_accuracy", "Split accuracy", ""),
    ):
        each = ", ".join(f"{run} {value:.3g}{unit}" for run, value in _medians(rows, name).items())
        said += [f"{title}, medians over seeds: {each}."] if each else []
    made_by = f"Preset {each_of(rows, 'preset')}; {origin(rows)}"
    return layout(HEADS, map(_cells, summaries), [*said, *notes, made_by])


def layout(heads: Sequence[str], cells: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """A Markdown table with a list of notes below it."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in cells)]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def origin(rows: Sequence[Row]) -> str:
    """The hardware and software that made these runs."""
    return f"{each_of(rows, 'hardware')}; torch {each_of(rows, 'torch')}; commit {each_of(rows, 'commit')}."


def each_of(rows: Sequence[Row], name: str) -> str:
    return ", ".join(dict.fromkeys(str(row[name]) for row in rows))


def _cells(summary: Summary) -> list[str]:
    interval = f"{_short(summary.iqm)} [{', '.join(map(_short, summary.interval))}]" if summary.interval else "-"
    return [
        summary.world,
        summary.method,
        str(summary.seeds),
        _short(summary.median),
        interval,
        f"{_short(summary.mean)} ± {_short(summary.std)}",
        f"{summary.failures:.0%}",
        _short(summary.to_supervised, ".3g"),
        _short(summary.agent_error),
        _short(summary.object_error),
        _short(summary.seconds, ".0f"),
        _short(summary.ms_per_step, ".3g"),
    ]


def _short(value: float | None, form: str = ".2g") -> str:
    return "-" if value is None else f"{value:{form}}"


def _medians(rows: Sequence[Row], score: str) -> dict[str, float | None]:
    """The median of a score over seeds, by world and method; only runs that have this score."""
    groups: dict[str, list[float]] = {}
    for row in sorted(rows, key=order):
        if score in row["scores"]:
            groups.setdefault(f"{row['world']} {row['method']}", []).append(row["scores"][score])
    return {name: median(values) for name, values in groups.items()}


def _keypoints(rows: Sequence[Row]) -> str:
    swaps, probed = (_medians(rows, score) for score in ("swap_rate", "probed_l_test"))
    return "; ".join(
        f"{name}: the two swapped in {_short(swaps[name], '.0%')} of the pictures, L_test {_short(probed[name])} with "
        "an affine map fitted to each"
        for name in probed
    )


def frame_notes(folder: Path, rows: Sequence[Row]) -> list[str]:
    """How far apart the frames are that our method learns from the two views of Soccer."""
    distances = []
    for seed in [row["seed"] for row in rows if (row["world"], row["method"]) == ("third", "ours")]:
        pair = [folder / f"{view}-ours-{seed}.npz" for view in ("third", "first")]
        if all(path.exists() for path in pair):
            distances.append(frame_distance(*map(_positions, pair)))
    if not distances:
        return []
    each = ", ".join(f"{distance:.2g}" for distance in distances)
    return [
        "The same scenes seen in third and in first person: the positions of ours differ by "
        f"{np.median(distances):.2g} on average, after one translation (seed by seed: {each})."
    ]


def frame_distance(first: Mapping[str, Array], second: Mapping[str, Array]) -> float:
    """Mean distance between two representations of the same scenes, after one common translation.

    Both hold `agent` and `object` [N, n]. Zero if the two frames differ by a translation alone.
    """
    gaps = np.concatenate([first[name] - second[name] for name in ("agent", "object")])
    return float(np.linalg.norm(gaps - gaps.mean(0), axis=1).mean())


def _positions(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"all_{name}"] for name in ("agent", "object")}
