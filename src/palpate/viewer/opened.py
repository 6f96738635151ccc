"""What a path is, and the triples in it."""

import json
import os
import threading
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from palpate.data.logs.options import LogOptions

if TYPE_CHECKING:
    from palpate.data.labelled import Labelled
    from palpate.data.transitions import Transitions

OF_A_RUN = ("run.json", "config.json", ".overwriting/run.json")
EXPLORED = "model"  # folder of the run, inside that of an exploration
EXPLORATION = "explore.json"  # the note of an exploration
T = TypeVar("T")
Stamp = tuple[int, ...]


class _Kept:
    """A value that is made once. Each has its own lock: a video is decoded for minutes, other files are opened then."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stamp: Stamp | None = None
        self.value: Any = None


_KEPT: dict[tuple[Any, ...], _Kept] = {}
_LOCK = threading.Lock()


def _once(key: tuple[Any, ...], stamp: Stamp, make: Callable[[], T]) -> T:
    """The value of a key, made again only if the stamp of its file has changed."""
    with _LOCK:
        kept = _KEPT.setdefault(key, _Kept())
    with kept.lock:
        if kept.stamp != stamp:
            kept.value = make()
            kept.stamp = stamp
        value: T = kept.value
    return value


def stamp_of(path: Path) -> Stamp:
    """Size and time of a file. Of a folder: those of all folders in it, and of the files directly in it or in `meta`.

    The many pictures and tables deep inside are left out. If one is added or replaced, the time of its folder changes.
    """
    if not path.is_dir():
        return _stamp(path)
    folders = [Path(folder) for folder, *_ in os.walk(path)]
    files = [each for folder in (path, path / "meta") if folder.is_dir() for each in folder.iterdir() if each.is_file()]
    return tuple(number for each in sorted([*folders, *files]) for number in _stamp(each))


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def opened(path: Path, reading: LogOptions | None = None) -> "Transitions":
    """The triples of a log, opened once. All of the viewer's logs are opened here."""
    from palpate.data.logs.log import open_log

    key = ("triples", path.absolute(), reading or LogOptions())
    return _once(key, stamp_of(path), lambda: open_log(path, reading))


def is_triples(path: Path) -> bool:
    """Whether a log is a file of triples, not a log of another project."""
    from palpate.data.logs.log import kind_of

    return kind_of(path) == "triples"


def require_log(path: Path, reading: LogOptions) -> "Transitions | None":
    """Refuse a log that cannot be opened. A file of triples is opened at once; of other logs no picture is decoded."""
    from palpate.data.logs.log import require_readable

    if is_triples(path):
        return opened(path, reading)
    require_readable(path, reading)
    return None


def opened_with_truth(path: Path) -> "Labelled | None":
    """The triples of a file with their true states, opened once; None if it holds none."""
    if path.is_dir() or not is_triples(path):
        return None
    return _once(("truth", path.absolute()), stamp_of(path), lambda: _with_truth(path))


def _with_truth(path: Path) -> "Labelled | None":
    from palpate.data.labelled import Labelled

    try:
        return Labelled.open(path)
    except ValueError:
        return None


def collected(world: Mapping[str, Any], count: int, seed: int) -> "Labelled":
    """Fresh triples of a streamed world, its id as `env` and its options, collected once."""
    from palpate.collecting.collect import collect

    options = dict(world)
    env = options.pop("env")
    key = ("fresh", json.dumps(world, sort_keys=True), count, seed)
    return _once(key, (), lambda: collect(env, count, seed=seed, labelled=True, progress=False, **options))


def kind_of(path: Path) -> Literal["run", "log"]:
    """Whether a path is the folder of a run, or a log. Nothing slow is read."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; give the folder of a run, or a log")
    if path.is_dir():
        if any((path / name).exists() for name in OF_A_RUN):
            return "run"
        if (path / EXPLORATION).exists():
            raise ValueError(
                f"{path} is an unfinished exploration without a model; continue it with palpate explore and --resume"
            )
    return "log"


def run_of(path: Path) -> Path:
    """The folder of the run in an exploration's folder, else the path itself."""
    return path / EXPLORED if (path / EXPLORED / "run.json").exists() else path


def settings_file(path: Path) -> dict[str, Any]:
    """The values of a run's `run.toml`; empty if there is none, or if it is damaged."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
