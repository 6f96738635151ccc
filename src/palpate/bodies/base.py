"""What a body promises, and how far a path passes from one.

A body is what the agent's reference point must not enter: the object dilated by the agent. It is convex. A few scalars
that all observations share describe it; its pose may differ from one observation to the next.
Lengths are in units of the actions' root mean square.
Legend: n ambient dimension, p numbers of a pose, d directions; `...` any batch shape.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from palpate.geometry import Segment

DISTANCE_EPS = 1e-6  # keeps the gradient of the unsquared distance finite at 0
LR_SCALE = 10.0  # a few scalars shared by all triples can follow the networks much faster
SHAPE_FROM = 0.4  # of the run: a shape is learned when positions are known
FIRST_RADIUS = 0.25


class Body(nn.Module, ABC):
    """A convex shape around the object's position."""

    pose_width: int = 0  # numbers that a network outputs for the pose

    @abstractmethod
    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        """How far the body extends from its centre in unit directions [..., d, n], for poses [..., p]: `[..., d]`."""

    @abstractmethod
    def covariance(self, pose: Tensor) -> Tensor | None:
        """An ellipsoid `[..., n, n]`: the eigenvalues are the squares of its semi-axes. None for a point."""

    @abstractmethod
    def size(self, pose: Tensor) -> Tensor:
        """Its mean radius, `[...]`."""

    def pose(self, raw: Tensor) -> Tensor:
        """The pose `[..., p]` for a network's output [..., pose_width]."""
        return raw

    def facets(self, like: Tensor) -> Tensor | None:
        """Unit directions `[d, n]` in which the ends of a path are compared with the body.

        None: a path is compared toward its nearest point alone, which is exact for a ball.
        """
        return None

    def orientation(self, pose: Tensor) -> Tensor | None:
        """Angle `[...]` of the long axis modulo pi; None for a body that does not turn."""
        return None

    def turned2(self, pose: Tensor, pose_next: Tensor) -> Tensor:
        """How far turning from one pose to the other moves the body's tips, squared: `[...]`."""
        return pose.new_zeros(pose.shape[:-1])

    def measure(self, unit: Tensor) -> None:
        """Take what is known of the body into units of the actions' root mean square."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Optimiser groups; `starts` is the share of the run before which a group is not updated."""
        return [{"params": self.learned, "weight_decay": 0.0}] if self.learned else []

    @property
    def learned(self) -> list[nn.Parameter]:
        return [p for p in self.parameters() if p.requires_grad]

    def vitals(self, unit: Tensor) -> dict[str, float]:
        """Its scalars, lengths in the action's unit; waits for the device."""
        return {}


class Sized(Body):
    """A body with one mean radius, which is learned or known.

    `radius` is the sum of the two bodies' radii in the action's unit, where it is known.
    """

    def __init__(self, n: int, *, radius: float | None = None) -> None:
        super().__init__()
        self.n, self.known_radius = n, radius
        self.log_radius = nn.Parameter(torch.tensor(FIRST_RADIUS).log(), requires_grad=radius is None)

    @torch.no_grad()
    def measure(self, unit: Tensor) -> None:
        if self.known_radius is not None:
            self.log_radius.copy_((self.known_radius / unit).log())

    @property
    def radius(self) -> Tensor:
        return self.log_radius.exp()

    def size(self, pose: Tensor) -> Tensor:
        return self.radius.expand(pose.shape[:-1])

    def covariance(self, pose: Tensor) -> Tensor:
        eye = torch.eye(self.n, device=pose.device, dtype=self.log_radius.dtype)
        return (self.radius.square() * eye).expand(*pose.shape[:-1], -1, -1)

    def shape_groups(self) -> list[dict[str, Any]]:
        """Optimiser groups of the parameters that describe the shape: all but the radius."""
        shape = [p for p in self.learned if p is not self.log_radius]
        return [{"params": shape, "lr_scale": LR_SCALE}] if shape else []

    def parameter_groups(self) -> list[dict[str, Any]]:
        size = [{"params": [self.log_radius], "lr_scale": LR_SCALE}] if self.log_radius.requires_grad else []
        shape = [{"starts": SHAPE_FROM, **group} for group in self.shape_groups()]
        return [{"weight_decay": 0.0, **group} for group in (*size, *shape)]

    @torch.no_grad()
    def vitals(self, unit: Tensor) -> dict[str, float]:
        return {"radius": float(self.radius * unit)}


def clearance(body: Body, centre: Tensor, pose: Tensor, path: Segment) -> Tensor:
    """How far a path passes from a convex body at `centre` [..., n], `[...]`; negative: how deep it enters.

    A path misses the body if in some direction all of it lies beyond the support: the clearance is the largest such
    gap. A path that passes by has it toward its nearest point, which is exact. A path that ends beside the body may
    have it elsewhere, toward the flat of a side; it is compared in the body's facets.
    """
    offset = path.offset(centre)
    length2 = offset.square().sum(-1, keepdim=True)
    toward = torch.where(length2 > DISTANCE_EPS, offset, 1.0)  # next to the centre any direction will do
    toward = toward / toward.norm(dim=-1, keepdim=True)
    distance = torch.sqrt(length2 + DISTANCE_EPS).squeeze(-1)
    passing = distance - body.support(toward[..., None, :], pose).squeeze(-1)
    facets = body.facets(centre)
    if facets is None:
        return passing

    def gaps(toward: Tensor) -> Tensor:
        return path.least_along(toward, centre) - body.support(toward, pose)  # [..., d]

    # Choose, then measure: the gradient of a maximum over many, compiled, may divide 0 by 0.
    widest = facets[gaps(facets).argmax(-1), None]  # [..., 1, n]
    return torch.maximum(passing, gaps(widest).squeeze(-1))
