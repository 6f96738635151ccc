"""Failures of workers. Spawning costs seconds, so few tests start workers."""

import multiprocessing
import time
from collections.abc import Callable
from functools import partial

import pytest
from ball_world import THIRD, world

from palpate.collecting.blocks import Block, spans
from palpate.collecting.parallel import Recipe, blocks_of_workers
from palpate.workers import Failure, WorkerError, _live


def recipe(**options: object) -> Recipe:
    return Recipe(partial(world, THIRD, **options), 5, lambda block: block)


@pytest.mark.slow
def test_a_killed_worker_is_reported() -> None:
    with pytest.raises(WorkerError, match="a worker process was ended by signal 9.* under `if __name__ == "):
        list(blocks_of_workers(recipe(trouble="die@300"), spans(1000), 2))
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_workers_end_with_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BALL_PAUSE", "0.005")
    blocks = blocks_of_workers(recipe(), spans(100_000), 2)
    first: Block = next(blocks)  # type: ignore[call-overload]
    assert first.span.start in (0, 128)
    before = time.monotonic()
    blocks.close()  # type: ignore[attr-defined]
    assert time.monotonic() - before < 2
    assert not multiprocessing.active_children()


def fail(error: Exception) -> Callable[..., None]:
    def serve(pipe: object) -> None:
        raise error

    return serve


@pytest.mark.parametrize(
    ("error", "message", "mistake"),
    [
        (OSError("no library to draw with"), "no library to draw with", True),
        (ArithmeticError("the ball is lost"), "ArithmeticError: the ball is lost", False),
    ],
)
def test_an_exception_is_sent_to_the_parent(error: Exception, message: str, mistake: bool) -> None:
    ours, theirs = multiprocessing.Pipe()
    _live(theirs, 1, fail(error), ())
    failure = ours.recv()
    assert isinstance(failure, Failure)
    assert (failure.message, failure.mistake) == (message, mistake)
    assert "in serve" in failure.trace
