"""Variants of our method, each with one part replaced, for the ablation; `presets.VARIANTS` names them."""

import torch
from torch import Tensor

from palpate.bodies.point import Point
from palpate.config import ModelConfig
from palpate.contacts.split import Split
from palpate.geometry import Path, beside_objects
from palpate.methods.contact import Contact
from palpate.objectives.contact import Wrong
from palpate.objectives.contrastive import infonce
from palpate.objectives.paper import stay, touch
from palpate.objects import ObjectHead, Objects


class SplitOnD(Contact):
    def make_split(self) -> Split:
        return Split(on="d")


class SplitOfOneBatch(Contact):
    def make_split(self) -> Split:
        return Split(window=0)


class NoSplitFloor(Contact):
    def make_split(self) -> Split:
        return Split(floor=0.0)


class PaperPlacing(Contact):
    """The paper's L_+ and L_- for a point on the paper's path, with our contacts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = ObjectHead(self.group, [Point(config.n)], hides=True)

    def start(self, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
        return z_int.detach()

    def contact_term(
        self,
        before: Objects,
        after: Objects,
        path: Path,
        changed: Tensor,
        share: Tensor,
        wrong: Wrong,
    ) -> Tensor:
        met = touch(before.position, beside_objects(path))  # [b, k]
        return (changed * met).mean(0).sum()

    def stay_term(self, before: Objects, after: Objects, contact: Tensor, progress: Tensor) -> Tensor:
        return ((1 - contact) * stay(before.position, after.position)).mean(0).sum()


class QuadraticStay(Contact):
    """L_- without heavy tails or a learned scale."""

    WEIGHT = 100.0

    def stay_term(self, before: Objects, after: Objects, contact: Tensor, progress: Tensor) -> Tensor:
        remained = [self.remained(before.position[:, i], after.position[:, i]) for i in range(len(self.head))]
        return self.WEIGHT * ((1 - contact) * torch.stack(remained, 1)).mean(0).sum()


class ShrinkingStay(Contact):
    """L_- whose gradient may shrink the frame."""

    def remained(self, z_ext: Tensor, z_ext_next: Tensor) -> Tensor:
        return stay(z_ext, z_ext_next)


class PathGradient(Contact):
    """The object's losses also train phi_int."""

    def start(self, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
        return self.group.start(z_int, a, z_int_next)


class NoContrastFloor(Contact):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.floor = 0.0


class ContrastGradient(Contact):
    """InfoNCE also trains phi_int."""

    def contrasts(self, w: Tensor, w_next: Tensor, z_int_next: Tensor) -> Tensor:
        unit2 = self.group.spread2(z_int_next.detach()).clamp(min=1.0) * self.agent_temperature
        agents = self.group.distance2(z_int_next[:, None], z_int_next[None]) / unit2
        return infonce(w, w_next, agents, temperature=self.temperature, floor=self.floor)


class AgentTemperatureTenth(Contact):
    agent_temperature = 0.1
