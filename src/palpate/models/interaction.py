"""The method: three networks trained from (o, a, o') alone (paper, Sec. 4), with the paper's objective or ours.

Inside, lengths are in units of the actions' root mean square; `encode` gives them back in the action's own unit.
Legend: b batch, n ambient dimension, m dimension of W.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.geometry import (
    Segment,
    axis_angle,
    ellipse,
    ellipse_root,
    long_axis,
    segment_distance2,
    segment_mahalanobis2,
)
from palpate.models.inputs import Branch, Encoding, Inputs, Loss, make_encoder
from palpate.objectives.contact import (
    contact_logit,
    contact_nll,
    gaussian_stay,
    gaussian_touch,
    stay,
    touch,
)
from palpate.objectives.contrastive import infonce, squared_distance
from palpate.objectives.equivariance import equivariance
from palpate.objectives.split import Split

SOFTNESS_FLOOR = 0.004  # of the unit: the likelihood must not grow without bound around a few lucky triples
BODY_LR_SCALE = 10.0  # a few scalars shared by all triples: they can follow the networks much faster


class Interaction(nn.Module):
    """phi_int, phi_ext and phi_cont with their losses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        objective, n = config.objective, config.n
        self.inputs = Inputs(config.observation_shape)
        self.phi_int = Branch(make_encoder(config), n)
        self.phi_cont = Branch(make_encoder(config), objective.contrast_dim)
        shape = {"likelihood": 2 if objective.body == "axes" else 0, "point": 0, "gaussian": n * (n + 1) // 2}
        ext_encoder = self.phi_cont.encoder if objective.shared_network else make_encoder(config)
        self.phi_ext = Branch(ext_encoder, n + shape[objective.external])
        self.split = Split(on=objective.split_on, window=objective.split_window, floor=objective.split_floor)
        # The body: a radius or two semi-axes, and how sharply touching begins at its border.
        self.log_axes = nn.Parameter(torch.log(torch.tensor([0.4, 0.2] if objective.body == "axes" else [0.25])))
        self.log_softness = nn.Parameter(torch.log(torch.tensor(0.1)))
        if objective.radius is not None or objective.external != "likelihood":
            self.log_axes.requires_grad_(False)
        if objective.external != "likelihood":
            self.log_softness.requires_grad_(False)

    def loss(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> Loss:
        """L = L_int + L_cont + L_ext (Eq. 7), term by term."""
        objective, b = self.config.objective, len(batch.a)
        x = self.inputs(torch.cat((batch.o, batch.o_next)))
        a = batch.a / self.inputs.unit
        z_int, z_int_next = self.phi_int(x).split(b)  # [b, n]
        w, w_next = F.normalize(self.phi_cont(x), dim=-1).split(b)  # [b, m]
        ext, ext_next = self.phi_ext(x).split(b)

        distance = squared_distance(w, w_next).detach()
        self.split.update(distance, squared_distance(w_next, w_next.roll(1, 0)).detach())
        touched = self.split(distance)  # [b]

        z_other = z_int_next if objective.contrast_gradient else z_int_next.detach()
        floor = torch.where(progress >= objective.attraction_floor_from, objective.attraction_floor, 0.0)
        contrast = infonce(w, w_next, z_other, temperature=objective.temperature, attraction_floor=floor)
        # With the gradient a small body drowns L_int and the agent's frame collapses (METHOD: 0.08 instead of 0.001).
        path = Segment(z_int if objective.segment_gradient else z_int.detach(), a)
        terms = {
            "agent": equivariance(z_int, a, z_int_next).mean(),
            "contrast": contrast.mean(),
            **self._external(ext, ext_next, path, touched, generator),
        }
        return Loss(terms, {"contact_share": touched.float().mean(), "separation": self.split.separation()})

    def _external(
        self, ext: Tensor, ext_next: Tensor, path: Segment, touched: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """L_ext (Eq. 6): L_- where nothing was touched; elsewhere L_+, or the likelihood of touching everywhere."""
        kind, weight = self.config.objective.external, self.config.objective.stay_weight
        z_ext, shape = self._body(ext)
        z_ext_next, shape_next = self._body(ext_next)
        if kind == "likelihood":
            remained = stay(z_ext, z_ext_next)
            if shape is not None and shape_next is not None:
                remained = remained + stay(shape, shape_next)
            logit = self._touch_logit(z_ext, shape, path)
            return {
                "contact": contact_nll(logit, touched).mean(),
                "stay": weight * torch.where(touched, 0.0, remained).mean(),
            }
        if kind == "point":
            remained, met = stay(z_ext, z_ext_next), touch(z_ext, path)
        else:
            assert shape is not None and shape_next is not None
            t = torch.rand(len(touched), generator=generator, device=touched.device)
            remained = gaussian_stay(z_ext, shape, z_ext_next, shape_next)
            met = gaussian_touch(z_ext, shape, path, t)
        return {
            "stay": weight * torch.where(touched, 0.0, remained).mean(),
            "touch": torch.where(touched, met, 0.0).mean(),
        }

    def _body(self, ext: Tensor) -> tuple[Tensor, Tensor | None]:
        """z_ext and the body's shape: a doubled angle [b, 2], a triangular root [b, n, n], or nothing."""
        n, objective = self.config.n, self.config.objective
        z_ext, rest = ext[:, :n], ext[:, n:]
        if objective.external == "gaussian":
            diagonal = F.softplus(rest[:, :n]) + 1e-3
            rows, columns = torch.tril_indices(n, n, offset=-1, device=ext.device)
            root = torch.diag_embed(diagonal).index_put((torch.arange(len(ext), device=ext.device)[:, None], rows, columns), rest[:, n:])
            return z_ext, root
        return z_ext, F.normalize(rest, dim=-1) if objective.body == "axes" else None

    def _axes(self) -> Tensor:
        """Semi-axes in internal units: `[1]` for a ball, `[2]` for an ellipse."""
        radius = self.config.objective.radius
        return self.log_axes.exp() if radius is None else (radius / self.inputs.unit)[None]

    def _touch_logit(self, z_ext: Tensor, shape: Tensor | None, path: Segment) -> Tensor:
        softness = SOFTNESS_FLOOR + self.log_softness.exp()
        if shape is None:
            return contact_logit(segment_distance2(z_ext, path), self._axes()[0], softness)
        return contact_logit(segment_mahalanobis2(z_ext, path, ellipse_root(shape, self._axes())), 1.0, softness)

    def encoders(self) -> list[nn.Module]:
        branches = (self.phi_int, self.phi_ext, self.phi_cont)
        return list(dict.fromkeys(branch.encoder for branch in branches))

    def parameter_groups(self) -> list[dict[str, Any]]:
        body = [p for p in (self.log_axes, self.log_softness) if p.requires_grad]
        networks = [p for branch in (self.phi_int, self.phi_ext, self.phi_cont) for p in branch.parameters()]
        groups: list[dict[str, Any]] = [{"params": list(dict.fromkeys(networks))}]
        return groups + ([{"params": body, "lr_scale": BODY_LR_SCALE, "weight_decay": 0.0}] if body else [])

    def encode(self, o: Tensor) -> Encoding:
        """Positions, ellipsoid and orientation for observations `[b, ...]`."""
        x, unit, objective = self.inputs(o), self.inputs.unit, self.config.objective
        z_int = self.phi_int(x)
        z_ext, shape = self._body(self.phi_ext(x))
        covariance = orientation = None
        if objective.external == "gaussian":
            assert shape is not None
            covariance = shape @ shape.mT
            if self.config.n == 2:
                x_axis, y_axis = long_axis(covariance).unbind(-1)
                orientation = torch.atan2(y_axis, x_axis) % torch.pi
        elif objective.external == "likelihood" and shape is not None:
            axes = self._axes()
            covariance = ellipse(shape, axes)
            # The network's angle belongs to the first axis, which need not be the long one.
            orientation = (axis_angle(shape) + torch.where(axes[0] < axes[1], torch.pi / 2, 0.0)) % torch.pi
        elif objective.external == "likelihood":
            covariance = (self._axes()[0] ** 2 * torch.eye(self.config.n, device=o.device)).expand(len(o), -1, -1)
        return Encoding(
            z_int * unit, z_ext * unit, None if covariance is None else covariance * unit.square(), orientation
        )

    def contact(self, o: Tensor, o_next: Tensor) -> Tensor:
        """Probability `[b]` that the object was touched between two observations, by the split."""
        w, w_next = F.normalize(self.phi_cont(self.inputs(torch.cat((o, o_next)))), dim=-1).chunk(2)
        return self.split.probability(squared_distance(w, w_next))

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor:
        """Probability `[b]` that moving by `a` touches the object, by geometry alone."""
        if self.config.objective.external != "likelihood":
            raise ValueError("this model was trained without a body; would_touch needs the 'contact' objective")
        x = self.inputs(o)
        z_ext, shape = self._body(self.phi_ext(x))
        return self._touch_logit(z_ext, shape, Segment(self.phi_int(x), a / self.inputs.unit)).sigmoid()
