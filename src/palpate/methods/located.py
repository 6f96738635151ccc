"""Positions and contacts of triples, for all methods that learn from contacts.

Internal lengths are in units of the actions' root mean square; outputs are in the action's own unit.
Legend: b batch, k objects, n ambient dimension.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from palpate.bodies.base import Body
from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.contacts.split import SEPARABLE
from palpate.contacts.witnesses import Witnesses
from palpate.data.transitions import Batch
from palpate.methods.base import Encoding, Examination, Model, Threshold
from palpate.networks import Branch, make_encoder
from palpate.objectives.equivariance import (
    chain_equivariance,
    equivariance,
    heading_equivariance,
    landmark_equivariance,
    stillness,
)
from palpate.objectives.paper import stay
from palpate.objects import ObjectHead, Objects
from palpate.refine import Correction

FOLLOWS = 0.25  # squared residual of the agent, relative to its actions, below which it follows them
FLATTEST = 1e-8  # least squared semi-axis, relative to the longest


class Located(Model):
    """phi_int, phi_ext and a body for each object. Subclasses provide `scenes` and `scene_distance`."""

    carried = False  # whether the agent carries the cameras
    hides = False  # whether phi_ext outputs that an object is hidden
    scenes: Scenes | Witnesses

    def __init__(self, config: ModelConfig, bodies: Sequence[Body], correction: Correction | None = None) -> None:
        super().__init__(config)
        self.head = ObjectHead(self.group, bodies, carried=self.carried, hides=self.hides, correction=correction)
        self.phi_int = Branch(make_encoder(config), self.group.width)
        self.phi_ext = Branch(make_encoder(config), self.head.width)

    def located(self, x: Tensor) -> tuple[Tensor, Objects]:
        """The agent's pose and the objects for scaled observations."""
        z_int = self.group.flawless(self.group.pose(self.phi_int(x)))
        return z_int, self.head(self.phi_ext(x), z_int)

    def agent_term(self, raw: Tensor, a: Tensor, raw_next: Tensor, journey: Sequence[Tensor]) -> Tensor:
        """L_int of a batch, for outputs of phi_int and `journey` as in `Batch`."""
        z_int, z_int_next = self.group.pose(raw), self.group.pose(raw_next)
        each = equivariance(self.group, z_int, a, z_int_next)
        if journey:
            chain, travelled = journey
            travelled = self.group.scaled_pose(travelled, 1 / self.inputs.unit)
            each = each + chain_equivariance(self.group, z_int, a, z_int_next, chain, travelled)
        if not (self.group.led and self.training):
            return each.mean()
        seen, seen_next = self.group.landmark(raw), self.group.landmark(raw_next)
        # A landmark is harder to place than a pose, and not needed once poses follow the actions.
        follows = self.follows(z_int, a, z_int_next)
        each = each + (1 - follows) * landmark_equivariance(self.group, seen, a, seen_next)
        each = each + follows * heading_equivariance(self.group, z_int, a, z_int_next)
        return each.mean() + stillness(self.group, z_int, a, z_int_next)

    @torch.no_grad()
    def follows(self, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
        """How well an agent that turns follows its actions, over a batch: a scalar from 0 to 1, without a gradient.

        L_- waits for it: paths from wrong headings explain no contacts, and L_- would hold objects in one place. The
        contacts' loss does not wait: with gradients that begin late, Adam's first steps would be too large.
        """
        group = self.group
        z_int, z_int_next = group.flawless(z_int), group.flawless(z_int_next)
        left2 = group.distance2(z_int_next, group.act(z_int, a)).mean()
        size2 = group.distance2(group.reached(a), group.reached(torch.zeros_like(a))).mean()
        return (1 - left2 / (FOLLOWS * size2)).clamp(0, 1)

    def encode(self, o: Tensor) -> Encoding:
        unit = self.inputs.unit
        z_int, objects = self.located(self.inputs(o))
        covariances = self.head.covariances(objects, z_int)
        return Encoding(
            self.group.position(z_int) * unit,
            self.group.known(objects.position * unit),
            None if covariances is None else covariances * unit.square(),
            self.head.orientations(objects),
            (-objects.hidden).sigmoid() if self.hides else None,
            self.group.heading(z_int),
            self.group.rotation(z_int),
        )

    def pose(self, o: Tensor) -> Tensor:
        z_int = self.group.flawless(self.group.pose(self.phi_int(self.inputs(o))))
        return self.group.scaled_pose(z_int, self.inputs.unit)

    def border(self, o: Tensor) -> Tensor | None:
        z_int, objects = self.located(self.inputs(o))
        lines = self.head.borders(objects, z_int)
        return None if lines is None else lines * self.inputs.unit

    # Contacts

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        raise NotImplementedError

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor:
        return self.scenes.probability(self.scene_distance(o, o_next))

    def contacts(self, batch: Batch) -> Tensor:
        return self.scenes.reliable(self.scenes.contact(self.scene_distance(batch.o, batch.o_next)))

    def separations(self) -> list[float]:
        return self.scenes.separations()

    def separable(self) -> bool:
        return min(self.separations()) >= SEPARABLE

    def threshold(self) -> Threshold | None:
        if len(self.scenes) > 1:  # each object has one of its own
            return None
        split = self.scenes.split(0)
        return Threshold(float(split.threshold), split.on, self.scenes.compares_positions(0))

    def held_out(self, blocks: Sequence[Batch]) -> float | None:
        """None while contacts do not separate, because a single class is easy to explain."""
        return super().held_out(blocks) if self.separable() else None

    def vitals(self) -> dict[str, float]:
        return {"separation": min(self.separations()), **self.head.vitals(self.inputs.unit)}

    def examine(self, batch: Batch) -> Examination:
        unit = self.inputs.unit
        z_int, objects = self.located(self.inputs(batch.o))
        z_int_next, objects_next = self.located(self.inputs(batch.o_next))
        scene = self.scene_distance(batch.o, batch.o_next)
        path = self.group.path(z_int, self.inputs.scaled(batch.a))
        covariances, orientations = self.head.covariances(objects, z_int), self.head.orientations(objects)
        turns = covariances is not None and orientations is not None
        sizes = self.head.sizes(objects)
        return Examination(
            agent=self.group.scaled_pose(z_int, unit),
            agent_next=self.group.scaled_pose(z_int_next, unit),
            objects=objects.position * unit,
            objects_next=objects_next.position * unit,
            scene=scene,
            contact=self.scenes.contact(scene),
            visible=(objects.hidden < 0) & (objects_next.hidden < 0),
            far=stay(objects.position, objects_next.position) > sizes.square(),
            distance=(self.head.clearance(objects, path) + sizes) * unit,
            elongation=elongation(covariances) if turns else None,  # type: ignore[arg-type]
        )

    def compile_step(self) -> None:
        super().compile_step()
        self.fused = torch.compile(self.objective, dynamic=False)


def elongation(covariances: Tensor) -> Tensor:
    """Longest over shortest semi-axis of ellipsoids [..., n, n], `[...]`."""
    values = torch.linalg.eigvalsh(covariances.double())
    return (values[..., -1] / torch.maximum(values[..., 0], FLATTEST * values[..., -1])).sqrt()
