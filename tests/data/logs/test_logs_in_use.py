"""Logs on the command line and in training: options, run files, resuming, and what is learned from them."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from balls import walks
from written import CAMERAS, Truth, truth, write_lerobot, write_robomimic, write_zarr

import palpate
from palpate.data.labelled import Labelled
from palpate.data.logs.log import LogOptions, open_log
from palpate.envs.sprites import Sprites, SpritesConfig

Command = Callable[..., tuple[int, str, str]]
POSITION = "observation.state[:2]"
LENGTHS = (30,) * 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lerobot(tmp_path_factory.mktemp("logs") / "log", truth(LENGTHS, side=16), files=(12,))


def test_help_names_the_options() -> None:
    for verb in ("check", "train", "encode", "view"):
        code = f"import sys\nfrom palpate.cli import main\nsys.argv = ['palpate', '{verb}', '--help-all']\nmain()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for option in ("--observation", "--position", "--stride", "--substeps", "--kinematics", "--site"):
            assert option in done.stdout


def test_check_as_a_process(folder: Path) -> None:
    command = [sys.executable, "-m", "palpate.cli", "check", str(folder), "--no-probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"palpate: {folder}: give position")
    chosen = ["--position", POSITION, "--observation", CAMERAS[0]]
    done = subprocess.run([*command, *chosen], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "different triples 348" in done.stdout


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_train_and_resume(command: Command, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    chosen = ["--position", POSITION, "--observation", CAMERAS[0], "--stride", 2]
    small = ["--batch-size", 16, "--device", "cpu"]
    code, said, err = command("train", "--data", folder, *chosen, "--steps", 4, "--out", out, *small)
    assert code == 0, err
    assert "Representation(" in said
    settings = tomllib.loads((out / "run.toml").read_text())
    expected = {"data": str(folder), "observation": CAMERAS[0], "position": POSITION, "stride": 2}
    assert {name: settings[name] for name in expected} == expected
    described = json.loads((out / "run.json").read_text())["data"]
    assert {name: described[name] for name in expected if name != "data"} == {
        name: value for name, value in expected.items() if name != "data"
    }
    # The run's own file resumes it; other options are refused.
    again = ["train", "--config", out / "run.toml", "--out", out, "--resume"]
    assert command(*again)[0] == 0
    for option, value, message in (
        ("--stride", 1, "stride was 2 and is unset"),
        ("--position", "action", "position was 'observation.state[:2]' and is 'action'"),
        ("--observation", CAMERAS[1], f"observation was '{CAMERAS[0]}' and is '{CAMERAS[1]}'"),
    ):
        code, _, err = command(*again, option, value)
        assert code == 2
        assert message in err


@pytest.mark.parametrize("write", [write_robomimic, write_zarr])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_train_on_other_formats(command: Command, tmp_path: Path, write: Callable[[Path, Truth], Path]) -> None:
    path = write(tmp_path / ("log.zarr" if write is write_zarr else "log.hdf5"), truth((20, 20, 20), side=16))
    position = "state[:2]" if write is write_zarr else "robot0_eef_pos[:2]"
    camera = "top" if write is write_zarr else "top_image"
    code, _, err = command(
        "train", "--data", path, "--position", position, "--observation", camera, "--steps", 2, "--batch-size", 8,
        "--device", "cpu", "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, err


def test_options_of_a_log_need_a_log(command: Command, tmp_path: Path) -> None:
    code, _, err = command("train", "--env", "palpate/Sprites-v0", "--stride", 3, "--out", tmp_path / "run")
    assert code == 2
    assert "stride is 3, but the triples come from a world" in err


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_in_python_knows_its_log(folder: Path, tmp_path: Path) -> None:
    triples = open_log(folder, LogOptions(position=POSITION, observation="action"))
    palpate.fit(triples, out=tmp_path / "run", steps=2, batch_size=8, device="cpu", progress=False)
    settings = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert settings["data"] == str(folder)
    palpate.fit(triples.subset(range(100)), out=tmp_path / "part", steps=2, batch_size=8, progress=False)
    assert "data" not in tomllib.loads((tmp_path / "part" / "run.toml").read_text())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_encode_and_view(command: Command, folder: Path, tmp_path: Path) -> None:
    """The table has a row for each frame that is read; a run's page reads the log as the run did."""
    from pyarrow import parquet

    from palpate.viewer.drawing import source_of
    from palpate.viewer.run import RunFolder

    out, table = tmp_path / "run", tmp_path / "positions.parquet"
    chosen = ["--position", POSITION, "--observation", CAMERAS[0], "--stride", 2]
    code, _, err = command(
        "train", "--data", folder, *chosen, "--steps", 2, "--out", out, "--batch-size", 16, "--device", "cpu"
    )
    assert code == 0, err
    code, said, err = command("encode", folder, "--model", out, "--out", table, *chosen)
    assert code == 0, err
    assert "as in the run" not in said
    made = parquet.read_table(table)
    kept = [frame for _ in LENGTHS for frame in range(0, LENGTHS[0], 2)]
    assert made["frame_index"].to_pylist() == kept
    assert made["episode_index"].to_pylist() == [i for i, length in enumerate(LENGTHS) for _ in range(0, length, 2)]
    with open_log(folder, LogOptions(observation=CAMERAS[0], position=POSITION, stride=2)) as triples:
        model, rows = palpate.load(out), triples.rows([0, 1])
        seen = torch.cat((rows.o, rows.o_next[1:]))
    found = torch.tensor(made["palpate.agent"].to_pylist()[:3])
    assert torch.allclose(found, torch.as_tensor(model.encode(seen).agent), atol=1e-5)
    source = source_of(RunFolder(out))
    assert source.triples is not None
    assert len(source.triples) == len(triples)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_encode_reads_a_log_as_the_run_did(command: Command, folder: Path, tmp_path: Path) -> None:
    """Options on the command line take precedence, also a stride of 1; files of triples need none."""
    log = open_log(folder, LogOptions(observation="observation.state", position=POSITION, stride=2))
    rep = palpate.fit(log, out=tmp_path / "run", steps=2, batch_size=16, device="cpu", progress=False)

    def encoded(log: Path, *options: object) -> tuple[dict[str, np.ndarray], str]:
        out = tmp_path / "table.npz"
        code, said, err = command("encode", log, "--model", tmp_path / "run", "--out", out, "--force", *options)
        assert code == 0, err
        with np.load(out) as file:
            return dict(file), said

    same, said = encoded(folder)
    assert f"read as in the run: observation observation.state, position {POSITION}, stride 2" in said
    expected, said = encoded(folder, "--observation", "observation.state", "--position", POSITION, "--stride", 2)
    assert "as in the run" not in said
    assert same.keys() == expected.keys()
    assert all(np.array_equal(same[name], expected[name], equal_nan=name != "palpate") for name in same)
    assert len(encoded(folder, "--stride", 1)[0]["index"]) == sum(LENGTHS) == 2 * len(same["index"])
    log.save(tmp_path / "log.h5")
    assert len(encoded(tmp_path / "log.h5")[0]["index"]) == len(same["index"])
    with pytest.raises(ValueError, match="give position"):
        palpate.encode_log(rep, folder, tmp_path / "none.npz")  # this model is not in a folder
    settings = tmp_path / "run" / "run.toml"
    settings.write_text(settings.read_text().replace("stride = 2", "stride = 'two'"))
    code, _, err = command("encode", folder, "--model", tmp_path / "run", "--out", tmp_path / "none.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "run.toml is damaged: stride is 'two'" in err


def test_a_position_is_not_combined_with_the_kinematics_of_a_run() -> None:
    run = LogOptions(observation="camera", position="joints", kinematics=Path("/robot.xml"), site="tip", stride=3)
    assert LogOptions().lacks(run) == run.given
    assert LogOptions(position="place").lacks(run) == {"observation": "camera", "stride": 3}
    assert LogOptions(stride=1).lacks(run).keys() == {"observation", "position", "kinematics", "site"}


def walked(num: int, seed: int, side: int, length: int = 25) -> tuple[Labelled, Truth]:
    """Walks in Sprites as labelled triples, and as a log of the same moments."""
    labelled = walks(Sprites(SpritesConfig(size=side)), num, length, seed=seed)
    batch, agent = labelled.transitions.rows(slice(None)), labelled.truth.agent
    last = range(length - 1, num, length)

    def joined(first: torch.Tensor, after: torch.Tensor) -> np.ndarray:
        """Each episode's first rows, and the row after its last one."""
        parts = zip(first.split(length), after[list(last)], strict=True)
        return torch.cat([torch.cat([rows, end[None]]) for rows, end in parts]).numpy()

    state = joined(agent, agent + batch.a)
    pictures = joined(batch.o, batch.o_next).transpose(0, 2, 3, 1)
    state = np.hstack([state, np.zeros((len(state), 1), np.float32)])
    return labelled, Truth((length + 1,) * len(last), state, {CAMERAS[0]: pictures})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_folder_and_a_file_of_the_same_rows_give_the_same_model(tmp_path: Path) -> None:
    """With PNG pictures in the tables, which lose nothing."""
    labelled, log = walked(200, 0, 24)
    labelled.transitions.save(tmp_path / "log.h5")
    folder = write_lerobot(tmp_path / "log", log, files=(len(log.lengths),), stored="PNG")
    settings = {"steps": 5, "seed": 0, "batch_size": 32, "device": "cpu", "progress": False}
    with palpate.Transitions.open(tmp_path / "log.h5") as plain:
        stored = palpate.Transitions.from_lerobot(folder, position=POSITION)
        assert torch.equal(stored.episode, plain.episode)
        both = [palpate.fit(each, **settings).encode(plain.rows(slice(0, 50)).o) for each in (plain, stored)]
    torch.testing.assert_close(both[0].agent, both[1].agent, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(both[0].object, both[1].object, atol=1e-4, rtol=1e-3)
