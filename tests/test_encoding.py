"""The table of a log's positions equals `encode` row by row, in every format, and is written whole or not at all."""

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn

import palpate
from palpate import encoding
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data import transitions
from palpate.data.transitions import Transitions
from palpate.encoding import encode_log
from palpate.methods.store import build
from palpate.representation import Representation
from palpate.runlog import MODEL_FORMAT

BALL = {"body": "ball", "refine": False, "rest_floor": 0.02}
KINDS: dict[str, dict[str, Any]] = {
    "ball": {"objective": ObjectiveConfig(**BALL)},
    "ellipse": {"objective": ObjectiveConfig(**BALL | {"body": "ellipse"})},
    "several": {"objective": ObjectiveConfig(**BALL, objects=3)},
    "supervised": {"method": "supervised", "objective": ObjectiveConfig(body="ellipse")},
    "vae": {"method": "vae", "encoder": "small", "observation_shape": (3, 20, 20), "observation_dtype": "uint8"},
}
LENGTHS = (4, 2, 7)  # observations of each episode
PLACES = ["index", "episode_index", "frame_index"]
Run = Callable[..., tuple[int, str, str]]


def made(kind: str = "ball", **facts: Any) -> Representation:
    """A model with random weights that are large enough for answers to differ."""
    torch.manual_seed(0)
    defaults = {"encoder": "mlp", "observation_shape": (5,), "observation_dtype": "float32", "n": 2}
    model = build(ModelConfig(**defaults | KINDS[kind]))
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5)
    model.inputs.unit.fill_(3.0)
    return Representation(model, facts)


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 5)).astype(np.float32)


def episodes() -> tuple[Transitions, np.ndarray]:
    """A log of episodes, and all of its observations."""
    o = observations(sum(LENGTHS))
    action = np.random.default_rng(1).normal(size=(len(o), 2))
    return Transitions.from_episodes(observation=o, action=action, episode_end=np.cumsum(LENGTHS) - 1), o


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """Columns, NaN for null, and the description."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        note = json.loads(table.schema.metadata[b"palpate"])
        return {name: np.array(table[name].to_pylist(), float) for name in table.column_names}, note
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files if name != "palpate"}, json.loads(str(file["palpate"]))
    with path.open(newline="") as text:
        names, *rows = csv.reader(text)
    numbers = np.array([[float(x or "nan") for x in row] for row in rows])
    found = {}
    for name in dict.fromkeys(name.partition("[")[0] for name in names):
        columns = [i for i, each in enumerate(names) if each.partition("[")[0] == name]
        found[name] = numbers[:, columns if "[" in names[columns[0]] else columns[0]]
    return found, None


@pytest.fixture(params=[1 << 20, 60], ids=["one block", "blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(transitions, "BLOCK_BYTES", request.param)
    return int(request.param)


class TestValues:
    @pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
    def test_of_episodes(self, tmp_path: Path, blocks: int, suffix: str) -> None:
        model, (log, o) = made(), episodes()
        done = encode_log(model, log, tmp_path / f"x{suffix}")
        columns, _ = read(done.path)
        expected = model.encode(o)
        np.testing.assert_allclose(columns["palpate.agent"], expected.agent, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(columns["palpate.object"], expected.object, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(columns["palpate.confidence"], expected.confidence, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(columns["index"], np.arange(len(o)))
        np.testing.assert_array_equal(columns["episode_index"], np.repeat(range(3), LENGTHS))
        np.testing.assert_array_equal(columns["frame_index"], np.concatenate([range(count) for count in LENGTHS]))
        batch = log.rows(slice(None))
        for name, value in {"contact": model.contact(*batch), "would_touch": model.would_touch(*batch[:2])}.items():
            column = columns[f"palpate.{name}"]
            assert value.std() > 0.01
            np.testing.assert_array_equal(np.flatnonzero(np.isnan(column)), np.cumsum(LENGTHS) - 1)
            np.testing.assert_allclose(column[~np.isnan(column)], value, rtol=1e-4, atol=1e-6)
        assert (done.rows, done.triples, "palpate.orientation" in columns) == (len(o), len(o) - 3, False)

    def test_nothing_is_encoded_twice(self, tmp_path: Path, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        (log, o), seen = episodes(), Counter[bytes]()
        whole = Representation.encode

        def counted(self: Representation, observation: Any) -> Any:
            seen.update(x.numpy().tobytes() for x in observation)
            return whole(self, observation)

        monkeypatch.setattr(Representation, "encode", counted)
        encode_log(made(), log, tmp_path / "x.npz")
        assert (len(seen), set(seen.values())) == (len(o), {1})

    def test_of_single_triples(self, tmp_path: Path, blocks: int) -> None:
        o = observations(12)
        log = Transitions(observation=o[::2], action=np.ones((6, 2)), next_observation=o[1::2])
        model = made()
        columns, _ = read(encode_log(model, log, tmp_path / "x.npz").path)
        np.testing.assert_allclose(columns["palpate.agent"], model.encode(o).agent, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(columns["episode_index"], np.repeat(range(6), 2))
        np.testing.assert_array_equal(columns["frame_index"], np.tile(range(2), 6))

    def test_of_triples_that_continue_each_other(self, tmp_path: Path, blocks: int) -> None:
        log, o = episodes()
        batch = log.rows(slice(None))
        same = Transitions(observation=batch.o, action=batch.a, next_observation=batch.o_next)
        one, two = (read(encode_log(made(), x, tmp_path / f"{i}.npz").path)[0] for i, x in enumerate((log, same)))
        assert len(one["index"]) == len(o)
        for name, column in one.items():
            np.testing.assert_array_equal(two[name], column)

    def test_of_a_part_with_gaps(self, tmp_path: Path, blocks: int) -> None:
        """Episode 2 has the observations 6 to 12; without the triple of observations 8 and 9 it has two chains."""
        log, o = episodes()
        part = log.subset([0, 4, 5, 7, 8])
        columns, _ = read(encode_log(made(), part, tmp_path / "x.npz").path)
        shown = [0, 1, 6, 7, 8, 9, 10, 11]
        np.testing.assert_allclose(columns["palpate.agent"], made().encode(o[shown]).agent, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(columns["episode_index"], [0, 0, 2, 2, 2, 2, 2, 2])
        np.testing.assert_array_equal(columns["frame_index"], [0, 1, 0, 1, 2, 3, 4, 5])
        assert np.isnan(columns["palpate.contact"]).tolist() == [False, True] + [False, False, True] * 2

    @pytest.mark.parametrize("stored", [False, True])
    def test_of_episodes_that_are_mixed(self, tmp_path: Path, blocks: int, stored: bool) -> None:
        """As environments side by side write them: a triple of each in turn. The table is that of the sorted log."""
        log, o = episodes()
        assert log.episode is not None
        turn = np.concatenate([np.arange(count - 1) for count in LENGTHS])
        mixed = log.subset(np.lexsort((log.episode.numpy(), turn)))
        assert mixed.episode is not None
        assert mixed.episode.tolist()[:4] == [0, 1, 2, 0]
        if stored:
            mixed.save(tmp_path / "log.h5")
            mixed = Transitions.open(tmp_path / "log.h5")
        one, two = (read(encode_log(made(), x, tmp_path / f"{i}.npz").path)[0] for i, x in enumerate((log, mixed)))
        assert len(two["index"]) == len(o)
        for name, column in one.items():
            np.testing.assert_array_equal(two[name], column)

    def test_of_rows_in_disorder_whose_place_is_known(self, tmp_path: Path, blocks: int) -> None:
        log, _ = episodes()
        frames = np.concatenate([np.arange(count) for count in LENGTHS])
        log.come_from({"data": "log"}, (np.repeat([0, 1, 2], LENGTHS), frames, np.arange(len(frames))), None)
        mixed = log.subset(np.random.default_rng(0).permutation(len(log)))
        one, two = (read(encode_log(made(), x, tmp_path / f"{i}.npz").path)[0] for i, x in enumerate((log, mixed)))
        for name, column in one.items():
            np.testing.assert_array_equal(two[name], column)

    def test_of_a_log_that_knows_its_frames(self, tmp_path: Path, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        log, _ = episodes()
        log.attributes["stride"] = 5
        frames = np.concatenate([5 * np.arange(count - 1) for count in LENGTHS])
        episode = np.repeat(range(3), np.array(LENGTHS) - 1)
        known = 10 + episode, frames, 1000 + 100 * episode + frames
        monkeypatch.setattr(Transitions, "log_rows", property(lambda self: known), raising=False)
        columns, _ = read(encode_log(made(), log, tmp_path / "x.npz").path)
        np.testing.assert_array_equal(columns["episode_index"], np.repeat([10, 11, 12], LENGTHS))
        expected = np.concatenate([5 * np.arange(n) for n in LENGTHS])
        np.testing.assert_array_equal(columns["frame_index"], expected)
        np.testing.assert_array_equal(columns["index"], 1000 + 100 * np.repeat(range(3), LENGTHS) + expected)

    @pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
    def test_of_several_objects(self, tmp_path: Path, blocks: int, suffix: str) -> None:
        model, (log, o) = made("several"), episodes()
        columns, _ = read(encode_log(model, log, tmp_path / f"x{suffix}").path)
        expected, contact = model.encode(o), model.contact(*log.rows(slice(None)))
        for i in range(3):
            found = columns[f"palpate.object.{i}"], columns[f"palpate.confidence.{i}"]
            np.testing.assert_allclose(found[0], expected.objects[:, i], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(found[1], expected.confidences[:, i], rtol=1e-5, atol=1e-6)
            known = columns[f"palpate.contact.{i}"]
            np.testing.assert_allclose(known[~np.isnan(known)], contact[:, i], rtol=1e-4, atol=1e-6)
        assert "palpate.object" not in columns

    def test_without_confidence_and_contacts(self, tmp_path: Path, blocks: int) -> None:
        model, (log, o) = made("supervised"), episodes()
        columns, _ = read(encode_log(model, log, tmp_path / "x.parquet").path)
        assert list(columns) == [*PLACES, "palpate.agent", "palpate.object", "palpate.orientation"]
        np.testing.assert_allclose(columns["palpate.orientation"], model.encode(o).orientation, rtol=1e-4, atol=1e-5)

    def test_pictures_in_another_layout(self, tmp_path: Path, blocks: int) -> None:
        torch.manual_seed(0)
        config = {"encoder": "small", "observation_shape": (3, 20, 24), "n": 2, "objective": ObjectiveConfig(**BALL)}
        model = Representation(build(ModelConfig(**config)), {})
        o = np.random.default_rng(0).integers(0, 256, (7, 20, 24, 3), dtype=np.uint8)
        log = Transitions.from_episodes(observation=o, action=np.ones((7, 2)), episode_end=[6])
        columns, _ = read(encode_log(model, log, tmp_path / "x.npz").path)
        np.testing.assert_allclose(columns["palpate.object"], model.encode(o).object, rtol=1e-4, atol=1e-5)


class TestFile:
    def test_as_others_read_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Vectors are lists of fixed size, as in LeRobot's tables; a description goes with them."""
        monkeypatch.setattr(encoding, "GROUP_ROWS", 5)
        monkeypatch.setattr(transitions, "BLOCK_BYTES", 60)
        made().save(tmp_path / "model")
        log, _ = episodes()
        log.save(tmp_path / "log.h5")
        encode_log(tmp_path / "model", tmp_path / "log.h5", tmp_path / "x.parquet")
        file = parquet.ParquetFile(tmp_path / "x.parquet")
        assert file.num_row_groups == 3  # of at least five rows, except the last
        kinds = {field.name: field.type for field in file.schema_arrow}
        assert all(kinds[name] == pa.int64() for name in PLACES)
        assert kinds["palpate.agent"] == kinds["palpate.object"] == pa.list_(pa.float32(), 2)
        assert kinds["palpate.contact"] == kinds["palpate.confidence"] == pa.float32()
        assert file.read()["palpate.contact"].null_count == 3
        _, note = read(tmp_path / "x.parquet")
        weights = json.loads((tmp_path / "model" / "config.json").read_text())["weights"]
        assert note == {
            "palpate_version": palpate.__version__,
            "model": str(tmp_path / "model"),
            "format_version": MODEL_FORMAT,
            "weights": weights,
            "unit": "positions in the actions' unit, up to one translation",
            "log": str(tmp_path / "log.h5"),
        }

    def test_says_that_positions_are_aligned(self, tmp_path: Path) -> None:
        log, o = episodes()
        model = made(origin=[10.0, -20.0], object_offset=[1.0, 2.0])
        columns, note = read(encode_log(model, log, tmp_path / "x.npz").path)
        np.testing.assert_allclose(columns["palpate.object"], model.encode(o).object, rtol=1e-5, atol=1e-5)
        assert note is not None
        assert (note["unit"], note["model"], note["log"]) == (encoding.ALIGNED, None, None)

    def test_is_not_overwritten_unasked(self, tmp_path: Path) -> None:
        log, _ = episodes()
        encode_log(made(), log, tmp_path / "x.csv")
        before = (tmp_path / "x.csv").read_bytes()
        with pytest.raises(FileExistsError, match=r"x\.csv exists; choose another name, or overwrite it"):
            encode_log(made("ellipse"), log, tmp_path / "x.csv")
        assert (tmp_path / "x.csv").read_bytes() == before
        encode_log(made("ellipse"), log, tmp_path / "x.csv", overwrite=True)
        assert (tmp_path / "x.csv").read_bytes() != before

    @pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
    def test_an_error_leaves_the_old_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
        def fail(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(transitions, "BLOCK_BYTES", 60)
        out = tmp_path / f"x{suffix}"
        out.write_bytes(b"old")
        monkeypatch.setattr(Representation, "would_touch", fail)
        with pytest.raises(KeyboardInterrupt):
            encode_log(made(), episodes()[0], out, overwrite=True)
        assert os.listdir(tmp_path) == [out.name]
        assert out.read_bytes() == b"old"

    def test_mistakes(self, tmp_path: Path) -> None:
        log, _ = episodes()
        with pytest.raises(ValueError, match=r"its name must end in one of \.parquet, \.csv, \.npz"):
            encode_log(made(), log, tmp_path / "x.json")
        other = Transitions(observation=np.ones((3, 4)), action=np.ones((3, 2)), next_observation=np.ones((3, 4)))
        with pytest.raises(
            ValueError, match=r"the log has observations \(4,\) float32, and the model .* \(5,\) float32"
        ):
            encode_log(made(), other, tmp_path / "x.npz")
        space = Transitions(observation=observations(3), action=np.ones((3, 3)), next_observation=observations(3))
        with pytest.raises(ValueError, match="the log has actions of 3 numbers, and the model was trained on 2"):
            encode_log(made(), space, tmp_path / "x.npz")
        with pytest.raises(ValueError, match="method is 'vae', which gives no positions in the action's unit"):
            encode_log(made("vae"), log, tmp_path / "x.npz")
        assert not os.listdir(tmp_path)

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ModuleNotFoundError, match=r"parquet files need pyarrow.*pip install 'palpate\[lerobot\]'"):
            encode_log(made(), episodes()[0], tmp_path / "x.parquet")
        encode_log(made(), episodes()[0], tmp_path / "x.csv")


class TestCommand:
    COMMAND = (sys.executable, "-m", "palpate.cli", "encode")
    ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Path, Path]:
        made().save(tmp_path / "model")
        episodes()[0].save(tmp_path / "log.h5")
        return tmp_path / "log.h5", tmp_path / "model"

    def test_as_a_process(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        log, model = files
        command = [*self.COMMAND, log, "--model", model, "--out", tmp_path / "x.parquet"]
        done = subprocess.run(command, capture_output=True, text=True, env=self.ENVIRONMENT, check=False)
        assert done.returncode == 0, done.stderr
        first, *columns = done.stdout.splitlines()
        assert first.startswith(f"{tmp_path / 'x.parquet'}: 13 observations of 10 triples, 0.0 MB, ")
        assert "  palpate.agent        float32[2]" in columns
        assert parquet.read_table(tmp_path / "x.parquet").num_rows == 13

    def test_mistakes_are_one_line(self, files: tuple[Path, Path], tmp_path: Path, command: Run) -> None:
        log, model = files
        out = tmp_path / "x.csv"
        for arguments, says in (
            ((log, "--model", model, "--out", tmp_path / "x.txt"), "must end in one of"),
            ((tmp_path / "none.h5", "--model", model, "--out", out), "there is no file"),
            ((log, "--model", tmp_path / "none", "--out", out), "there is no folder"),
            ((log, "--model", model), "missing --out"),
            ((log, "--model", model, "--out", tmp_path / "none" / "x.csv"), "create it"),
        ):
            code, _, err = command("encode", *arguments)
            assert (code, err.count("\n")) == (2, 1), err
            assert says in err
        assert command("encode", log, "--model", model, "--out", out)[0] == 0
        assert "overwrite it" in command("encode", log, "--model", model, "--out", out)[2]
        assert command("encode", log, "--model", model, "--out", out, "--force")[0] == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
    def test_a_full_disk(self, files: tuple[Path, Path], tmp_path: Path, suffix: str) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        out = tmp_path / "made" / f"x{suffix}"
        out.parent.mkdir()
        command = [*self.COMMAND, files[0], "--model", files[1], "--out", out]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.ENVIRONMENT, check=False, preexec_fn=limit
        )
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert f"cannot write {out}: File too large" in done.stderr
        assert not os.listdir(out.parent)

    @pytest.mark.slow
    def test_killed(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        """SIGTERM removes the unfinished file too."""
        many = 300_000
        o = np.random.default_rng(0).normal(size=(many, 5)).astype(np.float32)
        log = Transitions.from_episodes(observation=o, action=np.ones((many, 2)), episode_end=[many - 1])
        log.save(tmp_path / "many.h5")
        folder = tmp_path / "made"
        folder.mkdir()
        command = [*self.COMMAND, tmp_path / "many.h5", "--model", files[1], "--out", folder / "x.csv"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.ENVIRONMENT)
        deadline = time.monotonic() + 600
        while not os.listdir(folder) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [name for name in os.listdir(folder) if name.endswith(".tmp")]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 130, err
        assert not os.listdir(folder)
