"""The interface of a body, and the clearance between a path and a body.

A body is the region that the agent's reference point cannot enter: the object dilated by the agent. It is convex. All
observations share the few scalars of its shape; its pose may differ between observations.
Lengths are in units of the actions' root mean square.
Legend: n ambient dimension, p numbers of a pose, d directions; `...` any batch shape.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from palpate.geometry import Path, Segment

DISTANCE_EPS = 1e-6  # keeps the gradient of the unsquared distance finite at 0
LR_SCALE = 10.0  # scalars that all triples share can learn much faster than networks
SHAPE_FROM = 0.4  # share of the run after which the shape is learned; before, positions are too inaccurate
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
        """The mean radius, `[...]`."""

    def pose(self, raw: Tensor) -> Tensor:
        """The pose `[..., p]` for a network's output [..., pose_width]."""
        return raw

    def approach(self, path: Path, centre: Tensor) -> tuple[Path, Tensor]:
        """The path that is compared with the shape, and the shape's middle [..., n], along the axes in which the shape
        is at rest; here the common ones."""
        return path, centre

    def placed(self, points: Tensor, axes: Tensor) -> Tensor:
        """Points [..., d, n] of the shape, relative to its middle, as points around the object along the common axes,
        for agents with axes [..., n, n]."""
        return points

    def facets(self, like: Tensor) -> Tensor | None:
        """Unit directions `[d, n]` in which the ends of a path are compared with the body.

        None: a path is compared toward its nearest point alone, which is exact for a ball.
        """
        return None

    def orientation(self, pose: Tensor) -> Tensor | None:
        """Angle `[...]` of the long axis modulo pi; None for a body that does not turn."""
        return None

    def turned2(self, pose: Tensor, pose_next: Tensor) -> Tensor:
        """Squared distance that turning from one pose to the other moves the body's tips, `[...]`."""
        return pose.new_zeros(pose.shape[:-1])

    @property
    def resizable(self) -> bool:
        """Whether `resize` changes the size."""
        return False

    def resize(self, radius: Tensor) -> None:
        """Set the mean radius, if it is learned."""

    def measure(self, unit: Tensor) -> None:
        """Convert the body's known lengths to units of the actions' root mean square."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Optimiser groups; `starts` is the share of the run before which a group is not updated."""
        return [{"params": self.learned, "weight_decay": 0.0}] if self.learned else []

    @property
    def learned(self) -> list[nn.Parameter]:
        return [p for p in self.parameters() if p.requires_grad]

    def vitals(self, unit: Tensor) -> dict[str, float]:
        """The body's scalars, lengths in the action's unit; waits for the device."""
        return {}


class Sized(Body):
    """A body with one mean radius, which is learned or known.

    `radius` is the sum of the agent's and the object's radius, in the action's unit, if it is known.
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
    def resizable(self) -> bool:
        return self.known_radius is None

    @torch.no_grad()
    def resize(self, radius: Tensor) -> None:
        if self.resizable:
            self.log_radius.copy_(radius.log())

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


def clearance(body: Body, centre: Tensor, pose: Tensor, path: Path) -> Tensor:
    """Distance `[...]` between a path and a convex body at `centre` [..., n]; negative: how deep the path enters.

    A path misses the body if in some direction all of it lies beyond the support; the clearance is the largest such
    gap. If the path passes by, this gap is toward its nearest point, exactly. If the path ends beside the body, the gap
    may be in another direction, such as the normal of a flat side; the body's facets are searched for it.
    """
    path, centre = body.approach(path, centre)
    facets = body.facets(centre)
    if facets is None:
        return _passing(body, centre, pose, path)
    # Only straight parts lie beyond the tangent at their nearest point. Choose part and direction, then measure: it is
    # faster, and in compiled code the gradient of a maximum over many values may divide 0 by 0.
    chords = path.chords
    with torch.no_grad():
        centres, poses = centre[..., None, :], pose[..., None, :]
        gap, widest = _gaps(body, centres, poses, chords, facets).max(-1)  # [..., c]
        part = torch.maximum(_passing(body, centres, poses, chords), gap).argmin(-1, keepdim=True)
        toward = facets[widest.gather(-1, part)]  # [..., 1, n]
    chord = Segment(*(torch.take_along_dim(x, part[..., None], -2).squeeze(-2) for x in chords))
    return torch.maximum(_passing(body, centre, pose, chord), _gaps(body, centre, pose, chord, toward).squeeze(-1))


def _gaps(body: Body, centre: Tensor, pose: Tensor, path: Segment, toward: Tensor) -> Tensor:
    """How far all of a path lies beyond the support in directions [..., d, n], `[..., d]`."""
    return path.least_along(toward, centre) - body.support(toward, pose)


def _passing(body: Body, centre: Tensor, pose: Tensor, path: Path) -> Tensor:
    """The gap `[...]` toward the point of a path that is nearest to the centre."""
    offset = path.offset(centre)
    length2 = offset.square().sum(-1, keepdim=True)
    toward = torch.where(length2 > DISTANCE_EPS, offset, 1.0)  # at the centre any direction is right
    toward = toward / toward.norm(dim=-1, keepdim=True)
    distance = torch.sqrt(length2 + DISTANCE_EPS).squeeze(-1)
    return distance - body.support(toward[..., None, :], pose).squeeze(-1)
