"""run.toml: what a run writes is what repeats it."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from balls import balls

import palpate
from palpate.choices import Choice
from palpate.cli.parsing import parse
from palpate.cli.train import Train
from palpate.config import ObjectiveConfig, SettledTraining, TrainingConfig
from palpate.envs.registration import stream_world
from palpate.plan import Asked
from palpate.runfile import run_file

Command = Callable[..., tuple[int, str, str]]
TINY = {"steps": 3, "batch_size": 16, "device": "cpu", "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")


def test_given_settings_are_values_and_chosen_ones_comments() -> None:
    asked = Asked(
        method="vae",
        scene=ObjectiveConfig(body="ball", egocentric=True),
        training=TrainingConfig(steps=7, learning_rate=1e-05),
    )
    text = run_file({"data": 'a "b".h5'}, asked, [Choice("encoder", "mlp", "vectors")])
    expected = {"method": "vae", "body": "ball", "egocentric": True, "steps": 7, "learning_rate": 1e-05}
    assert tomllib.loads(text) == {"data": 'a "b".h5', **expected}
    assert '\n# encoder = "mlp"  # vectors\n' in text


def test_data_in_memory_have_no_name(tmp_path: Path) -> None:
    data = balls(60, seed=0, sides=(1.0, 1.0), contact_share=0.5).transitions
    palpate.fit(data, out=tmp_path / "run", **TINY)
    text = (tmp_path / "run" / "run.toml").read_text()
    assert tomllib.loads(text) == {"steps": 3, "batch_size": 16, "device": "cpu"}
    assert "add data = FILE or env = WORLD" in text


def read_back(folder: Path, text: str) -> Train:
    (folder / "run.toml").write_text(text)
    return parse(Train, "palpate train", ["--config", str(folder / "run.toml"), "--out", "x"])


def test_other_options_of_a_world_are_comments(tmp_path: Path) -> None:
    world = {"env": "palpate/Sprites-v0", "size": np.int64(32), "contact_share": None, "body": "rectangle"}
    text = run_file(world | {"background": True}, Asked(), [])
    read = read_back(tmp_path, text)
    assert (read.env, read.size, read.contact_share, read.scene) == (world["env"], 32, None, ObjectiveConfig())
    assert "# The world had body='rectangle'; palpate train has no option for it.\n" in text
    assert read_back(tmp_path, run_file({"contact_share": np.float32(0.25)}, Asked(), [])).contact_share == 0.25


def test_settled_settings_and_variants_are_read_back(tmp_path: Path) -> None:
    asked = Asked(objective="palpate.reproduce.variants:SplitOnD", training=SettledTraining(seed=2))
    read = read_back(tmp_path, run_file({}, asked, []))
    assert (read.objective, read.training) == (asked.objective, TrainingConfig(steps=2500, batch_size=128, seed=2))


def test_nothing_is_written_if_the_file_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palpate.api.run_file", lambda *_: pytest.fail("no file"))
    with pytest.raises(pytest.fail.Exception, match="no file"):
        palpate.fit(balls(60, seed=0, sides=(1.0, 1.0)).transitions, out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_file_repeats_the_run(tmp_path: Path, command: Command) -> None:
    for name, seed in (("log", 0), ("test", 1)):
        balls(60, seed=seed, sides=(1.0, 1.0), contact_share=0.5).save(tmp_path / f"{name}.h5")
    palpate.fit(tmp_path / "log.h5", out=tmp_path / "one", test=tmp_path / "test.h5", seed=3, **TINY)
    repeated = command("train", "--config", tmp_path / "one" / "run.toml", "--out", tmp_path / "two")
    assert repeated[0] == 0, repeated[2]
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one" / "run.toml").read_bytes() == (tmp_path / "two" / "run.toml").read_bytes()


def test_a_streamed_world_is_named_with_its_options(tmp_path: Path) -> None:
    palpate.fit(stream_world("palpate/Sprites-v0", size=32), out=tmp_path / "run", encoder="small", **TINY)
    values = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert (values["env"], values["size"], values["encoder"]) == ("palpate/Sprites-v0", 32, "small")


def test_an_overwriting_run_replaces_it(tmp_path: Path) -> None:
    data = balls(60, seed=0, sides=(1.0, 1.0), contact_share=0.5).transitions
    palpate.fit(data, out=tmp_path / "run", **TINY)
    palpate.fit(data, out=tmp_path / "run", overwrite=True, seed=9, **TINY)
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["seed"] == 9
