"""A table of the positions in a log, for other tools: one row for each observation, in order of time.

Legend: b triples of a block, r rows of the table, n ambient dimension.
"""

import csv
import io
import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from palpate import __version__
from palpate.checkpoint import packed
from palpate.data.episodes import chains
from palpate.data.logs.log import LogOptions, kind_of, open_log
from palpate.data.transitions import Transitions
from palpate.disk import Disk, require_place
from palpate.extras import demand
from palpate.interrupts import terminations_interrupt
from palpate.progress import bar
from palpate.representation import Representation, load
from palpate.runfile import RUN_FILE
from palpate.runlog import MODEL_FORMAT

METADATA = "palpate"  # name of the table's description, as JSON
GROUP_ROWS = 65_536  # rows of a parquet file that are compressed together
UNIT = "positions in the actions' unit, up to one translation"
ALIGNED = "positions in the frame that was given to align"

Columns = dict[str, np.ndarray]  # [r] or [r, n]; NaN stands for null


class Encoded(NamedTuple):
    """The written table."""

    path: Path
    rows: int
    triples: int
    columns: dict[str, str]  # names and types
    reading: dict[str, Any]  # options of the log that were taken from the run


def encode_log(
    model: Representation | str | os.PathLike[str],
    log: Transitions | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reading: LogOptions | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Encoded:
    """Write the positions of all observations of a log to a .parquet, .csv or .npz file.

    `log` is a `Transitions`, a file of triples, or a log of another project, whose columns `reading` selects. Options
    that are left out are those of the run, if `model` is the folder of one.

    A row is an observation: o of each triple, and o' of a triple that no other triple continues. The rows of an episode
    are together and in order of time, also if the log mixes episodes. `episode_index` is the log's episode, or else the
    number of the chain of triples. `frame_index` is the place in the episode. The contact columns describe the triple
    that begins with the observation; they are null if there is none. With k objects, each quantity of an object
    has k columns, such as `palpate.object.0`. Parquet and npz files hold the model's folder and checksum, and the unit.
    Parquet needs the extra palpate[lerobot].
    """
    out = Path(out)
    if out.suffix not in WRITERS:
        raise ValueError(f"the file is {str(out)!r}; its name must end in one of {', '.join(WRITERS)}")
    require_place(out, overwrite)
    if out.suffix == ".parquet":
        _pyarrow("pyarrow")
    representation = model if isinstance(model, Representation) else load(model)
    if not isinstance(log, Transitions):
        reading, taken = _reading(reading or LogOptions(), model, Path(log))
        with open_log(log, reading) as opened:
            require_fit(representation, opened)
            return _write(representation, opened, out, _note(representation, model, log), progress, taken)
    require_fit(representation, log)
    return _write(representation, log, out, _note(representation, model, log), progress, {})


def _reading(given: LogOptions, model: Any, log: Path) -> tuple[LogOptions, dict[str, Any]]:
    """The options completed by those of the run in the folder `model`, and which of them the run gave."""
    settings = None if isinstance(model, Representation) else Path(model) / RUN_FILE
    if settings is None or not settings.exists() or kind_of(log) == "triples":
        return given, {}
    try:
        run = LogOptions.of_run(tomllib.loads(settings.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{settings} is damaged: {error}; repair it, or give the model in another folder") from error
    taken = given.lacks(run)
    return replace(given, **taken), taken


def require_fit(model: Representation, triples: Transitions) -> None:
    """Refuse a model without positions, and a log whose observations or actions differ from the model's."""
    config = model.config
    if not (model.model.places_object and model.model.tells_apart):
        raise ValueError(
            f"method is {config.method!r}, which gives no positions in the action's unit; use a model of method "
            "'interaction' or 'supervised'"
        )
    shape = triples.observation_shape
    dtype = str(triples.rows([0]).o.dtype).removeprefix("torch.")
    if (shape, dtype) != (config.observation_shape, config.observation_dtype):
        raise ValueError(
            f"the log has observations {shape} {dtype}, and the model was trained on {config.observation_shape} "
            f"{config.observation_dtype}; give the log, or the observation, that it was trained on"
        )
    if triples.action_shape != config.action_shape:
        theirs, ours = (" sub-steps of ".join(map(str, shape)) for shape in (triples.action_shape, config.action_shape))
        raise ValueError(f"the log has actions of {theirs} numbers, and the model was trained on {ours}")


def positions(model: Representation, triples: Transitions) -> Iterator[tuple[int, Columns]]:
    """Blocks of the table, of bounded size, each after the number of triples so far."""
    triples = _in_order(triples)
    place = _Places(triples)
    for block in triples.blocks():
        # The additional triple shows whether one continues the last triple of the block.
        more = triples.rows(slice(block.start, min(block.stop + 1, len(triples))))
        count = block.stop - block.start
        episode = place.episode_of(block.start, len(more.a))
        numbers = chains(more.o, more.o_next, episode)
        goes_on = torch.cat((numbers[1:] == numbers[:-1], torch.zeros(1, dtype=torch.bool)))[:count]
        o, a, o_next = (x[:count] for x in more)
        # Every o gets a row. Its o' gets the next row if no triple begins with it.
        pair = torch.stack((torch.ones_like(goes_on), ~goes_on), 1).flatten()  # [2 b]
        starts = torch.tensor([True, False]).repeat(count)[pair].numpy()  # [r]
        seen = torch.stack((o, o_next), 1).flatten(0, 1)[pair]
        columns = place.columns(block.start, starts, goes_on.numpy()) | _encoded(model, seen)
        for name, value in {
            "contact": model.contact(o, a, o_next),
            "would_touch": model.would_touch(o, a),
        }.items():
            if value is not None:
                whole = np.full((len(starts), *value.shape[1:]), np.nan, np.float32)
                whole[starts] = value.numpy()
                columns |= _apart(name, whole, value.dim() == 2)
        yield block.stop, columns


def _in_order(triples: Transitions) -> Transitions:
    """The same triples, those of each episode one after the other. Environments that run side by side mix them."""
    if triples.log_rows is not None:
        order = np.argsort(triples.log_rows[2], kind="stable")
    elif triples.episode is not None:
        _, first, number = np.unique(triples.episode.numpy(), return_index=True, return_inverse=True)
        order = np.argsort(first[number], kind="stable")
    else:
        return triples
    return triples if (np.diff(order) == 1).all() else triples.subset(order)


def _encoded(model: Representation, o: torch.Tensor) -> Columns:
    encoding, columns = model.encode(o), {}
    columns["palpate.agent"] = encoding.agent.numpy()
    if encoding.heading is not None:
        columns["palpate.heading"] = encoding.heading.numpy()
    if encoding.rotation is not None:
        columns["palpate.rotation"] = encoding.rotation.flatten(1).numpy()  # row by row
    several = encoding.objects.shape[1] > 1
    for name, value in (
        ("object", encoding.objects),
        ("confidence", encoding.confidences),
        ("orientation", encoding.orientations),
    ):
        if value is not None:
            columns |= _apart(name, (value if several else value[:, 0]).numpy(), several)
    return columns


def _apart(name: str, values: np.ndarray, several: bool) -> Columns:
    """Values [r, k, ...] of several objects as a column for each; otherwise one column."""
    if not several:
        return {f"palpate.{name}": values}
    return {f"palpate.{name}.{i}": values[:, i] for i in range(values.shape[1])}


class _Places:
    """The numbers of each row: in the table, of its episode, and in its episode."""

    def __init__(self, triples: Transitions) -> None:
        known = triples.log_rows  # of other projects' logs
        self._episode: np.ndarray | None = None if triples.episode is None else triples.episode.numpy()
        self._frame: np.ndarray | None = None
        self._row: np.ndarray | None = None
        if known is not None:
            self._episode, self._frame, self._row = map(np.asarray, known)
        self._stride = int(triples.attributes.get("stride", 1))  # frames between o and o'
        self._rows = self._chain = 0
        self._counted: Counter[int] = Counter()  # rows of each episode

    def episode_of(self, start: int, count: int) -> torch.Tensor | None:
        return None if self._episode is None else torch.as_tensor(self._episode[start : start + count])

    def columns(self, start: int, starts: np.ndarray, goes_on: np.ndarray) -> Columns:
        """The columns of a block whose first triple is `start`; `starts` [r] marks rows that begin a triple."""
        triple = np.cumsum(starts) - 1  # [r], within the block
        if self._episode is None:
            number = self._chain + np.cumsum(np.append(False, ~goes_on[:-1]))
            self._chain = int(number[-1]) + (not goes_on[-1])
        else:
            number = self._episode[start : start + len(goes_on)]
        episode = number[triple]
        if self._frame is None or self._row is None:
            frame, index = self._count(episode), np.arange(self._rows, self._rows + len(starts))
            self._rows += len(starts)
        else:
            frame, index = (x[start + triple] + np.where(starts, 0, self._stride) for x in (self._frame, self._row))
        return {
            name: np.asarray(x, np.int64)
            for name, x in (("index", index), ("episode_index", episode), ("frame_index", frame))
        }

    def _count(self, episode: np.ndarray) -> np.ndarray:
        """The number of earlier rows of the same episode, [r]."""
        frame = np.empty(len(episode), np.int64)
        cuts = np.flatnonzero(np.diff(episode)) + 1
        for rows in np.split(np.arange(len(episode)), cuts):
            number = int(episode[rows[0]])
            frame[rows] = self._counted[number] + np.arange(len(rows))
            self._counted[number] += len(rows)
        return frame


def _note(representation: Representation, model: Any, log: Any) -> dict[str, Any]:
    """The table's description."""
    folder = None if isinstance(model, Representation) else os.path.abspath(model)
    return {
        "palpate_version": __version__,
        "model": folder,
        "format_version": MODEL_FORMAT,
        "weights": packed({"model": representation.model.lasting_state()}, {})[1],
        "unit": ALIGNED if representation.facts.get("origin") else UNIT,
        "log": None if isinstance(log, Transitions) else os.path.abspath(log),
    }


def _write(
    model: Representation,
    triples: Transitions,
    out: Path,
    note: Mapping[str, Any],
    progress: bool,
    reading: Mapping[str, Any],
) -> Encoded:
    rows, shown = 0, {}

    def counted(advance: Callable[[int], None]) -> Iterator[Columns]:
        nonlocal rows, shown
        for done, columns in positions(model, triples):
            rows += len(columns["index"])
            shown = {name: f"{x.dtype}{list(x.shape[1:]) or ''}" for name, x in columns.items()}
            yield columns
            advance(done)

    with terminations_interrupt(), bar("encode", len(triples), show=progress) as advance, Disk(out) as disk:
        WRITERS[out.suffix](disk, counted(advance), json.dumps(note))
        disk.commit()
    return Encoded(out, rows, len(triples), shown, dict(reading))


# Formats


def _pyarrow(module: str) -> Any:
    return demand(module, library="pyarrow", extra="lerobot", needs="parquet files need pyarrow")


def _parquet(disk: Disk, blocks: Iterable[Columns], note: str) -> None:
    pa, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")

    def column(x: np.ndarray) -> Any:
        if x.ndim == 2:  # as LeRobot stores vectors
            return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
        return pa.array(x, from_pandas=True)  # NaN becomes null

    writer = None
    try:
        for columns in _grouped(blocks):
            table = pa.table({name: column(x) for name, x in columns.items()})
            writer = writer or parquet.ParquetWriter(disk, table.schema.with_metadata({METADATA: note}))
            writer.write_table(table.replace_schema_metadata({METADATA: note}))
            disk.check()
    finally:
        if writer is not None:
            writer.close()


def _csv(disk: Disk, blocks: Iterable[Columns], note: str) -> None:
    """Vectors have a column for each number, such as `palpate.agent[0]`; there is no place for the description."""
    for number, columns in enumerate(blocks):
        flat = dict(chain.from_iterable(_numbers(name, x) for name, x in columns.items()))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 0:
            writer.writerow(flat)
        writer.writerows(zip(*flat.values(), strict=True))
        disk.write(text.getvalue().encode())
        disk.check()


def _numbers(name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Names and texts of the numbers of a column; an empty text for null."""
    for part, column in [(name, x)] if x.ndim == 1 else ((f"{name}[{i}]", c) for i, c in enumerate(x.T)):
        yield part, np.where(np.isnan(column), "", column.astype(str)) if x.dtype.kind == "f" else column.astype(str)


def _npz(disk: Disk, blocks: Iterable[Columns], note: str) -> None:
    """All columns are in memory until the end: a few dozen bytes for each observation."""
    parts = list(blocks)
    whole: Columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    content = io.BytesIO()
    np.savez(content, **whole, **{METADATA: np.array(note)})  # type: ignore[arg-type]
    disk.write(content.getbuffer())


def _grouped(blocks: Iterable[Columns]) -> Iterator[Columns]:
    """The blocks, joined until each has `GROUP_ROWS` rows: small groups are slow to read."""
    parts: list[Columns] = []
    for block in chain(blocks, [None]):
        if block is not None:
            parts.append(block)
        if parts and (block is None or sum(len(part["index"]) for part in parts) >= GROUP_ROWS):
            yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            parts = []


WRITERS: dict[str, Callable[[Disk, Iterable[Columns], str], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".npz": _npz,
}
