"""A model as a folder: `config.json` and `model.safetensors`. Loading never unpickles."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from palpate.checkpoint import difference, packed, read_state
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.disk import as_json, from_json, write_whole
from palpate.findings import Finding
from palpate.methods.base import Model
from palpate.methods.contact import Contact
from palpate.runlog import MODEL_FORMAT
from palpate.traits import METHODS, method_class

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NEW_WEIGHTS = ".model.safetensors.new"  # until `config.json` is replaced; a killed process may leave them


def build(config: ModelConfig) -> Model:
    """A model with fresh weights."""
    kind = method_class(config.method)
    if config.method not in METHODS and not issubclass(kind, Contact):
        raise ValueError(
            f"method is {config.method!r}; allowed is module:Class for a subclass of {METHODS['contact'].home}"
        )
    model: Model = kind(config)
    return model


def save_model(model: Model, folder: Path, facts: dict[str, Any], *, overwrite: bool = True) -> None:
    """Write the two files; `config.json` holds the model's configuration and `facts`.

    The folder holds the old model until `config.json` is replaced, and the new one from then on.
    """
    path, fresh = folder / CONFIG, folder / NEW_WEIGHTS
    weights, checksum = packed({"model": model.lasting_state()}, {})
    described = {"format_version": MODEL_FORMAT, "weights": checksum, "model": asdict(model.config), **facts}
    content = as_json(sealed(described))
    if not overwrite and path.exists() and path.read_bytes() != content:
        raise FileExistsError(
            f"{folder} holds another model; overwrite it with overwrite=True, or choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(fresh, weights)
    try:
        write_whole(path, content)
    except OSError:
        fresh.unlink()
        raise
    os.replace(fresh, folder / WEIGHTS)


def sealed(described: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `config.json` with the checksum of everything else in it."""
    rest = {name: value for name, value in described.items() if name != "checksum"}
    return {**rest, "checksum": hashlib.sha256(as_json(rest)).hexdigest()}


def load_model(folder: Path) -> tuple[Model, dict[str, Any]]:
    """The model in evaluation mode, and the facts saved with it."""
    path, weights = folder / CONFIG, folder / WEIGHTS
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file() and (folder / "run.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds an unfinished run; continue it with its command and --resume (resume=True), or with "
            f"palpate train --config {folder}/run.toml --out {folder} --resume"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json; a model's folder has one beside model.safetensors")
    try:
        facts = from_json(path.read_bytes())
        sound = sealed(facts)["checksum"] == facts.pop("checksum", None)
        version = facts.pop("format_version")
        if version != MODEL_FORMAT:
            raise ValueError(
                f"it has format_version {version!r}, and this palpate reads only {MODEL_FORMAT}: train again, or "
                f"load it with a palpate of that format (saved by {facts.get('palpate_version', 'an unknown version')})"
            )
        if not sound:
            raise ValueError(
                "its checksum does not match, so it is damaged or was edited; restore both files of one save, or train "
                "again"
            )
        checksum = str(facts.pop("weights"))
        config = _config(facts.pop("model"))
        with torch.device("meta"):  # no memory: the file may claim any size
            planned = build(config)
            expected, group = planned.lasting_state(), planned.group
        _require_numbers("origin", len(group.identity()), facts.get("origin"))
        _require_numbers("object_offset", group.n, facts.get("object_offset"))
        _require_facts(facts)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} cannot be read as a palpate model: {error!s:.500}") from error
    try:
        groups, _ = read_state(weights, checksum)
    except (ValueError, FileNotFoundError):
        if not (folder / NEW_WEIGHTS).exists():
            raise
        weights = folder / NEW_WEIGHTS
        groups, _ = read_state(weights, checksum)
    if wrong := difference(groups, {"model": expected}):
        raise ValueError(f"{weights} does not match {path}: {wrong}")
    model = build(config)
    model.take_down_scaffold()
    model.load_state_dict(groups["model"])
    return model.eval(), facts


def _config(values: dict[str, Any]) -> ModelConfig:
    """The configuration that `asdict` turned into `values`; its dataclasses validate them."""
    shape, objective = tuple(values["observation_shape"]), ObjectiveConfig(**values["objective"])
    return ModelConfig(**{**values, "observation_shape": shape, "objective": objective})


def _require_numbers(name: str, count: int, value: Any) -> None:
    if value is None:
        return
    numbers = torch.tensor(value).float()
    if numbers.shape != (count,) or not numbers.isfinite().all():
        raise ValueError(f"{name} is {value}; allowed are {count} numbers")


def _require_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts that a user of the model could not read."""
    training, quality, findings = (facts.get(name, {}) for name in ("training", "quality", "findings"))
    if not isinstance(training, dict):
        raise ValueError(f"training is {training!r}; allowed are settings by name")
    if "quality" in facts and not _is_quality(quality):
        raise ValueError(f"quality is {quality!r}; allowed are a verdict, and numbers by name with contact_share")
    if "findings" in facts and not (isinstance(findings, list) and all(map(_is_finding, findings))):
        raise ValueError(
            f"findings is {findings!r}; allowed is a list of findings, each with {', '.join(Finding._fields)}"
        )


def _is_quality(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("verdict"), str) or value.get("contact_share") is None:
        return False
    return all(number is None or _is_number(number) for name, number in value.items() if name != "verdict")


def _is_finding(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != set(Finding._fields):
        return False
    evidence = value["evidence"]
    texts = [value[name] for name in ("name", "severity", "what", "advice")]
    numbers = isinstance(evidence, dict) and all(map(_is_number, evidence.values()))
    return numbers and all(isinstance(text, str) for text in texts)


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float holds."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)
