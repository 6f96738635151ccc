"""What tells that a scene changed: W first and, once objects are placed well, their own positions.

W separates scenes that differ much, and need not resolve small pushes; positions do. But W finds the first contacts,
from which positions are learned.
Legend: b batch, k objects, m dimension of W, n ambient dimension.
"""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from palpate.contacts.scenes import Scenes
from palpate.contacts.split import Split

GAIN = 0.02  # by which positions must agree better
PLACES_FROM = 0.4  # share of the run after which positions may lead; before, they are too inaccurate


@final
class Witnesses(nn.Module):
    """Distances in W and distances between positions. For each object, those that agree better with geometry lead."""

    def __init__(self, scenes: Scenes, places: Scenes) -> None:
        super().__init__()
        self.scenes, self.places = scenes, places
        self.late = nn.Buffer(torch.zeros((), dtype=torch.bool))  # whether positions may lead

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def width(self) -> int:
        """Numbers that the network of W outputs."""
        return self.scenes.width

    def forward(self, raw: Tensor) -> Tensor:
        """Points `[b, k, m]` of W."""
        return self.scenes(raw)

    @property
    def lead(self) -> Tensor:
        """Whether positions lead, `[k]` bool."""
        return self.late & (self.places.youden > self.scenes.youden + GAIN)

    def observe(
        self, w: Tensor, w_next: Tensor, z: Tensor, z_next: Tensor, touching: Tensor, progress: Tensor
    ) -> Tensor:
        """Changes `[b, k]` bool of a batch with points of W [b, k, m] and positions [b, k, n].

        In training the splits store its distances, beside the contacts `touching` [b, k] bool that geometry predicts.
        """
        by_scene = self.scenes.observe(w, w_next, touching)
        by_place = self.places.observe(z, z_next, touching)
        if self.training:
            self.late.copy_(progress >= PLACES_FROM)
        return torch.where(self.lead, by_place, by_scene)

    def distance(self, w: Tensor, w_next: Tensor, z: Tensor, z_next: Tensor) -> Tensor:
        """Squared distances `[b, k]` of those that lead."""
        return torch.where(self.lead, self.places.distance(z, z_next), self.scenes.distance(w, w_next))

    def contact(self, distances: Tensor) -> Tensor:
        """Changes `[b, k]` bool for distances."""
        return self._leading(lambda witness: witness.contact(distances))

    def probability(self, distances: Tensor) -> Tensor:
        """P(change) `[b, k]` for distances, if changes are half of all triples."""
        return self._leading(lambda witness: witness.probability(distances))

    @property
    def share(self) -> Tensor:
        """Share of changes, `[k]`."""
        return self._leading(lambda witness: witness.share)

    def reliable(self, contact: Tensor) -> Tensor:
        """Contacts `[b]` with any object whose two classes are separated; device work only."""
        apart = self._leading(lambda witness: witness.apart)
        return (contact & apart).any(1)

    def _leading(self, answer: Callable[[Scenes], Tensor]) -> Tensor:
        return torch.where(self.lead, answer(self.places), answer(self.scenes))

    def split(self, index: int) -> Split:
        """The split of the distances that lead."""
        return (self.places if self.lead[index] else self.scenes).split(index)

    def separation(self) -> float:
        """The separation of the worst split."""
        return min(self.split(i).separation() for i in range(len(self)))

    def recall(self, distances: Tensor, touching: Tensor) -> None:
        """Take the thresholds from distances [N, k] of held-out triples; see `Split.recall`."""
        for i in range(len(self)):
            self.split(i).recall(distances[:, i], touching[:, i])
