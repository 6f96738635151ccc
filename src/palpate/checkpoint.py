"""Tensors on disk without pickle: one safetensors file, written whole, with a checksum of its content."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from palpate.disk import write_whole

FORMAT = 1  # of checkpoints; no other is read
Groups = Mapping[str, Mapping[str, Tensor]]

DAMAGE = (
    SafetensorError, json.JSONDecodeError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError
)  # fmt: skip


def write_state(path: Path, groups: Groups, facts: Mapping[str, Any]) -> None:
    """Write a checkpoint: named groups of tensors, and JSON facts. A reader sees the whole old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, packed(groups, {"format": FORMAT, **facts})[0])


def packed(groups: Groups, facts: Mapping[str, Any]) -> tuple[bytes, str]:
    """The content of the file and its checksum; equal states have equal bytes."""
    tensors = {
        name: value.detach().to("cpu", copy=True).contiguous()  # a file cannot share tensors
        for name, value in _flat(groups).items()
    }
    note = {"groups": list(groups), "facts": facts}
    digest = checksum(tensors, note)
    # One entry: safetensors writes several in random order.
    return save(tensors, {"palpate": json.dumps(note | {"checksum": digest})}), digest


def _flat(groups: Groups) -> dict[str, Tensor]:
    return {f"{group}/{name}": value for group, members in groups.items() for name, value in members.items()}


def difference(found: Groups, expected: Groups) -> str | None:
    """The first difference in names, dtypes or shapes, in words."""
    kinds, wanted = ({name: _kind(value) for name, value in _flat(x).items()} for x in (found, expected))
    for name in [*wanted, *kinds]:
        if wanted.get(name) != kinds.get(name):
            return f"{name} is {kinds.get(name, 'missing')}, not {wanted.get(name, 'missing')}"
    return None


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def require_alike(found: Groups, expected: Groups) -> None:
    """Refuse tensors with other names, dtypes or shapes; call it under `used`."""
    if wrong := difference(found, expected):
        raise TypeError(wrong)


def checksum(tensors: Mapping[str, Tensor], note: Any = None) -> str:
    """Checksum of names, dtypes, shapes and values, and of a JSON note."""
    digest = hashlib.sha256(json.dumps(note).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_checkpoint(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The groups and facts that `write_state` wrote."""
    read_facts(path)  # refuses another format before its content is looked at
    return read_state(path)


def read_state(path: Path, expected: str | None = None) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The groups and facts of a file; refuses a checksum other than `expected`, if it is given."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; is this the folder of a run?")
    with used(path):
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            note = json.loads((file.metadata() or {})["palpate"])
        claimed = note.pop("checksum")
        if checksum(tensors, note) != claimed:
            raise _damaged(path, "its checksum does not match")
        if expected not in (None, claimed):
            raise ValueError(f"{path} does not match the config.json beside it; restore both files of one save")
        groups: dict[str, dict[str, Tensor]] = {name: {} for name in note["groups"]}
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            groups[group][name] = value
        return groups, note["facts"]


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a checkpoint alone, without reading the tensors; refuses another format."""
    with used(path), safe_open(path, framework="pt") as file:
        facts: dict[str, Any] = json.loads((file.metadata() or {})["palpate"])["facts"]
        if facts.get("format") != FORMAT:
            raise ValueError(
                f"{path} has format {facts.get('format')!r}, and this palpate resumes only {FORMAT}: train again"
            )
        return facts


@contextmanager
def used(path: Path) -> Iterator[None]:
    """Report errors in the use of a file's content as damage to the file."""
    try:
        yield
    except DAMAGE as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> ValueError:
    return ValueError(f"{path} is damaged or was not written by palpate ({why}); restore it or train again")
