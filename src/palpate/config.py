"""All settings of a run: frozen dataclasses, validated at construction. None: `fit` chooses.

This module imports nothing heavy, so the command line lists the settings within half a second.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Method = Literal["interaction", "vae", "transporter", "supervised"]
Encoder = Literal["small", "resnet18", "mlp"]
Objective = Literal["contact", "paper", "paper-gaussian"]
Augment = Literal["none", "light", "shift"]

LEARNING_RATES = {"muon": 8e-3, "adamw": 2e-3}
RISE, LOWEST = 0.25, 0.04  # one-cycle: share of the run with a rising rate; first rate relative to the largest


def demand(holds: bool, what: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{what} is {value!r}; allowed is {allowed}")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What the method assumes about the scene."""

    body: str | None = None
    """Shape of the object: ball (any dimension), outline or ellipse (in the plane; an ellipse turns). Default: an
    outline for pictures in the plane, else a ball."""
    radius: float | None = None
    """Sum of the agent's and the object's radius, in the action's unit. Default: it is learned. Actions of one
    dimension need it."""
    egocentric: bool = False
    """The agent carries the cameras."""
    refine: bool | None = None
    """Correct smooth position bias after training, by a fit to many fresh triples. Default: if moves are chosen and the
    networks are larger than small CNNs."""

    rest_floor: float | None = None
    """Smallest scale of the distance between two observations of an object at rest, relative to the actions' root mean
    square. Default in the plane: 0.02 for fresh triples, 0.1 for a fixed set."""

    def __post_init__(self) -> None:
        floor = self.rest_floor
        demand(floor is None or (_number(floor) and floor > 0), "rest_floor", floor, "more than 0")
        demand(self.body is None or isinstance(self.body, str), "body", self.body, "the name of a shape")
        demand(self.radius is None or (_number(self.radius) and self.radius > 0), "radius", self.radius, "more than 0")
        demand(isinstance(self.egocentric, bool), "egocentric", self.egocentric, "True or False")
        demand(isinstance(self.refine, bool | None), "refine", self.refine, "True or False")


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """Settings of the baselines."""

    latent_dim: int = 32
    """VAE: dimension of z_ext, the paper's."""
    beta: float = 1.0
    """VAE: weight of the prior; 1 is the evidence bound."""
    keypoint_std: float = 0.1
    """Transporter: standard deviation of a keypoint's heat map, relative to the picture's longer side."""

    def __post_init__(self) -> None:
        demand(_whole(self.latent_dim, 1, 4096), "latent_dim", self.latent_dim, "1 to 4096")
        demand(_number(self.beta) and self.beta >= 0, "beta", self.beta, "0 or more")
        std = self.keypoint_std
        demand(_number(std) and 0 < std <= 0.5, "keypoint_std", std, "more than 0, at most 0.5")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is needed, beside the weights, to rebuild a model."""

    method: str = "contact"
    """A name of `traits.METHODS`."""
    encoder: Encoder
    observation_shape: tuple[int, ...]
    observation_dtype: Literal["uint8", "float32"] = "uint8"
    n: int
    """Dimension of the actions."""
    shrink: int = 1
    """Side, in pixels, of the squares over which pictures are averaged."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)

    def __post_init__(self) -> None:
        shape = self.observation_shape
        sizes = all(_whole(size, 1, 2**20) for size in shape)
        demand(len(shape) in (1, 3) and sizes, "observation_shape", list(shape), "1 or 3 sizes, of 1 or more")
        demand(_whole(self.n, 1, 64), "the action's dimension", self.n, "1 to 64")
        wanted, kind = (("small", "resnet18"), "pictures") if self.picture else (("mlp",), "vectors")
        demand(self.encoder in wanted, f"the encoder for {kind}", self.encoder, " or ".join(map(repr, wanted)))
        dtypes = ("uint8", "float32")
        demand(self.observation_dtype in dtypes, "observation_dtype", self.observation_dtype, " or ".join(dtypes))
        most = max(min(shape[1:]) // 16, 1) if self.picture else 1
        demand(
            _whole(self.shrink, 1, most),
            "shrink",
            self.shrink,
            f"1 to {most} for observations of shape {shape}: 16 pixels must remain",
        )

    @property
    def picture(self) -> bool:
        return len(self.observation_shape) == 3

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """Shape of what the encoders see."""
        channels, *sides = self.observation_shape
        return (channels, *(side // self.shrink for side in sides))


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained."""

    steps: int | None = None
    """Optimiser steps."""
    batch_size: int | None = None
    """Triples per step."""
    optimizer: Literal["muon", "adamw"] | None = None
    """Optimiser of the matrices inside the networks; AdamW updates everything else. Default: muon where ResNets or MLPs
    learn positions, else adamw."""
    learning_rate: float | None = None
    """Largest learning rate. Default: 0.008 with muon, 0.002 with adamw, 0.005 for small CNNs on fresh triples."""
    schedule: Literal["one-cycle", "paper"] = "one-cycle"
    """one-cycle: the learning rate rises for a quarter of the run and falls to 0, weight decay 0.05, gradients clipped
    at 10. paper: constant learning rate, no decay, no clipping."""
    augment: Augment | None = None
    """Augmentation of training pictures. light: brightness, contrast, noise; shift: also a shift by a few pixels,
    common to a batch. Default: none for a stream, shift for large networks on a fixed set, else light."""
    least_contacts: float = 0.15
    """Minimum share of contacts in a batch; rarer contacts are oversampled. 0 disables it."""
    chosen_moves: float | None = None
    """Share of a batch, 0 to 0.9, in which the agent of a streamed world chooses its move: among 32 random moves, the
    one with the least certain contact. Default: 0.5 if the world is steerable and the method predicts contacts, else
    0."""
    seed: int = 0
    """Seed of weights, batches and everything else random."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to train. Default: a GPU if there is one."""
    precision: Literal["32-true", "bf16-mixed"] | None = None
    """Arithmetic of the encoders. Default: bf16 on a GPU."""
    compile: bool = False
    """Compile the networks with torch.compile: minutes at the start, faster steps."""
    log_every: int = 25
    """Steps between readings."""
    evaluate_every: int = 100
    """Steps between evaluations on held-out and labelled data, if there are any."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""
    tensorboard: bool = False
    """Also write TensorBoard curves."""

    def __post_init__(self) -> None:
        for name in ("log_every", "evaluate_every", "checkpoint_every"):
            demand(_whole(getattr(self, name), 1, 2**62), name, getattr(self, name), "1 or more")
        demand(self.steps is None or _whole(self.steps, 1, 2**62), "steps", self.steps, "1 or more")
        demand(
            self.batch_size is None or _whole(self.batch_size, 2, 2**31),
            "batch_size",
            self.batch_size,
            "2 or more: samples are contrasted with each other",
        )
        demand(self.optimizer in (None, "muon", "adamw"), "optimizer", self.optimizer, "'muon' or 'adamw'")
        rate = self.learning_rate
        demand(rate is None or (_number(rate) and rate > 0), "learning_rate", rate, "more than 0")
        demand(self.schedule in ("one-cycle", "paper"), "schedule", self.schedule, "'one-cycle' or 'paper'")
        kinds = get_args(Augment)
        demand(self.augment in (None, *kinds), "augment", self.augment, " or ".join(map(repr, kinds)))
        demand(0 <= self.least_contacts < 1, "least_contacts", self.least_contacts, "0 to below 1")
        moves = self.chosen_moves  # the rest of a batch shows how common contacts are
        demand(moves is None or 0 <= moves <= 0.9, "chosen_moves", moves, "0 to 0.9")
        demand(self.device in (None, "cpu", "cuda"), "device", self.device, "'cpu' or 'cuda'")
        allowed = ("32-true", "bf16-mixed")
        demand(self.precision in (None, *allowed), "precision", self.precision, " or ".join(map(repr, allowed)))
        demand(_whole(self.seed, 0, 2**62), "seed", self.seed, "0 or more")

    @property
    def weight_decay(self) -> float:
        return 0.0 if self.schedule == "paper" else 0.05

    @property
    def clip_norm(self) -> float:
        return math.inf if self.schedule == "paper" else 10.0

    @property
    def largest_rate(self) -> float:
        """The largest learning rate of the run."""
        return LEARNING_RATES[self.optimizer or "muon"] if self.learning_rate is None else self.learning_rate

    def learning_rate_at(self, share: float) -> float:
        """The learning rate when `share` of the run is done."""
        most = self.largest_rate
        if self.schedule == "paper":
            return most
        if share < RISE:
            return most * (LOWEST + (1 - LOWEST) * (1 - math.cos(math.pi * share / RISE)) / 2)
        return most * (1 + math.cos(math.pi * (share - RISE) / (1 - RISE))) / 2


@dataclass(frozen=True, kw_only=True)
class SettledTraining(TrainingConfig):
    """A `TrainingConfig` in which steps and batch size are known."""

    steps: int = 2500
    batch_size: int = 128


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
