"""The space W of scenes: how far a scene moves in it shows whether a triple is in contact (paper, Sec. 4.2).

Legend: b batch, k objects, m dimension of W.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.contacts.split import Split
from palpate.objectives.contrastive import squared_distance

DIMENSION = 8  # of W, a unit sphere for each object


class Scenes(nn.Module):
    """From a network's output [b, k * m] to points of W, and a split of their distances for each object."""

    def __init__(self, splits: Sequence[Split], dimension: int | None = DIMENSION) -> None:
        """`dimension` None: points are positions, taken as they are."""
        super().__init__()
        self.splits = nn.ModuleList(splits)
        self.dimension = dimension

    def __len__(self) -> int:
        return len(self.splits)

    @property
    def width(self) -> int:
        """Numbers that a network outputs."""
        assert self.dimension is not None
        return len(self) * self.dimension

    def split(self, index: int) -> Split:
        split = self.splits[index]
        assert isinstance(split, Split)
        return split

    def compares_positions(self, index: int) -> bool:
        """Whether the distances of this object are between its positions; otherwise they are in W."""
        return self.dimension is None

    def forward(self, raw: Tensor) -> Tensor:
        """Points `[b, k, m]` of W."""
        assert self.dimension is not None
        return F.normalize(raw.unflatten(-1, (len(self), self.dimension)), dim=-1)

    def distance(self, w: Tensor, w_next: Tensor) -> Tensor:
        """d_W `[b, k]`."""
        return squared_distance(w, w_next)

    def observe(self, w: Tensor, w_next: Tensor, touching: Tensor | None = None) -> Tensor:
        """Contacts `[b, k]` bool of a batch; in training the splits store its distances.

        `touching` [b, k] bool: whether geometry predicts a contact; None if it cannot.
        """
        distances = self.distance(w, w_next)
        if self.training:
            unrelated = self.distance(w_next, w_next.roll(1, 0))
            for i in range(len(self)):
                expected = None if touching is None else touching[:, i]
                self.split(i).update(distances[:, i], unrelated[:, i], expected)
        return self.contact(distances)

    def changed(self, contact: Tensor) -> Tensor:
        """Whether any point of W has changed, `[b]` bool. Points without two classes count only if none has two."""
        dips = torch.stack([self.split(i).valley > 0 for i in range(len(self))])
        return (contact & (dips | ~dips.any())).any(1)

    def share_of_changes(self) -> Tensor:
        """Share of the stored triples that have changed, `[]`."""
        if len(self) == 1:  # its split has the share also if it judges each batch alone
            return self.share[0]
        stored = torch.stack([self.split(i).distances for i in range(len(self))], 1)
        known = ~stored[:, 0].isnan()
        return (self.changed(self.contact(stored.nan_to_num(0.0))) & known).sum() / known.sum().clamp(min=1)

    def contact(self, distances: Tensor) -> Tensor:
        """Contacts `[b, k]` bool for distances d_W."""
        return torch.stack([self.split(i)(distances[:, i]) for i in range(len(self))], 1)

    def probability(self, distances: Tensor) -> Tensor:
        """P(contact) `[b, k]` for distances d_W and a contact share of 1/2."""
        return torch.stack([self.split(i).probability(distances[:, i]) for i in range(len(self))], 1)

    @property
    def share(self) -> Tensor:
        """Contact share, `[k]`."""
        return torch.stack([self.split(i).share for i in range(len(self))])

    def reliable(self, contact: Tensor) -> Tensor:
        """Contacts `[b]` with any object whose two classes are separated; device work only."""
        return (contact & self.has_valley).any(1)

    @property
    def has_valley(self) -> Tensor:
        """`Split.has_valley` for each object, `[k]` bool."""
        return torch.stack([self.split(i).has_valley() for i in range(len(self))])

    @property
    def valleys(self) -> Tensor:
        """Emptiness of the valley between the classes, `[k]`."""
        return torch.stack([self.split(i).valley for i in range(len(self))])

    @property
    def youden(self) -> Tensor:
        """Agreement with geometry, `[k]`: see `Split.youden`."""
        return torch.stack([self.split(i).youden for i in range(len(self))])

    @property
    def agrees(self) -> Tensor:
        """Whether geometry explains the changes, `[k]` bool: see `Split.agrees`."""
        return torch.stack([self.split(i).agrees() for i in range(len(self))])

    def separations(self) -> list[float]:
        """The separation of each split."""
        return [self.split(i).separation() for i in range(len(self))]

    def recall(self, distances: Tensor, touching: Tensor | None = None) -> None:
        """Take the thresholds from distances [N, k] of held-out triples; see `Split.recall`."""
        for i in range(len(self)):
            self.split(i).recall(distances[:, i], None if touching is None else touching[:, i])
