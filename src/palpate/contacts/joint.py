"""The odds of a change from both witnesses together, for contacts that do not separate from other triples.

Legend: N stored triples, b batch, w witnesses, c bins of the distance.
"""

from typing import final

import torch
from torch import Tensor, nn

from palpate.contacts.split import TELLING, WINDOW

BINS = 16  # equally many stored distances in each
LARGEST = 6.0  # log-odds; more would need more than the stored triples


@final
class JointOdds(nn.Module):
    """Stores distances and clearances, and estimates the log-odds of a change for each distance.

    The estimate compares two halves: of the paths that geometry predicts to touch, the half that enters the body
    deepest, and of the other paths, the half that passes farthest away. There geometry is right even if the body's size
    is not. So a body that grows does not become its own evidence.
    """

    def __init__(self, witnesses: int) -> None:
        super().__init__()
        self.distances = nn.Buffer(torch.full((WINDOW, witnesses), torch.nan))
        self.clearance = nn.Buffer(torch.full((WINDOW,), torch.nan))  # negative where geometry predicts a contact
        self.next = nn.Buffer(torch.zeros((), dtype=torch.long))  # triples stored so far
        self.agree = nn.Buffer(torch.zeros(witnesses, dtype=torch.bool))  # which witnesses agree with geometry
        self.decide = nn.Buffer(torch.tensor(False))  # whether labels are taken from here

    @torch.no_grad()
    def observe(self, distances: Tensor, clearance: Tensor) -> tuple[Tensor, Tensor]:
        """Store a batch: distances [b, w] and clearances [b]. Returns its log-odds `[b]` of a change, for a share of
        changes of 1/2, and the share of the stored triples that are rather changes, `[]`; device work only."""
        count = min(len(clearance), WINDOW)
        rows = (self.next + torch.arange(count, device=clearance.device)) % WINDOW
        self.distances.index_copy_(0, rows, distances[-count:].to(self.distances.dtype))
        self.clearance.index_copy_(0, rows, clearance[-count:].to(self.clearance.dtype))
        self.next.add_(count)
        of_all = self._odds(torch.cat((self.distances, distances.to(self.distances.dtype))))
        odds, stored = of_all[WINDOW:], of_all[:WINDOW]
        known = ~self.clearance.isnan()
        return odds, ((stored > 0) & known).sum() / known.sum().clamp(min=1)

    def forget(self) -> None:
        """Forget the stored clearances, because the object was moved."""
        self.clearance.fill_(torch.nan)

    def _odds(self, distances: Tensor) -> Tensor:
        """Log-odds `[n]` of a change for distances [n, w]. Given a change or none, the witnesses are taken as
        independent; one that does not agree with geometry has no part."""
        deep, far = _halves(self.clearance)
        enough = torch.minimum(deep.sum(), far.sum()) >= WINDOW // BINS  # rarer contacts would share their bin
        found = torch.zeros_like(distances[:, 0])
        for i, (stored, asked) in enumerate(zip(self.distances.unbind(1), distances.unbind(1), strict=True)):
            edges = _edges(stored)
            counts = torch.stack([_counts(stored, edges, weight) for weight in (deep, far)])
            touched, other = ((counts + 0.5) / (counts + 0.5).sum(1, keepdim=True)).unbind()
            self.agree[i] = enough & ((other.cumsum(0) - touched.cumsum(0)).amax() >= TELLING)
            found = found + torch.where(self.agree[i], rising(touched, other).logit()[_bins(asked, edges)], 0.0)
        return found.clamp(-LARGEST, LARGEST)


def _halves(clearance: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the clearances [N] are the surest contacts, and which the surest others: 1 or 0, `[N]` each."""
    sides = torch.stack((-clearance, clearance))
    middle = torch.where(sides > 0, sides, torch.nan).nanmedian(1, keepdim=True).values
    deep, far = (sides >= middle).to(clearance.dtype).unbind()
    return deep, far


def _edges(distances: Tensor) -> Tensor:
    """Borders `[c - 1]` of the bins of distances [N], among which NaN are unknown."""
    ordered = distances.sort().values  # NaN come last
    known = (~distances.isnan()).sum()
    return ordered[torch.arange(1, BINS, device=distances.device) * known // BINS]


def _bins(distances: Tensor, edges: Tensor) -> Tensor:
    return torch.bucketize(distances.contiguous(), edges)


def _counts(distances: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    return torch.zeros(BINS, device=edges.device).index_add_(0, _bins(distances, edges), weight)


def rising(touched: Tensor, other: Tensor) -> Tensor:
    """P(change) `[c]` for bins with shares [c] of both classes, if both classes are equally large and a larger distance
    is never weaker evidence: the isotonic regression."""
    count = len(touched)
    sums = torch.stack((touched, other)).cumsum(1)
    before = torch.cat((torch.zeros_like(sums[:, :1]), sums[:, :-1]), 1)
    pooled = sums[:, None, :] - before[:, :, None]  # [2, c, c], of the bins from one to another
    share = pooled[0] / pooled.sum(0).clamp(min=1e-12)
    first = torch.arange(count, device=touched.device)
    share = torch.where(first[:, None] <= first, share, torch.inf)
    least = share.flip(1).cummin(1).values.flip(1)  # over all last bins
    least = torch.where(first[:, None] <= first, least, -torch.inf)
    return least.cummax(0).values.diagonal()  # over all first bins
