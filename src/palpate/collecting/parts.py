"""A collection under way: a folder of small complete files beside the file to come, joined at the end.

Each part is an ordinary file of triples, named by its rows, that appears whole or not at all. So whatever happens, a
full disk, Ctrl-C, a killed process, what was collected is there and readable, and the collection can go on.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from palpate import __version__
from palpate.collecting.blocks import BLOCK_ROWS, Packed, Span, counted, dropped, spans
from palpate.data.files import Writer, attributes_of, open_hdf5, read_from
from palpate.disk import as_json, write_whole
from palpate.settings import demand_one, demand_same

NOTE = "collection.json"
LEFTOVER = ".*.tmp"
NAME = re.compile(r"(\d+)-(\d+)\.h5")


class Stopped(RuntimeError):  # noqa: N818 - the user's wish, not an error
    """Ctrl-C while collecting into a file: what there is was kept, and can be gone on with."""


def parts_of(out: str | os.PathLike[str]) -> Path:
    """The folder of a collection that becomes the file `out`."""
    return Path(f"{os.fspath(out)}.parts")


@final
class Parts:
    """The parts of one collection; nothing is written before the first part is."""

    def __init__(
        self, out: str | os.PathLike[str], attributes: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        demand_one(resume=resume, overwrite=overwrite)
        self.folder = parts_of(out)
        self._out = Path(out)
        self._attributes = dict(attributes)
        note = self._read_note()
        if resume and note is None:
            raise FileNotFoundError(f"there is nothing to resume: no folder {self.folder}; leave out resume (--resume)")
        if resume and note is not None:
            advice = "resume with the same ones, or begin anew (overwrite=True, --force)"
            demand_same(self.folder, note["settings"], self._settings(), advice)
            overwrite = note["overwrite"]
            for leftover in self.folder.glob(LEFTOVER):  # of a process that was killed; it takes room
                leftover.unlink(missing_ok=True)
        self._overwrite = overwrite
        Writer(out, attributes=attributes, overwrite=overwrite)  # refuses now what it would refuse in the end
        if note is not None and not resume:
            if not overwrite:
                raise FileExistsError(
                    f"{self.folder} exists: a collection that was stopped; go on with it (resume=True, --resume), or "
                    "begin anew (overwrite=True, --force)"
                )
            shutil.rmtree(self.folder)
        self._stops = self._find()

    @property
    def rows(self) -> int:
        """How many rows are there."""
        return sum(stop - start for start, stop in self._stops.items())

    def missing(self, num: int) -> list[Span]:
        """What is still to be made of the first `num` rows."""
        return [span for span in spans(num) if self._stops.get(span.start, 0) < span.stop]

    def write(self, packed: Packed) -> None:
        if not (self.folder / NOTE).exists():
            self.folder.mkdir(exist_ok=True)
            note = {"settings": self._settings(), "overwrite": self._overwrite}
            write_whole(self.folder / NOTE, as_json(note))
        write_whole(self._path(packed.span), packed.image)
        self._stops[packed.span.start] = packed.span.stop

    def join(self, num: int) -> None:
        """Put the first `num` rows into the one file, and remove the parts."""
        # Aside in the folder, so that nothing lies about should we be killed now.
        with Writer(self._out, attributes=self._attributes, overwrite=True, aside=self.folder) as writer:
            total: dict[str, int] = {}
            for start, stop in spans(num):
                path = self._path(Span(start, self._stops[start]))
                try:
                    with open_hdf5(path) as part, read_from(path):
                        writer.copy(part, stop - start)
                        lost = dropped(attributes_of(part))
                except ValueError as error:
                    raise ValueError(f"{error}: delete it, then go on with resume=True (--resume)") from error
                for name, count in lost.items():
                    total[name] = total.get(name, 0) + count
            writer.attributes |= counted(total)
        shutil.rmtree(self.folder)

    def discard_if_empty(self) -> None:
        """Leave no folder behind that holds nothing."""
        if not self._stops:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, span: Span) -> Path:
        return self.folder / f"{span.start:08d}-{span.stop:08d}.h5"

    def _find(self) -> dict[int, int]:
        """The end of each part by its start; of the longer one, which sorts last, where a collection was lengthened."""
        matches = map(NAME.fullmatch, sorted(path.name for path in self.folder.glob("*.h5")))
        return {int(match[1]): int(match[2]) for match in matches if match}

    def _settings(self) -> dict[str, Any]:
        """What the rows depend on."""
        return {**self._attributes, "block_rows": BLOCK_ROWS, "palpate_version": __version__}

    def _read_note(self) -> dict[str, Any] | None:
        if not self.folder.exists() or all(path.match(LEFTOVER) for path in self.folder.iterdir()):
            return None
        try:
            note: dict[str, Any] = json.loads((self.folder / NOTE).read_bytes())
            _ = note["settings"], note["overwrite"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(
                f"{self.folder} is in the way, and holds no {NOTE} of a collection; move or delete it"
            ) from error
        return note
