"""Refuse to go on with a run of other settings, in whose folder this one would be."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palpate.checkpoint import checksum
from palpate.control.settings import NOT_A_SETTING, ControlConfig
from palpate.disk import as_json, write_whole
from palpate.representation import Representation
from palpate.settings import demand_same

ADVICE = "choose another folder with --out, or begin anew with --force"


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
    return checksum(model.model.lasting_state(), model.facts.get("origin"))[:16]


def demand_own(folder: Path, settings: dict[str, Any]) -> None:
    """That the folder is new, or its run has these settings."""
    path = folder / "run.json"
    if not path.exists():
        return
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {ADVICE}") from error
    demand_same(folder, found, settings, ADVICE)


def claim(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings down, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "run.json").exists():
        write_whole(folder / "run.json", as_json(settings))
