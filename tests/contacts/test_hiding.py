"""Whether the agent hides the object: changes that no contact explains, and where they are."""

import pytest
import torch
from walks import RADIUS, stored, walked

from palpate.contacts.hiding import agent_hides


@pytest.mark.parametrize(("n", "mast", "hides"), [(2, 0.0, False), (2, 0.03, True), (2, 0.1, True), (3, 0.0, False)])
@pytest.mark.parametrize("size", [0.7, 1.0, 1.5])
def test_hiding_explains_changes_if_the_agent_hides_the_object(n: int, mast: float, hides: bool, size: float) -> None:
    """Also while the body is too small or too large, and positions are not accurate; 3 % of the objects are hidden, or
    9 %."""
    path, thing, changed = walked(4000, n, mast)
    noisy = thing + 0.3 * RADIUS * torch.randn(thing.shape, generator=torch.Generator().manual_seed(1))
    clearance = path.distance2(noisy).sqrt() - size * RADIUS
    assert agent_hides(stored(path, noisy, changed, clearance), 0, torch.tensor(size * RADIUS)) == hides


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_changes_anywhere_are_no_hiding(share: float) -> None:
    path, thing, changed = walked(4000)
    wrong = torch.rand(4000, generator=torch.Generator().manual_seed(1)) < share
    assert not agent_hides(stored(path, thing, changed ^ wrong), 0, torch.tensor(RADIUS))


def test_a_long_body_hides_nothing() -> None:
    """Its tips lie outside a ball of its size, but not outside its own shape."""
    path, thing, _ = walked(4000)
    apart = (path.start + torch.linspace(0, 1, 41)[:, None, None] * path.move - thing).abs()  # [t, N, 2]
    clearance = (apart - torch.tensor([0.2, 0.05])).amax(-1).amin(0)
    touched = clearance < 0
    assert agent_hides(stored(path, thing, touched), 0, torch.tensor(RADIUS))
    assert not agent_hides(stored(path, thing, touched, clearance), 0, torch.tensor(RADIUS))


def test_an_object_that_was_moved_is_not_judged_by_its_past() -> None:
    path, thing, changed = walked(4000, mast=0.1)
    recent = stored(path, thing, changed)
    assert agent_hides(recent, 0, torch.tensor(RADIUS))
    recent.shift(0, torch.tensor([0.01, 0.0]))
    assert not agent_hides(recent, 0, torch.tensor(RADIUS))
