"""An unfinished collection: a folder of small complete files, which are joined into one file at the end.

Each part is an ordinary file of triples, named by its rows and written whole. After a full disk, Ctrl-C or a killed
process the parts can be read, and the collection can be resumed.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from palpate import __version__
from palpate.collecting.blocks import BLOCK_ROWS, Packed, Span, described, dropped, spans
from palpate.data.arrays import VIEWS
from palpate.data.files import attributes_of, new_file, open_hdf5, read_from, require_writable
from palpate.disk import as_json, from_json, write_whole
from palpate.settings import demand_same, require_one

NOTE = "collection.json"
LEFTOVER = ".*.tmp"
NAME = re.compile(r"(\d+)-(\d+)\.h5")


class Stopped(RuntimeError):  # noqa: N818 - not an error
    """Ctrl-C while collecting into a file; the collected parts are kept, and the collection can be resumed."""


def parts_of(out: str | os.PathLike[str]) -> Path:
    """The folder of a collection that becomes the file `out`."""
    return Path(f"{os.fspath(out)}.parts")


@final
class Parts:
    """The parts of one collection. The folder is created with the first part."""

    def __init__(
        self, out: str | os.PathLike[str], attributes: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        require_one(resume=resume, overwrite=overwrite)
        self.folder = parts_of(out)
        self._out = Path(out)
        self._attributes = dict(attributes)
        note = self._read_note()
        if resume and note is None:
            raise FileNotFoundError(f"there is nothing to resume: no folder {self.folder}; leave out resume (--resume)")
        if resume and note is not None:
            advice = "resume with the same ones, or start again (overwrite=True, --force)"
            demand_same(self.folder, note["settings"], self._settings(), advice)
            overwrite = note["overwrite"]
            for leftover in self.folder.glob(LEFTOVER):  # of a killed process; it uses disk space
                leftover.unlink(missing_ok=True)
        self._overwrite = overwrite
        require_writable(self._out, attributes, overwrite)
        if note is not None and not resume:
            if not overwrite:
                raise FileExistsError(
                    f"{self.folder} exists, an interrupted collection; continue it (resume=True, --resume), or start "
                    "again (overwrite=True, --force)"
                )
            shutil.rmtree(self.folder)
        self._stops = self._find()

    @property
    def rows(self) -> int:
        """Number of collected rows."""
        return sum(stop - start for start, stop in self._stops.items())

    def missing(self, num: int) -> list[Span]:
        """The spans of the first `num` rows that are not collected yet."""
        return [span for span in spans(num) if self._stops.get(span.start, 0) < span.stop]

    def write(self, packed: Packed) -> None:
        if not (self.folder / NOTE).exists():
            self.folder.mkdir(exist_ok=True)
            note = {"settings": self._settings(), "overwrite": self._overwrite}
            write_whole(self.folder / NOTE, as_json(note))
        write_whole(self._path(packed.span), packed.image)
        self._stops[packed.span.start] = packed.span.stop

    def join(self, num: int) -> None:
        """Write the first `num` rows to the final file."""
        # The incomplete file is inside the folder, so that a killed process leaves nothing elsewhere.
        with new_file(self._out, self._attributes, overwrite=True, aside=self.folder) as table:
            total, views = Counter[str](), 1
            for start, stop in spans(num):
                path = self._path(Span(start, self._stops[start]))
                try:
                    with open_hdf5(path) as part, read_from(path):
                        table.copy(part, stop - start)
                        attributes = attributes_of(part)
                        total.update(dropped(attributes))
                        views = attributes.get(VIEWS, 1)
                except ValueError as error:
                    raise ValueError(f"{error}: delete it, then continue with resume=True (--resume)") from error
            table.attributes |= described(views, total)

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def discard_if_empty(self) -> None:
        """Remove the folder if it holds no part."""
        if not self._stops:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, span: Span) -> Path:
        return self.folder / f"{span.start:08d}-{span.stop:08d}.h5"

    def _find(self) -> dict[int, int]:
        """The last row of each part by its first row. Of two parts with one start the longer one, which sorts last."""
        matches = map(NAME.fullmatch, sorted(path.name for path in self.folder.glob("*.h5")))
        return {int(match[1]): int(match[2]) for match in matches if match}

    def _settings(self) -> dict[str, Any]:
        """All that the rows depend on."""
        return {**self._attributes, "block_rows": BLOCK_ROWS, "palpate_version": __version__}

    def _read_note(self) -> dict[str, Any] | None:
        if not self.folder.exists() or all(path.match(LEFTOVER) for path in self.folder.iterdir()):
            return None
        try:
            note: dict[str, Any] = from_json((self.folder / NOTE).read_bytes())
            _ = note["settings"], note["overwrite"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(
                f"{self.folder} exists and is not a collection: it has no valid {NOTE}; move or delete it"
            ) from error
        return note
