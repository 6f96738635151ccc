"""A footprint: the shape of the agent, in the plane, which turns with it.

An object is touched if it comes into the footprint dilated by the object. In the agent's axes this region is at rest,
and the object passes along a path. So a rod that turns in place touches what it sweeps.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from palpate.bodies.base import LR_SCALE
from palpate.bodies.ellipse import WIDEST_RIM, rimmed
from palpate.bodies.planar import PlanarBody
from palpate.geometry import Path, ellipse

FROM = 0.1  # share of the run after which the shape is learned: a disc would leave a rod's contacts unexplained


@final
class Footprint(PlanarBody):
    """An ellipse with a rim, at rest in the agent's axes.

    `stretch` [2] has the direction of the long axis, as a doubled angle, and the length log(long / short axis). It
    begins round. `centre` [2] is the middle, seen from the agent's reference point.
    """

    def __init__(self, n: int, **settings: Any) -> None:
        super().__init__(n, **settings)
        self.stretch = nn.Parameter(torch.zeros(2))
        self.raw_rim = nn.Parameter(torch.tensor(0.0))
        self.centre = nn.Parameter(torch.zeros(2))

    @property
    def rim(self) -> Tensor:
        """Width of the rim, as a share of the shorter semi-axis."""
        return WIDEST_RIM * self.raw_rim.sigmoid()

    def approach(self, path: Path, centre: Tensor) -> tuple[Path, Tensor]:
        return path.seen(centre), self.centre.expand_as(centre)

    def placed(self, points: Tensor, axes: Tensor) -> Tensor:
        """The agent's reference point is opposite: where the footprint reaches ahead, it touches from behind."""
        return -(points + self.centre) @ axes.mT

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return rimmed(direction, self.stretch, self.radius, torch.ones_like(self.raw_rim), self.rim)

    def covariance(self, pose: Tensor) -> Tensor:
        return ellipse(self.stretch, self.radius, 1.0).expand(*pose.shape[:-1], -1, -1)

    def shape_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.stretch, self.raw_rim, self.centre], "lr_scale": LR_SCALE, "starts": FROM}]

    @torch.no_grad()
    def vitals(self, unit: Tensor) -> dict[str, float]:
        ratio, offset = float(self.stretch.norm().exp()), float(self.centre.norm() * unit)
        return {**super().vitals(unit), "ratio": ratio, "rim": float(self.rim), "offset": offset}
