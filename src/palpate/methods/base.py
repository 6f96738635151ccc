"""What every method shares: its face to the training loop and to users. What a method cannot answer is None.

Legend: b batch, k objects, n ambient dimension.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.groups import Translations
from palpate.inputs import Inputs
from palpate.networks import Branch


class Encoding(NamedTuple):
    """Where things are, in the action's unit, for b observations."""

    agent: Tensor  # [b, n]
    objects: Tensor  # [b, k, n]; a model that does not place objects gives the latent [b, 1, m] that stands for them
    # [b, k, n, n] ellipsoid around object and agent together: semi-axes are roots of the eigenvalues; an outline has
    # its mean radius, a rim is part of it
    covariances: Tensor | None = None
    orientations: Tensor | None = None  # [b, k] angle of the long axis, modulo pi; for bodies that turn

    @property
    def object(self) -> Tensor:
        """The one object `[b, n]`."""
        return self._only(self.objects)

    @property
    def covariance(self) -> Tensor | None:
        """The one object's ellipsoid `[b, n, n]`."""
        return None if self.covariances is None else self._only(self.covariances)

    @property
    def orientation(self) -> Tensor | None:
        """The one object's angle `[b]`."""
        return None if self.orientations is None else self._only(self.orientations)

    def known(self) -> dict[str, Tensor]:
        """What there is of the one object, by name."""
        answers = {name: getattr(self, name) for name in ("agent", "object", "covariance", "orientation")}
        return {name: x for name, x in answers.items() if x is not None}

    def _only(self, x: Tensor) -> Tensor:
        if x.shape[1] != 1:
            raise ValueError(f"there are {x.shape[1]} objects; use objects, covariances and orientations")
        return x[:, 0]


class Loss(NamedTuple):
    """The terms whose sum is minimised, and what is worth watching beside them."""

    terms: dict[str, Tensor]  # scalars, weights included
    readings: dict[str, Tensor]  # scalars, detached
    contacts: Tensor | None = None  # [b] bool, reliable contacts


class Examination(NamedTuple):
    """What a model makes of triples, in the action's unit: the material for a label-free quality."""

    agent: Tensor  # [b, n] pose
    agent_next: Tensor
    objects: Tensor  # [b, k, n]
    objects_next: Tensor
    scene: Tensor  # [b, k] d_W(w, w')
    contact: Tensor  # [b, k] bool
    distance: Tensor  # [b, k] clearance of the path plus the body's mean radius; below 0 deep inside
    elongation: Tensor | None  # [b, k] longest over shortest semi-axis, for bodies that turn


class Model(nn.Module, ABC):
    """What the training loop, the store and `Representation` know of a model."""

    places_object: ClassVar[bool] = True  # else `objects` is a latent, and only a probe that sees labels reads it
    tells_apart: ClassVar[bool] = True  # else only labels say which of the two is the agent
    predicts: ClassVar[bool] = False  # whether `would_touch` and `uncertainty` answer
    scaffold: ClassVar[tuple[str, ...]] = ()  # parts that only training needs
    not_judged: frozenset[str] = frozenset()  # terms that say nothing about how good the positions are

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.group = Translations(config.n)
        self.inputs = Inputs(config.observation_shape, self.group, config.shrink)
        self.fused: Callable[..., Loss] | None = None

    # Training

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        """Take the scales from a sample of the data, the unit from all `actions` [N, n] where they are at hand."""
        self.inputs.measure(sample, actions)

    @abstractmethod
    def outputs(self, batch: Any, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        """What the networks output for a batch: tensors [b, ...] whose rows belong to its rows.

        `progress` is the share of the run that is done.
        """

    @abstractmethod
    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """The terms for what `outputs` gave."""

    def loss(self, batch: Any, generator: torch.Generator, progress: Tensor) -> Loss:
        outputs = self.outputs(batch, generator, progress)
        # bf16 is for the encoders; distances and likelihoods stay in float32.
        with torch.autocast(batch.a.device.type, enabled=False):
            objective = self.fused if self.fused is not None and self.training else self.objective
            return objective(outputs, progress)

    def held_out(self, blocks: Sequence[Any]) -> float | None:
        """How well triples that were not trained on are explained, in batches of two or more; no labels are needed.

        Small is good. None while that cannot be judged.
        """
        total = torch.zeros(())
        for batch in blocks:
            terms = self.loss(batch, torch.Generator(batch.a.device), torch.ones((), device=batch.a.device)).terms
            judged = [value for name, value in terms.items() if name not in self.not_judged]
            total = total + len(batch.a) * torch.stack(judged).sum().cpu()
        return float(total) / sum(len(batch.a) for batch in blocks)

    def recall(self, blocks: Sequence[Batch]) -> None:
        """After training: take the threshold for contacts from triples that were not trained on."""

    def contacts(self, batch: Batch) -> Tensor | None:
        """Reliable contacts `[b]` bool; device work only."""
        return None

    def uncertainty(self, o: Tensor, moves: Tensor) -> Tensor | None:
        """How uncertain the contact of each move [b, c, n] from o is, `[b, c]`; device work only."""
        return None

    def refine(self, draw: Callable[[], Any], steps: int) -> None:
        """After the last of `steps`, a last fit to batches that are drawn."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser, with an optional `lr_scale` and `starts` each."""
        return [{"params": list(self.parameters())}]

    def lasting_state(self) -> dict[str, Tensor]:
        """What a trained model is made of."""
        return {name: value for name, value in self.state_dict().items() if name.split(".")[0] not in self.scaffold}

    def take_down_scaffold(self) -> None:
        """Leave what `lasting_state` holds."""
        for name in self.scaffold:
            setattr(self, name, None)

    def vitals(self) -> dict[str, float]:
        """What a person watching the run wants to know beside its losses; may wait for the device."""
        return {}

    def compile_step(self) -> None:
        """Fuse the kernels of a step."""
        for module in self.modules():
            if isinstance(module, Branch):
                module.fuse()

    # Answers

    @abstractmethod
    def encode(self, o: Tensor) -> Encoding:
        """Positions for observations `[b, ...]`, in the action's unit."""

    def border(self, o: Tensor) -> Tensor | None:
        """Where the agent's reference point is when it just touches an object: points `[b, k, c, 2]` of closed lines
        around the objects' positions. None without a body, or outside the plane."""
        return None

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor | None:
        """d_W `[b, k]` between observations."""
        return None

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor | None:
        """Probability `[b, k]` that the action touched an object, given what came of it."""
        return None

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor | None:
        """Probability `[b, k]` that an action will touch an object, by geometry alone."""
        return None

    def threshold(self) -> tuple[float, str] | None:
        """The distance d_W from which on a triple is a contact, on the scale of its split, and that scale's name."""
        return None

    def separation(self) -> float | None:
        """How well contacts are told from the rest: 1 at best, 0 or less not at all."""
        return None

    def examine(self, batch: Batch) -> Examination | None:
        """What the model makes of triples."""
        return None


def paired(x: Tensor) -> Tensor:
    """Rows of o followed by those of o' [2b, ...] as rows of the batch, `[b, 2, ...]`."""
    return x.unflatten(0, (2, -1)).movedim(0, 1)
