"""All settings of a run: frozen dataclasses, validated at construction. None: `fit` chooses.

This module imports nothing heavy, so the command line lists the settings within half a second.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

Method = Literal["interaction", "vae", "transporter", "supervised"]
Encoder = Literal["small", "resnet18", "mlp", "scan"]
Objective = Literal["contact", "paper", "paper-gaussian"]
GroupName = Literal["translations", "se2", "se3", "so2", "arm"]
Motion = Literal["arc", "straight"]
Augment = Literal["none", "light", "shift"]
Optimizer = Literal["muon", "adamw"]
Schedule = Literal["one-cycle", "paper"]
Device = Literal["cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]

MOST = 6  # objects
LEARNING_RATES = {"muon": 8e-3, "adamw": 2e-3}
# Of groups of agents that turn: dimension of positions, and numbers that an action may have.
TURNING: dict[str, tuple[int, tuple[int, ...]]] = {
    "se2": (2, (2, 3)),
    "se3": (3, (6,)),
    "so2": (2, (1,)),
    "arm": (2, (3,)),
}
MOVING = ("se2", "se3")  # groups whose agents move along their own axes
RISE, LOWEST = 0.25, 0.04  # one-cycle: share of the run with a rising rate; first rate relative to the largest


def own_axes_hint(n: int) -> str:
    """What to do if actions are moves along the own axes of an agent with positions of n numbers."""
    groups = " or ".join(f"group={name!r}" for name in MOVING if TURNING[name][0] == n)
    return f"if the actions are moves along the agent's own axes, train with {groups}" if groups else ""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What the method assumes about the scene."""

    body: str | None = None
    """Shape of the learned body: ball, outline, ellipse (for an object that turns) or footprint (for an agent that
    turns). In space only ball is possible. Default: chosen by the data and the group."""
    radius: float | None = None
    """Sum of the agent's and the object's radius, in the action's unit. Default: it is learned. It is required if
    the agent moves along a line."""
    objects: int | Literal["auto"] = 1
    """Number of objects, 1 to 6; auto counts them, in vectors only."""
    egocentric: bool | None = None
    """The agent carries the sensor. Default: laser scans are detected; for cameras, no."""
    group: GroupName = "translations"
    """What actions are. translations: displacements along fixed axes. se2: moves along the agent's own axes, (forward,
    sideways, turn) or (forward, turn). se3: the same in space, 6 numbers. so2: turns about a pivot. arm: (x, y) along
    fixed axes and an arm's turn. See docs/guide/turning.md."""
    motion: Motion = "arc"
    """For se2 and se3. arc: the agent moves and turns at once. straight: it turns before or after moving."""
    refine: bool | None = None
    """Correct smooth position bias after training, with many fresh triples. Default: yes in a streamed world with
    chosen moves, but not with small CNNs or carried sensors."""
    rest_floor: float | None = None
    """Lower bound of the scale in L_-, relative to the actions' root mean square (docs/method.md). Default in the
    plane: 0.02 for fresh triples, 0.1 for a data set or a carried sensor."""

    def __post_init__(self) -> None:
        _require(self.body is None or isinstance(self.body, str), "body", self.body, "the name of a shape")
        _require_positive(self, "radius", "rest_floor")
        _require(self.objects == "auto" or _whole(self.objects, 1, MOST), "objects", self.objects, "1 to 6 or 'auto'")
        _require(isinstance(self.egocentric, bool | None), "egocentric", self.egocentric, "True or False")
        _require(isinstance(self.refine, bool | None), "refine", self.refine, "True or False")
        _require_literals(self)
        moving = " or ".join(map(repr, MOVING))
        _require(self.motion == "arc" or self.group in MOVING, "motion", self.motion, f"'arc' unless group is {moving}")

    @property
    def turns(self) -> bool:
        """Whether the agent turns."""
        return self.group in TURNING

    def dimension(self, actions: int) -> int:
        """The dimension of positions, for actions of so many numbers."""
        if not self.turns:
            return actions
        dimension, allowed = TURNING[self.group]
        counts = " or ".join(map(str, allowed))
        _require(actions in allowed, f"with group {self.group!r}, the count of numbers in an action", actions, counts)
        return dimension


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is needed, besides the weights, to rebuild a model."""

    method: str = "contact"
    """A name of `traits.METHODS`."""
    encoder: Encoder
    observation_shape: tuple[int, ...]
    observation_dtype: Literal["uint8", "float32"] = "uint8"
    n: int
    """Dimension of positions."""
    actions: int | None = None
    """Numbers of an action, or of each of its sub-steps. Default: n."""
    substeps: int = 1
    """Sub-steps of an action."""
    shrink: int = 1
    """Side, in pixels, of the squares over which pictures are averaged."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        shape = self.observation_shape
        sizes = all(_whole(size, 1, 2**20) for size in shape)
        _require(len(shape) in (1, 3) and sizes, "observation_shape", list(shape), "1 or 3 sizes, of 1 to 2**20")
        _require(_whole(self.n, 1, 64), "the action's dimension", self.n, "1 to 64")
        _require(self.actions is None or _whole(self.actions, 1, 64), "actions", self.actions, "1 to 64")
        _require(_whole(self.substeps, 1, 64), "the number of sub-steps", self.substeps, "1 to 64")
        _require(self.objective.dimension(self.action_width) == self.n, "n", self.n, "that of the group")
        _require(self.objective.objects != "auto", "the model's objects", self.objective.objects, "1 to 6")
        encoders, kind = (("small", "resnet18"), "pictures") if self.picture else (("mlp", "scan"), "vectors")
        _require(self.encoder in encoders, f"the encoder for {kind}", self.encoder, " or ".join(map(repr, encoders)))
        _require_literals(self)
        most = max(min(shape[1:]) // 16, 1) if self.picture else 1
        allowed = f"1 to {most} for observations of shape {shape}: 16 pixels must remain"
        _require(_whole(self.shrink, 1, most), "shrink", self.shrink, allowed)

    @property
    def action_width(self) -> int:
        """Numbers of an action, or of each of its sub-steps."""
        return self.n if self.actions is None else self.actions

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action: (numbers,), or (sub-steps, numbers of each)."""
        return (self.action_width,) if self.substeps == 1 else (self.substeps, self.action_width)

    @property
    def objects(self) -> int:
        """Number of objects."""
        assert self.objective.objects != "auto"
        return self.objective.objects

    @property
    def picture(self) -> bool:
        return len(self.observation_shape) == 3

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """Shape of the encoders' input."""
        channels, *sides = self.observation_shape
        return (channels, *(side // self.shrink for side in sides))


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained."""

    steps: int | None = None
    """Optimiser steps. Default: 2500 for fresh triples and for ResNets, else by the number of triples."""
    batch_size: int | None = None
    """Triples per step. Default: 128, or 256 for a data set of vectors and for vectors of agents that turn; less if a
    data set is small."""
    optimizer: Optimizer | None = None
    """Optimiser of the matrices inside the networks; AdamW updates everything else. Default: adamw for small CNNs, for
    vae and transporter and for the objectives of the paper, else muon."""
    learning_rate: float | None = None
    """Largest learning rate. Default: 0.008 with muon; 0.002 with adamw, but 0.005 for small CNNs on fresh triples or
    with agents that turn."""
    schedule: Schedule = "one-cycle"
    """one-cycle: the learning rate rises for a quarter of the run and falls to 0, weight decay 0.05, gradients clipped
    at 10. paper: constant learning rate, no clipping, no decay but the outline's."""
    augment: Augment | None = None
    """Augmentation of training pictures. light: brightness, contrast, noise. shift: also a shift by a few pixels, the
    same for a whole batch. Default: none for vectors and fresh triples, shift for ResNets on a data set, else light."""
    least_contacts: float = 0.15
    """Minimum share of contacts in a batch; rarer contacts are oversampled, unless the data set is too large for
    memory. 0 disables it."""
    chosen_moves: float | None = None
    """Share of moves, 0 to 0.9, that are chosen instead of random, in a streamed world or by `explore`. Of 32 moves, or
    128 in a streamed world on a GPU, the one with the least certain contact is chosen. Default: 0.5 if moves can be
    chosen and the method predicts contacts, else 0."""
    seed: int = 0
    """Seed of everything that is random."""
    device: Device | None = None
    """Where to train. Default: a GPU if there is one."""
    precision: Precision | None = None
    """Arithmetic of the encoders. Default: bf16-mixed on a GPU, else 32-true."""
    compile: bool = False
    """Compile the networks with torch.compile. It takes minutes at the start; then steps are faster."""
    log_every: int = 25
    """Steps between rows of metrics.jsonl."""
    evaluate_every: int = 100
    """Steps between evaluations on held-out and labelled triples, if there are any."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""
    tensorboard: bool = False
    """Also write TensorBoard curves."""

    def __post_init__(self) -> None:
        for name in ("log_every", "evaluate_every", "checkpoint_every"):
            _require(_whole(getattr(self, name), 1, 2**62), name, getattr(self, name), "1 to 2**62")
        _require(self.steps is None or _whole(self.steps, 1, 2**62), "steps", self.steps, "1 to 2**62")
        allowed = "2 to 2**31: samples are contrasted with each other"
        batch_size = self.batch_size
        _require(batch_size is None or _whole(batch_size, 2, 2**31), "batch_size", batch_size, allowed)
        _require_positive(self, "learning_rate")
        _require_literals(self)
        least = self.least_contacts
        _require(_number(least) and 0 <= least < 1, "least_contacts", least, "0 to below 1")
        moves = self.chosen_moves  # the other moves of a batch show how common contacts are
        _require(moves is None or (_number(moves) and 0 <= moves <= 0.9), "chosen_moves", moves, "0 to 0.9")
        _require(_whole(self.seed, 0, 2**62), "seed", self.seed, "0 to 2**62")

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


def _require(holds: bool, what: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{what} is {value!r}; allowed is {allowed}")


def _require_positive(config: Any, *names: str) -> None:
    """Refuse settings that are not None and not a finite number above 0."""
    for name in names:
        value = getattr(config, name)
        _require(value is None or (_number(value) and value > 0), name, value, "more than 0")


def _require_literals(config: Any) -> None:
    """Refuse values that a setting's annotation, a Literal or a union with one, does not list."""
    for name, hint in get_type_hints(type(config)).items():
        value, parts = getattr(config, name), (hint, *get_args(hint))
        choices = next((get_args(part) for part in parts if get_origin(part) is Literal), None)
        if choices is not None and not isinstance(value, tuple(part for part in parts if isinstance(part, type))):
            _require(value in choices, name, value, " or ".join(map(repr, choices)))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
