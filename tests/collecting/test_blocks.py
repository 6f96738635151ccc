from pathlib import Path

import numpy as np
import pytest
from ball_world import Ball

from palpate.collecting import blocks
from palpate.collecting.blocks import BLOCK_ROWS, Block, RowWorld, Span, make, pack, spans
from palpate.data.labelled import Labelled, Truth
from palpate.envs.sprites import Sprites, SpritesConfig


def test_spans_cover_the_rows() -> None:
    assert spans(2 * BLOCK_ROWS + 1) == [(0, BLOCK_ROWS), (BLOCK_ROWS, 2 * BLOCK_ROWS), (2 * BLOCK_ROWS, 257)]
    assert spans(1) == [(0, 1)]
    assert spans(BLOCK_ROWS) == [(0, BLOCK_ROWS)]


def test_the_names_of_the_truth() -> None:
    assert Truth._fields == blocks.TRUTH


def assert_equal(one: Block, two: Block) -> None:
    assert one.span == two.span
    assert one.dropped == two.dropped
    assert one.columns.keys() == two.columns.keys()
    for name, x in one.columns.items():
        assert x.dtype == two.columns[name].dtype
        np.testing.assert_array_equal(x, two.columns[name])


class TestRows:
    def test_contract(self) -> None:
        assert isinstance(Ball(1), RowWorld)
        assert not isinstance(Sprites(), RowWorld)

    @pytest.mark.parametrize("views", [1, 4])
    def test_in_the_canonical_layout(self, views: int) -> None:
        ball = Ball(views)
        block, rows = make(ball, 3, Span(128, 140)), ball.rows(3, 128, 140)
        assert block.columns["observation"].shape == (12, 3 * views, 8, 8)
        last = rows.next_observation.reshape(12, -1, 8, 8, 3)[:, views - 1]  # the last view, channels last
        np.testing.assert_array_equal(block.columns["next_observation"][:, -1], last[..., 2])
        np.testing.assert_array_equal(block.columns["action"], rows.action)
        for name in ("agent", "object", "contact", "agent_next", "object_next"):
            np.testing.assert_array_equal(block.columns[f"truth/{name}"], getattr(rows, name))
        assert len(block.columns) == 8  # angles are unknown
        assert block.dropped == {"grazing": 1}


class TestStates:
    def test_depends_on_seed_and_number_alone(self) -> None:
        world = Sprites(SpritesConfig(size=16))
        block = make(world, 3, Span(128, 256))
        make(world, 3, Span(0, 128))
        assert_equal(make(world, 3, Span(128, 256)), block)
        for seed, span in ((4, Span(128, 256)), (3, Span(0, 128))):
            other = make(world, seed, span)
            assert not np.array_equal(other.columns["action"], block.columns["action"])

    def test_a_short_block_begins_like_a_long_one(self) -> None:
        world = Sprites(SpritesConfig(size=16))
        long, short = make(world, 0, Span(128, 256)), make(world, 0, Span(128, 133))
        for name, x in short.columns.items():
            np.testing.assert_array_equal(x, long.columns[name][:5])


def test_a_packed_block_is_a_file(tmp_path: Path) -> None:
    block = make(Ball(4), 0, Span(256, 300))
    packed = pack(block, {"seed": 0})
    assert packed == pack(block, {"seed": 0})  # byte for byte
    path = tmp_path / "part.h5"
    path.write_bytes(packed.image)
    with Labelled.open(path) as stored:
        assert stored.transitions.attributes == {"seed": 0, "dropped_grazing": 4, "views": 4}
        np.testing.assert_array_equal(stored.transitions.rows(slice(None)).o, block.columns["observation"])
        np.testing.assert_array_equal(stored.truth.contact, block.columns["truth/contact"])
