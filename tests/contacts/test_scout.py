"""The scout: what finds an object first for an agent that carries its cameras."""

import pytest
import torch
from torch.testing import assert_close

from palpate.config import ModelConfig
from palpate.contacts.scout import FIRST_LEVEL, HALVED_FROM, LEVEL, LEVELLED_BY, NEAR, WEIGHT, Scout
from palpate.groups.translations import Translations
from palpate.inputs import Inputs


def scout_for(side: int = 16) -> tuple[Scout, Inputs]:
    config = ModelConfig(method="egocentric", encoder="small", observation_shape=(3, side, side), n=2)
    return Scout(config, Translations(2)), Inputs(config.observation_shape, Translations(2))


@pytest.mark.parametrize("side", [16, HALVED_FROM])
def test_what_looks_the_same_lies_as_far_from_each_agent(side: int) -> None:
    scout, inputs = scout_for(side)
    scout.eval()
    x, z_int = torch.randn(1, 3, side, side).expand(4, -1, -1, -1), torch.randn(4, 2)
    place = scout(x, z_int, inputs, torch.Generator())
    assert place.shape == (4, 2)
    assert scout.backdrop.pictures.abs().max() == 0  # so that nothing but the place of the agent differs
    assert_close(place - z_int, (place - z_int)[:1].expand(4, 2))


def test_contacts_are_told_by_how_far_the_object_moved_and_remembered_in_training_only() -> None:
    scout, _ = scout_for()
    generator = torch.Generator().manual_seed(0)
    place, contact = torch.randn(512, 2, generator=generator), torch.arange(512) % 2 == 0
    near, far = place + 1e-3 * torch.randn(512, 2, generator=generator), place.roll(1, 0) + 1
    place_next = torch.where(contact[:, None], far, near)
    assert (scout.train().observe(place, place_next) == contact).float().mean() > 0.98
    threshold = scout.split.threshold.clone()
    scout.eval().observe(place, place_next + 9)
    assert torch.equal(scout.split.threshold, threshold)
    assert int(scout.split.seen) == 512
    unrelated = (place_next - place_next.roll(1, 0)).square().sum(1)
    assert_close(scout.split.smallest, unrelated.sort().values[int(NEAR * 512)])


def test_the_foreground_is_augmented_in_training() -> None:
    scout, inputs = scout_for()
    inputs.augment = "light"
    x, z_int = torch.randn(4, 3, 16, 16), torch.zeros(4, 2)
    for training in (True, False):
        inputs.train(training)
        one, two = (scout.eval()(x, z_int, inputs, torch.Generator().manual_seed(seed)) for seed in (0, 1))
        assert torch.equal(one, two) != training


def test_the_loss_levels_off_sooner_in_the_end() -> None:
    """A contact among many that rest: its gradient fades."""
    scout, _ = scout_for()
    far = torch.tensor([[100.0, 0.0]])
    for progress, level2 in ((0.0, FIRST_LEVEL**2), (LEVELLED_BY / 2, FIRST_LEVEL * LEVEL), (LEVELLED_BY, LEVEL**2)):
        loss = scout.loss(torch.zeros(1, 2), far, torch.tensor(progress)).item()
        assert loss == pytest.approx(WEIGHT * level2, rel=1e-3)
    assert scout.loss(torch.zeros(1, 2), far, torch.tensor(1.0)).item() == pytest.approx(loss)
