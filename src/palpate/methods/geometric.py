"""What the methods with a contact likelihood share: where things are, what a path touches, and how that is judged.

Legend: b batch, k objects, n ambient dimension, c moves.
"""

from typing import Any

import torch
from torch import Tensor, nn

from palpate.bodies import make_body
from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.data.transitions import Batch
from palpate.geometry import Segment
from palpate.methods.base import Encoding, Examination, Model
from palpate.networks import Branch, make_encoder
from palpate.objectives.contact import balanced_nll, rest_nll, spread_nearby, unshrinkable
from palpate.objectives.paper import stay
from palpate.objects import ObjectHead, Objects
from palpate.refine import Correction

SHARE_RANGE = (0.02, 0.98)
# Softness of the boundary. Below the range the likelihood would grow without bound around a few lucky triples; above it
# an object far away would hardly be pulled in. Where a last fit follows, triples are fresh, and it may be sharper.
SOFTNESS, SHARPEST = (0.004, 0.1), 0.001
FIRST_RAW_SOFTNESS, FIRST_REST_SCALE = 2.0, 0.3
SCALAR_LR_SCALE = 10.0  # a few scalars shared by all triples can follow the networks much faster
NEIGHBOURHOOD = 0.25  # width used to normalise L_-, in standard deviations of all positions
HELD_OUT_DOUBT = 0.05  # with a sharp boundary one wrong label would outweigh all other held-out triples


class Geometric(Model):
    """phi_int, phi_ext and the bodies. Subclasses say which triples are contacts.

    Inside, lengths are in units of the actions' root mean square; answers are in the action's own unit.
    """

    carried = False  # whether the agent carries the cameras
    doubt = 0.0  # share of wrong contacts in training
    scenes: Scenes

    def __init__(self, config: ModelConfig, objects: int = 1) -> None:
        super().__init__(config)
        scene = config.objective
        if config.n == 1 and scene.radius is None:
            raise ValueError(
                "actions have one dimension: an agent that never passes the object untouched cannot tell the object's "
                "position from its radius. Give the sum of the two radii as radius=, in the action's unit"
            )
        bodies = [make_body(scene.body, config.n, radius=scene.radius) for _ in range(objects)]
        correction = Correction(config.n) if scene.refine else None
        self.head = ObjectHead(self.group, bodies, carried=self.carried, correction=correction)
        self.phi_int = Branch(make_encoder(config), self.group.width)
        self.phi_ext = Branch(self.object_encoder(), self.head.width)
        self.sharpest = SHARPEST if scene.refine else SOFTNESS[0]
        self.raw_softness = nn.Parameter(torch.full((objects,), FIRST_RAW_SOFTNESS))
        self.log_rest_scale = nn.Parameter(torch.full((objects,), FIRST_REST_SCALE).log())

    def object_encoder(self) -> nn.Module:
        return make_encoder(self.config)

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        super().measure(sample, actions)
        self.head.measure(self.inputs.unit)

    @property
    def softness(self) -> Tensor:
        """How wide the zone is in which contact is uncertain, `[k]`."""
        return self.sharpest + (SOFTNESS[1] - self.sharpest) * self.raw_softness.sigmoid()

    @property
    def rest_scale(self) -> Tensor:
        """Scale of the distance between two observations of an object at rest, `[k]`."""
        least = self.config.objective.rest_floor
        assert least is not None
        return torch.sqrt(least**2 + self.log_rest_scale.exp().square())

    def logit(self, objects: Objects, path: Segment) -> Tensor:
        """log-odds of contact `[b, k]` between paths and objects."""
        return -self.head.clearance(objects, path) / self.softness

    def start(self, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
        """Where a path began: o and o' both say so, and the mean is more accurate.

        With the gradient a small body would drown L_int, and the agent's frame would collapse.
        """
        return self.group.mean(z_int, self.group.undo(z_int_next, a)).detach()

    # The object's losses

    def contact_term(self, before: Objects, after: Objects, path: Segment, contact: Tensor, share: Tensor) -> Tensor:
        """-log P(contact) of a batch, for contacts [b, k] that are a `share` [k] of all triples."""
        # Held-out triples count as they come: a few rare contacts would make the choice of the weights a lottery.
        share = share if self.training else torch.full_like(share, 0.5)
        doubt = self.doubt if self.training else HELD_OUT_DOUBT
        logits = self.logit(before, path), self.logit(after, path)
        return balanced_nll(*logits, contact, share.clamp(*SHARE_RANGE), doubt).mean(0).sum()

    def stay_term(self, before: Objects, after: Objects, contact: Tensor) -> Tensor:
        """L_-: an object without contact stays where it is."""
        pairs = zip(before.position.unbind(1), after.position.unbind(1), strict=True)
        remained = torch.stack([self.remained(z, z_next) for z, z_next in pairs], 1) + self.head.turned2(before, after)
        return torch.where(contact, 0.0, rest_nll(remained, self.rest_scale, self.group.n)).mean(0).sum()

    def remained(self, z_ext: Tensor, z_ext_next: Tensor) -> Tensor:
        """|z_ext - z_ext'|^2 `[b]`, whose gradient in training does not shrink the frame."""
        if not self.training or len(z_ext) < 2:
            return stay(z_ext, z_ext_next)
        return unshrinkable(z_ext, z_ext_next, spread_nearby(z_ext, z_ext_next, NEIGHBOURHOOD))

    # What training and quality need

    def parameter_groups(self) -> list[dict[str, Any]]:
        scalars = [self.raw_softness, self.log_rest_scale]
        apart = [
            {"params": scalars, "lr_scale": SCALAR_LR_SCALE, "weight_decay": 0.0},
            *self.head.parameter_groups(),
        ]
        own = {id(p) for group in apart for p in group["params"]} | {id(p) for p in self.head.parameters()}
        return [{"params": [p for p in self.parameters() if id(p) not in own]}, *apart]

    def separation(self) -> float:
        return self.scenes.separation()

    def threshold(self) -> tuple[float, str]:
        split = self.scenes.split(0)
        return float(split.threshold), split.on

    def vitals(self) -> dict[str, float]:
        unit = self.inputs.unit
        softness = float(self.softness.max() * unit)
        return {"separation": self.scenes.separation(), **self.head.vitals(unit), "softness": softness}

    def uncertainty(self, o: Tensor, moves: Tensor) -> Tensor:
        """Of the object that is least certain: minus the absolute log-odds."""
        return -self._predicted(o, moves).abs().amin(-1)

    def examine(self, batch: Batch) -> Examination:
        unit = self.inputs.unit
        x, x_next = self.inputs(batch.o), self.inputs(batch.o_next)
        (z_int, objects), (z_int_next, objects_next) = self._located(x), self._located(x_next)
        scene = self.scene_distance(batch.o, batch.o_next)
        path = self.group.path(z_int, self.inputs.scaled(batch.a))
        covariances = self.head.covariances(objects)
        turns = self.head.orientations(objects) is not None
        return Examination(
            agent=z_int * unit,
            agent_next=z_int_next * unit,
            objects=objects.position * unit,
            objects_next=objects_next.position * unit,
            scene=scene,
            contact=self.scenes.contact(scene),
            distance=(self.head.clearance(objects, path) + self.head.sizes(objects)) * unit,
            elongation=elongation(covariances) if turns else None,
        )

    # Answers

    def _located(self, x: Tensor) -> tuple[Tensor, Objects]:
        """The agent's pose and the objects for scaled observations."""
        z_int = self.group.pose(self.phi_int(x))
        return z_int, self.head(self.phi_ext(x), z_int)

    def encode(self, o: Tensor) -> Encoding:
        unit = self.inputs.unit
        z_int, objects = self._located(self.inputs(o))
        return Encoding(
            self.group.position(z_int) * unit,
            objects.position * unit,
            self.head.covariances(objects) * unit.square(),
            self.head.orientations(objects),
        )

    def border(self, o: Tensor) -> Tensor | None:
        _, objects = self._located(self.inputs(o))
        lines = self.head.borders(objects)
        return None if lines is None else lines * self.inputs.unit

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor:
        return self.scenes.probability(self.scene_distance(o, o_next))

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor:
        return self._predicted(o, a[:, None])[:, 0].sigmoid()

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        raise NotImplementedError

    def _predicted(self, o: Tensor, moves: Tensor) -> Tensor:
        """log-odds of contact `[b, c, k]` for each of some moves [b, c, n] from o."""
        count = moves.shape[1]
        x = self.inputs(o)
        raw_int, raw_ext = self.phi_int(x), self.phi_ext(x)
        with torch.autocast(o.device.type, enabled=False):
            z_int = self.group.pose(raw_int.float())
            objects = self.head(raw_ext.float(), z_int).repeated(count)
            path = self.group.path(z_int.repeat_interleave(count, 0), self.inputs.scaled(moves.flatten(0, 1)))
            return self.logit(objects, path).unflatten(0, (-1, count))


def elongation(covariances: Tensor) -> Tensor:
    """Longest over shortest semi-axis of ellipsoids [..., n, n], `[...]`."""
    values = torch.linalg.eigvalsh(covariances.double())
    return (values[..., -1] / torch.maximum(values[..., 0], 1e-8 * values[..., -1])).sqrt()
