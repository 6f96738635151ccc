"""Tensors on disk without pickle: one safetensors file, written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_state(path: Path, groups: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
    """Write named groups of tensors and some JSON facts; a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{group}/{name}": value.detach().to("cpu", copy=True).contiguous()  # networks may share tensors, a file not
        for group, members in groups.items()
        for name, value in members.items()
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, temporary, metadata={"facts": json.dumps(facts), "groups": json.dumps(list(groups))})
        os.chmod(temporary, path.parent.stat().st_mode & 0o666)  # it comes readable for its owner alone
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without the tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
            return facts
    except (SafetensorError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error


def read_state(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The groups and facts that `write_state` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            groups: dict[str, dict[str, Tensor]] = {name: {} for name in json.loads(metadata["groups"])}
            for key in file.keys():  # noqa: SIM118 - not a dict
                group, name = key.split("/", 1)
                groups[group][name] = file.get_tensor(key)
            return groups, json.loads(metadata["facts"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; is this the folder of a run?") from None


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is damaged or was not written by palpate ({error}); restore it or train anew")
