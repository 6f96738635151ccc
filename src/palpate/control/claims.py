"""Whose a folder is: the settings that a run's numbers depend on; a run with others is refused."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from palpate.control.settings import NOT_A_SETTING, ControlConfig
from palpate.disk import write_whole
from palpate.representation import Representation


def settings_of(representation: str, config: ControlConfig, seed: int, model: Representation | None) -> dict[str, Any]:
    """All that the numbers depend on, ready for JSON."""
    chosen = {name: value for name, value in asdict(config).items() if name not in NOT_A_SETTING}
    chosen["epochs"] = config.epochs_of(representation)
    if representation != "pixels":
        del chosen["size"]  # a model has its own, and true states none
    seen = None if model is None else json.loads(json.dumps(asdict(model.config)))
    weights = None if model is None else fingerprint(model)
    return {"representation": representation, "seed": seed, **chosen, "model": seen, "weights": weights}


def fingerprint(model: Representation) -> str:
    """Of the weights and the frame, that one trained model is not taken for another of its kind."""
    digest = hashlib.sha256(json.dumps(model.facts.get("origin")).encode())
    weights = {
        name.removeprefix("body."): value for name, value in model.model.lasting_state().items()
    }  # as once named
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def demand_same(where: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """That what is there was made with these settings; one that an older version did not write down passes."""
    for name, was, value in _differences(found, wanted):
        raise ValueError(
            f"{where} was made with {name} {was!r}, not {value!r}; choose another folder with --out, or begin anew "
            "with --force"
        )


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings that both know and that differ, with both values; of a group of settings those inside."""
    for name, value in wanted.items():
        was = found.get(name, value)
        if isinstance(was, Mapping) and isinstance(value, Mapping):
            yield from ((f"{name} {inner}", *values) for inner, *values in _differences(was, value))
        elif was != value:
            yield name, was, value


def demand_own(folder: Path, settings: dict[str, Any]) -> None:
    """That the folder is new, or its run has these settings."""
    path = folder / "run.json"
    if path.exists():
        demand_same(folder, json.loads(path.read_text(encoding="utf-8")), settings)


def claim(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings down, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "run.json").exists():
        write_whole(folder / "run.json", (json.dumps(settings, indent=1) + "\n").encode())
