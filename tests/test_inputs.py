"""How observations enter a model: their scale, and the light and the camera they are seen in while training."""

import pytest
import torch
from torch import Tensor

from palpate.inputs import Inputs, jittered, swayed


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 4) -> Tensor:
    return torch.randint(0, 256, (count, 3, 16, 16), generator=generator(9), dtype=torch.uint8)


def inputs(jitter: float) -> Inputs:
    made = Inputs((3, 16, 16))
    made.mean.fill_(127.0)
    made.spread.fill_(70.0)
    made.jitter = jitter
    return made


class TestJitter:
    def test_only_training_only_where_asked(self) -> None:
        o = pictures()
        plain = inputs(0.0)(o)
        assert torch.equal(inputs(0.0)(o, generator()), plain)
        disturbed = inputs(0.2)
        assert torch.equal(disturbed(o), plain)
        assert torch.equal(disturbed.eval()(o, generator()), plain)
        assert not torch.equal(disturbed.train()(o, generator()), plain)

    def test_vectors_have_no_light(self) -> None:
        made = Inputs((5,))
        made.jitter = 0.2
        x = torch.randn(3, 5, generator=generator())
        assert torch.equal(made(x, generator()), x)

    def test_follows_the_generator(self) -> None:
        x = torch.randn(2, 3, 8, 8, generator=generator(1))
        assert torch.equal(jittered(x, 0.1, generator(5)), jittered(x, 0.1, generator(5)))
        assert not torch.equal(jittered(x, 0.1, generator(5)), jittered(x, 0.1, generator(6)))

    @pytest.mark.parametrize("strength", [0.05, 0.2])
    def test_nothing_moves(self, strength: float) -> None:
        """Each colour of a picture stays a rising line of itself plus noise: the best fit leaves only the noise."""
        x = torch.randn(6, 3, 32, 32, generator=generator(1))
        y = jittered(x, strength, generator(2))
        flat, seen = x.flatten(2), y.flatten(2)
        flat_centred, seen_centred = flat - flat.mean(-1, keepdim=True), seen - seen.mean(-1, keepdim=True)
        slope = (flat_centred * seen_centred).sum(-1) / flat_centred.square().sum(-1)
        left = (seen_centred - slope[..., None] * flat_centred).std(-1)
        assert (slope > 0).all()
        assert slope.std() > strength / 2  # pictures and colours differ
        torch.testing.assert_close(left, torch.full_like(left, strength), rtol=0.15, atol=0)


class TestSway:
    def test_only_training_only_where_asked(self) -> None:
        o, moved = pictures(), inputs(0.0)
        plain = moved(o)
        moved.sway = 0.25
        assert torch.equal(moved(o), plain)
        assert torch.equal(moved.eval()(o, generator()), plain)
        assert not torch.equal(moved.train()(o, generator(1)), plain)

    def test_vectors_have_no_camera(self) -> None:
        made = Inputs((5,))
        made.sway = 0.25
        x = torch.randn(3, 5, generator=generator())
        assert torch.equal(made(x, generator()), x)

    def test_all_pictures_move_alike_and_no_further_than_asked(self) -> None:
        """A picture whose pixels hold their own place tells by how much it has moved."""
        height, width, most = 20, 40, 0.1
        place = torch.stack(
            torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
        ).expand(5, 2, height, width)
        seen = set()
        for seed in range(200):
            moved = swayed(place, most, generator(seed)) - place
            inside = moved[:, :, 2:-2, 4:-4]  # away from the border, whose pixels are repeated
            shift = inside[0, :, 0, 0]
            assert torch.equal(inside, shift[None, :, None, None].expand_as(inside))
            seen.add(tuple(shift.tolist()))
        assert {down for down, _ in seen} == set(range(-2, 3))
        assert {right for _, right in seen} == set(range(-4, 5))

    def test_the_border_is_repeated(self) -> None:
        x = torch.arange(20.0).expand(1, 1, 20, 20)
        for seed in range(20):
            moved = swayed(x, 0.1, generator(seed))[0, 0, 0]
            assert set(moved.tolist()) <= set(x[0, 0, 0].tolist())
            assert (moved.diff() >= 0).all()
