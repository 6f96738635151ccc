"""A model as a folder: `config.json` and `model.safetensors`. Loading never unpickles."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from palpate.checkpoint import packed, read_state
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.disk import as_json, write_together
from palpate.methods.base import Model
from palpate.methods.contact import Contact
from palpate.traits import METHODS, method_class

FORMAT_VERSION = 6  # no other is read


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
    """Write the two files; `config.json` holds the model's configuration and `facts`."""
    path = folder / "config.json"
    weights, checksum = packed({"model": model.lasting_state()}, {})
    described = {"format_version": FORMAT_VERSION, "weights": checksum, "model": asdict(model.config), **facts}
    if not overwrite and path.exists() and path.read_bytes() != as_json(described):
        raise FileExistsError(
            f"{folder} holds another model; overwrite it with overwrite=True, or choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / "model.safetensors": weights, path: as_json(described)})


def load_model(folder: Path) -> tuple[Model, dict[str, Any]]:
    """The model in evaluation mode, and the facts saved with it."""
    path = folder / "config.json"
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file() and (folder / "run.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds an unfinished run; continue it with its command and --resume (resume=True)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json; a model's folder has one beside model.safetensors")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts.pop("format_version")
        if version != FORMAT_VERSION:
            raise ValueError(
                f"it has format_version {version!r}, this palpate reads only {FORMAT_VERSION}: load it with the "
                f"palpate that saved it ({facts.get('palpate_version', 'unknown')}), or train again"
            )
        checksum = str(facts.pop("weights"))
        config = _config(facts.pop("model"))
        with torch.device("meta"):  # no memory: the file may claim any size
            planned = build(config)
            expected, numbers = _shapes(planned), len(planned.group.identity())
        _require_origin(numbers, facts.get("origin"))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} cannot be read as a palpate model: {error!s:.500}") from error
    groups, _ = read_state(folder / "model.safetensors", checksum)
    state = groups.get("model", {})
    found = {name: tuple(value.shape) for name, value in state.items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise ValueError(
                f"{folder / 'model.safetensors'} does not match {path}: the shape of {name} is "
                f"{found.get(name, 'missing')}, not {expected.get(name, 'missing')}"
            )
    model = build(config)
    model.take_down_scaffold()
    model.load_state_dict(state)
    return model.eval(), facts


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.lasting_state().items()}


def _config(values: dict[str, Any]) -> ModelConfig:
    """The configuration that `asdict` turned into `values`; its dataclasses validate them."""
    shape, objective = tuple(values["observation_shape"]), ObjectiveConfig(**values["objective"])
    return ModelConfig(**{**values, "observation_shape": shape, "objective": objective})


def _require_origin(count: int, origin: Any) -> None:
    if origin is None:
        return
    numbers = torch.tensor(origin).float()
    if numbers.shape != (count,) or not numbers.isfinite().all():
        raise ValueError(f"origin is {origin}; allowed are {count} numbers")
