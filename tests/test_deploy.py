"""Exported files give the model's positions and describe themselves, or are not written."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import palpate
from palpate import cli, deploy
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.contact import Contact
from palpate.methods.store import build
from palpate.representation import Representation

UNIT = 3.0  # millimetres, say
PICTURE = {"encoder": "small", "observation_shape": (6, 20, 24), "n": 2}  # two views
VECTOR = {"encoder": "mlp", "observation_shape": (5,), "observation_dtype": "float32"}
BALL, ELLIPSE = ({"body": body, "refine": False, "rest_floor": 0.02} for body in ("ball", "ellipse"))
KINDS: dict[str, dict[str, Any]] = {
    "ball": PICTURE | {"objective": ObjectiveConfig(**BALL)},
    "ellipse": PICTURE | {"objective": ObjectiveConfig(**ELLIPSE)},
    "ball-3": VECTOR | {"n": 3, "objective": ObjectiveConfig(**BALL)},
    "several": VECTOR | {"n": 2, "objective": ObjectiveConfig(**BALL | {"refine": True}, objects=3)},
    "turning": VECTOR | {"n": 2, "actions": 3, "objective": ObjectiveConfig(**ELLIPSE, group="se2")},
    "space": VECTOR | {"n": 3, "actions": 6, "objective": ObjectiveConfig(**BALL, group="se3")},
    "supervised": VECTOR | {"n": 2, "method": "supervised", "objective": ObjectiveConfig(body="ellipse")},
}
OUTPUTS = {
    "ball": {"agent": [2], "object": [2], "covariance": [2, 2], "confidence": []},
    "ellipse": {"agent": [2], "object": [2], "covariance": [2, 2], "orientation": [], "confidence": []},
    "several": {"agent": [2], "objects": [3, 2], "covariances": [3, 2, 2], "confidences": [3]},
    "turning": {
        "agent": [2],
        "object": [2],
        "covariance": [2, 2],
        "orientation": [],
        "confidence": [],
        "heading": [],
    },
    "space": {"agent": [3], "object": [3], "covariance": [3, 3], "confidence": [], "rotation": [3, 3]},
    "supervised": {"agent": [2], "object": [2], "orientation": []},
}
FILES = [
    ("ball", "torch"),
    ("supervised", "torch"),
    *((kind, "onnx") for kind in ("ball", "several", "turning", "space")),
]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def made(kind: str = "ball-3") -> Representation:
    """With a scale, a unit and a frame that are not the defaults."""
    config = ModelConfig(**KINDS[kind])
    torch.manual_seed(0)
    model = build(config)
    mean, spread = (120.0, 60.0) if config.observation_dtype == "uint8" else (4.0, 2.0)
    model.inputs.mean.fill_(mean)
    model.inputs.spread.fill_(spread)
    model.inputs.unit.fill_(UNIT)
    if isinstance(model, Contact) and model.head.correction is not None:
        nn.init.normal_(model.head.correction.coefficients, std=0.1)
    count = len(model.group.identity())
    facts = {"origin": [10.0, -20.0, 30.0, 0.1, -0.2, 0.3][:count], "object_offset": [1.0, 2.0, 3.0][: config.n]}
    return Representation(model, facts)


def observations(config: ModelConfig, count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    shape = (count, *config.observation_shape)
    if config.observation_dtype == "uint8":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return (4 + 2 * rng.normal(size=shape)).astype(np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], deploy.Exported]:
    """Each file is made once."""
    folder, done = tmp_path_factory.mktemp("files"), {}

    def get(kind: str, format: str) -> deploy.Exported:
        if (kind, format) not in done:
            model = made(kind)
            sample = observations(model.config, 3)
            if sample.ndim == 4:
                sample = np.moveaxis(sample, 1, -1)  # other layouts are known too
            path = folder / f"{kind}.{format}"
            done[kind, format] = palpate.export(model, path, format=format, observation=sample)  # type: ignore[arg-type]
        return done[kind, format]

    return get


def run(path: Path, o: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
    """What a file says, and what it says of itself, as someone without palpate would ask."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        about = session.get_modelmeta().custom_metadata_map["palpate"]
        return dict(zip(names, session.run(None, {"observation": o}), strict=True)), about
    extra = {"palpate": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of its own future
        program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra)
    answers = program.module()(torch.from_numpy(o))
    return {name: value.numpy(force=True) for name, value in answers.items()}, extra["palpate"]


Get = Callable[[str, str], deploy.Exported]


class TestFiles:
    @pytest.mark.parametrize(("kind", "format"), FILES)
    @pytest.mark.slow
    def test_gives_the_models_positions_and_describes_itself(self, exported: Get, kind: str, format: str) -> None:
        outcome, model = exported(kind, format), made(kind)
        for count in (1, 5, 33):
            o = observations(model.config, count)
            answers, text = run(outcome.path, o)
            assert {name: list(value.shape) for name, value in answers.items()} == {
                name: [count, *shape] for name, shape in OUTPUTS[kind].items()
            }
            for name, value in model.encode(o).known().items():
                np.testing.assert_allclose(answers[name], value, atol=1e-4, rtol=1e-5)
        about, config = json.loads(text), model.config
        assert about == json.loads(json.dumps(outcome.metadata))
        assert about["palpate_version"] == palpate.__version__
        assert (about["method"], about["encoder"]) == (config.method, config.encoder)
        assert about["objective"] == asdict(config.objective)
        assert about["input"]["shape"] == ["batch", *config.observation_shape]
        assert about["input"]["dtype"] == config.observation_dtype
        assert {name: said["shape"] for name, said in about["outputs"].items()} == {
            name: ["batch", *shape] for name, shape in OUTPUTS[kind].items()
        }
        assert all(said["unit"] for said in about["outputs"].values())
        assert (about["action_rms"], about["origin"], about["object_offset"]) == (
            UNIT,
            model.frame.origin.tolist(),
            model.frame.offset.tolist(),
        )
        assert outcome.bytes == outcome.path.stat().st_size
        assert 0 <= outcome.difference < 1e-4  # positions are near 100, in float32
        assert outcome.rows == 1 + 2 + 7 + 3

    @pytest.mark.parametrize("format", ["onnx", "torch"])
    @pytest.mark.slow
    def test_holds_no_more_than_is_needed(self, exported: Get, format: str) -> None:
        """Neither phi_cont nor where the code lay on this machine."""
        content, model = exported("ball", format).path.read_bytes(), made("ball").model
        assert isinstance(model, Contact)
        needed = sum(p.numel() for branch in (model.phi_int, model.phi_ext) for p in branch.parameters()) * 4
        assert needed < len(content) < needed + 120_000
        for path in (Path(palpate.__file__).parent, Path(torch.__file__).parent):
            assert str(path).encode() not in content

    @pytest.mark.slow
    def test_names_its_sizes(self, exported: Get) -> None:
        session = onnxruntime.InferenceSession(exported("ball", "onnx").path, providers=["CPUExecutionProvider"])
        (observation,) = session.get_inputs()
        assert (observation.name, observation.shape) == ("observation", ["batch", 6, 20, 24])
        assert [value.shape[0] for value in session.get_outputs()] == ["batch"] * 4

    @pytest.mark.slow
    def test_leaves_model_warnings_and_logs_as_they_were(self, tmp_path: Path) -> None:
        model = made("ball-3")
        o, filters, level = observations(model.config, 4), list(warnings.filters), logging.getLogger("onnx_ir").level
        before = model.encode(o)
        palpate.export(model, tmp_path / "m.pt2", format="torch")
        assert (list(warnings.filters), logging.getLogger("onnx_ir").level) == (filters, level)
        for one, two in zip(before, model.encode(o), strict=True):
            np.testing.assert_array_equal(one, two)

    def test_the_function_is_not_hidden_by_its_module(self) -> None:
        assert palpate.export is deploy.export


class TestRefusals:
    """Nothing is written, and what was there stays."""

    def refused(self, folder: Path, model: Representation, says: str, **options: Any) -> None:
        there = folder / "there.pt2"
        there.write_text("keep me")
        with pytest.raises(ValueError, match=says):
            palpate.export(model, there, **{"format": "torch", "overwrite": True, **options})
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("there.pt2", "keep me")]

    @pytest.mark.parametrize("format", ["onnx", "torch"])
    @pytest.mark.slow
    def test_a_file_that_differs(
        self, tmp_path: Path, exported: Get, monkeypatch: pytest.MonkeyPatch, format: str
    ) -> None:
        """By a thousandth of the unit, in one coordinate of one output, in large batches alone."""
        if format == "onnx":  # which takes seconds to make
            content = exported("ball", "onnx").path.read_bytes()
            monkeypatch.setattr(deploy, "_onnx", lambda program, metadata: content)
        name = f"_run_{format}"
        load = getattr(deploy, name)

        def broken(content: bytes) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
            answer = load(content)

            def run(o: torch.Tensor) -> dict[str, torch.Tensor]:
                answers = answer(o)
                answers["object"][6:7, 1] += UNIT / 1000
                return answers

            return run

        monkeypatch.setattr(deploy, name, broken)
        says = r"differ from the model by 0\.001 of .*nothing was written"
        self.refused(tmp_path, made("ball"), says, format=format)

    @pytest.mark.slow
    def test_weights_that_are_no_numbers(self, tmp_path: Path) -> None:
        model = made("ball-3")
        model.model.phi_int.head.bias.data[0] = torch.nan  # type: ignore[union-attr, index]
        self.refused(tmp_path, model, "differ from the model by nan")

    @pytest.mark.parametrize("promise", ["places_object", "tells_apart"])
    def test_a_method_without_positions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promise: str) -> None:
        monkeypatch.setattr(Contact, promise, False)
        self.refused(tmp_path, made("ball-3"), "gives no positions in the action's unit")

    def test_unknown_format(self, tmp_path: Path) -> None:
        self.refused(tmp_path, made("ball-3"), "format is 'tflite'; allowed is 'onnx' or 'torch'", format="tflite")

    def test_sample_observations_of_another_shape(self, tmp_path: Path) -> None:
        self.refused(tmp_path, made("ball-3"), "this model reads batches of", observation=np.zeros((3, 4), np.float32))

    def test_places_that_cannot_be_written(self, tmp_path: Path) -> None:
        model, there = made("ball-3"), tmp_path / "there.onnx"
        there.write_text("keep me")
        with pytest.raises(FileExistsError, match=r"there\.onnx exists; choose another name, or overwrite"):
            palpate.export(model, there)
        with pytest.raises(IsADirectoryError, match="is a folder"):
            palpate.export(model, tmp_path, overwrite=True)
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            palpate.export(model, tmp_path / "no" / "m.onnx")
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there.onnx", "keep me")]

    def test_missing_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(ModuleNotFoundError, match=r"needs onnxscript, .*; pip install 'palpate\[export\]'$"):
            palpate.export(made("ball-3"), tmp_path / "m.onnx")
        assert list(tmp_path.iterdir()) == []


class TestDifference:
    """Against answers made up by hand, for a model of an ellipse."""

    def difference(self, **changes: Callable[[torch.Tensor], torch.Tensor] | None) -> float:
        source = made("ellipse")

        def answer(o: torch.Tensor) -> dict[str, Any]:
            said = source.encode(o).known()
            said |= {name: change(said[name]) for name, change in changes.items() if change is not None}
            return {name: value for name, value in said.items() if changes.get(name, ...) is not None}

        return float(deploy._difference(source, answer, torch.from_numpy(observations(source.config, 3))))

    def test_equal(self) -> None:
        assert self.difference() == 0

    def test_positions_in_units(self) -> None:
        assert self.difference(agent=lambda x: x + 0.3) == pytest.approx(0.3 / UNIT, rel=1e-3)
        assert self.difference(object=lambda x: x - 0.3) == pytest.approx(0.3 / UNIT, rel=1e-3)

    def test_a_covariance_by_its_lengths(self) -> None:
        """Four times the covariance is twice the ellipse: the difference is of the order of its size."""
        covariance = made("ellipse").encode(observations(made("ellipse").config, 3)).covariance
        assert covariance is not None
        size = np.sqrt(np.trace(covariance, axis1=1, axis2=2)).max() / UNIT
        assert 0.5 * size < self.difference(covariance=lambda x: 4 * x) < 4 * size

    def test_angles_wrap(self) -> None:
        assert self.difference(orientation=lambda x: (x + torch.pi - 1e-3) % torch.pi) < 2e-3
        assert self.difference(orientation=lambda x: (x + 1.0) % torch.pi) > 1e-2

    def test_outputs_missing_or_of_another_shape(self) -> None:
        assert self.difference(orientation=None) == torch.inf
        assert self.difference(agent=lambda x: x[:1]) == torch.inf

    def test_no_number(self) -> None:
        assert np.isnan(self.difference(agent=lambda x: x * torch.nan))
        assert np.isnan(self.difference(orientation=lambda x: x * torch.nan))


class TestCommand:
    @pytest.mark.slow
    def test_default_place(self, command: Any, tmp_path: Path) -> None:
        made("ball-3").save(tmp_path / "run")
        code, out, err = command("export", tmp_path / "run", "--format", "torch")
        assert (code, err) == (0, "")
        first, *shapes, last = out.splitlines()
        assert re.fullmatch(r".*run/model\.pt2: 1\.\d MB, \d+\.\d s", first)
        assert [line.split()[0] for line in shapes] == ["observation", "agent", "object", "covariance", "confidence"]
        assert "float32  ['batch', 5]" in shapes[0]
        assert re.search(r"differs from the model by at most \S+ of an action, over 10 observations", last)
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
            "config.json",
            "model.pt2",
            "model.safetensors",
        ]

    @pytest.mark.slow
    def test_out_data_and_force(self, command: Any, tmp_path: Path) -> None:
        model = made("ball-3")
        model.save(tmp_path / "run")
        o, a = observations(model.config, 100), np.ones((100, 3), np.float32)
        palpate.Transitions(observation=o, action=a, next_observation=o).save(tmp_path / "log.h5")
        out = tmp_path / "mine.bin"
        arguments = ["export", tmp_path / "run", "--format", "torch", "--out", out, "--data", tmp_path / "log.h5"]
        code, said, err = command(*arguments)
        assert (code, err) == (0, "")
        assert "over 74 observations" in said
        before = out.stat().st_mtime_ns
        code, _, err = command(*arguments)
        assert (code, out.stat().st_mtime_ns) == (2, before)
        assert err == f"palpate: {out} exists; choose another name, or overwrite it (overwrite=True, --force)\n"
        assert command(*arguments, "--force")[0] == 0
        assert out.stat().st_mtime_ns > before

    def test_mistakes(self, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made("ball-3").save(tmp_path / "run")
        code, _, err = command("export", tmp_path / "nowhere")
        assert (code, err.count("\n")) == (2, 1)
        assert f"there is no folder {tmp_path / 'nowhere'}" in err
        code, _, err = command("export", tmp_path / "run", "--data", tmp_path / "no.h5")
        assert code == 2
        assert "there is no file" in err
        code, _, err = command("export", tmp_path / "run", "--format", "tflite")
        assert code == 2
        assert "onnx" in err
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        code, _, err = command("export", tmp_path / "run")
        assert (code, err.count("\n")) == (2, 1)
        assert err.rstrip().endswith("pip install 'palpate[export]'")


GUIDE = (Path(__file__).parent.parent / "docs" / "guide" / "deploy.md").read_text(encoding="utf-8")
WITHOUT_PALPATE = "import sys\nsys.modules['palpate'] = None\n"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its readers of the file cannot import palpate, and get the model's positions."""

    def execute(code: str) -> str:
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    train, onnx, torch_ = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    short = train.replace("2_000", "200").replace("steps=100", "steps=3").replace("size=50", "size=20")
    assert short != train
    monkeypatch.chdir(tmp_path)
    exec(short, {})
    assert "'palpate_version'" in capsys.readouterr().out
    model = palpate.load(tmp_path / "runs" / "mine")
    encoding = model.encode(np.zeros((5, 3, 20, 20), np.uint8))
    for code, keep in ((onnx, "dict(zip(about['outputs'], answers))"), (torch_, "answers")):
        noted = f"\nimport numpy\nnumpy.savez('said.npz', **{{k: numpy.asarray(v) for k, v in {keep}.items()}})\n"
        said = execute(WITHOUT_PALPATE + code + noted)
        assert [line.split()[0] for line in said.splitlines()] == ["agent", "object", "covariance", "confidence"]
        assert "that of the actions, squared" in said
        with np.load(tmp_path / "said.npz") as answers:
            for name, answer in answers.items():
                np.testing.assert_allclose(answer, getattr(encoding, name), atol=1e-4)


@pytest.mark.parametrize("command", re.findall(r"^palpate .*", GUIDE, re.MULTILINE))
def test_the_guides_commands_are_understood(command: str) -> None:
    cli.parsed(command.split()[1:])
