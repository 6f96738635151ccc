"""What an agent that carries its own cameras would see if there were no object.

Legend: b batch, n ambient dimension, k corners of a cell.
"""

import itertools

import torch
from torch import Tensor, nn

PICTURES = 600  # of the grid, about
REACH = 2.0  # standard deviations of the agent's places that the grid covers; a uniform spread reaches 1.73
RATE = 0.3  # at which pictures follow what is seen
MEMORY = 0.01  # weight of a batch in the running averages


class Backdrop(nn.Module):
    """A grid of pictures over the agent's places, read between the nearest ones; what is seen but not there is left.

    From one place the agent always sees the same world, but for the object, which is here and there: so the average
    picture of a place is the world without it. Without this, W can tell two observations by a thousand things
    that stand still, and learns the pairs of a set by heart before it has found the object.
    """

    pictures: Tensor
    centre: Tensor
    spread: Tensor
    left: Tensor
    seen: Tensor
    sides: Tensor
    strides: Tensor

    def __init__(self, shape: tuple[int, ...], n: int) -> None:
        super().__init__()
        self.cells = max(2, round(PICTURES ** (1 / n)))
        self.register_buffer("pictures", torch.zeros(self.cells**n, *shape))
        self.register_buffer("centre", torch.zeros(n))
        self.register_buffer("spread", torch.ones(n))
        self.register_buffer("left", torch.ones(()))  # mean square of what is left
        self.register_buffer("seen", torch.zeros(()))  # batches
        sides = torch.tensor(list(itertools.product((0, 1), repeat=n)))
        self.register_buffer("sides", sides, persistent=False)  # [k, n]
        self.register_buffer("strides", self.cells ** torch.arange(n), persistent=False)

    def forward(self, x: Tensor, z_int: Tensor) -> Tensor:
        """What is left of `x` [b, ...] seen from `z_int` [b, n], on a scale of 1; in training the pictures follow."""
        with torch.no_grad():
            if self.training:
                self._measure(z_int)
            corner, weight = self._corners(z_int)
            rest = x - (self._beside(weight, x) * self.pictures[corner]).sum(1)
            if self.training:
                self._follow(corner, weight, rest)
            return rest / self.left.sqrt()

    def _corners(self, z_int: Tensor) -> tuple[Tensor, Tensor]:
        """The pictures around each place [b, k] and their weights [b, k], which sum to 1."""
        place = ((z_int.float() - self.centre) / (REACH * self.spread)).clamp(-1, 1)
        place = (place + 1) / 2 * (self.cells - 1)
        low = place.floor().clamp(max=self.cells - 2)
        part = (place - low)[:, None]  # [b, 1, n]
        weight = torch.where(self.sides.bool(), part, 1 - part).prod(-1)
        return ((low.long()[:, None] + self.sides) * self.strides).sum(-1), weight

    def _measure(self, z_int: Tensor) -> None:
        """Where the agents are: the plain average of the first batches, a running one from then on."""
        share = (1 / (self.seen + 1)).clamp(min=MEMORY)
        spread, centre = torch.std_mean(z_int.float(), dim=0)
        self.centre.lerp_(centre, share)
        self.spread.lerp_(spread.clamp(min=1e-3), share)
        self.seen += 1

    def _follow(self, corner: Tensor, weight: Tensor, rest: Tensor) -> None:
        """Each picture goes a part of the way to what was seen near it."""
        at = corner.flatten()
        share = weight.new_zeros(len(self.pictures)).index_add_(0, at, weight.flatten())
        step = RATE * weight / share.clamp(min=1.0)[corner]
        self.pictures.index_add_(0, at, (self._beside(step, rest) * rest[:, None]).flatten(0, 1))
        self.left.lerp_(rest.float().square().mean(), (1 / self.seen).clamp(min=MEMORY))

    @staticmethod
    def _beside(weight: Tensor, x: Tensor) -> Tensor:
        """[b, k] ready to be multiplied with pictures [b, k, ...]."""
        return weight.view(*weight.shape, *(1 for _ in x.shape[1:]))
