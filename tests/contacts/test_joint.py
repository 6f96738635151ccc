"""The odds of a change from both witnesses together."""

import pytest
import torch
from torch import Tensor

from palpate.contacts.joint import BINS, LARGEST, JointOdds, rising
from palpate.contacts.split import WINDOW

APART = 2.0  # between the means of the two classes, in standard deviations


def scattered(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(*, grown: float = 0.0, noise: tuple[float, float] = (1.0, 1.0)) -> tuple[JointOdds, Tensor, Tensor, Tensor]:
    """After 4096 triples: log-odds, share, and the distances and clearances behind them.

    A path touches if its clearance is negative. Geometry's body is larger by `grown`. Distances are normal.
    """
    clearance = 2 * torch.rand(WINDOW, generator=torch.Generator().manual_seed(0)) - 1
    distances = APART * (clearance < 0).float()[:, None] + torch.tensor(noise) * scattered(1, WINDOW, 2)
    joint = JointOdds(2)
    return joint, *joint.observe(distances, clearance - grown), distances


def pooled(touched: list[float], other: list[float]) -> list[float]:
    """Isotonic regression by pooling neighbours that fall, the slow way."""
    groups = [[t, o, 1] for t, o in zip(touched, other, strict=True)]
    at = 0
    while at + 1 < len(groups):
        (t, o, n), (t_next, o_next, n_next) = groups[at], groups[at + 1]
        if t / (t + o) > t_next / (t_next + o_next):
            groups[at : at + 2] = [[t + t_next, o + o_next, n + n_next]]
            at = max(at - 1, 0)
        else:
            at += 1
    return [t / (t + o) for t, o, n in groups for _ in range(int(n))]


def test_a_larger_distance_is_never_weaker_evidence() -> None:
    found = rising(torch.tensor([0.1, 0.3, 0.2, 0.4]), torch.tensor([0.7, 0.1, 0.1, 0.1]))
    torch.testing.assert_close(found, torch.tensor([1 / 8, 5 / 7, 5 / 7, 4 / 5]))


@pytest.mark.parametrize("seed", range(8))
def test_the_regression_equals_pooling_of_neighbours(seed: int) -> None:
    touched, other = torch.rand(2, 12, generator=torch.Generator().manual_seed(seed)) + 0.01
    expected = pooled(touched.tolist(), other.tolist())
    torch.testing.assert_close(rising(touched, other), torch.tensor(expected))


@pytest.mark.parametrize("grown", [0.0, 0.2, -0.2])
def test_the_odds_are_those_of_both_distances_also_if_the_body_has_a_wrong_size(grown: float) -> None:
    joint, odds, share, distances = made(grown=grown)
    true = (APART * (distances - APART / 2)).sum(1)
    near = true.abs() < 3
    assert (odds - true)[near].abs().mean() < 0.4
    assert share.item() == pytest.approx((true > 0).double().mean().item(), abs=0.03)
    assert joint.agree.all()


def test_a_witness_that_does_not_agree_with_geometry_has_no_part() -> None:
    joint, odds, _, distances = made(noise=(1.0, 50.0))
    assert joint.agree.tolist() == [True, False]
    order = distances[:, 0].argsort()
    assert (odds[order].diff() >= 0).all()


@pytest.mark.parametrize(("count", "enough"), [(2 * WINDOW // BINS, True), (2 * WINDOW // BINS - 4, False)])
def test_contacts_must_fill_a_bin(count: int, enough: bool) -> None:
    """Otherwise the bin of the largest distances would mix both classes."""
    clearance = torch.where(torch.arange(WINDOW) < count, -1.0, 1.0) * (1 + torch.arange(WINDOW) / WINDOW)
    distances = (clearance < 0).float()[:, None].expand(-1, 2)
    joint = JointOdds(2)
    odds, _ = joint.observe(distances + 0.01 * scattered(0, WINDOW, 2), clearance)
    assert joint.agree.tolist() == [enough, enough]
    assert bool(odds.any()) == enough


def test_no_triple_is_certain() -> None:
    clearance = torch.where(torch.arange(WINDOW) % 2 == 0, -1.0, 1.0) * (1 + torch.arange(WINDOW) / WINDOW)
    odds, share = JointOdds(2).observe((clearance < 0).float()[:, None] + 0.01 * scattered(0, WINDOW, 2), clearance)
    assert odds.abs().amax() <= LARGEST
    assert torch.equal(odds > 0, clearance < 0)
    assert share.item() == pytest.approx(0.5)


def test_batches_take_the_places_of_the_oldest_triples() -> None:
    joint, before, _, distances = made()
    for rows in (slice(8), slice(8, 16)):
        odds, _ = joint.observe(distances[rows].flip(0), torch.ones(8))
        torch.testing.assert_close(joint.distances[rows], distances[rows].flip(0))
        assert (odds - before[rows].flip(0)).abs().amax() < 0.5
    torch.testing.assert_close(joint.distances[16:], distances[16:])


def test_a_batch_may_exceed_the_window() -> None:
    joint, odds, _, distances = made()
    found, _ = joint.observe(torch.cat((distances[:5], distances)), torch.cat((torch.ones(5), joint.clearance)))
    torch.testing.assert_close(found, torch.cat((odds[:5], odds)))


def test_odds_are_even_after_the_object_was_moved() -> None:
    joint, _, _, distances = made()
    joint.forget()
    odds, share = joint.observe(distances[:8], torch.ones(8))
    assert not odds.any()
    assert share.item() == 0
