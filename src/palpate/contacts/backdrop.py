"""The view without the object, for cameras on the agent.

Legend: b batch, n ambient dimension, k corners of a cell.
"""

import itertools

import torch
from torch import Tensor, nn

from palpate.groups.base import Group

PICTURES = 600  # in the grid, approximately
REACH = 2.0  # standard deviations of the agent's positions that the grid covers; a uniform distribution reaches 1.73
RATE = 0.1  # update rate of the pictures
USUAL_RATE = 0.03  # update rate of the usual deviations
MEMORY = 0.01  # weight of a batch in the running averages
UNUSUAL = (4.0, 12.0)  # times the usual deviation: a pixel above the first is foreground; above the second it saturates
STILL = 0.5  # of the mean deviation; it is added to each pixel's usual deviation
LEAST_LEFT = 1e-6  # a small first batch may have no foreground


class Backdrop(nn.Module):
    """A grid of average pictures over the agent's positions; it removes the background from an observation.

    From one position the agent always sees the same world, except for the object, which moves. So the average picture
    of a position shows the world without the object. Between grid points edges move, and interpolated pictures do not
    follow them. So the grid also learns the usual deviation of each pixel, and only much larger deviations remain.

    The remaining foreground must not reveal the agent's position. From it a network could place the object at a fixed
    point of the world, which agrees with all triples without contact.
    """

    def __init__(self, shape: tuple[int, ...], group: Group) -> None:
        super().__init__()
        self.group, n = group, group.n
        self.cells = max(2, round(PICTURES ** (1 / n)))
        self.pictures = nn.Buffer(torch.zeros(self.cells**n, *shape))
        self.usual = nn.Buffer(torch.zeros(self.cells**n, *shape))  # deviation from a picture, pixel by pixel
        self.centre = nn.Buffer(torch.zeros(n))
        self.spread = nn.Buffer(torch.ones(n))
        self.deviation = nn.Buffer(torch.ones(()))  # mean of all
        self.left = nn.Buffer(torch.ones(()))  # mean square of the foreground
        self.seen = nn.Buffer(torch.zeros(()))  # batches
        sides = torch.tensor(list(itertools.product((0, 1), repeat=n)))
        self.sides = nn.Buffer(sides, persistent=False)  # [k, n]
        self.strides = nn.Buffer(self.cells ** torch.arange(n), persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """The foreground of `x` [b, ...] seen from `position` [b, n], with mean square 1. Training updates the grid."""
        with torch.no_grad():
            if self.training:
                self._measure(position)
            corner, weight = self._corners(position)
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

    def _corners(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Indices of the pictures around each position, `[b, k]`, and their weights `[b, k]`, which sum to 1."""
        place = (self.group.difference(position.float(), self.centre) / (REACH * self.spread)).clamp(-1, 1)
        place = (place + 1) / 2 * (self.cells - 1)
        low = place.floor().clamp(max=self.cells - 2)
        part = (place - low)[:, None]  # [b, 1, n]
        weight = torch.where(self.sides.bool(), part, 1 - part).prod(-1)
        return ((low.long()[:, None] + self.sides) * self.strides).sum(-1), weight

    def _between(self, grid: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
        """The grid interpolated between the corners [b, k], `[b, ...]`."""
        return (self._beside(weight, grid) * grid[corner]).sum(1)

    def _share(self) -> Tensor:
        """Weight of this batch: in a plain average of the first batches, then in a running one."""
        return (1 / self.seen).clamp(min=MEMORY)

    def _measure(self, position: Tensor) -> None:
        """Update the centre and spread of the agents' positions."""
        self.seen.add_(1)
        spread, centre = torch.std_mean(position.float(), dim=0)
        self.centre.lerp_(centre, self._share())
        self.spread.lerp_(spread.clamp(min=1e-3), self._share())

    def _follow(self, grid: Tensor, corner: Tensor, weight: Tensor, step: Tensor) -> None:
        """Add steps [b, ...] to the grid near each position; several steps at one corner are averaged."""
        at = corner.flatten()
        share = weight.new_zeros(len(grid)).index_add_(0, at, weight.flatten())
        weight = weight / share.clamp(min=1.0)[corner]
        grid.index_add_(0, at, (self._beside(weight, step) * step[:, None]).flatten(0, 1))

    @staticmethod
    def _beside(weight: Tensor, x: Tensor) -> Tensor:
        """Weights [b, k] reshaped to multiply pictures [b, k, ...]."""
        return weight.view(*weight.shape, *(1 for _ in x.shape[1:]))
