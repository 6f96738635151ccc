"""Blocks made by several processes; each process builds its own world, once."""

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from palpate.collecting.blocks import AnyWorld, Block, RowWorld, Span, make
from palpate.workers import Worker, dismiss, ready

AHEAD = 2  # spans assigned to a worker: the one it makes and the next, so that it never waits


class Recipe(NamedTuple):
    """What a worker needs. It is sent by cloudpickle, because pickle refuses lambdas and functions of a script."""

    world: Callable[[], AnyWorld]
    seed: int
    finish: Callable[[Block], Any]  # the worker sends its result


def blocks_of_workers(recipe: Recipe, spans: Sequence[Span], workers: int) -> Iterator[Any]:
    """The finished blocks of these spans, in the order in which they arrive."""
    todo, missing = iter(spans), len(spans)
    team: list[Worker] = []

    def assign(worker: Worker) -> None:
        for span in todo:
            worker.send(span)
            return

    try:
        for _ in range(min(workers, missing)):
            team.append(Worker(_serve, cloudpickle.dumps(recipe)))
        for worker in team * AHEAD:
            assign(worker)
        while missing:
            for worker in ready(team):
                block = worker.receive()
                assign(worker)
                missing -= 1
                yield block
    finally:
        dismiss(team, at_once=missing > 0)


def _serve(pipe: Connection, recipe: bytes) -> None:
    make_world, seed, finish = cloudpickle.loads(recipe)
    world = make_world()
    try:
        while True:
            pipe.send(finish(make(world, seed, pipe.recv())))
    finally:
        if isinstance(world, RowWorld):
            world.close()
