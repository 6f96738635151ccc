"""The scout, for cameras on the agent: a network that finds the object first, and the contacts with it.

Legend: b batch, n ambient dimension.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.contacts.backdrop import Backdrop
from palpate.contacts.split import Split
from palpate.groups.base import Group
from palpate.inputs import Inputs
from palpate.networks import Branch, make_encoder
from palpate.objectives.contact import levelled
from palpate.objectives.contrastive import squared_distance
from palpate.objectives.paper import stay

HALVED_FROM = 64  # pictures with at least this many pixels on a side are halved
NEAR = 0.02  # quantile of unrelated scenes' distances; objects nearer than this count as in one place
WEIGHT = 100.0  # of L_-
# L_- levels off at first at FIRST_LEVEL units, and from LEVELLED_BY of the run on at LEVEL.
FIRST_LEVEL, LEVEL, LEVELLED_BY = 1.0, 0.3, 0.4


class Scout(nn.Module):
    """A network whose input is only the foreground, and whose output is the object's position.

    The agent's position is added to the output. Relative to the agent, an object at rest moves by -a. So L_- over all
    triples, with contacts as outliers, finds the object up to a constant. How far the position moves identifies the
    contacts. The scout replaces W, because InfoNCE would identify pairs by the background.

    The foreground lacks its surroundings, so the position is rough. phi_ext has the whole picture, and is trained to
    follow the scout at first. A trained model needs no scout.
    """

    def __init__(self, config: ModelConfig, group: Group) -> None:
        super().__init__()
        seen = config.seen_shape
        self.halved = config.picture and min(seen[1:]) >= HALVED_FROM
        shape = (seen[0], *(side // 2 for side in seen[1:])) if self.halved else seen
        self.backdrop = Backdrop(shape, group)
        self.branch = Branch(make_encoder(config, shape), group.n)
        self.group, self.split = group, place_split()

    def forward(self, x: Tensor, z_int: Tensor, inputs: Inputs, generator: torch.Generator) -> Tensor:
        """Positions [b, n] for scaled observations of agents with poses `z_int`."""
        left = self.backdrop(F.avg_pool2d(x, 2) if self.halved else x, self.group.position(z_int))
        return self.group.place(z_int, self.branch(inputs.augmented(left, generator)))

    def observe(self, place: Tensor, place_next: Tensor) -> Tensor:
        """Contacts `[b]` bool by how far the positions [b, n] moved; in training the split stores the distances."""
        distances = squared_distance(place, place_next).detach()
        if self.training:
            self.split.update(distances, squared_distance(place_next, place_next.roll(1, 0)).detach())
        return self.split(distances)

    def loss(self, place: Tensor, place_next: Tensor, progress: Tensor) -> Tensor:
        """L_- of all triples; large distances level off."""
        level = FIRST_LEVEL * (LEVEL / FIRST_LEVEL) ** (progress / LEVELLED_BY).clamp(max=1.0)
        return WEIGHT * levelled(stay(place, place_next), level).mean()


def place_split() -> Split:
    """A split of distances between positions: more of the small ones are noise than in W."""
    return Split(floor=NEAR)
