"""What every method shares: its face to the training loop and to users."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.inputs import Inputs


class Encoding(NamedTuple):
    """Where things are, in the action's unit; b observations in n dimensions."""

    agent: Tensor  # [b, n]
    object: Tensor  # [b, n]; for a model that does not place the object, the latent [b, k] that stands for it
    # [b, n, n] ellipsoid of object plus agent: semi-axes are roots of the eigenvalues; an outline has its mean radius,
    # a rim is part of it
    covariance: Tensor | None
    orientation: Tensor | None  # [b] angle of the long axis, modulo pi; in the plane, for bodies with axes


class Loss(NamedTuple):
    """What a model says of a batch: the terms whose sum it minimises, and what is worth watching beside them."""

    terms: dict[str, Tensor]  # scalars, weights included
    readings: dict[str, Tensor]  # scalars, detached
    contacts: Tensor | None = None  # [b] triples that are surely taken for contacts, where a model tells them apart


class Model(nn.Module, ABC):
    """What the training loop, the store and `Representation` know of a model."""

    config: ModelConfig
    inputs: Inputs
    places_object: ClassVar[bool] = True  # else `object` is a latent, and only a probe that sees labels reads it
    tells_apart: ClassVar[bool] = True  # else which of the two is the agent is for those to say who see labels
    scaffold: ClassVar[tuple[str, ...]] = ()  # parts that only training needs

    @abstractmethod
    def loss(self, batch: Any, generator: torch.Generator, progress: Tensor) -> Loss:
        """The terms for a batch of triples; `progress` is the share of the run that is done."""

    @abstractmethod
    def encode(self, o: Tensor) -> Encoding:
        """Positions for observations `[b, ...]`, in the action's unit."""

    def border(self, o: Tensor) -> Tensor | None:
        """Where the agent's centre is when it just touches the object, around the object's place: points `[b, k, 2]`
        of a closed line in the plane; of a Gaussian, its ellipse. None if the model knows no body there."""
        return None

    @property
    def not_judged(self) -> frozenset[str]:
        """Terms that say nothing of how good the positions are."""
        return frozenset()

    def held_out(self, blocks: Sequence[Any]) -> float:
        """How well triples that were not trained on are explained, in batches of two or more.

        Small is good, and no labels are needed.
        """
        total = torch.zeros(())
        for batch in blocks:
            terms = self.loss(batch, torch.Generator(batch.a.device), torch.ones((), device=batch.a.device)).terms
            judged = [value for name, value in terms.items() if name not in self.not_judged]
            total = total + len(batch.a) * torch.stack(judged).sum().cpu()
        return float(total) / sum(len(batch.a) for batch in blocks)

    def contacts(self, batch: Any) -> Tensor:
        """Triples `[b]` that are surely contacts, where a model tells them apart; device work only."""
        return torch.zeros(len(batch.a), dtype=torch.bool, device=batch.a.device)

    def doubts(self, o: Tensor, moves: Tensor) -> Tensor:
        """How little is known beforehand, `[b, k]`, of what each of some `moves` [b, k, n] from o will do; device work
        only. A model that foretells nothing has no preference."""
        return torch.zeros(moves.shape[:2], device=moves.device)

    def settle(self, draw: Callable[[], Any], steps: int) -> None:
        """After the last of `steps`, a last fit that needs no gradient of the networks, to batches that are drawn."""

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser, with an optional `lr_scale` each."""

    def lasting_state(self) -> dict[str, Tensor]:
        """What a trained model is made of."""
        return {name: value for name, value in self.state_dict().items() if name.split(".")[0] not in self.scaffold}

    def take_down_scaffold(self) -> None:
        """Leave what `lasting_state` holds."""
        for name in self.scaffold:
            setattr(self, name, None)

    @abstractmethod
    def vitals(self) -> dict[str, float]:
        """What a person watching the run wants to know beside its losses; may wait for the device."""

    @abstractmethod
    def compile_step(self) -> None:
        """Fuse the kernels of a step."""
