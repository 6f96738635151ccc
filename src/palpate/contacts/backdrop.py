"""What an agent that carries its own cameras would see if there were no object.

Legend: b batch, n ambient dimension, k corners of a cell.
"""

import itertools

import torch
from torch import Tensor, nn

PICTURES = 600  # of the grid, about
REACH = 2.0  # standard deviations of the agent's places that the grid covers; a uniform spread reaches 1.73
RATE = 0.1  # at which pictures follow what is seen
USUAL_RATE = 0.03  # at which the deviations do
MEMORY = 0.01  # weight of a batch in the running averages
UNUSUAL = (4.0, 12.0)  # times the usual deviation: from where on a pixel shows the object, and more counts as much
STILL = 0.5  # of the mean deviation: a pixel that deviates less counts as one that does so much
LEAST_LEFT = 1e-6  # in a first small batch nothing may be unusual


class Backdrop(nn.Module):
    """A grid of pictures over the agent's places, read between the nearest ones; what is unlike them is left.

    From one place the agent always sees the same world, but for the object, which is here and there: so the average
    picture of a place is the world without it. Between two places edges move, and no average of pictures follows them;
    so the grid also learns by how much each pixel usually deviates, and only what deviates far more is left.

    What is left must not tell where the agent stands. A network that could read that would say that the object stands
    in one place of the world, which no untouched triple contradicts.
    """

    pictures: Tensor
    usual: Tensor
    centre: Tensor
    spread: Tensor
    deviation: Tensor
    left: Tensor
    seen: Tensor
    sides: Tensor
    strides: Tensor

    def __init__(self, shape: tuple[int, ...], n: int) -> None:
        super().__init__()
        self.cells = max(2, round(PICTURES ** (1 / n)))
        self.register_buffer("pictures", torch.zeros(self.cells**n, *shape))
        self.register_buffer("usual", torch.zeros(self.cells**n, *shape))  # deviation from a picture, pixel by pixel
        self.register_buffer("centre", torch.zeros(n))
        self.register_buffer("spread", torch.ones(n))
        self.register_buffer("deviation", torch.ones(()))  # mean of all
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
            rest, usual = x - self._between(self.pictures, corner, weight), self._between(self.usual, corner, weight)
            if self.training:
                self._follow(self.pictures, corner, weight, RATE * rest)
                self._follow(self.usual, corner, weight, USUAL_RATE * (rest.abs() - usual))
                self.deviation.lerp_(rest.abs().mean(), self._share())
            unusual = rest.abs() / (usual.clamp(min=0) + STILL * self.deviation)
            rest = rest.sign() * (unusual.clamp(*UNUSUAL) - UNUSUAL[0])
            if self.training:
                self.left.lerp_(rest.square().mean(), self._share())
            return rest / self.left.sqrt().clamp(min=LEAST_LEFT)

    def _corners(self, z_int: Tensor) -> tuple[Tensor, Tensor]:
        """The pictures around each place [b, k] and their weights [b, k], which sum to 1."""
        place = ((z_int.float() - self.centre) / (REACH * self.spread)).clamp(-1, 1)
        place = (place + 1) / 2 * (self.cells - 1)
        low = place.floor().clamp(max=self.cells - 2)
        part = (place - low)[:, None]  # [b, 1, n]
        weight = torch.where(self.sides.bool(), part, 1 - part).prod(-1)
        return ((low.long()[:, None] + self.sides) * self.strides).sum(-1), weight

    def _between(self, grid: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
        """What the grid holds between the corners [b, k], [b, ...]."""
        return (self._beside(weight, grid) * grid[corner]).sum(1)

    def _share(self) -> Tensor:
        """Weight of this batch in an average: plain over the first batches, running from then on."""
        return (1 / self.seen).clamp(min=MEMORY)

    def _measure(self, z_int: Tensor) -> None:
        """Where the agents are."""
        self.seen += 1
        spread, centre = torch.std_mean(z_int.float(), dim=0)
        self.centre.lerp_(centre, self._share())
        self.spread.lerp_(spread.clamp(min=1e-3), self._share())

    def _follow(self, grid: Tensor, corner: Tensor, weight: Tensor, step: Tensor) -> None:
        """What the grid holds near each place goes a step [b, ...]; where there are several, their average."""
        at = corner.flatten()
        share = weight.new_zeros(len(grid)).index_add_(0, at, weight.flatten())
        weight = weight / share.clamp(min=1.0)[corner]
        grid.index_add_(0, at, (self._beside(weight, step) * step[:, None]).flatten(0, 1))

    @staticmethod
    def _beside(weight: Tensor, x: Tensor) -> Tensor:
        """[b, k] ready to be multiplied with pictures [b, k, ...]."""
        return weight.view(*weight.shape, *(1 for _ in x.shape[1:]))
