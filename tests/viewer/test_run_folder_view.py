"""What a run's folder says, without a browser and without torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from palpate.data.transitions import Transitions
from palpate.figures import curves
from palpate.viewer.curves import MOST_POINTS, charts
from palpate.viewer.opened import kind_of, opened, run_of, stamp_of
from palpate.viewer.run import RunFolder
from palpate.viewer.words import chance


def test_a_complete_run(made_runs: Path) -> None:
    run = RunFolder(made_runs / "run")
    assert (kind_of(run.path), run.state, run.progress()) == ("run", "complete", (4, 4))
    verdict = run.verdict()
    assert verdict.word in ("good", "doubtful", "not to be trusted")
    assert "No true state was used" in verdict.text
    assert {name: value for name, value, _ in run.settings()}["encoder"] == "small"
    assert run.test == run.data == made_runs / "log.h5"
    assert run.figures() == {}
    assert run.resume() == f"palpate train --config {run.path}/run.toml --out {run.path} --resume"


def test_an_unfinished_run(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    (run.path / "config.json").unlink()
    assert (run.state, run.verdict().word) == ("unfinished", "unfinished")
    (run.path / "run.toml").write_text("steps = 4\n")
    assert run.resume() is None  # its data were in memory
    before = run.version()
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "agent": 1.0}\n{"step": 10, "ag')
    assert run.version() != before
    assert run.progress() == (9, 4)  # the line that is being written does not count
    shutil.rmtree(run.path)
    assert (run.state, run.readings(), run.version()) == ("gone", [], (0, 0))


def test_an_overwriting_run_is_followed(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    pending = tmp_path / "run" / ".overwriting"
    pending.mkdir()
    shutil.copy(made_runs / "run" / "run.json", pending)
    run = RunFolder(tmp_path / "run")
    assert (run.state, run.readings()) == ("unfinished", [])


def test_a_report_newer_than_the_model_is_shown_as_it_is(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    figures = tmp_path / "run" / "figures"
    figures.mkdir()
    (figures / "overlay.png").write_bytes(b"png")
    run = RunFolder(tmp_path / "run")
    assert run.figures() == {"overlay": b"png"}
    (run.path / "config.json").touch()
    os.utime(figures / "overlay.png", (0, 0))
    assert run.figures() == {}


def test_damage_is_named(made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is damaged \(.*\); restore it or train again"):
        RunFolder(tmp_path / "run").verdict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"findings": [{"name": "x"}]}, r"config.json is damaged \(findings is not as a run writes it\)"),
        ({"training": None}, "training is not"),
        ({"choices": None}, "choices is not"),
        ({"quality": {"verdict": "good", "error": "x"}}, "quality is not"),
        ({"model": {"objective": None}}, "model is not"),
        ({"data": {"data": 1}}, "data is not"),
        ({"format_version": 1}, "config.json has format_version 1, and this palpate reads only"),
    ],
)
def test_a_foreign_config_is_named(made_runs: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    run = RunFolder(tmp_path / "run")
    for read in (run.verdict, run.progress, run.settings):
        with pytest.raises(ValueError, match=message):
            read()
    path.write_text('{"architectures": ["Foreign"]}')
    with pytest.raises(ValueError, match="is not from a run of palpate"):
        run.verdict()


def test_an_unfinished_exploration_is_named(tmp_path: Path) -> None:
    (tmp_path / "explore.json").write_text("{}")
    with pytest.raises(ValueError, match="is an unfinished exploration"):
        kind_of(tmp_path)


def test_paths(made_runs: Path, tmp_path: Path) -> None:
    assert kind_of(made_runs / "log.h5") == "log"
    with pytest.raises(FileNotFoundError, match="give the folder of a run, or a log"):
        kind_of(tmp_path / "nothing")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "run.json").write_text("{}")
    assert run_of(tmp_path) == tmp_path / "model"  # of an exploration


def test_a_log_that_changes_is_opened_again(tmp_path: Path) -> None:
    def written(rows: int) -> Path:
        x = np.arange(rows, dtype=np.float32)[:, None].repeat(2, 1)
        Transitions(observation=x, action=x, next_observation=x).save(tmp_path / "log.h5", overwrite=True)
        os.utime(tmp_path / "log.h5", (1, 1))  # the time alone does not show the change
        return tmp_path / "log.h5"

    first = opened(written(9))
    assert opened(tmp_path / "log.h5") is first
    assert len(opened(written(10))) == 10
    chunks = tmp_path / "folder" / "data" / "chunks"
    chunks.mkdir(parents=True)
    (tmp_path / "folder" / "meta").mkdir()
    stamps = [stamp_of(tmp_path / "folder")]
    for name in ("data/chunks/0", "meta/info.json", "README"):
        (tmp_path / "folder" / name).write_text("x")
        stamps.append(stamp_of(tmp_path / "folder"))
    (tmp_path / "folder" / "meta" / "info.json").write_text("longer")
    stamps.append(stamp_of(tmp_path / "folder"))
    assert len(set(stamps)) == 5
    assert stamp_of(tmp_path / "folder") == stamps[-1]


def test_curves_are_those_of_the_report() -> None:
    rows = [
        {
            "step": i,
            "agent": 1.0,
            "stay": 0.1 - i,
            "scout": float(i),
            "l_test": 0.1,
            "constant l_test": 0.2,
            "other": 3.0,
        }
        for i in range(3)
    ]
    drawn = {
        axes.get_title(): (axes.get_yscale(), {line.get_label(): line.get_xydata().tolist() for line in axes.lines})
        for axes in curves(rows).axes
    }
    assert {title: list(lines) for title, (_, lines) in drawn.items()} == {
        "Losses": ["agent", "scout"],
        "Losses that may be negative": ["stay"],
        "L_test (Eq. 8)": ["learned", "constant predictor"],
    }
    shown = {
        chart.title: (
            {"value": "linear"}.get(chart.options["yAxis"]["type"], "log"),
            {line["name"]: line["data"] for line in chart.options["series"]},
        )
        for chart in charts(rows)
    }
    assert shown == drawn
    assert drawn["Losses"][1]["scout"] == [[1, 1], [2, 2]]  # a logarithmic axis has no 0
    assert charts([]) == []


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    (chart,) = charts([{"step": i, "agent": i + 1.0} for i in range(10_007)])
    found = chart.options["series"][0]["data"]
    assert len(found) <= MOST_POINTS
    assert found[-1] == [10_006, 10_007.0]
    assert charts([{"step": 0, "agent": None}]) == []


def test_chances() -> None:
    assert [chance(p) for p in (0.0, 0.25, 1.0)] == ["under 1 %", "25%", "over 99 %"]


def test_the_first_page_needs_no_torch(made_runs: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from palpate.viewer.session import Session\n"
        f"run = Session(Path({str(made_runs / 'run')!r})).run\nfrom palpate.viewer.curves import charts\n"
        "charts(run.readings()); run.verdict(); run.settings()\n"
        "print(sorted({'torch', 'h5py', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
