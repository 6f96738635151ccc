"""A model's folder: what is wrong with it is said plainly, and nothing in it is ever executed."""

import errno
import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import palpate
from palpate import disk
from palpate.checkpoint import packed
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.store import build, load_model, save_model, sealed
from palpate.runlog import MODEL_FORMAT

CONFIG = ModelConfig(
    encoder="mlp",
    observation_shape=(4,),
    observation_dtype="float32",
    n=2,
    objective=ObjectiveConfig(body="ball", refine=False, rest_floor=0.1),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(build(CONFIG), tmp_path / "m", {"data": "made up"})
    return tmp_path / "m"


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps(sealed({k: v for k, v in (described | changes).items() if v is not ...})))


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
    with pytest.raises(FileNotFoundError, match=r"holds an unfinished run; .* --resume"):
        load_model(tmp_path)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors does not exist"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "not json", "[]", "null", "[" * 10**5])
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
        {"n": 2.5},
        {"colour": "red"},
        {"objective": {"speed": 3}},
        {"observation_shape": ["four"]},
        {"observation_shape": 4},
    ],
    ids=str,
)
def test_config_describes_no_model(folder: Path, change: dict[str, Any]) -> None:
    described = json.loads((folder / "config.json").read_text())["model"]
    edit(folder, model=described | change)
    refused(folder, "cannot be read as a palpate model")


@pytest.mark.parametrize("origin", [[1.0], [[1.0], [2.0]], [1.0, "east"], 3.0, [1.0, float("nan")]])
@pytest.mark.parametrize("name", ["origin", "object_offset"])
def test_an_origin_or_an_offset_that_is_none(folder: Path, name: str, origin: Any) -> None:
    """One number would move both axes."""
    edit(folder, **{name: origin})
    refused(folder, "cannot be read as a palpate model")


FINDING = {"name": "few", "severity": "warning", "what": "few rows", "evidence": {"rows": 3}, "advice": "Collect."}
QUALITY = {"verdict": "good", "contact_share": 0.5, "error": 0.1, "stay": None}


@pytest.mark.parametrize(
    "change",
    [
        {"training": None},
        {"findings": 3},
        {"findings": [3]},
        {"findings": [FINDING | {"evidence": {"rows": "x"}}]},
        {"findings": [FINDING | {"advice": 3}]},
        {"quality": "x"},
        {"quality": [1]},
        {"quality": None},
        {"quality": {"a": 1}},
        {"quality": QUALITY | {"contact_share": None}},
        {"quality": QUALITY | {"error": "x"}},
        {"quality": QUALITY | {"error": 10**400}},
    ],
    ids=str,
)
def test_facts_of_another_type(folder: Path, change: dict[str, Any]) -> None:
    edit(folder, **change)
    refused(folder, f"cannot be read as a palpate model: {next(iter(change))} is ")


@pytest.mark.parametrize("version", [MODEL_FORMAT + 1, MODEL_FORMAT - 1, None])
def test_another_format(folder: Path, version: Any) -> None:
    edit(folder, format_version=version, palpate_version="0.1.0")
    says = refused(folder, "cannot be read as a palpate model")
    assert f"format_version {version!r}, and this palpate reads only {MODEL_FORMAT}: train again" in says
    assert "a palpate of that format (saved by 0.1.0)" in says


def leaves(described: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for name, value in described.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from leaves(value, *above, name)


def is_refused(folder: Path) -> bool:
    try:
        repr(palpate.load(folder))
    except ValueError as error:
        return str(folder) in str(error)
    return False


@pytest.mark.parametrize("method", ["contact", "vae"])
@pytest.mark.slow
def test_config_with_anything_in_any_place(tmp_path: Path, method: Any) -> None:
    """A wrong type, a huge number: refused in one sentence, or harmless; never a traceback or all the memory."""
    config = replace(CONFIG, method=method, encoder="small", observation_shape=(3, 16, 16))
    facts = {"origin": [0.0, 1.0], "quality": QUALITY, "findings": [FINDING], "training": {"steps": 3}}
    save_model(build(config), tmp_path / "m", facts)
    path = tmp_path / "m" / "config.json"
    before, refusals = path.read_text(), 0
    odd = (None, "x", -1, 0, 10**9, 10**30, 1e300, float("nan"), [], {}, [10**30], [[1]], True, {"a": 1})
    for place in leaves(json.loads(before)):
        for value in odd:
            described = json.loads(before)
            holder = described
            for name in place[:-1]:
                holder = holder[name]
            holder[place[-1]] = value
            path.write_text(json.dumps(sealed(described)))
            refusals += is_refused(tmp_path / "m")
    assert refusals > 200


def test_a_flipped_bit_in_the_config(folder: Path) -> None:
    """It changes nothing that is read, such as a space, or it is refused."""
    path = folder / "config.json"
    content, refusals = path.read_bytes(), 0
    before = load_model(folder)[1], repr(palpate.load(folder))
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        if is_refused(folder):
            refusals += 1
        else:
            assert (load_model(folder)[1], repr(palpate.load(folder))) == before
    assert refusals > len(content) / 2


def test_an_edited_config(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace("made up", "made in"))
    refused(folder, "its checksum does not match, so it is damaged or was edited; restore both files of one save")


@pytest.mark.parametrize("at", range(0, 1000, 124))
def test_a_flipped_bit(folder: Path, at: int) -> None:
    """Somewhere in the file: in its header or in the weights."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[at * len(content) // 1000] ^= 4
    path.write_bytes(content)
    refused(folder, r"model\.safetensors")


def test_the_same_model_is_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    before = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    for _ in range(3):  # an order left to chance would differ in one of them
        palpate.load(folder).save(tmp_path / "again", overwrite=True)
        assert {name: (tmp_path / "again" / name).read_bytes() for name in before} == before


def test_other_weights_under_the_same_config(folder: Path) -> None:
    """As a copy of one of the two files alone would leave it."""
    model, facts = load_model(folder)
    model.head[0].log_radius.data.fill_(0.7)  # type: ignore[operator, index, union-attr]
    save_model(model, folder.parent / "other", facts)
    (folder / "model.safetensors").write_bytes((folder.parent / "other" / "model.safetensors").read_bytes())
    refused(folder, r"does not match the config\.json beside it; restore both")


def test_a_disk_that_is_full_before_the_second_file_costs_no_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_model(folder)[0]
    other = build(before.config)
    write = disk.Disk.write

    def full(self: disk.Disk, data: bytes) -> int:
        if self._target.name == "config.json":
            self._error = OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(disk.Disk, "write", full)
    with pytest.raises(OSError, match=r"cannot write .*config\.json: No space left"):
        save_model(other, folder, {})
    monkeypatch.undo()
    after = load_model(folder)[0]
    assert all(torch.equal(x, y) for x, y in zip(before.parameters(), after.parameters(), strict=True))


def test_weights_of_another_dtype(folder: Path) -> None:
    """They would be rounded silently."""
    state = load_model(folder)[0].lasting_state()
    name = next(name for name, x in state.items() if x.is_floating_point())
    content, checksum = packed({"model": state | {name: state[name].half()}}, {})
    (folder / "model.safetensors").write_bytes(content)
    edit(folder, weights=checksum)
    refused(folder, f"does not match .*config.json: model/{name} is float16 .*, not float32")


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_truncated_weights(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refused(folder, "is damaged or was not written by palpate")


def test_foreign_weights(folder: Path) -> None:
    save_file({"weight": torch.zeros(3)}, folder / "model.safetensors")
    refused(folder, "is damaged or was not written by palpate")


def test_tensors_of_something_else(folder: Path) -> None:
    content, checksum = packed({"optimiser": {"step": torch.zeros(())}}, {})
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "does not match")
    edit(folder, weights=checksum)
    refused(folder, "does not match .*config.json: .* is missing, not")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"n": 3}, "head.offset"),
        ({"objective": replace(CONFIG.objective, body="outline")}, "bodies"),
        ({"method": "supervised"}, ""),
    ],
    ids=str,
)
def test_weights_of_another_model(folder: Path, change: dict[str, Any], name: str) -> None:
    """Other shapes, more weights, fewer weights."""
    save_model(build(replace(load_model(folder)[0].config, **change)), folder.parent / "other", {})
    (folder / "model.safetensors").write_bytes((folder.parent / "other" / "model.safetensors").read_bytes())
    edit(folder, weights=json.loads((folder.parent / "other" / "config.json").read_text())["weights"])
    refused(folder, f"does not match .*{name}")


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
    model.head[0].log_radius.data.fill_(0.7)  # type: ignore[operator, index, union-attr]
    save_model(model, folder, facts | {"origin": [1.0, 2.0]})
    again, facts = load_model(folder)
    assert float(again.head[0].log_radius.detach()) == pytest.approx(0.7)  # type: ignore[operator, index, union-attr]
    assert facts == {"data": "made up", "origin": [1.0, 2.0]}
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_killed_while_a_model_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of the three renames the folder holds the old model or the new one."""
    old = load_model(folder)[0]
    new = build(replace(old.config, n=3))
    found = []
    for renames in range(3):
        save_model(old, folder, {})
        left = iter(range(renames))

        def dying(source: Path, target: Path, left: Iterator[int] = left, rename: Any = os.replace) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            rename(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", dying)
            with pytest.raises(KeyboardInterrupt):
                save_model(new, folder, {})
        found.append(load_model(folder)[0].config.n)
    assert found == [2, 2, 3]
