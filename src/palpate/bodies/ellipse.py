"""An ellipse with a rim: a long body in the plane that turns.

A disc-shaped agent touches the object dilated by that disc. A dilated ellipse is not an ellipse: a rod becomes a
stadium. So a rim of equal width surrounds the ellipse.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from palpate.bodies.base import LR_SCALE
from palpate.bodies.planar import PlanarBody
from palpate.geometry import axis_angle, ellipse

# Long over short axis for a certain angle. Without angles the best body is round, and a round body teaches no angles;
# so it starts long.
FIRST_RATIO = 3.0
WIDEST_RIM = 0.98  # of the shorter semi-axis: a rim of 1 would surround a line, whose support has a corner


@final
class Ellipse(PlanarBody):
    """The pose is the doubled angle of the long axis, as a vector [..., 2] in the unit disc.

    A vector shorter than 1 means an uncertain angle and a rounder body. Unit vectors would start at a saddle point.
    """

    pose_width = 2

    def __init__(self, n: int, **settings: Any) -> None:
        super().__init__(n, **settings)
        self.log_ratio = nn.Parameter(torch.tensor(FIRST_RATIO).log())
        self.raw_rim = nn.Parameter(torch.tensor(0.0))

    @property
    def rim(self) -> Tensor:
        """Width of the rim, as a share of the shorter semi-axis."""
        return WIDEST_RIM * self.raw_rim.sigmoid()

    def pose(self, raw: Tensor) -> Tensor:
        return raw / torch.sqrt(1 + raw.square().sum(-1, keepdim=True))

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return rimmed(direction, pose[..., None, :], self.radius, self.log_ratio, self.rim)

    def covariance(self, pose: Tensor) -> Tensor:
        return ellipse(pose, self.radius, self.log_ratio)

    def orientation(self, pose: Tensor) -> Tensor:
        # If the ratio is below 1, the long axis is the other one.
        return axis_angle(torch.where(self.log_ratio < 0, -pose, pose))

    def turned2(self, pose: Tensor, pose_next: Tensor) -> Tensor:
        # A doubled angle moves twice as far as the angle.
        tip = self.radius * torch.exp(self.log_ratio / 2)
        return (pose - pose_next).square().sum(-1) * (tip / 2).square().detach()

    def shape_groups(self) -> list[dict[str, Any]]:
        rim = {"params": [self.raw_rim], "lr_scale": LR_SCALE}
        return [rim, {"params": [self.log_ratio]}]

    @torch.no_grad()
    def vitals(self, unit: Tensor) -> dict[str, float]:
        return {**super().vitals(unit), "ratio": float(self.log_ratio.exp()), "rim": float(self.rim)}


def rimmed(direction: Tensor, axis: Tensor, radius: Tensor | float, log_ratio: Tensor, share: Tensor) -> Tensor:
    """Support of an ellipse with a rim in unit directions [..., 2]: `[...]`.

    `axis` [..., 2], `radius` and `log_ratio` are those of `geometry.ellipse` and give the semi-axes of the whole. The
    rim is a `share` of the shorter one. With a and b, the semi-axes without the rim, h = rim +
    sqrt(a^2 cos^2 + b^2 sin^2) of the angle to the long axis. No angle is computed, so a disc (axis 0) has a gradient.
    """
    length = torch.sqrt(axis.square().sum(-1) + 1e-24)
    k = log_ratio * length / 2
    rim = share * radius * torch.exp(-k.abs())
    a, b = radius * torch.exp(k) - rim, radius * torch.exp(-k) - rim
    x, y = direction.unbind(-1)
    doubled = torch.stack((x.square() - y.square(), 2 * x * y), -1)
    # (a^2 - b^2) times the cosine of the doubled angle to the long axis; a - b = 2 radius sinh k.
    odd = (a + b) * (2 * radius * torch.sinh(k) / length) * (doubled * axis).sum(-1)
    inner2 = (a.square() + b.square() + odd) / 2
    return rim + torch.sqrt(inner2.clamp(min=0) + 1e-12)  # across a rod, rounding may give less than 0
