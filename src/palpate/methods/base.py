"""The interface of every method, for training and for users. What a method does not have is None.

Legend: b batch, k objects, n ambient dimension.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from palpate.batchnorm import normalise_whole_batches
from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.geometry import angle_of, unit
from palpate.groups import make_group
from palpate.groups.base import Group
from palpate.inputs import Inputs
from palpate.networks import Branch
from palpate.ranks import ALONE, Ranks
from palpate.rotations import attitude


class Threshold(NamedTuple):
    """The squared distance above which a scene has changed."""

    value: float
    on: str = "log"  # scale of the value: "log", or "d" for the distance itself
    positions: bool = False  # the distance is between the object's positions; otherwise in W


class Encoding(NamedTuple):
    """Positions in the action's unit, for b observations."""

    agent: Tensor  # [b, n]
    objects: Tensor  # [b, k, n]; a latent [b, 1, m] if the model does not place objects
    # [b, k, n, n] ellipsoid of the object dilated by the agent; semi-axes are roots of the eigenvalues. An outline
    # gives its mean radius; a rim is included.
    covariances: Tensor | None = None
    orientations: Tensor | None = None  # [b, k] angle of the long axis, modulo pi; for bodies that turn
    confidences: Tensor | None = None  # [b, k] probability that the object is visible
    heading: Tensor | None = None  # [b] direction in which the agent faces, radians; for agents that turn in the plane
    rotation: Tensor | None = None  # [b, 3, 3] its columns are the axes of an agent that turns in space

    @property
    def attitude(self) -> Tensor | None:
        """The agent's axes in the common frame, the columns of `[b, n, n]`; for agents that turn."""
        return attitude(self.heading, self.rotation)

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

    @property
    def confidence(self) -> Tensor | None:
        """The probability `[b]` that the one object is visible; the position of a hidden object means nothing."""
        return None if self.confidences is None else self._only(self.confidences)

    def known(self) -> dict[str, Tensor]:
        """By name, without what is None: the agent and the one object, or `objects` and so on if there are several."""
        names = ("agent", "object", "covariance", "orientation", "confidence", "heading", "rotation")
        if self.objects.shape[1] != 1:
            names = self._fields
        answers = {name: getattr(self, name) for name in names}
        return {name: x for name, x in answers.items() if x is not None}

    def moved(self, group: Group, frame: Tensor, *, places_object: bool = True) -> "Encoding":
        """The encoding after a motion of the frame; a latent of the object stays."""
        moved = self._replace(agent=group.moved(self.agent, frame))
        if places_object:
            moved = moved._replace(objects=group.moved(self.objects, frame))
        if self.covariances is not None:
            moved = moved._replace(covariances=group.turned(group.turned(self.covariances, frame).mT, frame))
        if self.rotation is not None:
            moved = moved._replace(rotation=group.turned(self.rotation.mT, frame).mT)
        if group.n != 2:
            return moved
        # Not from Python numbers: a CUDA graph cannot capture their copy.
        angle = angle_of(group.turned(unit(self.agent.new_zeros(())), frame))
        if self.orientations is not None:
            moved = moved._replace(orientations=(self.orientations + angle) % torch.pi)
        if self.heading is not None:
            moved = moved._replace(heading=angle_of(unit(self.heading + angle)))
        return moved

    def faced(self, angle: Tensor) -> "Encoding":
        """The encoding with another zero of headings, which come to be larger by an angle."""
        assert self.heading is not None
        return self._replace(heading=angle_of(unit(self.heading + angle)))

    def _only(self, x: Tensor) -> Tensor:
        if x.shape[1] != 1:
            raise ValueError(f"there are {x.shape[1]} objects; use objects, covariances, orientations, confidences")
        return x[:, 0]


class Anew(NamedTuple):
    """Entries of a parameter that have started anew."""

    parameter: Tensor
    entries: int | slice | EllipsisType = ...  # along its first axis; all


class Loss(NamedTuple):
    """The terms whose sum is minimised, and other readings for the log."""

    terms: dict[str, Tensor]  # scalars, weights included
    readings: dict[str, Tensor]  # scalars, detached
    contacts: Tensor | None = None  # [b] bool, reliable contacts
    wanted: Tensor | None = None  # [b] bool, triples of a data set to draw more often if they are rare


class Examination(NamedTuple):
    """A model's outputs for triples, in the action's unit, from which the label-free quality follows."""

    agent: Tensor  # [b, pose_width] poses
    agent_next: Tensor
    objects: Tensor  # [b, k, n]
    objects_next: Tensor
    scene: Tensor  # [b, k] distance by which contacts are recognised
    contact: Tensor  # [b, k] bool
    visible: Tensor  # [b, k] bool, in both observations
    far: Tensor  # [b, k] bool: the object moved by more than its body's radius
    distance: Tensor  # [b, k] clearance of the path plus the body's mean radius; below 0 deep inside
    elongation: Tensor | None  # [b, k] longest over shortest semi-axis, for bodies that turn


class Model(nn.Module, ABC):
    """A model: what training, the store and `Representation` use."""

    places_object: ClassVar[bool] = True  # else `objects` is a latent, read by a probe fitted to true states
    tells_apart: ClassVar[bool] = True  # else true states decide which of the two points is the agent
    scaffold: ClassVar[tuple[str, ...]] = ()  # parts that only training needs
    not_judged: frozenset[str] = frozenset()  # terms that do not measure the positions
    stages: int = 1  # equal parts of a run, each with a schedule of its own
    stage = 0  # the present one; `lasting_state` and the optimisers know all

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.group = make_group(config)
        self.inputs = Inputs(config.observation_shape, self.group, config.shrink)
        self.fused: Callable[..., Loss] | None = None
        self.ranks = ALONE

    # Training

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        """Take the scales from a sample of the data, and the unit from all `actions` [N, ...] if they are given."""
        self.inputs.measure(sample, actions)

    @abstractmethod
    def outputs(self, batch: Any, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        """The networks' outputs for a batch: tensors [b, ...], a row for each row of the batch.

        `progress` is the finished share of the run.
        """

    @abstractmethod
    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """The loss terms of these `outputs`."""

    def loss(self, batch: Any, generator: torch.Generator, progress: Tensor) -> Loss:
        outputs = self.outputs(batch, generator, progress)
        # bf16 is for the encoders; distances and likelihoods stay in float32.
        with torch.autocast(batch.a.device.type, enabled=False):
            objective = self.fused if self.fused is not None and self.training else self.objective
            return objective(outputs, progress)

    def held_out(self, blocks: Sequence[Any]) -> float | None:
        """Mean loss of held-out triples, in batches of two or more; label-free. None while it is meaningless."""
        total = torch.zeros(())
        for batch in blocks:
            terms = self.loss(batch, torch.Generator(batch.a.device), torch.ones((), device=batch.a.device)).terms
            judged = [value for name, value in terms.items() if name not in self.not_judged]
            total = total + len(batch.a) * torch.stack(judged).sum().cpu()
        return float(total) / sum(len(batch.a) for batch in blocks)

    def recall(self, blocks: Sequence[Batch]) -> None:
        """After training: take the threshold for contacts from held-out triples."""

    def contacts(self, batch: Batch) -> Tensor | None:
        """Reliable contacts `[b]` bool; device work only."""
        return None

    def uncertainty(self, o: Tensor, moves: Tensor, share: float = 0.5) -> Tensor | None:
        """Uncertainty `[b, c]` of the contact of each move [b, c, n] from o, where `share` of all moves are in contact;
        device work only."""
        return None

    def adapt(self, share: float) -> list[Anew]:
        """Change what gradients cannot, every few steps, when `share` of the run is over; may wait for the device.

        Returns what has started anew."""
        return []

    def refine(self, draw: Callable[[], Any], steps: int) -> None:
        """The refinement, after the last of `steps`: a fit to drawn batches."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser, with an optional `lr_scale` and `starts` each."""
        return [{"params": list(self.parameters())}]

    def lasting_state(self) -> dict[str, Tensor]:
        """The state of a trained model, without the scaffold."""
        return {name: value for name, value in self.state_dict().items() if name.split(".")[0] not in self.scaffold}

    def take_down_scaffold(self) -> None:
        """Remove the parts that only training needs."""
        for name in self.scaffold:
            setattr(self, name, None)

    def vitals(self) -> dict[str, float]:
        """Readings for the log, in addition to the losses; may wait for the device."""
        return {}

    def divide(self, ranks: Ranks) -> None:
        """Let ranks divide the rows of the networks."""
        for module in self.modules():
            if isinstance(module, Branch | Model):
                module.ranks = ranks
        normalise_whole_batches(self, ranks)

    def compile_step(self) -> None:
        """Fuse the kernels of a step."""
        for module in self.modules():
            if isinstance(module, Branch):
                module.fuse()

    # Outputs for users

    @abstractmethod
    def encode(self, o: Tensor) -> Encoding:
        """Positions for observations `[b, ...]`, in the action's unit."""

    def pose(self, o: Tensor) -> Tensor | None:
        """The agent's poses `[b, pose_width]`, in the action's unit."""
        return None

    def border(self, o: Tensor) -> Tensor | None:
        """Closed lines `[b, k, c, 2]` around the objects' positions, on which the agent's reference point just touches
        the object. None without a body, or outside the plane."""
        return None

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor | None:
        """Squared distances `[b, k]` by which contacts are recognised: d_W, or those of positions."""
        return None

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor | None:
        """Probability `[b, k]` of contact, from the observations before and after."""
        return None

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor | None:
        """Probability `[b, k]` of contact, predicted by geometry before the action."""
        return None

    def threshold(self) -> Threshold | None:
        """The threshold of `scene_distance`."""
        return None

    def separations(self) -> list[float] | None:
        """How well contacts with each object separate from other triples: 1 at best, 0 or less not at all."""
        return None

    def examine(self, batch: Batch) -> Examination | None:
        """The model's outputs for triples."""
        return None


def paired(x: Tensor) -> Tensor:
    """Rows of o followed by those of o' [2b, ...] as rows of the batch, `[b, 2, ...]`."""
    return x.unflatten(0, (2, -1)).movedim(0, 1)
