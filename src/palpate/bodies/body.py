"""The body: how far what the agent touches reaches from the object's centre, and how softly touching begins there.

A few scalars that all sights of the object share. Lengths are in units of the actions' root mean square.
Legend: b batch, n ambient dimension, k directions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from palpate.config import ObjectiveConfig
from palpate.geometry import Segment, ellipse, segment_distance2, segment_mahalanobis2
from palpate.objectives.contact import clearance, contact_logit, outline, rimmed

# Softness of the border: below, the likelihood would grow without bound around a few lucky triples; above, an object
# far away would hardly be pulled in.
SOFTNESS = (0.004, 0.1)
SHARPEST = 0.001  # where there is a last fit: triples are fresh then, and none comes twice
# Long over short axis where the network is sure of the angle. As long as no angles are known the best body is round,
# and with a round body none would ever be learned.
FIRST_RATIO = 3.0
WIDEST_RIM = 0.98  # of the shorter semi-axis: beyond it lies a line, whose reach has a corner
LR_SCALE = 10.0  # of a few scalars shared by all triples: they can follow the networks much faster


class Form(NamedTuple):
    """A body as it is now. A `shape` [b, 2], the direction of the long axis in the unit disc, says how it lies."""

    radius: Tensor  # of an ellipse, the geometric mean of its semi-axes
    softness: Tensor
    log_ratio: Tensor  # of the semi-axes
    waves: Tensor | None  # [2, K - 1] of the outline
    rim: Tensor | None  # of the shorter semi-axis

    def touch_logit(self, z_ext: Tensor, shape: Tensor | None, path: Segment) -> Tensor:
        """log-odds `[b]` that a path touches the body at z_ext [b, n]."""
        if shape is not None and self.rim is None:
            # Where the ellipse is mapped to the unit disc, its border lies at 1 and lengths are divided by its radius.
            distance2 = segment_mahalanobis2(z_ext, path, ellipse(shape, self.radius, self.log_ratio, power=-1.0))
            return contact_logit(distance2, 1.0, self.softness / self.radius)
        if shape is None and self.waves is None:
            return contact_logit(segment_distance2(z_ext, path), self.radius, self.softness)
        return -clearance(z_ext, path, lambda u: self.reach(u, shape)) / self.softness

    def reach(self, direction: Tensor, shape: Tensor | None) -> Tensor:
        """How far the body reaches in directions [..., k, 2] of length 1: `[b, k]`, or `[k]` if it does not turn."""
        if self.waves is not None:
            return self.radius * outline(direction, *self.waves).exp()
        if shape is None:
            return self.radius.expand(direction.shape[:-1])
        rim = torch.zeros_like(self.radius) if self.rim is None else self.rim
        return rimmed(direction, shape[:, None], self.radius, self.log_ratio, rim)

    def tip(self) -> Tensor:
        """The long semi-axis."""
        return self.radius * torch.exp(self.log_ratio / 2)

    def covariance(self, shape: Tensor | None, rows: int, n: int) -> Tensor:
        """`[rows, n, n]`, whose eigenvalues are the squares of the semi-axes."""
        if shape is not None:
            return ellipse(shape, self.radius, self.log_ratio)
        return (self.radius**2 * torch.eye(n, device=self.radius.device)).expand(rows, -1, -1)


class Body(nn.Module):
    """What is learned of a body, or known: its radius may be given, in the action's unit."""

    def __init__(self, objective: ObjectiveConfig) -> None:
        super().__init__()
        self.known_radius = objective.radius
        self.turns = objective.body == "axes"
        self.least_softness = SHARPEST if objective.bend else SOFTNESS[0]
        likelihood = objective.external == "likelihood"
        self.log_radius = nn.Parameter(torch.tensor(0.25).log())
        self.log_ratio = nn.Parameter(torch.tensor(FIRST_RATIO).log())
        self.softness = nn.Parameter(torch.tensor(2.0))
        outlined = likelihood and objective.outline > 0
        self.outline = nn.Parameter(torch.zeros(2, objective.outline - 1)) if outlined else None
        self.rim = nn.Parameter(torch.tensor(0.0)) if objective.rim else None
        self.log_radius.requires_grad_(likelihood and objective.radius is None)
        self.log_ratio.requires_grad_(likelihood and self.turns)
        self.softness.requires_grad_(likelihood)

    def form(self, unit: Tensor, learned: Tensor | float = 1.0) -> Form:
        """The body where an action's root mean square is `unit`; where `learned` is 0 only its size is."""

        def held(p: Tensor) -> Tensor:
            return p.detach() + learned * (p - p.detach())

        waves, rim = (None if p is None else held(p) for p in (self.outline, self.rim))
        return Form(
            radius=self.log_radius.exp() if self.known_radius is None else self.known_radius / unit,
            softness=self.least_softness + (SOFTNESS[1] - self.least_softness) * self.softness.sigmoid(),
            log_ratio=held(self.log_ratio),
            waves=waves,
            rim=None if rim is None else WIDEST_RIM * rim.sigmoid(),
        )

    @property
    def learned(self) -> list[nn.Parameter]:
        return [p for p in self.parameters() if p.requires_grad]

    def parameter_groups(self) -> list[dict[str, Any]]:
        ratio = [p for p in self.learned if p is self.log_ratio]
        others = [p for p in self.learned if p is not self.log_ratio]
        return [
            {"params": others, "lr_scale": LR_SCALE, "weight_decay": 0.0},
            {"params": ratio, "weight_decay": 0.0},
        ]

    @torch.no_grad()
    def vitals(self, unit: Tensor) -> dict[str, float]:
        """Radius and softness in the action's unit, and what else it has; waits for the device."""
        form = self.form(unit)
        vitals = {"radius": float(form.radius * unit), "softness": float(form.softness * unit)}
        if self.turns:
            vitals["ratio"] = float(form.log_ratio.exp())
        if form.rim is not None:
            vitals["rim"] = float(form.rim)
        return vitals
