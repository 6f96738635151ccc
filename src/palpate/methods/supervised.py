"""The supervised limit: the same encoders trained on true states.

Legend: b batch, k objects, n ambient dimension.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.bodies import make_body
from palpate.config import ModelConfig
from palpate.data.labelled import LabelledBatch
from palpate.geometry import double_angle
from palpate.methods.base import Encoding, Loss, Model, paired
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objects import ObjectHead


class Supervised(Model):
    """Regression of agent and objects, and of the objects' angles where the body turns."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        bodies = [make_body(config.objective.body, config.n) for _ in range(config.objects)]
        self.head = ObjectHead(self.group, bodies, carried=bool(config.objective.egocentric))
        for parameter in self.head.parameters():
            parameter.requires_grad_(False)  # only poses are learned
        self.turns = bodies[0].pose_width > 0
        self.phi_int = Branch(make_encoder(config), self.group.width)
        self.phi_ext = Branch(make_encoder(config), self.head.width)

    def outputs(self, batch: LabelledBatch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        if batch.agent_next is None or batch.objects_next is None:
            raise ValueError("the truth lacks agent_next or object_next, which the supervised model needs")
        if (count := batch.objects.shape[1]) != len(self.head):
            raise ValueError(
                f"the truth has {count} objects and the model {len(self.head)}; train with objects={count}"
            )
        if self.turns and (batch.angles is None or batch.angles_next is None):
            raise ValueError("the truth lacks angle or angle_next, which a body that turns needs")
        x = self.inputs(torch.cat((batch.o, batch.o_next)), generator)
        raw, ext = map(paired, side_by_side((self.phi_int, self.phi_ext), x))
        truth = [(batch.agent, batch.agent_next), (batch.objects, batch.objects_next)]
        truth += [(batch.angles, batch.angles_next)] if self.turns else []  # type: ignore[list-item]
        return raw, ext, *(torch.stack(pair, 1) for pair in truth)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """Squared errors over o and o', in units of the actions' root mean square."""
        raw, ext, agent, position, *angles = (x.flatten(0, 1) for x in outputs)
        group, unit, z_int = self.group, self.inputs.unit, self.group.pose(raw)
        objects = self.head(ext, z_int.detach())
        terms = {
            "agent": group.difference(group.position(z_int), agent / unit).square().sum(-1).mean(),
            "object": group.difference(objects.position, position / unit).square().sum(-1).mean(),
        }
        if self.turns:
            axis = F.normalize(objects.pose, dim=-1)
            terms["angle"] = (axis - double_angle(angles[0])).square().sum(-1).mean()
        return Loss(terms, {})

    def encode(self, o: Tensor) -> Encoding:
        x, unit = self.inputs(o), self.inputs.unit
        z_int = self.group.pose(self.phi_int(x))
        objects = self.head(self.phi_ext(x), z_int)
        return Encoding(
            self.group.position(z_int) * unit, objects.position * unit, None, self.head.orientations(objects)
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]
