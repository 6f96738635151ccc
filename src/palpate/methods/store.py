"""A model as a folder: `config.json` and `model.safetensors`. Loading never unpickles."""

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palpate.checkpoint import read_state, write_state
from palpate.config import OBJECTIVE_ONCE, BaselineConfig, ModelConfig, ObjectiveConfig
from palpate.methods.base import Model
from palpate.traits import method_class

FORMAT_VERSION = 2  # 1: the body was no part of its own; it is read too
RETIRED = ("attraction_floor", "attraction_floor_from")  # of training in 0.1.0; they say nothing to a trained model


def build(config: ModelConfig) -> Model:
    """A model with fresh weights."""
    model: Model = method_class(config.method)(config)
    return model


def save_model(model: Model, folder: Path, facts: dict[str, Any], *, overwrite: bool = True) -> None:
    """Write the two files; `facts` go into `config.json` beside the model's own configuration."""
    path = folder / "config.json"
    text = json.dumps({"format_version": FORMAT_VERSION, "model": asdict(model.config), **facts}, indent=2) + "\n"
    if not overwrite and path.exists() and path.read_text(encoding="utf-8") != text:
        raise FileExistsError(
            f"{folder} holds another model; overwrite it with overwrite=True, or choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_state(folder / "model.safetensors", {"model": model.lasting_state()}, {})
    temporary = folder / f".config.json.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def load_model(folder: Path) -> tuple[Model, dict[str, Any]]:
    """The model in evaluation mode, and the facts saved with it."""
    path = folder / "config.json"
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file() and (folder / "run.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds a run that is not finished; the command that began it goes on with --resume (resume=True)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json; a model's folder has one beside model.safetensors")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts.pop("format_version")
        if version > FORMAT_VERSION:
            raise ValueError(
                f"it has format_version {version}, this palpate reads up to {FORMAT_VERSION}: upgrade palpate"
            )
        described = facts.pop("model")
        described["observation_shape"] = tuple(described["observation_shape"])
        objective = {name: value for name, value in described["objective"].items() if name not in RETIRED}
        described["objective"] = ObjectiveConfig(**OBJECTIVE_ONCE | objective)
        described["baseline"] = BaselineConfig(**described.get("baseline", {}))
        config = ModelConfig(**described)
        _demand_sizes(config, facts.get("origin"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as a palpate model: {error}") from error
    model = build(config)
    model.take_down_scaffold()
    groups, _ = read_state(folder / "model.safetensors")
    try:
        model.load_state_dict(groups.get("model", {}))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"{folder / 'model.safetensors'} does not fit {path}: {first}") from error
    return model.eval(), facts


def _demand_sizes(config: ModelConfig, origin: Any) -> None:
    """What networks are built from, where it comes from a file that anyone may have edited."""
    shape = config.observation_shape
    if len(shape) not in (1, 3) or not all(type(size) is int and size >= 1 for size in (*shape, config.n)):
        raise ValueError(f"observation_shape is {list(shape)} and n {config.n}; allowed are 1 or 3 sizes, of 1 or more")
    if origin is not None and (len(origin) != config.n or not all(math.isfinite(x) for x in origin)):
        raise ValueError(f"origin is {origin}; allowed are {config.n} numbers")
