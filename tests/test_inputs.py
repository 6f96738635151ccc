"""How observations and actions enter a model: their scales, and how training pictures are augmented."""

import pytest
import torch
from torch import Tensor

from palpate import inputs
from palpate.data.transitions import Batch
from palpate.groups.translations import Translations
from palpate.inputs import Inputs, jittered, shifted


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(shape: tuple[int, ...], a: Tensor | None = None, rows: int = 9) -> Batch:
    o, o_next = torch.randint(0, 256, (2, rows, *shape), generator=generator(9), dtype=torch.uint8)
    return Batch(o, torch.randn(rows, 2, generator=generator(8)) if a is None else a, o_next)


def measured(sample: Batch, actions: Tensor | None = None) -> Inputs:
    made = Inputs(tuple(sample.o.shape[1:]), Translations(sample.a.shape[1]))
    made.measure(sample, actions)
    return made


class TestScales:
    @pytest.mark.parametrize("shape", [(3, 8, 10), (5,)])
    @pytest.mark.parametrize("rows_at_a_time", [1, 100])
    def test_observations_come_out_with_mean_0_and_spread_1(
        self, shape: tuple[int, ...], rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In pieces of any size: the same as over all rows at once."""
        sample = batch(shape)
        monkeypatch.setattr(inputs, "CHUNK_BYTES", rows_at_a_time * 4 * sample.o[0].numel())
        scaled = measured(sample)
        x = scaled(torch.cat((sample.o, sample.o_next))).transpose(0, 1).flatten(1)
        torch.testing.assert_close(x.mean(1), torch.zeros(shape[0]), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.std(1), torch.ones(shape[0]))

    def test_a_channel_that_hardly_varies_is_not_amplified(self) -> None:
        """In pictures it is noise; the entries of a vector may have any units. A constant one stays at 0."""
        factors = torch.tensor([1.0, 1e-3, 0.0])
        picture, vector = torch.randn(200, 3, 8, 8, generator=generator()), torch.randn(200, 3, generator=generator())
        a = torch.ones(200, 2)
        for o, spreads in ((picture * factors[:, None, None], (1, 0.1, 1)), (vector * factors, (1, 1e-3, 1))):
            scaled = measured(Batch(o, a, o))
            assert scaled.spread.flatten().tolist() == pytest.approx(spreads, rel=0.15)
            assert scaled(o)[:, 2].abs().max() == 0

    def test_large_pictures_are_averaged_part_by_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In training, where a whole batch in float32 may not fit in memory; the result is the same."""
        made, o = Inputs((3, 8, 10), Translations(2), shrink=2), torch.randint(0, 256, (7, 3, 8, 10), dtype=torch.uint8)
        whole, sizes, plain = made.eval()(o), list[int](), inputs.F.avg_pool2d
        monkeypatch.setattr(inputs, "CHUNK_BYTES", 3 * 4 * o[0].numel())
        monkeypatch.setattr(inputs.F, "avg_pool2d", lambda x, side: (sizes.append(len(x)), plain(x, side))[1])
        torch.testing.assert_close(made.train()(o), whole)
        assert sizes == [3, 3, 1]

    def test_shrinking_averages_squares(self) -> None:
        o = batch((3, 8, 10)).o
        made = Inputs((3, 8, 10), Translations(2), shrink=2)
        slow = sum(o[:, :, i::2, j::2].float() for i in (0, 1) for j in (0, 1)) / 4
        torch.testing.assert_close(made(o), slow)

    @pytest.mark.parametrize("size", [1e-11, 1.0, 1e11])
    def test_one_unit_for_all_axes_makes_the_mean_square_of_actions_1(self, size: float) -> None:
        a = size * torch.tensor([[3.0, 4.0], [0.0, 5.0], [0.0, 0.0]])
        scaled = measured(batch((5,), a, 3))
        assert float(scaled.unit) == pytest.approx(size * (50 / 3) ** 0.5)
        torch.testing.assert_close(scaled.scaled(a), a / scaled.unit)

    def test_the_unit_is_that_of_all_actions_where_they_are_known(self) -> None:
        assert float(measured(batch((5,)), torch.tensor([[3.0, 4.0]] * 7)).unit) == pytest.approx(5.0)

    @pytest.mark.parametrize("size", [1e30, 1e-13])
    def test_units_whose_squares_are_no_numbers_are_refused(self, size: float) -> None:
        with pytest.raises(ValueError, match="actions have a root mean square of .*; allowed is 1e-12 to 1e.12"):
            measured(batch((5,), size * torch.tensor([[1.0, 0.0]]), 1))

    def test_actions_that_are_all_zero_are_refused_and_equal_ones_are_not(self) -> None:
        with pytest.raises(ValueError, match="all actions are zero"):
            measured(batch((5,), torch.zeros(9, 2)))
        assert float(measured(batch((5,), torch.ones(9, 2))).unit) == pytest.approx(2**0.5)


class TestAugment:
    @pytest.mark.parametrize("augment", ["none", "light", "shift"])
    @pytest.mark.parametrize("shape", [(3, 32, 32), (5,)])
    def test_only_pictures_only_in_training_only_if_set(self, augment: str, shape: tuple[int, ...]) -> None:
        made, o = Inputs(shape, Translations(2)), batch(shape).o
        plain = made(o)
        made.augment = augment
        assert torch.equal(made(o), plain)
        assert torch.equal(made(o, generator(1)), plain) == (augment == "none" or len(shape) == 1)
        assert torch.equal(made.eval()(o, generator(1)), plain)

    def test_light_moves_nothing(self) -> None:
        """Each colour of a picture stays a rising line of itself plus noise: the best fit leaves only the noise."""
        x = torch.randn(6, 3, 32, 32, generator=generator(1))
        strength = 0.2
        flat, seen = (y.flatten(2) - y.flatten(2).mean(-1, keepdim=True) for y in (x, jittered(x, 0.2, generator(2))))
        slope = (flat * seen).sum(-1) / flat.square().sum(-1)
        left = (seen - slope[..., None] * flat).std(-1)
        assert (slope > 0).all()
        assert slope.std() > strength / 2  # pictures and colours differ
        torch.testing.assert_close(left, torch.full_like(left, strength), rtol=0.15, atol=0)

    def test_all_pictures_shift_alike_and_no_further_than_asked(self) -> None:
        """A picture whose pixels hold their own position shows by how much it has moved; its border is repeated."""
        height, width, most = 20, 40, 0.1
        place = torch.stack(
            torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
        ).expand(5, 2, height, width)
        seen = set()
        for seed in range(200):
            moved = shifted(place, most, generator(seed))
            down, right = (int(x) for x in moved[0, :, 10, 20] - place[0, :, 10, 20])
            rows, columns = torch.arange(height) + down, torch.arange(width) + right
            wanted = torch.meshgrid(rows.clamp(0, height - 1), columns.clamp(0, width - 1), indexing="ij")
            assert torch.equal(moved, torch.stack(wanted).float().expand_as(moved))
            seen.add((down, right))
        assert {down for down, _ in seen} == set(range(-2, 3))
        assert {right for _, right in seen} == set(range(-4, 5))
