"""From the JSON files of runs to tables: medians, interquartile means with intervals, failures, wall-clock.

A run that diverged has no scores; it counts as a failure, and its L_test as infinite.
Legend: s seeds, r resamples.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palpate.disk import write_whole
from palpate.reproduce.presets import LONG, PAPER_SCHEDULE, listed

FORMAT = 1
FAILED = 0.02  # of the constant answer's L_test: above it a run has failed
RESAMPLES = 10_000
CONFIDENCE = 0.95
ALL_WORLDS = "all worlds"
COMPARED = ("sprites", "soccer")  # experiments whose worlds are problems of one kind, and methods what differs

Array = NDArray[np.float64]
Row = Mapping[str, Any]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The runs whose JSON lies in `folder`, in the order of the presets; other JSON files are left alone."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); delete it, and the run is made again") from error
        if isinstance(row, dict) and row.get("format") == FORMAT:
            rows.append(row)
    return rows


def interquartile_mean(values: Array) -> Array:
    """Mean of the middle half along the last axis [..., s]; values on its border count by the part that is inside."""
    values = np.sort(values, axis=-1)
    count = values.shape[-1]
    edges = np.arange(count + 1) / count
    inside = np.diff(np.clip(edges, 0.25, 0.75))  # of each value's share; sums to one half
    kept = inside > 0  # else an infinite value outside would spoil the sum
    result: Array = (values[..., kept] * inside[kept]).sum(-1) / 0.5
    return result


def stratified_bootstrap(strata: Sequence[Array], seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Interval of the interquartile mean over all values, resampled within each stratum (a world's seeds)."""
    rng = np.random.default_rng(seed)
    draws = [stratum[rng.integers(len(stratum), size=(resamples, len(stratum)))] for stratum in strata]  # [r, s] each
    means = interquartile_mean(np.concatenate(draws, axis=-1))
    tail = (1 - CONFIDENCE) / 2
    # No interpolation: between a finite value and an infinite one there is nothing.
    low, high = np.quantile(means, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the seeds of one method in one world say; L_test throughout unless a name says otherwise."""

    world: str
    method: str
    seeds: int
    median: float
    iqm: float
    interval: tuple[float, float] | None  # of the interquartile mean; one seed has none
    mean: float
    std: float | None
    failures: float  # share of the seeds
    to_supervised: float | None  # ratio of the medians
    agent_error: float | None  # median, as those below
    object_error: float | None
    seconds: float | None  # of runs that were not interrupted
    ms_per_step: float | None


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """One summary for each world and method; where methods are compared, also one for each over all worlds.

    That last one takes L_test as a share of the constant answer's, since worlds differ, and only methods that were run
    in every world.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_place):
        groups.setdefault((row["world"], row["method"]), []).append(row)
    found = [
        _summary(world, method, group, [_l_test(group)], groups.get((world, "supervised")))
        for (world, method), group in groups.items()
    ]
    compared = [names for names, group in groups.items() if group[0]["experiment"] in COMPARED]
    worlds, methods = (list(dict.fromkeys(names)) for names in zip(*compared, strict=True)) if compared else ([], [])
    for method in methods if len(worlds) > 1 else []:
        if all((world, method) in groups for world in worlds):
            strata = [_relative(groups[world, method]) for world in worlds]
            everything = [row for world in worlds for row in groups[world, method]]
            found.append(_summary(ALL_WORLDS, method, everything, strata, None))
    return found


def _summary(
    world: str, method: str, rows: Sequence[Row], strata: list[Array], supervised: Sequence[Row] | None
) -> Summary:
    values = np.concatenate(strata)
    finite = bool(np.isfinite(values).all())
    many = len(values) > 1
    return Summary(
        world=world,
        method=method,
        seeds=len(values),
        median=float(np.median(values)),
        iqm=float(interquartile_mean(values)),
        interval=stratified_bootstrap(strata) if many else None,
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if many and finite else None,
        failures=float(np.mean(_relative(rows) > FAILED)),
        to_supervised=float(np.median(values) / np.median(_l_test(supervised))) if supervised else None,
        agent_error=_middle(row["scores"].get("agent_error") for row in rows),
        object_error=_middle(row["scores"].get("object_error") for row in rows),
        seconds=_middle(row["seconds"] for row in rows if not row["resumed_at"]),
        ms_per_step=_middle(row["ms_per_step"] for row in rows),
    )


def _place(row: Row) -> tuple[int, ...]:
    """As the experiment lists its runs; strangers come last."""
    worlds, methods = listed(row["experiment"])
    places = [
        names.index(name) if name in names else len(names)
        for name, names in ((row["world"], worlds), (row["method"], methods))
    ]
    return (*places, row["seed"])


def _l_test(rows: Sequence[Row]) -> Array:
    return np.array([row["scores"].get("l_test", math.inf) for row in rows], dtype=float)


def _relative(rows: Sequence[Row]) -> Array:
    """L_test as a share of what the constant answer scores."""
    constant = np.array([row["scores"].get("constant l_test", 1.0) for row in rows], dtype=float)
    return _l_test(rows) / constant


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def write_tables(folder: Path, notes: Sequence[str] = ()) -> str | None:
    """Write `table.md` and `table.json` from the runs in `folder`; returns the Markdown, None where there is no run."""
    rows = read_results(folder)
    if not rows:
        return None
    summaries = summarise(rows)
    text = markdown(rows, summaries, notes)
    write_whole(folder / "table.md", text.encode())
    # Python would write Infinity, which no other reader takes.
    table = [{name: _plain(value) for name, value in asdict(summary).items()} for summary in summaries]
    content = json.dumps({"summaries": table, "notes": list(notes)}, indent=1, allow_nan=False) + "\n"
    write_whole(folder / "table.json", content.encode())
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


HEADS = (
    "world", "method", "seeds", "median L_test", "interquartile mean [95 %]", "mean ± std", "failed", "x supervised",
    "agent error", "object error", "seconds", "ms a step",
)  # fmt: skip


def markdown(rows: Sequence[Row], summaries: Sequence[Summary], notes: Sequence[str] = ()) -> str:
    """The table and what must be said beside it."""
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(_cells(summary))} |" for summary in summaries]
    said = [
        "L_test (Eq. 8) on held-out triples; errors are mean distances after one common translation, in units of the "
        "square's side, medians over seeds. The interval of the interquartile mean is a bootstrap over seeds, "
        f"stratified by world. Failed: the share of seeds above {FAILED:.0%} of the constant answer's L_test.",
    ]
    if any(summary.world == ALL_WORLDS for summary in summaries):
        said.append(f"Rows of {ALL_WORLDS}: L_test as a share of the constant answer's.")
    said += [*scoring(rows), *_beside(rows), *notes, _made_by(rows)]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in said)]) + "\n"


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
        "-" if summary.to_supervised is None else f"{summary.to_supervised:.3g}",
        _short(summary.agent_error),
        _short(summary.object_error),
        "-" if summary.seconds is None else f"{summary.seconds:.0f}",
        "-" if summary.ms_per_step is None else f"{summary.ms_per_step:.3g}",
    ]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def scoring(rows: Sequence[Row]) -> list[str]:
    """How the methods were scored that do not place agent and object by themselves, and those trained otherwise."""
    methods = {row["method"] for row in rows}
    said = []
    if "vae" in methods:
        said.append(
            "vae: its z_ext has 32 dimensions and no geometry; a position is read from it by an affine probe, fitted "
            "to the labels of the reference triples by least squares. The probe sees labels, the other methods do not."
        )
    if any(method.startswith("transporter") for method in methods):
        said.append(
            "transporter: keypoints as they are, in [0, 1] along the picture's axes; which of the two is the agent is "
            "chosen once for each run, on the labels of the reference triples. Beside that, medians over seeds: "
            f"{_keypoints(rows)}."
        )
    if any(method.endswith(LONG) for method in methods):
        said.append(f"{LONG}: trained for several times as many steps; the steps stand in the JSON files.")
    if any(method.endswith(PAPER_SCHEDULE) for method in methods):
        said.append(
            f"{PAPER_SCHEDULE}: the paper's own schedule on a fixed set of triples: 100 epochs, Adam at a constant "
            "1e-3, no weight decay, no clipping."
        )
    if "supervised" in methods:
        said.append("supervised: the same encoders trained on the true states; the limit, not a competitor.")
    return said


def _keypoints(rows: Sequence[Row]) -> str:
    """What is reported of keypoints beside their raw L_test."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=_place):
        if "probed_l_test" in row["scores"]:
            groups.setdefault(f"{row['world']} {row['method']}", []).append(row)
    return "; ".join(
        f"{name}: the two swapped in {_middle(row['scores']['swap_rate'] for row in group):.0%} of the pictures, "
        f"L_test {_short(_middle(row['scores']['probed_l_test'] for row in group))} with an affine map fitted to each"
        for name, group in groups.items()
    )


def _beside(rows: Sequence[Row]) -> list[str]:
    """What some methods also answer: how the object lies, and whether it was touched."""
    said = []
    for name, title, unit in (
        ("orientation_error", "Orientation error", " rad"),
        ("contact_accuracy", "Split accuracy", ""),
    ):
        groups: dict[str, list[float]] = {}
        for row in sorted(rows, key=_place):
            if name in row["scores"]:
                groups.setdefault(f"{row['world']} {row['method']}", []).append(row["scores"][name])
        if groups:
            each = ", ".join(f"{names} {np.median(values):.3g}{unit}" for names, values in groups.items())
            said.append(f"{title}, medians over seeds: {each}.")
    return said


def _made_by(rows: Sequence[Row]) -> str:
    def each(name: str) -> str:
        return ", ".join(dict.fromkeys(str(row[name]) for row in rows))

    return f"Preset {each('preset')}; {each('hardware')}; torch {each('torch')}; commit {each('commit')}."


def frame_distance(first: Mapping[str, Array], second: Mapping[str, Array]) -> float:
    """Mean distance of what two representations say of the same scenes, after one translation of all of it.

    Both hold `agent` and `object` [N, n]. Zero where the two frames agree, wherever their origins are.
    """
    gaps = np.concatenate([first[name] - second[name] for name in ("agent", "object")])
    return float(np.linalg.norm(gaps - gaps.mean(0), axis=1).mean())
