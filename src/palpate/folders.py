"""Folders of runs and explorations: claimed by one process, resumed, and replaced only by complete ones."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from palpate.disk import LOCK, alone, as_json, from_json, named, write_whole
from palpate.settings import demand_same, require_one

OVERWRITING = ".overwriting"  # folder of new work, inside the folder of the work that it will replace


class Kind(NamedTuple):
    """What a folder holds, by paths inside it."""

    noun: str  # its name in messages
    one: str  # the noun with its article
    note: str  # its first file, with all settings
    format: int  # number of the note's format; work of another format is not resumed
    settings: tuple[str, ...]  # that every note holds
    # All other files that palpate writes, the last one first; nothing else is ever removed. The first one is there if
    # and only if the work is complete.
    files: tuple[str, ...]
    folders: tuple[str, ...]

    def found(self, folder: Path) -> list[Path]:
        """The files in a folder, without the note."""
        return [path for pattern in self.files for path in sorted(folder.glob(pattern)) if path.is_file()]


@contextmanager
def claimed(kind: Kind, out: Path, described: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """The folder to work in, locked for other processes. After the block, its content is in `out`.

    Work that overwrites is made in a folder inside `out`, and replaces the old work only when it is complete. Until
    then the old model can be loaded, and the new work can be resumed.
    """
    require_free(kind, out, resume=resume, overwrite=overwrite)
    described = {"format": kind.format, **described}
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out, inside=True):
        pending = out / OVERWRITING
        put_in_place(kind, pending, out)  # a killed process may have left this unfinished
        if resume:
            folder = pending if (pending / kind.note).exists() else out
            advice = (
                f"resume with the same settings, overwrite the {kind.noun} (overwrite=True, --force), or start another "
                "folder"
            )
            demand_same(folder, _require_note(kind, folder), described, advice)
        else:
            occupied = _occupied(out)
            if occupied:
                _require_overwritable(kind, out, overwrite)
            folder = pending if occupied else out
            _discard(kind, pending)
            folder.mkdir(exist_ok=True)
            write_whole(folder / kind.note, as_json(described))
        yield folder
        put_in_place(kind, pending, out)


def require_free(kind: Kind, out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder in which no work can start. It is cheap, so call it before long work."""
    require_one(resume=resume, overwrite=overwrite)
    if resume and not out.is_dir():
        raise FileNotFoundError(_nothing_to_resume(kind, out))
    # If another process is working in the folder, the lock reports it.
    if not resume and _occupied(out) and not (out / LOCK).exists():
        _require_overwritable(kind, out, overwrite)


def put_in_place(kind: Kind, pending: Path, out: Path) -> None:
    """Replace the work in `out` by a complete one. If it is interrupted, the next call continues."""
    if not (pending / kind.files[0]).exists():
        if not (pending / kind.note).exists():  # all was moved
            _discard(kind, pending)
        return
    if (pending / kind.note).exists():  # else no file of the old work is left
        _remove_files(kind, out)
        os.replace(pending / kind.note, out / kind.note)
    for path in reversed(kind.found(pending)):
        target = out / path.relative_to(pending)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
    _discard(kind, pending)


def _occupied(out: Path) -> bool:
    return out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir()))


def _remove_files(kind: Kind, folder: Path) -> None:
    """Remove our files, and our folders if they are empty then. Other files stay."""
    for path in kind.found(folder):
        path.unlink()
    for name in kind.folders:
        for path in (*sorted((folder / name).rglob("*/"), reverse=True), folder / name):
            with suppress(OSError):  # it is not empty, or does not exist
                path.rmdir()


def _discard(kind: Kind, pending: Path) -> None:
    (pending / kind.note).unlink(missing_ok=True)
    _remove_files(kind, pending)
    with suppress(OSError):
        pending.rmdir()


def _require_overwritable(kind: Kind, out: Path, overwrite: bool) -> None:
    if not overwrite:
        raise FileExistsError(
            f"{out} exists; resume the {kind.noun} there (resume=True, --resume), overwrite it (overwrite=True, "
            "--force), or choose another folder"
        )
    described = _described(kind, out)
    ours = bool(described)
    if described is None:  # damaged; it is ours if there are other files of ours, or no others at all
        ours = bool(kind.found(out)) or {path.name for path in out.iterdir()} <= {kind.note, LOCK, OVERWRITING}
    if not ours:
        raise ValueError(f"{out} is not {kind.one} of palpate and is not overwritten; choose another folder")


def _require_note(kind: Kind, folder: Path) -> dict[str, Any]:
    described, path = _described(kind, folder), folder / kind.note
    again = f"overwrite the {kind.noun} (overwrite=True, --force), or start another folder"
    if described is None:
        raise ValueError(f"{path} is damaged, so the {kind.noun} cannot be resumed; restore it, {again}")
    if not described:
        raise FileNotFoundError(_nothing_to_resume(kind, folder))
    if described.get("format") != kind.format:
        raise ValueError(
            f"{path} has format {described.get('format')!r}, and this palpate resumes only {kind.format}: {again}"
        )
    return described


def _nothing_to_resume(kind: Kind, folder: Path) -> str:
    return f"{folder} holds no {kind.noun} to resume; leave out resume to start one there"


def _described(kind: Kind, folder: Path) -> dict[str, Any] | None:
    """The content of the note: empty if it is missing or not ours, None if it is not JSON."""
    try:
        described = from_json((folder / kind.note).read_bytes())
    except OSError:
        return {}
    except ValueError:
        return None
    ours = isinstance(described, dict) and set(kind.settings) <= set(described)
    return described if ours else {}
