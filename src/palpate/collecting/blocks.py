"""Triples in blocks: block k of a world depends on the seed and on k alone.

A collection is therefore independent of the number of processes and of interruptions, and its first rows do not depend
on its length.
"""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import h5py
import numpy as np
import torch

from palpate.data.files import FIELDS, Table, attributes_of, column_names
from palpate.data.stream import World
from palpate.data.transitions import Transitions

BLOCK_ROWS = 128
TRUTH = ("agent", "object", "angle", "contact", "agent_next", "object_next", "angle_next")
DROPPED = "dropped_"  # prefix of file attributes: the number of rejected triples, by reason


@runtime_checkable
class RowWorld(Protocol):
    """A world such as Soccer, which makes its triples one by one: row i depends on the seed and on i alone.

    `rows` returns arrays as attributes: observation and next_observation [b, h, w, c] or [b, v, h, w, c] uint8, action
    [b, n], the states of `TRUTH` that the world has, and `dropped`, the number of rejected triples by reason.
    """

    def rows(self, seed: int, start: int, stop: int) -> Any: ...

    def close(self) -> None: ...


class Span(NamedTuple):
    """Rows start to stop, within one block."""

    start: int
    stop: int


class Block(NamedTuple):
    """The rows of a span, by the names of their columns in a file."""

    span: Span
    columns: dict[str, np.ndarray]
    dropped: dict[str, int]


@runtime_checkable
class BlockWorld(Protocol):
    """A world such as a foreign environment, which makes a block as a whole, from its first row on."""

    def block(self, seed: int, span: Span) -> Block: ...

    def close(self) -> None: ...


AnyWorld: TypeAlias = World | RowWorld | BlockWorld


class Packed(NamedTuple):
    """A block as the bytes of a complete HDF5 file."""

    span: Span
    image: bytes


def spans(num: int) -> list[Span]:
    return [Span(start, min(start + BLOCK_ROWS, num)) for start in range(0, num, BLOCK_ROWS)]


def make(world: AnyWorld, seed: int, span: Span) -> Block:
    if isinstance(world, BlockWorld):
        return world.block(seed, span)
    if isinstance(world, RowWorld):
        rows = world.rows(seed, *span)
        return Block(span, _columns(rows, rows.observation, rows.action, rows.next_observation), dict(rows.dropped))
    # A batch is drawn as a whole, so the whole block is made and then cut.
    settled = np.random.SeedSequence((seed, span.start // BLOCK_ROWS)).generate_state(1, np.uint64)[0]
    states = world.sample(BLOCK_ROWS, torch.Generator(world.device).manual_seed(int(settled)))
    o, o_next = world.render_pair(states)
    columns = _columns(states, o, states.displacement, o_next, layout="channel-first")
    return Block(span, {name: x[: span.stop - span.start] for name, x in columns.items()}, {})


def _columns(states: Any, o: Any, a: Any, o_next: Any, layout: Any = "channel-last") -> dict[str, np.ndarray]:
    triples = Transitions(observation=o, action=a, next_observation=o_next, layout=layout).rows(slice(None))
    columns = {name: x.numpy() for name, x in zip(FIELDS, triples, strict=True)}
    for name in TRUTH:
        values = getattr(states, name, None)
        if values is not None:
            columns[f"truth/{name}"] = torch.as_tensor(values).numpy(force=True)
    return columns


def pack(block: Block, attributes: Mapping[str, Any]) -> Packed:
    buffer = io.BytesIO()
    table = Table(buffer)
    table.append(block.columns)
    table.finish({**attributes, **counted(block.dropped)})
    table.close()
    return Packed(block.span, buffer.getvalue())


def unpack(packed: Packed) -> Block:
    with h5py.File(io.BytesIO(packed.image), "r") as file:
        columns = {name: file[name][...] for name in column_names(file)}
        return Block(packed.span, columns, dropped(attributes_of(file)))


def counted(dropped: Mapping[str, int]) -> dict[str, int]:
    """As attributes of a file."""
    return {f"{DROPPED}{name}": count for name, count in dropped.items()}


def dropped(attributes: Mapping[str, Any]) -> dict[str, int]:
    """From the attributes of a file: the number of rejected triples, by reason."""
    return {name.removeprefix(DROPPED): x for name, x in attributes.items() if name.startswith(DROPPED)}
