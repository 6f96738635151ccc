"""Where the agent carries its cameras: who finds the object first, and tells what was touched.

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
from palpate.objectives.contact import levelled, stay

HALVED_FROM = 64  # pixels on a side from which half of them are enough
NEAR = 0.02  # share of unrelated scenes whose objects lie so near each other that they count as in one place
# L_- levels off at first at FIRST_LEVEL units, and from LEVELLED_BY of the run on at `stay_level`.
FIRST_LEVEL, LEVELLED_BY = 1.0, 0.4


class Scout(nn.Module):
    """A network that sees only what stands out before a backdrop, and says where that is.

    The place where the agent stands is added to what the network says. There an object that stays is one that moves by
    -a as the agent sees it, and no place in the world does: L_- over all triples, touched ones as outliers, finds it
    but for a constant, and how far it has moved tells which those are. This is the W of such observations: InfoNCE
    would tell pairs by what stands still.

    What stands out is cut from its surroundings, so the place is a rough one; phi_ext, which sees all, follows it at
    first. A trained model needs no scout.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        seen = config.seen_shape
        self.halved = len(seen) == 3 and min(seen[1:]) >= HALVED_FROM
        shape = (seen[0], *(side // 2 for side in seen[1:])) if self.halved else seen
        self.backdrop = Backdrop(shape, config.n)
        self.branch = Branch(make_encoder(config, shape), config.n)
        self.split = place_split(config)

    def forward(self, x: Tensor, z_int: Tensor, inputs: Inputs, generator: torch.Generator) -> Tensor:
        """Places [b, n] for scaled observations that agents at `z_int` [b, n] make."""
        left = self.backdrop(F.avg_pool2d(x, 2) if self.halved else x, z_int)
        return self.branch(inputs.disturbed(left, generator)) + z_int

    def loss(self, place: Tensor, place_next: Tensor, progress: Tensor) -> Tensor:
        """L_- of all triples, which levels off."""
        objective = self.config.objective
        level = FIRST_LEVEL * (objective.stay_level / FIRST_LEVEL) ** (progress / LEVELLED_BY).clamp(max=1.0)
        return objective.stay_weight * levelled(stay(place, place_next), level).mean()


def place_split(config: ModelConfig) -> Split:
    """Of places, whose distances are lengths: the smaller of them, which say nothing, reach further up than in W."""
    objective = config.objective
    return Split(on=objective.split_on, window=objective.split_window, floor=max(objective.split_floor, NEAR))
