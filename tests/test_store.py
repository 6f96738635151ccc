"""A model's folder: what is wrong with it is said plainly, and nothing in it is ever executed."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import palpate
from palpate.checkpoint import read_state, write_state
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.store import FORMAT_VERSION, build, load_model, save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = ModelConfig(encoder="mlp", observation_shape=(4,), observation_dtype="float32", n=2)
    save_model(build(config), tmp_path / "m", {"data": "made up"})
    return tmp_path / "m"


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in (described | changes).items() if v is not ...}))


def refused(folder: Path, says: str) -> str:
    with pytest.raises(ValueError, match=says) as error:
        load_model(folder)
    assert str(folder) in str(error.value)
    return str(error.value)


def test_sound(folder: Path) -> None:
    model, facts = load_model(folder)
    assert facts == {"data": "made up"}
    assert palpate.load(folder).config == model.config
    assert palpate.load(str(folder)).facts == facts


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        load_model(tmp_path / "nowhere")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json; a model's folder has one"):
        load_model(folder)


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"holds a run that is not finished; .* goes on with --resume"):
        load_model(tmp_path)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors does not exist"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "{", "not json", "[]", "3", '"model"', "null"])
def test_config_is_no_description(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, "cannot be read as a palpate model")


def test_config_is_no_text(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe\x00\x80")
    refused(folder, "cannot be read as a palpate model")


@pytest.mark.parametrize("field", ["format_version", "model"])
def test_config_lacks_something(folder: Path, field: str) -> None:
    edit(folder, **{field: ...})
    assert field in refused(folder, "cannot be read as a palpate model")


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "vgg"},
        {"n": 0},
        {"n": 2.5},
        {"colour": "red"},
        {"objective": {"speed": 3}},
        {"observation_shape": ["four"]},
        {"observation_shape": [-4]},
        {"observation_shape": [2, 2]},
        {"observation_shape": []},
        {"observation_shape": 4},
    ],
    ids=str,
)
def test_config_describes_no_model(folder: Path, change: dict[str, Any]) -> None:
    described = json.loads((folder / "config.json").read_text())["model"]
    edit(folder, model=described | change)
    refused(folder, "cannot be read as a palpate model")


@pytest.mark.parametrize("origin", [[1.0], [1.0, 2.0, 3.0], [1.0, "east"], 3.0, [1.0, float("nan")]])
def test_an_origin_that_is_none(folder: Path, origin: Any) -> None:
    """One number would move both axes."""
    edit(folder, origin=origin)
    refused(folder, "cannot be read as a palpate model")


def test_a_choice_of_training_that_is_no_more(folder: Path) -> None:
    """Models of 0.1.0 still load: it says nothing of how they encode."""
    described = json.loads((folder / "config.json").read_text())["model"]
    described["objective"] |= {"attraction_floor": 0.05, "attraction_floor_from": 0.3}
    edit(folder, model=described)
    load_model(folder)


def test_a_choice_of_training_that_was_not_yet(folder: Path) -> None:
    """A model says how it was trained, not how it would be now."""
    described = json.loads((folder / "config.json").read_text())["model"]
    for name in ("stay_reach", "stay_rise", "bend", "rim"):
        del described["objective"][name]
    edit(folder, model=described)
    objective = load_model(folder)[0].config.objective
    assert (objective.stay_reach, objective.stay_rise, objective.bend, objective.rim) == (0, 1, 0, False)


def test_a_body_that_was_no_part_of_its_own(folder: Path) -> None:
    """As models and runs of 0.1.0 hold it."""
    groups, _ = read_state(folder / "model.safetensors")
    groups["model"]["body.log_radius"].fill_(0.7)
    before = {name.removeprefix("body."): value for name, value in groups["model"].items()}
    assert before.keys() > {"log_radius", "log_ratio", "softness"}
    write_state(folder / "model.safetensors", {"model": before}, {})
    edit(folder, format_version=1)
    assert float(load_model(folder)[0].body.log_radius.detach()) == pytest.approx(0.7)  # type: ignore[union-attr]


def test_newer_format(folder: Path) -> None:
    edit(folder, format_version=FORMAT_VERSION + 1)
    says = refused(folder, "cannot be read as a palpate model")
    assert f"format_version {FORMAT_VERSION + 1}, this palpate reads up to {FORMAT_VERSION}: upgrade palpate" in says


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_truncated_weights(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refused(folder, "is damaged or was not written by palpate")


def test_foreign_weights(folder: Path) -> None:
    save_file({"weight": torch.zeros(3)}, folder / "model.safetensors")
    refused(folder, "is damaged or was not written by palpate")


def test_tensors_of_something_else(folder: Path) -> None:
    write_state(folder / "model.safetensors", {"optimiser": {"step": torch.zeros(())}}, {})
    refused(folder, "does not fit")


def test_weights_of_another_model(folder: Path) -> None:
    """Fewer weights, more weights, other shapes."""
    cases = ((2, ObjectiveConfig(contrast_dim=5), "size mismatch"), (2, ObjectiveConfig(outline=4), "Unexpected key"))
    for n, objective, reason in cases:
        other = build(ModelConfig(encoder="mlp", observation_shape=(4,), n=n, objective=objective))
        save_model(other, folder.parent / "other", {})
        (folder / "model.safetensors").write_bytes((folder.parent / "other" / "model.safetensors").read_bytes())
        assert reason in refused(folder, "does not fit")


@pytest.mark.parametrize("keep", [False, True])
def test_weights_missing_or_left_over(folder: Path, keep: bool) -> None:
    described = json.loads((folder / "config.json").read_text())["model"]
    edit(folder, model=described | {"method": "supervised"} if keep else described)
    if not keep:
        other = build(ModelConfig(method="supervised", encoder="mlp", observation_shape=(4,), n=2))
        save_model(other, folder.parent / "other", {})
        (folder / "model.safetensors").write_bytes((folder.parent / "other" / "model.safetensors").read_bytes())
    refused(folder, "does not fit")


class Trap:
    """Whoever unpickles this leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "unpickled")


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_in_disguise_is_refused_unopened(folder: Path, writer: str, tmp_path: Path) -> None:
    trace, weights = tmp_path / "trace", folder / "model.safetensors"
    if writer == "pickle":
        weights.write_bytes(pickle.dumps(Trap(trace)))
    else:
        torch.save({"model": Trap(trace)}, weights)
    refused(folder, "is damaged or was not written by palpate")
    assert not trace.exists()
    pickle.loads(pickle.dumps(Trap(trace)))
    assert trace.exists(), "the trap does not work, so nothing was tested"


def test_saving_again_replaces(folder: Path) -> None:
    model, facts = load_model(folder)
    model.body.log_radius.data.fill_(0.7)  # type: ignore[union-attr]
    save_model(model, folder, facts | {"origin": [1.0, 2.0]})
    again, facts = load_model(folder)
    assert float(again.body.log_radius.detach()) == pytest.approx(0.7)  # type: ignore[union-attr]
    assert facts == {"data": "made up", "origin": [1.0, 2.0]}
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_what_only_training_needs_is_not_kept(tmp_path: Path) -> None:
    config = ModelConfig(encoder="mlp", observation_shape=(4,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = build(config).eval()
    save_model(model, tmp_path, {})
    loaded, _ = load_model(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 4 * sum(p.numel() for p in model.parameters())
    assert loaded.scout is None  # type: ignore[attr-defined]
    o = torch.randn(7, 4)
    assert torch.equal(model.encode(o).object, loaded.encode(o).object)
    assert loaded.lasting_state().keys() == loaded.state_dict().keys()
