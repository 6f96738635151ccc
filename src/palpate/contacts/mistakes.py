"""How many labels of a witness, change or not, are wrong: measured on the triples about which geometry is surest.

Legend: b batch, k objects.
"""

from typing import final

import torch
from torch import Tensor, nn

from palpate.contacts.split import FEWEST_OF_A_CLASS, TELLING
from palpate.objectives.contact import Wrong

MEMORY = 0.998  # of the counts, from step to step. Networks memorise wrong labels, and these then seem right
LEAST = 0.03  # fewer wrong labels count as none: geometry errs in about as many
MANY = 0.05  # beside a share of so many, a smaller one counts too
MOST_FALSE = 0.05  # a change without contact may also be an object that appears


@final
class Mistakes(nn.Module):
    """Counts labels among the surer half of the triples that should have changed, and of those that should not.

    In the other half the path passes near the body's boundary, and geometry may be wrong itself.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.counts = nn.Buffer(torch.zeros(2, 2, count))  # [should have changed or not, all or labelled, k]

    def rates(self) -> Wrong:
        """Shares [k] of wrong labels; none if they are few, or if labels and geometry hardly agree.

        A share of 0 beside a large one would let a single wrong label cost more than many right ones.
        """
        every, labelled = self.counts.unbind(1)
        share = labelled / every.clamp(min=1)
        missed, false = 1 - share[0], share[1]
        known = (missed + false <= 1 - TELLING) & (every >= FEWEST_OF_A_CLASS).all(0)
        many = torch.maximum(missed, false) >= MANY
        missed, false = (torch.where(known & (many | (rate >= LEAST)), rate, 0.0) for rate in (missed, false))
        return Wrong(missed, false.clamp(max=MOST_FALSE))

    @torch.no_grad()
    def observe(self, label: Tensor, change: Tensor, placed: Tensor) -> None:
        """Labels [b, k] from 0 to 1, geometry's log-odds [b, k] of a change, and which objects are placed, [k] bool."""
        sides = torch.stack((change, -change))  # [2, b, k]
        middle = torch.where(sides > 0, sides, torch.nan).nanmedian(1, keepdim=True).values
        surer = ((sides >= middle) & placed).to(label.dtype)
        self.counts.mul_(MEMORY).add_(torch.stack((surer.sum(1), (surer * label).sum(1)), 1))

    @torch.no_grad()
    def restart(self, index: int) -> None:
        """Forget what is known of one object."""
        self.counts[..., index] = 0
