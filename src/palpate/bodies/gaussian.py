"""The paper's body: a Gaussian whose covariance a network predicts for each observation (Sec. 4.3)."""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.bodies.base import Body
from palpate.bodies.planar import DIRECTIONS
from palpate.geometry import around, axis_angle

LEAST_DIAGONAL = 1e-3


@final
class Gaussian(Body):
    """The pose [..., n * n] is a lower triangular root of the covariance, row by row."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.pose_width = n, n * (n + 1) // 2

    def pose(self, raw: Tensor) -> Tensor:
        root = torch.diag_embed(F.softplus(raw[..., : self.n]) + LEAST_DIAGONAL)
        rows, columns = torch.tril_indices(self.n, self.n, offset=-1, device=raw.device)
        root[..., rows, columns] = raw[..., self.n :]
        return root.flatten(-2)

    def root(self, pose: Tensor) -> Tensor:
        """The root of the covariance, `[..., n, n]`."""
        return pose.unflatten(-1, (self.n, self.n))

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return (direction @ self.root(pose)).norm(dim=-1)

    def facets(self, like: Tensor) -> Tensor | None:
        return around(DIRECTIONS, like) if self.n == 2 else None  # None may underestimate the clearance

    def covariance(self, pose: Tensor) -> Tensor:
        root = self.root(pose)
        return root @ root.mT

    def size(self, pose: Tensor) -> Tensor:
        return self.root(pose).diagonal(dim1=-2, dim2=-1).log().mean(-1).exp()

    def orientation(self, pose: Tensor) -> Tensor | None:
        if self.n != 2:
            return None
        (xx, xy), (_, yy) = (row.unbind(-1) for row in self.covariance(pose).unbind(-2))
        return axis_angle(torch.stack((xx - yy, 2 * xy), -1))
