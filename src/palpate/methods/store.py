"""A model as a folder: `config.json` and `model.safetensors`. Loading never unpickles."""

import json
import math
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from palpate.checkpoint import packed, read_state
from palpate.config import ModelConfig
from palpate.disk import as_json, write_together
from palpate.methods.base import Model
from palpate.traits import method_class

FORMAT_VERSION = 3  # no other is read


def build(config: ModelConfig) -> Model:
    """A model with fresh weights."""
    kind = method_class(config.method)
    if not issubclass(kind, Model):
        raise ValueError(f"method is {config.method!r}, which is no model of palpate")
    model: Model = kind(config)
    return model


def save_model(model: Model, folder: Path, facts: dict[str, Any], *, overwrite: bool = True) -> None:
    """Write the two files; `facts` go into `config.json` beside the model's own configuration."""
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
        checksum = _typed(str, facts.pop("weights"), "weights")
        config = _typed(ModelConfig, facts.pop("model"), "model")
        _demand_origin(config, facts.get("origin"))
        with torch.device("meta"):  # no memory: the file may claim any size
            expected = _shapes(build(config))
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


def _typed(hint: Any, value: Any, name: str) -> Any:
    """A value from JSON, checked against an annotation: anyone may have edited the file."""
    kind, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            odd = sorted(value.keys() ^ hints.keys()) if isinstance(value, dict) else repr(value)
            raise ValueError(f"{name} has unknown or missing settings: {odd}; needed are {sorted(hints)}")
        return hint(**{key: _typed(hints[key], each, key) for key, each in value.items()})  # type: ignore[operator]
    if kind is tuple and isinstance(value, list):
        return tuple(_typed(inner[0], each, name) for each in value)
    if kind in (Union, UnionType):
        hint = type(None) if value is None else next(each for each in inner if each is not type(None))
        return _typed(hint, value, name)
    if hint is float and type(value) is int:
        value = float(value)
    if (kind is Literal and value in inner) or (type(value) is hint and (hint is not float or math.isfinite(value))):
        return value
    allowed = " or ".join(map(repr, inner)) if kind is Literal else getattr(hint, "__name__", hint)
    raise ValueError(f"{name} is {value!r}; allowed is {allowed}")


def _demand_origin(config: ModelConfig, origin: Any) -> None:
    if origin is not None and (len(origin) != config.n or not torch.tensor(origin).float().isfinite().all()):
        raise ValueError(f"origin is {origin}; allowed are {config.n} numbers")
