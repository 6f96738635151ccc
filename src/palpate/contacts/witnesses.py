"""Witnesses of a change: distances in W and, once positions are accurate, distances between an object's positions.

W separates scenes that differ much; it need not resolve small pushes. Positions resolve them. But positions are learned
from contacts, and W finds the first contacts.
Legend: b batch, k objects, m dimension of W, n ambient dimension.
"""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from palpate.contacts.scenes import Scenes
from palpate.contacts.split import SEPARABLE, TELLING, Split
from palpate.objectives.contact import responsibility

FORGETS = 0.01  # weight of a batch in the running average of each object's part
GAIN = 0.02  # positions lead if their Youden's index exceeds that of W by more than this
AGREED = 40  # steps in a row in which geometry and a witness must agree; in a single one they may agree by chance
PLACES_FROM = 0.4  # share of the run after which positions may lead; before, they are too inaccurate


@final
class Witnesses(nn.Module):
    """Two witnesses: d_W and the distance between positions. For each object one leads: its split finds the changes."""

    def __init__(self, scenes: Scenes, places: Scenes) -> None:
        super().__init__()
        self.scenes, self.places = scenes, places
        count = len(places)
        self.lead = nn.Buffer(torch.zeros(count, dtype=torch.bool))  # whether positions lead, [k]
        self.part = nn.Buffer(torch.full((count,), 1 / count))  # of the changes, that each object is responsible for
        self.agreed = nn.Buffer(torch.zeros(count))  # steps in a row in which geometry and the witness agreed

    def __len__(self) -> int:
        return len(self.places)

    @property
    def width(self) -> int:
        """Numbers that the network of W outputs."""
        return self.scenes.width

    def forward(self, raw: Tensor) -> Tensor:
        """Points `[b, k, m]` of W."""
        return self.scenes(raw)

    def observe(
        self,
        w: Tensor,
        w_next: Tensor,
        z: Tensor,
        z_next: Tensor,
        touching: Tensor,
        odds: Tensor,
        surer: Tensor,
        progress: Tensor,
    ) -> Tensor:
        """Probability `[b, k]` that each object has changed, for points of W [b, s, m] and positions [b, k, n].

        In training the splits store the distances. `touching` [b, k] bool: whether geometry predicts a contact. `odds`
        [b, k]: log-odds that each object has changed if it were alone; `surer` as in `responsibility`. Outside of
        training the witness of `by_position` decides, with thresholds that held-out triples may have set.
        """
        by_scene = self.scenes.changed(
            self.scenes.observe(w, w_next, touching.any(1, keepdim=True).expand(w.shape[:2]))
        )
        by_place = self.places.observe(z, z_next, touching)
        responsible = torch.where(by_scene[:, None], responsibility(odds, surer), 0.0)
        if self.training:
            better = (self.places.youden >= TELLING) & (self.places.youden > self.scenes.youden.amax() + GAIN)
            as_separate = self.places.has_valley | ~self.scenes.has_valley.any()
            self.lead.copy_((progress >= PLACES_FROM) & better & as_separate)
            part = responsible.sum(0) / by_scene.sum().clamp(min=1)
            self.part.lerp_(torch.where(by_scene.any(), part, self.part), FORGETS)
            self.agreed.add_(1).mul_(self._leading(lambda witness: witness.agrees))
        return torch.where(self.lead if self.training else self.by_position, by_place, responsible)

    def deciding(self, scenes: Tensor, places: Tensor) -> Tensor:
        """Squared distances `[b, k]`: those of positions [b, k] if they decide, else those in W [b, s]."""
        return torch.where(self.by_position, places, scenes)

    def contact(self, distances: Tensor) -> Tensor:
        """Changes `[b, k]` bool for distances."""
        return self._leading(lambda witness: witness.contact(distances))

    def probability(self, distances: Tensor) -> Tensor:
        """P(change) `[b, k]` for distances and a share of changes of 1/2."""
        return self._leading(lambda witness: witness.probability(distances))

    @property
    def share(self) -> Tensor:
        """Share of changes, `[k]`."""
        return torch.where(self.lead, self.places.share, self.scenes.share_of_changes() * self.part)

    def reliable(self, contact: Tensor) -> Tensor:
        """Contacts `[b]` with any object whose two classes are separated; device work only."""
        return (contact & self.has_valley).any(1)

    @property
    def has_valley(self) -> Tensor:
        """Whether the two classes of each object are separated, `[k]` bool."""
        return self._leading(lambda witness: witness.has_valley)

    @property
    def separate(self) -> Tensor:
        """Whether either witness has two separate classes, `[k]` bool; also of single batches."""
        return torch.stack([self.scenes.valleys, self.places.valleys]).amax(0) >= SEPARABLE

    @property
    def own_labels(self) -> Tensor:
        """Which objects have labels of their own, `[k]` bool. The others share the changes that W finds."""
        return self.lead | (len(self) == 1)

    @property
    def agrees(self) -> Tensor:
        """Whether geometry explains the changes of each object, and has done so for a while, `[k]` bool."""
        return self.agreed >= AGREED

    @torch.no_grad()
    def restart(self, index: int) -> None:
        """Forget what is known of one object."""
        self.places.split(index).reset()
        self.lead[index], self.part[index], self.agreed[index] = False, 1 / len(self), 0

    def _leading(self, answer: Callable[[Scenes], Tensor]) -> Tensor:
        return torch.where(self.by_position, answer(self.places), answer(self.scenes))

    @property
    def by_position(self) -> Tensor:
        """Whether positions decide changes of an object, `[k]`; always if there are several, because W's points belong
        to no object."""
        return self.lead | (len(self.places) > 1)

    def split(self, index: int) -> Split:
        """The split that decides."""
        return (self.places if self.by_position[index] else self.scenes).split(index)

    def compares_positions(self, index: int) -> bool:
        """Whether positions decide changes of this object."""
        return bool(self.by_position[index])

    def separations(self) -> list[float]:
        """The separation of each split."""
        return [self.split(i).separation() for i in range(len(self))]

    def recall(self, scenes: Tensor, places: Tensor, touching: Tensor) -> None:
        """Take the thresholds from distances of held-out triples, in W [N, s] and of positions [N, k]; see
        `Split.recall`. `touching` [N, k] bool: whether geometry predicts a contact."""
        self.scenes.recall(scenes, touching.any(1, keepdim=True).expand_as(scenes))
        self.places.recall(places, touching)
