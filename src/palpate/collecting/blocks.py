"""Triples in blocks of 128 rows: block k depends on the world, the seed and k alone.

So a collection does not depend on the number of processes or on interruptions, and its first rows do not depend on its
length.
"""

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from palpate.data.arrays import VIEWS
from palpate.data.files import Layout, Table
from palpate.data.stream import World
from palpate.data.transitions import Transitions

BLOCK_ROWS = 128
TRUTH = (
    "agent",
    "object",
    "angle",
    "contact",
    "agent_next",
    "object_next",
    "angle_next",
    "visible",
    "heading",
    "heading_next",
    "rotation",
    "rotation_next",
)
COMMAND = "command"  # column of a file: the environment's actions, which may differ from the displacements
DROPPED = "dropped_"  # prefix of file attributes: the number of rejected triples, by reason


@runtime_checkable
class RowWorld(Protocol):
    """A world that makes the rows of one block, such as Soccer or a Gymnasium environment.

    `rows` returns arrays as attributes: observation and next_observation (channels last, or as in `layout`), action,
    the states of `TRUTH` that are known, `episode`, a number for each row, if there are episodes, `command` [N, m], the
    environment's actions as numbers, if they may differ from the displacements, and `dropped`, the number of rejected
    triples by reason.
    """

    def rows(self, seed: int, start: int, stop: int) -> Any: ...

    def close(self) -> None: ...


AnyWorld: TypeAlias = World | RowWorld


class Span(NamedTuple):
    """Rows start to stop, within one block."""

    start: int
    stop: int


class Block(NamedTuple):
    """The rows of a span, by the names of their columns in a file."""

    span: Span
    columns: dict[str, np.ndarray]
    dropped: Counter[str]
    views: int  # cameras, stacked on the channels

    @property
    def attributes(self) -> dict[str, int]:
        """Those of a file of these rows."""
        return described(self.views, self.dropped)


class Packed(NamedTuple):
    """A block as the bytes of a complete HDF5 file."""

    span: Span
    image: bytes


def spans(num: int) -> list[Span]:
    return [Span(start, min(start + BLOCK_ROWS, num)) for start in range(0, num, BLOCK_ROWS)]


def make(world: AnyWorld, seed: int, span: Span) -> Block:
    states: Any
    layout: Layout
    if isinstance(world, RowWorld):
        states = world.rows(seed, *span)
        o, a, o_next = states.observation, states.action, states.next_observation
        layout, episode = getattr(states, "layout", "channel-last"), getattr(states, "episode", None)
    else:  # a batch is drawn as a whole, so the whole block is made and then cut
        block_seed = np.random.SeedSequence((seed, span.start // BLOCK_ROWS)).generate_state(1, np.uint64)[0]
        states = world.sample(BLOCK_ROWS, torch.Generator(world.device).manual_seed(int(block_seed)))
        o, o_next = world.render_pair(states)
        a, layout, episode = states.displacement, "channel-first", None
    try:
        triples = Transitions(observation=o, action=a, next_observation=o_next, episode=episode, layout=layout)
    except ValueError as error:
        raise ValueError(f"{error} (in the block of rows {span.start} to {span.stop})") from error
    count = span.stop - span.start
    columns = triples.columns(slice(count))
    if (command := getattr(states, COMMAND, None)) is not None and np.size(command):
        columns[COMMAND] = command[:count]
    for name in TRUTH:
        if (values := getattr(states, name, None)) is not None:
            columns[f"truth/{name}"] = torch.as_tensor(values)[:count].numpy(force=True)
    return Block(span, columns, Counter(getattr(states, "dropped", {})), triples.views)


def pack(block: Block, attributes: Mapping[str, Any]) -> Packed:
    buffer = io.BytesIO()
    table = Table(buffer)
    table.attributes |= {**attributes, **block.attributes}
    table.append(block.columns)
    table.finish()
    return Packed(block.span, buffer.getvalue())


def described(views: int, dropped: Mapping[str, int]) -> dict[str, int]:
    """Several views, and the numbers of rejected triples, as attributes of a file."""
    counts = {f"{DROPPED}{name}": count for name, count in dropped.items()}
    return counts | ({VIEWS: views} if views > 1 else {})


def dropped(attributes: Mapping[str, Any]) -> Counter[str]:
    """The numbers of rejected triples, by reason, from the attributes of a file."""
    return Counter({name.removeprefix(DROPPED): x for name, x in attributes.items() if name.startswith(DROPPED)})
