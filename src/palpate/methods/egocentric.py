"""Our method for cameras on the agent: a scout finds the object first, and replaces W.

phi_ext sees the object and the whole world, and alone it would place the object at one fixed point of the world. So it
first follows the scout, which sees only the foreground. The scout's positions are free up to a constant, which the
contacts determine: while z_ext follows the scout, contacts move only its mean.
Legend: b batch, k objects, n ambient dimension.
"""

import torch
from torch import Tensor

from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.contacts.scout import Scout, place_split
from palpate.contacts.split import SEPARABLE
from palpate.data.transitions import Batch
from palpate.methods.base import Loss
from palpate.methods.geometric import DOUBT, Geometric
from palpate.networks import side_by_side
from palpate.objectives.contact import Wrong
from palpate.objectives.paper import stay
from palpate.objects import Objects

FOLLOW = 10.0  # weight of following the scout
# z_ext follows the scout until FOLLOWS_UNTIL of the run. Its own losses fade in until FREE_FROM, and following fades
# out until LEFT_AT: without a slow fade z_ext may settle elsewhere. Contacts count from KNOWN_FROM on.
FOLLOWS_UNTIL, FREE_FROM, LEFT_AT, KNOWN_FROM = 0.5, 0.55, 0.8, 0.3
MOST_DIMENSIONS = 3  # that a backdrop has room for


class Egocentric(Geometric):
    """phi_int, phi_ext and a scout that only training needs; how far positions move identifies the contacts."""

    scaffold = ("scout",)
    not_judged = frozenset({"stay", "scout"})
    carried = True
    scenes: Scenes

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if config.n > MOST_DIMENSIONS:
            raise ValueError(
                f"egocentric is True; allowed is False when actions have {config.n} dimensions, more than "
                f"{MOST_DIMENSIONS}"
            )
        self.scout: Scout | None = Scout(config, self.group)
        self.scenes = Scenes([place_split()], dimension=None)

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        clean = self.inputs(torch.cat((batch.o, batch.o_next)))
        raw, ext = side_by_side((self.phi_int, self.phi_ext), self.inputs.augmented(clean, generator))
        assert self.scout is not None  # a trained model has none, and no loss
        place = self.scout(clean, self.group.pose(raw.detach()), self.inputs, generator)
        both = [part for output in (raw, ext, place) for part in output.chunk(2)]
        return (*both, self.inputs.scaled(batch.a), *batch.journey)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """The losses. An object that the scout loses, for example behind a net, seems to move. So z_ext does not follow
        the scout in its contacts. Once z_ext is free, a triple is in contact only if z_ext moves too. This condition is
        dropped while the distances of z_ext do not separate: a z_ext that never moves would have no contacts.
        """
        raw, raw_next, ext, ext_next, place, place_next, a, *journey = outputs
        z_int, z_int_next = self.group.pose(raw), self.group.pose(raw_next)
        assert self.scout is not None
        before, after = self.head(ext, z_int.detach()), self.head(ext_next, z_int_next.detach())
        moved = self.scenes.observe(before.position, after.position)  # [b, k]
        scouted = self.scout.observe(place, place_next)[:, None]  # [b, 1]
        alone = (progress < FREE_FROM) | ~self.scenes.split(0).has_two_classes()
        contact = (scouted & (moved | alone)).float()
        free, left = (((progress - FOLLOWS_UNTIL) / (end - FOLLOWS_UNTIL)).clamp(0, 1) for end in (FREE_FROM, LEFT_AT))
        positions = torch.cat((before.position, after.position))  # [2b, k, n]
        guided, guided_after = _following(before, after, free)
        path = self.group.path(self.start(z_int, a, z_int_next), a)
        share = self.scout.split.share[None]
        if self.training:
            self.head.may_hide.logical_or_(progress >= FOLLOWS_UNTIL)
        terms = {
            "agent": self.agent_term(raw, a, raw_next, journey),
            "scout": self.scout.loss(place, place_next, progress),
            "follow": (1 - left) * FOLLOW * self._apart(positions, torch.cat((place, place_next)), scouted),
            "contact": (progress >= KNOWN_FROM)
            * self.contact_term(guided, guided_after, path, contact, share, Wrong.evenly(DOUBT, share)),
            "stay": free * self.stay_term(guided, guided_after, contact, progress),
        }
        return Loss(terms, {"contact_share": moved.float().mean()}, self.scenes.reliable(moved))

    @staticmethod
    def _apart(positions: Tensor, ahead: Tensor, scouted: Tensor) -> Tensor:
        """Mean squared distance between z_ext and the scout, up to a constant, where the scout finds no contact."""
        weight = (~scouted).to(positions.dtype).repeat(2, 1)  # [2b, 1]
        weight = weight / weight.sum().clamp(min=1.0)
        z, target = positions[:, 0], ahead.detach()
        return (weight[:, 0] * stay(z - (weight * z).sum(0), target - (weight * target).sum(0))).sum()

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        (_, before), (_, after) = self.located(self.inputs(o)), self.located(self.inputs(o_next))
        return self.scenes.distance(before.position, after.position)

    def separable(self) -> bool:
        return self.scout is not None and self.scout.split.separation() >= SEPARABLE

    def vitals(self) -> dict[str, float]:
        scout = {} if self.scout is None else {"scout_separation": self.scout.split.separation()}
        return super().vitals() | scout


def _following(before: Objects, after: Objects, free: Tensor) -> tuple[Objects, Objects]:
    """Objects whose gradient changes only the mean of positions and poses, until they are `free`."""
    mixed = []
    for both in (torch.cat((before.position, after.position)), torch.cat((before.pose, after.pose))):  # [2b, k, ...]
        mean = both.mean(0)
        guided = both.detach() + mean - mean.detach()
        mixed.append((guided + free * (both - guided)).chunk(2))
    (position, position_next), (pose, pose_next) = mixed
    return before._replace(position=position, pose=pose), after._replace(position=position_next, pose=pose_next)
