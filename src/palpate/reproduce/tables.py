"""The table of an experiment as Markdown, from the JSON files of its runs."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from palpate.disk import write_whole
from palpate.reproduce.results import FAILED, Row, grouped, l_tests, read_arrays, read_results
from palpate.reproduce.statistics import Array, interquartile_mean, stratified_bootstrap

NOTE_WIDTH = 118
HEADS = (
    "world", "method", "seeds", "median L_test", "interquartile mean [95 %]", "failed", "x supervised", "agent error",
    "object error", "seconds",
)  # fmt: skip
ERRORS = ("agent_error", "object_error")
# How methods are scored that do not estimate positions of agent and object by themselves; by the method's name.
SCORING = {
    "vae": "vae: its z_ext has 32 dimensions and no geometry. An affine probe, fitted to the true states of the "
    "reference set by least squares, reads the position from it. The other methods see no true states.",
    "transporter": "transporter: the positions are its keypoints, in [0, 1] along the picture's axes. The true states "
    "of the reference set decide, once for each run, which keypoint is the agent. Medians over seeds: {}.",
    "supervised": "supervised: the same networks trained on true states; a limit, not a competitor.",
}


def write_table(folder: Path) -> str | None:
    """Write `table.md` from the runs in `folder`; returns the Markdown, None without runs."""
    rows = read_results(folder)
    if not rows:
        return None
    text = markdown(rows, frame_notes(folder, rows))
    write_whole(folder / "table.md", text.encode())
    return text


def markdown(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """A line for each world and method, and what the numbers mean."""
    said = [
        "L_test (Eq. 8) on held-out triples. Errors are mean distances after the translation that fits the agent, in "
        "units of the square's side, medians over seeds. The interval of the interquartile mean is a bootstrap over "
        "seeds. Failed: "
        f"the share of seeds above {FAILED:.0%} of the constant predictor's L_test. Seconds: median of the runs that "
        "were not interrupted.",
    ]
    methods = {row["method"] for row in rows}
    said += [text.format(_keypoints(rows)) for name, text in SCORING.items() if name in methods]
    for name, title, unit in (
        ("orientation_error", "Orientation error", " rad"),
        ("contact_accuracy", "Split accuracy", ""),
    ):
        each = ", ".join(f"{run} {value:.3g}{unit}" for run, value in _medians(rows, name).items())
        said += [f"{title}, medians over seeds: {each}."] if each else []
    notes = [*said, *notes, f"Preset {each_of(rows, 'preset')}; {origin(rows)}"]
    groups = grouped(rows)
    cells = [[*names, *_cells(group, groups.get((names[0], "supervised"), []))] for names, group in groups.items()]
    return layout(HEADS, cells, notes)


def _cells(rows: Sequence[Row], supervised: Sequence[Row]) -> list[str]:
    values = l_tests(rows)
    limit = np.median(l_tests(supervised)) if supervised else np.inf
    constant = np.array([row["scores"].get("constant l_test", 1.0) for row in rows])
    interval = ", ".join(f"{end:.2g}" for end in stratified_bootstrap([values])) if len(rows) > 1 else ""
    return [
        str(len(rows)),
        _median(values),
        f"{interquartile_mean(values):.2g} [{interval}]" if interval else "-",
        f"{np.mean(values > FAILED * constant):.0%}",
        f"{np.median(values) / limit:.3g}" if np.isfinite(limit) else "-",
        *(_median([row["scores"][name] for row in rows if name in row["scores"]]) for name in ERRORS),
        _median([row["seconds"] for row in rows if not row["resumed_at"]], ".0f"),
    ]


def _median(values: Sequence[float] | Array, form: str = ".2g") -> str:
    return f"{np.median(values):{form}}" if len(values) else "-"


def layout(heads: Sequence[str], cells: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """A Markdown table with a list of notes below it."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in cells)]
    wrapped = (textwrap.fill(f"- {note}", NOTE_WIDTH, subsequent_indent="  ") for note in notes)
    return "\n".join([*lines, "", *wrapped]) + "\n"


def origin(rows: Sequence[Row]) -> str:
    """The hardware and software that made these runs."""
    return f"{each_of(rows, 'hardware')}; torch {each_of(rows, 'torch')}; commit {each_of(rows, 'commit')}."


def each_of(rows: Sequence[Row], name: str) -> str:
    return ", ".join(dict.fromkeys(str(row[name]) for row in rows))


def _medians(rows: Sequence[Row], score: str) -> dict[str, float]:
    """The median of a score over seeds, by world and method; only runs that have this score."""
    return {
        " ".join(names): float(np.median([row["scores"][score] for row in group]))
        for names, group in grouped(row for row in rows if score in row["scores"]).items()
    }


def _keypoints(rows: Sequence[Row]) -> str:
    swaps, probed = (_medians(rows, score) for score in ("swap_rate", "probed_l_test"))
    return "; ".join(
        f"{name}: the two are swapped in {swaps[name]:.0%} of the pictures, and an affine map fitted to each has "
        f"L_test {probed[name]:.2g}"
        for name in probed
    )


def frame_notes(folder: Path, rows: Sequence[Row]) -> list[str]:
    """The distance between the frames that our method learns from the two views of Soccer."""
    distances = []
    for seed in [row["seed"] for row in rows if (row["world"], row["method"]) == ("third", "ours")]:
        pair = [folder / f"{view}-ours-{seed}.npz" for view in ("third", "first")]
        if all(path.exists() for path in pair):
            distances.append(frame_distance(*map(_positions, pair)))
    if not distances:
        return []
    each = ", ".join(f"{distance:.2g}" for distance in distances)
    return [
        "The same scenes in third and in first person: the positions of ours differ by "
        f"{np.median(distances):.2g} on average, after one translation (by seed: {each})."
    ]


def frame_distance(first: Array, second: Array) -> float:
    """Mean distance between two estimates [N, n] of the same points, after one common translation."""
    gaps = first - second
    return float(np.linalg.norm(gaps - gaps.mean(0), axis=1).mean())


def _positions(path: Path) -> Array:
    arrays = read_arrays(path, "all_agent", "all_object")
    return np.concatenate((arrays["all_agent"], arrays["all_object"]))
