"""Blocks made by several processes; each process builds its own world, once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from palpate.collecting.blocks import AnyWorld, BlockWorld, Packed, RowWorld, Span, make, pack
from palpate.workers import Worker, dismiss, ready

AHEAD = 2  # spans assigned to a worker: the one it makes and the next, so that it never waits


class Recipe(NamedTuple):
    """What a worker needs to make blocks; all of it can be pickled."""

    world: Callable[[], AnyWorld]
    seed: int
    attributes: Mapping[str, Any]  # of each packed block


def packed_blocks(recipe: Recipe, spans: Sequence[Span], workers: int) -> Iterator[Packed]:
    """The blocks of these spans, in the order in which they are finished."""
    todo, missing = iter(spans), len(spans)
    team: list[Worker] = []

    def assign(worker: Worker) -> None:
        for span in todo:
            worker.send(span)
            return

    try:
        for _ in range(min(workers, missing)):
            team.append(Worker(_serve, recipe))
        for worker in team * AHEAD:
            assign(worker)
        while missing:
            for worker in ready(team):
                packed = worker.receive()
                assign(worker)
                missing -= 1
                yield packed
    finally:
        dismiss(team, at_once=missing > 0)


def _serve(pipe: Connection, recipe: Recipe) -> None:
    world = recipe.world()
    try:
        while True:
            pipe.send(pack(make(world, recipe.seed, pipe.recv()), recipe.attributes))
    finally:
        if isinstance(world, RowWorld | BlockWorld):
            world.close()
