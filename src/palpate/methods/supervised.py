"""The limit: the same encoders trained on the true states. What the method is measured against, never part of it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.data.labelled import LabelledBatch
from palpate.geometry import axis_angle, double_angle
from palpate.inputs import Inputs
from palpate.methods.base import Encoding, Loss, Model
from palpate.networks import Branch, make_encoder, side_by_side


class Supervised(Model):
    """Regression of agent and object, and of the object's angle where the body has axes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.inputs = Inputs(config.observation_shape)
        self.phi_int = Branch(make_encoder(config), config.n)
        self.phi_ext = Branch(make_encoder(config), config.n + (2 if self._turns else 0))

    @property
    def _turns(self) -> bool:
        return self.config.objective.body == "axes"

    def loss(self, labelled: LabelledBatch, generator: torch.Generator, progress: Tensor) -> Loss:
        """Squared errors over o and o', in units of the actions' root mean square."""
        batch, unit, n = labelled.batch, self.inputs.unit, self.config.n
        if labelled.agent_next is None or labelled.object_next is None:
            raise ValueError("the supervised model learns from o and o'; the truth lacks agent_next or object_next")
        x = self.inputs(torch.cat((batch.o, batch.o_next)), generator)
        z_int, ext = side_by_side((self.phi_int, self.phi_ext), x)
        agent = torch.cat((labelled.agent, labelled.agent_next)) / unit
        position = torch.cat((labelled.object, labelled.object_next)) / unit
        terms = {
            "agent": (z_int - agent).square().sum(-1).mean(),
            "object": (self._placed(ext, z_int.detach()) - position).square().sum(-1).mean(),
        }
        if self._turns:
            if labelled.angle is None or labelled.angle_next is None:
                raise ValueError("a body with axes is learned from its angle; the truth lacks angle or angle_next")
            angle = double_angle(torch.cat((labelled.angle, labelled.angle_next)))
            terms["angle"] = (F.normalize(ext[:, n:], dim=-1) - angle).square().sum(-1).mean()
        return Loss(terms, {})

    def encode(self, o: Tensor) -> Encoding:
        """Positions, and the orientation where the body has axes."""
        x, n = self.inputs(o), self.config.n
        z_int, ext = self.phi_int(x), self.phi_ext(x)
        orientation = axis_angle(F.normalize(ext[:, n:], dim=-1)) if self._turns else None
        return Encoding(z_int * self.inputs.unit, self._placed(ext, z_int) * self.inputs.unit, None, orientation)

    def _placed(self, ext: Tensor, z_int: Tensor) -> Tensor:
        position = ext[:, : self.config.n]
        return position + z_int if self.config.objective.egocentric else position

    def vitals(self) -> dict[str, float]:
        return {}

    def compile_step(self) -> None:
        for branch in (self.phi_int, self.phi_ext):
            branch.fuse()

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters())}]
