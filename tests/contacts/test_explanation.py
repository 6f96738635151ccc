"""The likelihood of changes by contacts and by hiding, and the cells of relative positions."""

import pytest
import torch
from torch.nn import functional as F

from palpate.contacts.explanation import CELLS, best_explanation, cells_of, explanation


@pytest.mark.parametrize("n", [2, 3, 6, 8, 64])
def test_cells_are_about_equally_full(n: int) -> None:
    cells = cells_of(torch.rand(4000, n, generator=torch.Generator().manual_seed(0)))
    assert cells.shape == (4000, CELLS)
    assert (cells.sum(1) == 1).all()
    assert cells.mean(0).max() < 3 / CELLS


@pytest.mark.parametrize("both", [0.0, 1.0])
def test_the_likelihood_by_hand(both: float) -> None:
    """Half of the paths touch and change. Of the others, those from cell 0 to cell 1 change, where objects are hidden,
    and those within cell 1 always or never."""
    touching = torch.arange(4000) % 2 == 0
    cells = torch.stack(((torch.arange(4000) // 2) % 2, torch.ones(4000, dtype=torch.long)))
    changed = touching | (cells[0] != cells[1]) | (both == 1)
    member = F.one_hot(cells, CELLS).float()
    (found,) = explanation(touching[None], member, changed)
    assert found.item() == pytest.approx(0, abs=0.02)
    one = F.one_hot(cells * 0, CELLS).float()
    (chance,) = explanation(torch.zeros(1, 4000, dtype=torch.bool), one, touching)
    assert chance.item() == pytest.approx(-torch.tensor(2.0).log().item(), abs=0.01)  # a coin, and one cell for all


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_no_explanation_is_better_than_the_best(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    cells = F.one_hot(torch.randint(CELLS, (2, 3000), generator=generator), CELLS).float()
    touching = torch.rand(20, 3000, generator=generator) < torch.linspace(0, 1, 20)[:, None]
    changed = torch.where(
        touching[7], torch.rand(3000, generator=generator) > 0.1, torch.rand(3000, generator=generator) < share
    )
    found, best = explanation(touching, cells, changed), best_explanation(touching, changed)
    assert (found < best + 1e-6).all()
    if share == 0:  # guess 7 is right, and hiding explains nothing
        assert found[7] == pytest.approx(best[7].item(), abs=0.02)
        assert found.argmax() == 7
