"""The search for a better place: an agent that hides the object, and a body that explains this as contacts."""

import pytest
import torch
from walks import RADIUS, stored, walked

from palpate.contacts.recent import Recent
from palpate.contacts.relocation import SEARCH_AT, better_place, due, places
from palpate.geometry import Segment
from palpate.groups.translations import Translations


@pytest.mark.parametrize("wrong", [(0.0, -0.09), (0.04, -0.07)])
def test_a_body_in_the_shadow_is_moved_to_the_object(wrong: tuple[float, float]) -> None:
    path, thing, changed = walked(4000, mast=0.1)
    shifted = thing + torch.tensor(wrong)
    clearance = path.distance2(shifted).sqrt() - 0.17
    place = better_place(stored(path, shifted, changed, clearance), 0, torch.tensor(0.17), resize=True)
    assert place is not None
    assert (shifted + place.offset - thing).norm(dim=1).max() < 0.035  # the places are 0.046 apart
    assert place.radius.item() == pytest.approx(RADIUS, abs=0.03)


@pytest.mark.parametrize(("n", "mast"), [(1, 0.0), (2, 0.0), (2, 0.1), (3, 0.0)])
def test_a_right_place_is_kept(n: int, mast: float) -> None:
    path, thing, changed = walked(4000, n, mast)
    assert better_place(stored(path, thing, changed), 0, torch.tensor(RADIUS), resize=True) is None


def test_a_long_body_is_kept() -> None:
    """Its mean radius is much larger than that of the disc which explains its contacts best."""
    path, thing, _ = walked(4000)
    ends = thing[:, None] + torch.tensor([[-0.25, 0.0], [0.25, 0.0]])
    rod = Segment(ends[:, 0], ends[:, 1] - ends[:, 0])
    gaps = torch.stack([path.distance2(rod.at(torch.full((4000,), t / 49))).sqrt() for t in range(50)])
    clearance = gaps.amin(0) - 0.02
    recent = stored(path, thing, clearance < 0, clearance)
    assert better_place(recent, 0, torch.tensor(0.27), resize=True) is None


def test_a_known_radius_is_kept() -> None:
    path, thing, changed = walked(4000, mast=0.1)
    place = better_place(
        stored(path, thing + torch.tensor([0.0, -0.12]), changed), 0, torch.tensor(RADIUS), resize=False
    )
    assert place is not None
    assert place.radius.item() == pytest.approx(RADIUS)


@pytest.mark.parametrize(("n", "count"), [(1, 145), (2, 145), (3, 126), (6, 31)])
def test_the_number_of_places_is_bounded(n: int, count: int) -> None:
    offsets = places(n)
    assert offsets.shape == (count, n)
    assert not offsets[0].any()
    torch.testing.assert_close(offsets.mean(0), torch.zeros(n))


def test_a_place_is_not_taken_twice() -> None:
    """The stored positions move with the object."""
    path, thing, changed = walked(4000, mast=0.1)
    recent = stored(path, thing + torch.tensor([0.0, -0.09]), changed)
    place = better_place(recent, 0, torch.tensor(0.17), resize=True)
    assert place is not None
    recent.shift(0, place.offset)
    again = better_place(recent, 0, place.radius, resize=True)
    assert again is None or again.offset.norm() < 0.05


@pytest.mark.parametrize("steps", [100, 300, 2500])
def test_searches_are_due_a_few_times_and_not_late(steps: int) -> None:
    recent = Recent(1, Translations(2))
    found = [share for share in (step / steps for step in range(50, steps, 50)) if due(recent, share)]
    assert 1 <= len(found) <= len(SEARCH_AT)
    assert found[-1] < SEARCH_AT[-1] + 50 / steps
