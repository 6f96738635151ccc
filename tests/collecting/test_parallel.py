"""Spawning costs seconds, so each of these tests starts workers once."""

import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from ball_world import THIRD, world

from palpate.collecting.blocks import make, pack, spans
from palpate.collecting.parallel import Recipe, packed_blocks
from palpate.workers import WorkerError, available_cores

NUM = 1000


def recipe(**options: object) -> Recipe:
    return Recipe(partial(world, THIRD, **options), 5, {"seed": 5})


def test_make_what_one_process_makes() -> None:
    packed = sorted(packed_blocks(recipe(), spans(NUM), 2))
    assert packed == [pack(make(world(THIRD), 5, span), {"seed": 5}) for span in spans(NUM)]
    assert not multiprocessing.active_children()


def test_one_that_raises() -> None:
    with pytest.raises(WorkerError, match="a worker failed: ArithmeticError: the ball is lost") as caught:
        list(packed_blocks(recipe(trouble="raise@300"), spans(NUM), 2))
    assert "in fail" in caught.value.trace  # the worker's own traceback
    assert not multiprocessing.active_children()


def test_a_mistake_of_the_user_is_told_as_such() -> None:
    with pytest.raises(ValueError, match="^no library to draw with$"):
        list(packed_blocks(recipe(trouble="mistake@300"), spans(NUM), 2))


def test_one_that_dies() -> None:
    with pytest.raises(WorkerError, match="a worker process was ended by signal 9"):
        list(packed_blocks(recipe(trouble="die@300"), spans(NUM), 2))
    assert not multiprocessing.active_children()


def test_given_up_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BALL_PAUSE", "0.005")
    blocks = packed_blocks(recipe(), spans(100_000), 2)
    assert next(blocks).span.start in (0, 128)
    before = time.monotonic()
    blocks.close()
    assert time.monotonic() - before < 2
    assert not multiprocessing.active_children()


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import ball_world\nball_world.install()\nimport palpate\n"
        "palpate.collect('palpate/Soccer-v0', 300, workers=2)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert 'must do so under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_cores() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
