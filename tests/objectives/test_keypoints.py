"""The Transporter's keypoints."""

import math

import pytest
import torch
from drawn import quick, randn
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from palpate.objectives.keypoints import heat, soft_argmax, transport

ROWS, COLUMNS = torch.linspace(0.9, 0.1, 5, dtype=torch.float64), torch.linspace(0.1, 0.9, 4, dtype=torch.float64)
STD = torch.tensor([0.1, 0.2], dtype=torch.float64)


class TestSoftArgmax:
    def test_a_peak_is_its_place(self) -> None:
        logits = torch.zeros(1, 2, 5, 4, dtype=torch.float64)
        logits[0, 0, 0, 3] = logits[0, 1, 4, 1] = 100.0  # up and right; down
        expected = torch.tensor([[[0.9, 0.9], [0.1 + 0.8 / 3, 0.1]]], dtype=torch.float64)
        torch.testing.assert_close(soft_argmax(logits, ROWS, COLUMNS), expected)

    def test_no_preference_is_the_middle(self) -> None:
        torch.testing.assert_close(
            soft_argmax(torch.zeros(3, 1, 5, 4), ROWS.float(), COLUMNS.float()), torch.full((3, 1, 2), 0.5)
        )

    @quick
    @given(seed=st.integers(0, 1000), b=st.integers(1, 3), k=st.integers(1, 3))
    def test_agrees_with_a_loop(self, seed: int, b: int, k: int) -> None:
        logits = 3 * randn(b, k, 5, 4, seed=seed)
        points = soft_argmax(logits, ROWS, COLUMNS)
        assert points.shape == (b, k, 2)
        for i in range(b):
            for j in range(k):
                weights = {(r, c): math.exp(logits[i, j, r, c]) for r in range(5) for c in range(4)}
                total = sum(weights.values())
                x = sum(w * COLUMNS[c].item() for (_, c), w in weights.items()) / total
                y = sum(w * ROWS[r].item() for (r, _), w in weights.items()) / total
                assert points[i, j].tolist() == pytest.approx([x, y])

    def test_a_constant_changes_nothing_and_large_logits_are_safe(self) -> None:
        logits = randn(2, 2, 5, 4)
        torch.testing.assert_close(soft_argmax(logits + 7, ROWS, COLUMNS), soft_argmax(logits, ROWS, COLUMNS))
        assert soft_argmax(1e6 * logits, ROWS, COLUMNS).isfinite().all()

    def test_gradient(self) -> None:
        assert gradcheck(lambda x: soft_argmax(x, ROWS, COLUMNS), randn(1, 2, 5, 4).requires_grad_())


class TestHeat:
    @quick
    @given(seed=st.integers(0, 1000), b=st.integers(1, 3), k=st.integers(1, 3))
    def test_agrees_with_a_loop(self, seed: int, b: int, k: int) -> None:
        points = torch.rand(b, k, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        mask = heat(points, ROWS, COLUMNS, STD)
        assert mask.shape == (b, 5, 4)
        for i in range(b):
            for r in range(5):
                for c in range(4):
                    outside = 1.0
                    for x, y in points[i].tolist():
                        square = ((COLUMNS[c].item() - x) / 0.1) ** 2 + ((ROWS[r].item() - y) / 0.2) ** 2
                        outside *= 1 - math.exp(-square / 2)
                    assert mask[i, r, c].item() == pytest.approx(1 - outside)

    def test_is_a_mask_that_is_one_at_its_points_in_any_order(self) -> None:
        points = torch.stack((COLUMNS[[1, 2]], ROWS[[0, 3]]), -1)[None]
        mask = heat(points, ROWS, COLUMNS, STD)
        assert mask[0, 0, 1].item() == mask[0, 3, 2].item() == 1
        assert ((mask >= 0) & (mask <= 1)).all()
        torch.testing.assert_close(heat(points.flip(1), ROWS, COLUMNS, STD), mask)

    def test_two_points_at_one_place_stay_a_mask(self) -> None:
        point = torch.tensor([[[0.3, 0.3]]], dtype=torch.float64)
        assert (heat(point.expand(1, 2, 2), ROWS, COLUMNS, STD) <= 1).all()

    def test_gradient(self) -> None:
        points = torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        assert gradcheck(lambda x: heat(x, ROWS, COLUMNS, STD), points.requires_grad_())


class TestTransport:
    def test_agrees_with_a_loop(self) -> None:
        source, target = randn(2, 3, 5, 4), randn(2, 3, 5, 4, seed=1)
        here, there = torch.rand(2, 2, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        moved = transport(source, target, here, there)
        for i in range(2):
            for j in range(3):
                for r in range(5):
                    for c in range(4):
                        h, h_next = here[i, r, c].item(), there[i, r, c].item()
                        twin = (1 - h) * (1 - h_next) * source[i, j, r, c].item() + h_next * target[i, j, r, c].item()
                        assert moved[i, j, r, c].item() == pytest.approx(twin)

    def test_a_thing_that_moved_is_moved(self) -> None:
        """One bright cell on an empty field, and keypoints that know where it is: the source becomes the target."""
        source, target = torch.zeros(2, 1, 1, 5, 4)
        source[0, 0, 1, 1], target[0, 0, 3, 2] = 1, 1
        here, there = source[:, 0], target[:, 0]
        assert torch.equal(transport(source, target, here, there), target)
        assert torch.equal(transport(source, target, 0 * here, 0 * there), source)
        blind = transport(source, target, 0 * here, there)  # what is not taken away stays
        assert torch.equal(blind, source + target)

    def test_gradient(self) -> None:
        maps = [randn(1, 2, 5, 4, seed=i).requires_grad_() for i in range(2)]
        masks = [randn(1, 5, 4, seed=i).sigmoid().requires_grad_() for i in range(2)]
        assert gradcheck(transport, (*maps, *masks))
