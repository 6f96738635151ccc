"""Where the agent carries its cameras: what finds the object first, and which triples are contacts.

Legend: b batch, n ambient dimension.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.contacts.backdrop import Backdrop
from palpate.contacts.split import Split
from palpate.inputs import Inputs
from palpate.networks import Branch, make_encoder
from palpate.objectives.contact import levelled
from palpate.objectives.contrastive import squared_distance
from palpate.objectives.paper import stay

HALVED_FROM = 64  # pixels on a side from which half of them suffice
NEAR = 0.02  # share of unrelated scenes whose objects lie so near each other that they count as in one place
WEIGHT = 100.0  # of L_-
# L_- levels off at first at FIRST_LEVEL units, and from LEVELLED_BY of the run on at LEVEL.
FIRST_LEVEL, LEVEL, LEVELLED_BY = 1.0, 0.3, 0.4


class Scout(nn.Module):
    """A network that sees only what stands out from a backdrop, and outputs where that is.

    The agent's position is added to the network's output. There an object that stays moves by -a as the agent sees it,
    and no place in the world does: L_- over all triples, contacts as outliers, finds it up to a constant, and how far
    it moves identifies the contacts. It is the W of such observations: InfoNCE would identify pairs by what stands
    still.

    What stands out is cut from its surroundings, so the position is a rough one; phi_ext, which sees all, follows it at
    first. A trained model needs no scout.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        seen = config.seen_shape
        self.halved = config.picture and min(seen[1:]) >= HALVED_FROM
        shape = (seen[0], *(side // 2 for side in seen[1:])) if self.halved else seen
        self.backdrop = Backdrop(shape, config.n)
        self.branch = Branch(make_encoder(config, shape), config.n)
        self.split = place_split()

    def forward(self, x: Tensor, z_int: Tensor, inputs: Inputs, generator: torch.Generator) -> Tensor:
        """Positions [b, n] for scaled observations of agents at `z_int` [b, n]."""
        left = self.backdrop(F.avg_pool2d(x, 2) if self.halved else x, z_int)
        return inputs.group.place(z_int, self.branch(inputs.augmented(left, generator)))

    def observe(self, place: Tensor, place_next: Tensor) -> Tensor:
        """Contacts `[b]` bool by how far the positions [b, n] moved; in training the split remembers that."""
        distances = squared_distance(place, place_next).detach()
        if self.training:
            self.split.update(distances, squared_distance(place_next, place_next.roll(1, 0)).detach())
        return self.split(distances)

    def loss(self, place: Tensor, place_next: Tensor, progress: Tensor) -> Tensor:
        """L_- of all triples, which levels off."""
        level = FIRST_LEVEL * (LEVEL / FIRST_LEVEL) ** (progress / LEVELLED_BY).clamp(max=1.0)
        return WEIGHT * levelled(stay(place, place_next), level).mean()


def place_split() -> Split:
    """For positions, whose distances are lengths: more of the small ones say nothing than in W."""
    return Split(floor=NEAR)
