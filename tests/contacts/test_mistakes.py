"""How many labels are wrong."""

import pytest
import torch
from torch import Tensor

from palpate.contacts.mistakes import MOST_FALSE, Mistakes


def told(missed: float, false: float, *, placed: bool = True, noise: float = 0.0, steps: int = 40) -> Mistakes:
    """What 40 batches of 256 triples show: half of them change, and geometry's log-odds have this much noise."""
    generator, mistakes = torch.Generator().manual_seed(0), Mistakes(1)
    for _ in range(steps):
        truth = 10 * torch.rand(256, 1, generator=generator) - 5
        luck = torch.rand(256, 1, generator=generator)
        label = torch.where(truth > 0, luck >= missed, luck < false).float()
        seen = truth + noise * torch.randn(256, 1, generator=generator)
        mistakes.observe(label, seen, torch.tensor([placed]))
    return mistakes


def shares(mistakes: Mistakes) -> list[float]:
    return torch.stack(mistakes.rates()).squeeze(1).tolist()


@pytest.mark.parametrize(("missed", "false"), [(0.0, 0.0), (0.2, 0.0), (0.2, 0.045), (0.1, 0.045)])
def test_the_shares_are_found(missed: float, false: float) -> None:
    assert shares(told(missed, false)) == pytest.approx([missed, false], abs=0.02)


def test_few_wrong_labels_count_as_none() -> None:
    assert shares(told(0.02, 0.02)) == [0, 0]


@pytest.mark.parametrize(("missed", "false"), [(0.1, 0.01), (0.01, 0.1)])
def test_a_small_share_counts_beside_a_large_one(missed: float, false: float) -> None:
    found = shares(told(missed, false))
    assert found == pytest.approx([missed, min(false, MOST_FALSE)], abs=0.02)
    assert min(found) > 0


def test_a_small_share_counts_as_none_beside_one_that_is_hardly_larger() -> None:
    missed, false = shares(told(0.033, 0.01))
    assert missed == pytest.approx(0.04, abs=0.009)
    assert false == 0


def test_errors_of_geometry_near_the_boundary_are_not_mistakes_of_the_labels() -> None:
    mistakes = told(0.0, 0.0, noise=0.8)
    assert shares(mistakes) == pytest.approx([0, 0], abs=0.01)
    truth = 10 * torch.rand(10_000) - 5
    wrong = (truth > 0) != (truth + 0.8 * torch.randn(10_000) > 0)
    assert wrong.double().mean() > 0.04  # of all paths, geometry is wrong in more


def test_many_changes_without_contact_have_another_cause() -> None:
    assert shares(told(0.1, 0.2)) == pytest.approx([0.1, MOST_FALSE], abs=0.02)


@pytest.mark.parametrize("mistakes", [told(0.1, 0.03, placed=False), told(0.4, 0.3), told(0.1, 0.03, steps=0)])
def test_without_a_placed_object_or_agreement_labels_count_as_right(mistakes: Mistakes) -> None:
    assert shares(mistakes) == [0, 0]


def test_one_object_is_forgotten_alone() -> None:
    mistakes = Mistakes(2)
    label, change = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).repeat(40, 1), torch.tensor([[2.0], [-2.0]]).repeat(40, 2)
    mistakes.observe(label, change, torch.ones(2, dtype=torch.bool))
    before: Tensor = mistakes.counts.clone()
    mistakes.restart(0)
    assert not mistakes.counts[..., 0].any()
    assert torch.equal(mistakes.counts[..., 1], before[..., 1])
