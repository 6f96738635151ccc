"""The world without the object, as an agent that carries its cameras sees it."""

import pytest
import torch
from torch import Tensor

from palpate.contacts.backdrop import Backdrop
from palpate.groups.translations import Translations

SIDE = 12


def scenery(z: Tensor) -> Tensor:
    """What stands there, seen from `z` [b, 2]: waves that shift as the agent moves, [b, 1, 12, 12]."""
    row = torch.arange(SIDE) / SIDE * 6
    return (torch.sin(row[:, None] + 3 * z[:, :1, None]) * torch.cos(row[None] - 3 * z[:, 1:, None]))[:, None]


def balls(place: Tensor) -> Tensor:
    """A dot at a pixel `place` [b, 2] of each picture."""
    picture = torch.zeros(len(place), 1, SIDE, SIDE)
    picture[torch.arange(len(place)), 0, place[:, 0], place[:, 1]] = 2.0
    return picture


@pytest.fixture(params=[(1.0, 0.0), (40.0, -300.0)], ids=["around zero", "far away and wide"])
def learned(request: pytest.FixtureRequest) -> tuple[Backdrop, torch.Generator, float, float]:
    scale, shift = request.param
    generator = torch.Generator().manual_seed(0)
    backdrop = Backdrop((1, SIDE, SIDE), Translations(2)).train()
    for _ in range(150):
        z, place = torch.rand(256, 2, generator=generator), torch.randint(SIDE, (256, 2), generator=generator)
        backdrop(scenery(z) + balls(place), scale * z + shift)
    return backdrop.eval(), generator, scale, shift


def test_what_is_left_is_the_object(learned: tuple[Backdrop, torch.Generator, float, float]) -> None:
    backdrop, generator, scale, shift = learned
    z, place = torch.rand(500, 2, generator=generator), torch.randint(SIDE, (500, 2), generator=generator)
    left = backdrop(scenery(z) + balls(place), scale * z + shift)
    ball = balls(place) > 0
    assert left[~ball].square().sum() < 0.02 * left[ball].square().sum()
    assert (left.flatten(1).argmax(1) == ball.flatten(1).long().argmax(1)).all()


def test_between_grid_points_pictures_are_interpolated() -> None:
    """Pictures that are a linear function of the position, and positions beyond the grid."""
    backdrop = Backdrop((1,), Translations(2))
    side = torch.arange(backdrop.cells, dtype=torch.float32)
    backdrop.pictures.copy_((side + 100 * side[:, None]).reshape(-1, 1))  # the first axis varies fastest
    z = torch.tensor([[0.3, -1.1], [-2.0, 2.0], [9.0, 9.0]])
    x, y = ((z / 2).clamp(-1, 1) + 1).T / 2 * (backdrop.cells - 1)
    torch.testing.assert_close(backdrop._between(backdrop.pictures, *backdrop._corners(z))[:, 0], x + 100 * y)


def test_deviations_are_measured_in_usual_ones_and_keep_their_sign() -> None:
    """With a usual deviation of 0.5: nothing below 4 times that, and no more than 12 times."""
    backdrop = Backdrop((5,), Translations(2)).eval()
    left = backdrop(torch.tensor([[1.0, 4.0, 10.0, -4.0, -10.0]]), torch.zeros(1, 2))
    assert left.tolist() == [[0, 4, 8, -4, -8]]


@pytest.mark.slow
def test_edges_that_no_grid_can_follow_are_usual() -> None:
    """A border between black and white that jumps about, brighter than the object."""
    generator = torch.Generator().manual_seed(0)
    backdrop = Backdrop((1, SIDE, SIDE), Translations(2)).train()
    for _ in range(200):
        z, place = torch.rand(256, 2, generator=generator), torch.randint(SIDE, (256, 2), generator=generator)
        edge = torch.rand(256, 1, 1, generator=generator) < 0.5
        restless = torch.zeros(256, 1, SIDE, SIDE)
        restless[:, :, 4:6] = torch.where(edge, 3.0, -3.0)[..., None]
        left = backdrop(scenery(z) + restless + balls(place), z)
    ball = (balls(place) > 0) & (restless == 0)
    assert left[ball].abs().min() > 10 * left[restless != 0].abs().mean()


def test_what_is_left_has_a_scale_of_one(learned: tuple[Backdrop, torch.Generator, float, float]) -> None:
    backdrop, generator, scale, shift = learned
    z, place = torch.rand(500, 2, generator=generator), torch.randint(SIDE, (500, 2), generator=generator)
    assert backdrop(scenery(z) + balls(place), scale * z + shift).square().mean() == pytest.approx(1, rel=0.2)


def test_only_training_changes_the_pictures(learned: tuple[Backdrop, torch.Generator, float, float]) -> None:
    backdrop, _, scale, shift = learned
    before = {name: value.clone() for name, value in backdrop.state_dict().items()}
    backdrop(torch.ones(8, 1, SIDE, SIDE), torch.full((8, 2), shift + scale / 2))
    assert all(torch.equal(before[name], value) for name, value in backdrop.state_dict().items())


def test_agents_that_all_stand_in_one_place_do_not_make_it_explode() -> None:
    backdrop = Backdrop((1, SIDE, SIDE), Translations(2)).train()
    for _ in range(100):
        backdrop(torch.ones(256, 1, SIDE, SIDE), torch.zeros(256, 2))
    assert backdrop.pictures.abs().max() <= 1 + 1e-5
    assert backdrop.usual.abs().max() <= 1


def test_the_grid_follows_an_agent_whose_frame_moves() -> None:
    """A plain average of all 600 batches would be halfway."""
    backdrop = Backdrop((1,), Translations(2)).train()
    for shift, batches in ((0.0, 300), (5.0, 300)):
        for _ in range(batches):
            backdrop(torch.zeros(4, 1), torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]) + shift)
    torch.testing.assert_close(backdrop.centre, torch.full((2,), 5.5), atol=0.4, rtol=0.0)
