"""W and positions as witnesses of a change: whichever agrees better with geometry leads, object by object."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from palpate.contacts.scenes import Scenes
from palpate.contacts.split import Split, agreement
from palpate.contacts.witnesses import AGREED, FORGETS, PLACES_FROM, Witnesses

B = 2048
LATE, EARLY = torch.tensor(PLACES_FROM), torch.tensor(PLACES_FROM - 0.01)
NO_RANK = torch.zeros(1, 1, dtype=torch.bool)


def scattered(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def witnesses(count: int = 1) -> Witnesses:
    made = Witnesses(Scenes([Split() for _ in range(count)]), Scenes([Split() for _ in range(count)], dimension=None))
    return made.train()


def observed(
    progress: Tensor,
    *,
    w_step: float,
    z_step: float,
    predicted: Callable[[Tensor], Tensor] = lambda touched: touched,
) -> tuple[Witnesses, Tensor, Tensor]:
    """One batch in which the object, if touched, moves by these steps, in noise of 0.1; and the changes found in it.

    Geometry predicts the contacts, right unless `predicted` makes others of them.
    """
    made = witnesses()
    touched = torch.rand(B, 1, generator=torch.Generator().manual_seed(0)) < 0.4
    w, z = (10 * scattered(seed, B, 1, 3) for seed in (1, 2))
    way = torch.nn.functional.normalize(scattered(3, B, 1, 3), dim=-1)
    w_next, z_next = (
        x + 0.1 * scattered(seed, B, 1, 3) + touched[..., None] * step * way
        for x, seed, step in ((w, 4, w_step), (z, 5, z_step))
    )
    odds = scattered(6, B, 1)  # they do not matter: one object is responsible for every change
    return made, made.observe(w, w_next, z, z_next, predicted(touched), odds, NO_RANK, progress), touched


def accuracy(found: Tensor, touched: Tensor) -> float:
    return float(((found > 0.5) == touched).float().mean())


@pytest.mark.parametrize(("w_step", "z_step", "lead"), [(0.1, 9.0, True), (9.0, 0.1, False)])
def test_the_witness_that_agrees_better_with_geometry_leads(w_step: float, z_step: float, lead: bool) -> None:
    made, found, touched = observed(LATE, w_step=w_step, z_step=z_step)
    assert made.lead.tolist() == [lead]
    assert accuracy(found, touched) > 0.99
    torch.testing.assert_close(found, found.round())  # one object: it has changed or not


def test_positions_do_not_lead_while_they_are_inaccurate() -> None:
    made, found, touched = observed(EARLY, w_step=0.1, z_step=9.0)
    assert made.lead.tolist() == [False]
    assert accuracy(found, touched) < 0.9


def test_a_witness_that_separates_is_not_given_up_for_one_that_does_not() -> None:
    """W misses some contacts but separates the others; positions find more of them, with a blurred boundary."""
    made, _, _ = observed(LATE, w_step=9.0, z_step=0.35)
    assert not made.places.has_valley[0]
    assert made.lead.tolist() == [False]


@pytest.mark.parametrize("lead", [True, False])
def test_new_thresholds_do_not_change_who_leads(lead: bool) -> None:
    made, _, touched = observed(LATE, w_step=0.1 if lead else 9.0, z_step=9.0 if lead else 0.1)
    distances = torch.where(touched, 4.0, 0.01) * (1 + torch.rand(B, 1, generator=torch.Generator().manual_seed(1)))
    made.recall(distances, distances, touched.roll(1, 0))  # geometry knows nothing about these
    assert made.lead.tolist() == [lead]


def test_both_thresholds_are_taken_from_new_triples() -> None:
    """A model of several objects has labels by W at first, and contacts by positions."""
    made, _, touched = observed(LATE, w_step=9.0, z_step=9.0)
    noise = 1 + torch.rand(B, 1, generator=torch.Generator().manual_seed(1))
    made.recall(torch.where(touched, 40.0, 0.9) * noise, torch.where(touched, 4000.0, 90.0) * noise, touched)
    thresholds = [float(witness.split(0).threshold.exp()) for witness in (made.scenes, made.places)]
    assert 2 < thresholds[0] < 40
    assert 200 < thresholds[1] < 4000


def test_of_two_equal_witnesses_w_leads() -> None:
    made, _, _ = observed(LATE, w_step=9.0, z_step=9.0)
    assert made.lead.tolist() == [False]


@pytest.mark.parametrize("lead", [True, False])
def test_everything_is_asked_of_the_witness_that_leads(lead: bool) -> None:
    made, _, touched = observed(LATE, w_step=0.1 if lead else 9.0, z_step=9.0 if lead else 0.1)
    near, far = torch.zeros(1, 1), torch.full((1, 1), 75.0)
    for moves, d in ((lead, made.deciding(near, far)), (not lead, made.deciding(far, near))):
        assert (d > 0).tolist() == [[moves]]
        assert made.contact(d).tolist() == [[moves]]
        assert (made.probability(d) > 0.5).tolist() == [[moves]]
    torch.testing.assert_close(made.share, touched.float().mean(0), atol=0.02, rtol=0)
    assert made.split(0) is (made.places if lead else made.scenes).split(0)
    assert made.compares_positions(0) == lead
    assert made.separations()[0] > 0.5
    assert made.reliable(torch.tensor([[True], [False]])).tolist() == [True, False]


def test_evaluation_stores_nothing() -> None:
    made, _, touched = observed(EARLY, w_step=9.0, z_step=9.0)
    before = {name: x.clone() for name, x in made.state_dict().items()}
    z = scattered(0, B, 1, 3)
    made.eval().observe(z, z, z, z, touched, z[..., 0], NO_RANK, LATE)
    for name, x in made.state_dict().items():
        torch.testing.assert_close(x, before[name], equal_nan=True, msg=name)


# Several objects


def two_objects(progress: Tensor, *, z_step: float) -> tuple[Witnesses, Tensor, Tensor]:
    """As `observed`, for two objects that share both slots of W: each slot moves if either object is touched."""
    made = witnesses(2)
    touched = torch.rand(B, 2, generator=torch.Generator().manual_seed(0)) < 0.2
    either = touched.any(1)[:, None, None]
    w, z = (10 * scattered(seed, B, 2, 3) for seed in (1, 2))
    w_next = w + 0.1 * scattered(4, B, 2, 3) + 9.0 * either
    z_next = z + 0.1 * scattered(5, B, 2, 3) + z_step * touched[..., None]
    odds = torch.where(touched, 5.0, -5.0)  # where each object is, and how far it has moved
    rank = torch.zeros(2, 2, dtype=torch.bool)
    return made, made.observe(w, w_next, z, z_next, touched, odds, rank, progress), touched


def test_w_finds_that_something_has_changed_and_the_odds_tell_which_object() -> None:
    made, found, touched = two_objects(EARLY, z_step=0.0)
    assert made.lead.tolist() == [False, False]
    assert accuracy(found, touched) > 0.99


def test_each_object_has_a_part_of_the_changes() -> None:
    made, _, touched = two_objects(EARLY, z_step=0.0)
    changes = touched.any(1).float().mean()
    torch.testing.assert_close(made.scenes.share_of_changes(), changes, atol=0.02, rtol=0)
    part = touched.float().mean(0) / changes
    torch.testing.assert_close(made.part, torch.tensor([0.5, 0.5]).lerp(part, FORGETS), atol=1e-3, rtol=0)
    torch.testing.assert_close(made.share, made.scenes.share_of_changes() * made.part)


def test_only_positions_tell_changes_of_one_of_several_objects() -> None:
    """Each point of W belongs to both objects."""
    made, _, touched = two_objects(LATE, z_step=9.0)
    far, one_far = torch.full((1, 2), 75.0), torch.tensor([[75.0, 0.0]])
    d = made.deciding(far, one_far)
    assert made.contact(d).tolist() == [[True, False]]
    assert made.split(1) is made.places.split(1)
    torch.testing.assert_close(made.places.share, touched.float().mean(0), atol=0.02, rtol=0)


def test_evaluation_of_several_objects_uses_positions_as_a_user_does() -> None:
    """The thresholds of W stay those of training: its points do not separate, so held-out triples do not set them."""
    made, _, touched = two_objects(EARLY, z_step=9.0)
    assert made.lead.tolist() == [False, False]
    z = 10 * scattered(2, B, 2, 3)
    z_next = z + 0.1 * scattered(5, B, 2, 3) + 9.0 * touched[..., None]
    still, unlikely, rank = scattered(1, B, 2, 3), torch.full((B, 2), -9.0), torch.zeros(2, 2, dtype=torch.bool)
    found = made.eval().observe(still, still, z, z_next, touched, unlikely, rank, EARLY)
    assert accuracy(found, touched) > 0.99


# The agreement with geometry


def test_agreement_by_hand() -> None:
    scaled, touching = (
        x.repeat(10) for x in (torch.tensor([1.0, 2, 3, 4, 5]), torch.tensor([0.0, 1, 0, 1, torch.nan]))
    )
    found = [agreement(scaled, touching, torch.tensor(cut)) for cut in (2.5, 3.5)]
    half = torch.tensor(0.5)  # of the paths are predicted to touch
    torch.testing.assert_close(found, [(torch.tensor([0.5, 0.5]), half), (torch.tensor([0.5, 0.0]), half)])
    torch.testing.assert_close(agreement(scaled[:-5], touching[:-5], torch.tensor(3.5))[0], torch.zeros(2))  # too few


def test_geometry_and_the_leading_witness_agree_or_not() -> None:
    for z_step, agree in ((9.0, True), (0.1, False)):
        made, _, _ = observed(LATE, w_step=0.1, z_step=z_step)
        assert made.lead.tolist() == [agree]
        assert made.agreed.tolist() == [float(agree)]


def test_they_must_agree_for_a_while() -> None:
    made = witnesses()
    agree = [True] * (AGREED - 1) + [False] + [True] * AGREED
    seen = []
    for right in agree:
        touched = torch.arange(B)[:, None] % 2 > 0
        w = scattered(1, B, 1, 3)
        w_next = w + 0.01 * scattered(2, B, 1, 3) + 9.0 * touched[..., None]
        predicted = touched if right else ~touched
        made.scenes.split(0).reset()  # only this batch counts
        made.observe(w, w_next, w, w, predicted, scattered(3, B, 1), NO_RANK, EARLY)
        seen.append(bool(made.agrees))
    assert seen.index(True) == len(agree) - 1


def test_an_object_that_starts_anew_has_no_past() -> None:
    made, _, _ = two_objects(LATE, z_step=9.0)
    kept = {name: x.clone() for name, x in made.places.split(0).state_dict().items()}
    made.lead.fill_(True)
    made.agreed.fill_(9.0)
    made.restart(1)
    assert made.lead.tolist() == [True, False]
    assert made.agreed[1] == 0
    assert made.part[1] == 0.5
    fresh = Split().state_dict()
    torch.testing.assert_close(dict(made.places.split(1).state_dict()), dict(fresh), equal_nan=True)
    torch.testing.assert_close(dict(made.places.split(0).state_dict()), kept, equal_nan=True)


def few_of(touched: Tensor) -> Tensor:
    """The first 25 of the touched paths."""
    return touched & (touched.cumsum(0) <= 25)


@pytest.mark.parametrize("predicted", [few_of, lambda touched: ~few_of(~touched)], ids=["few", "nearly all"])
def test_few_paths_that_happen_to_fit_are_no_agreement(predicted: Callable[[Tensor], Tensor]) -> None:
    """Geometry that predicts few contacts, or nearly all, explains hardly anything, even if these few are right."""
    made, _, _ = observed(LATE, w_step=9.0, z_step=0.1, predicted=predicted)
    assert made.scenes.youden.tolist() == pytest.approx([0.6] if predicted is few_of else [0.4], abs=0.05)
    assert not made.agrees.any()


@pytest.mark.parametrize(("contacts", "appearing", "agree"), [(0.1, 0.2, True), (0.3, 0.4, True), (0.03, 0.2, False)])
def test_objects_that_appear_or_vanish_are_no_disagreement(contacts: float, appearing: float, agree: bool) -> None:
    """Geometry that knows all contacts agrees, if they are at least a quarter of all changes."""
    draw = torch.Generator().manual_seed(0)
    touched, appears = (torch.rand(4096, generator=draw) < share for share in (contacts, appearing))
    distances = torch.where(touched | appears, 1.0, 1e-4) * (1 + torch.rand(4096, generator=draw))
    split = Split()
    split.update(distances, 2 * torch.rand(4096, generator=draw), touched)
    assert float(split.youden) == pytest.approx(1 - appearing, abs=0.03)
    assert bool(split.agrees()) == agree


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.2])
def test_w_is_never_more_certain_than_it_agrees_with_geometry(wrong: float) -> None:
    """If geometry and W disagree in a share of the triples, wherever they are, so much doubt remains."""
    draw = torch.Generator().manual_seed(0)
    touched = torch.rand(4096, generator=draw) < 0.5
    distances = torch.where(touched, 1.0, 1e-4) * (1 + torch.rand(4096, generator=draw))
    geometry = touched ^ (torch.rand(4096, generator=draw) < wrong)
    split = Split()
    split.update(distances, 2 * torch.rand(4096, generator=draw), geometry)
    p = split.probability(torch.tensor([1e-4, 2.0]))
    torch.testing.assert_close(p, torch.tensor([wrong, 1 - wrong]), atol=0.02, rtol=0)
    assert float(split.youden) == pytest.approx(1 - 2 * wrong, abs=0.03)


def test_a_geometry_that_knows_nothing_leaves_w_as_certain_as_it_is() -> None:
    draw = torch.Generator().manual_seed(0)
    touched = torch.rand(4096, generator=draw) < 0.5
    distances = torch.where(touched, 1.0, 1e-4) * (1 + torch.rand(4096, generator=draw))
    split = Split()
    split.update(distances, 2 * torch.rand(4096, generator=draw), torch.rand(4096, generator=draw) < 0.5)
    assert float(split.youden) == pytest.approx(0, abs=0.05)
    p = split.probability(torch.tensor([1e-4, 2.0]))
    assert float(p[0]) < 0.001
    assert float(p[1]) > 0.999
