"""Every choice a run can make, as frozen dataclasses that check themselves.

They live together and import nothing heavy, so that the command line can show them as flags within half a second.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Method = Literal["interaction", "vae", "transporter", "supervised"]
Encoder = Literal["auto", "small", "resnet18", "mlp"]
Objective = Literal["contact", "paper", "paper-gaussian"]
Body = Literal["round", "axes"]


def _demand(holds: bool, what: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{what} is {value!r}; allowed is {allowed}")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised. The defaults are this package's own objective; `named` gives the paper's."""

    external: Literal["likelihood", "point", "gaussian"] = "likelihood"
    """How the object is placed: contact likelihood (ours), the paper's point losses, or its Gaussian ones."""
    body: Body = "round"
    """Shape in the contact likelihood: a ball with a learned radius, or (in the plane) an ellipse with an angle."""
    outline: int = 0
    """Harmonics of the outline of a round body in the plane, one that does not turn: how its radius differs by
    direction; 4 are enough for a square, 0 is a disc."""
    rim: bool = False
    """Whether the ellipse of a body with axes has a rim of equal width all around, which is learned: so an object
    grows that is touched by an agent that is a disc. `fit` takes it for a body with axes."""
    stay_weight: float = 100.0
    """Weight on L_-, which keeps an untouched object where it is. `fit` takes 3 for fresh triples and small CNNs."""
    stay_rise: float = 1.0
    """How many times as much L_- weighs at the end in the contact likelihood, rising between 40 and 80 % of the run;
    the `stay` loss that is shown rises with it. `fit` takes 30 for fresh triples."""
    stay_level: float = 0.3
    """Distance, in units of the actions' root mean square, at which L_- levels off in the contact likelihood."""
    stay_reach: float = 0.25
    """In the contact likelihood L_- is measured by how far apart the objects nearby are, so that its gradient does not
    draw them together: how near, in standard deviations of all objects. 0: it is not."""
    bend: int = 0
    """Degree of a polynomial of z_ext that is added to it after the last step, fitted together with the body to the
    contacts of many fresh triples at once; 0: none. The border that is learned may then be sharper, in training too.
    `fit` takes 9 where moves are chosen, but for small CNNs."""
    split_on: Literal["log", "d"] = "log"
    """Split the distances d_W or their logarithms; the paper's text says d_W."""
    split_window: int = 4096
    """How many past distances the threshold is computed from; 0: this batch alone, as in the paper."""
    split_floor: float = 0.001
    """Quantile of the distances of unrelated scenes under which all distances count as equal; 0: no floor. At least
    0.02 for `egocentric` observations, where distances are those of places."""
    temperature: float = 0.1
    """Divides d_W in the contrastive loss."""
    agent_temperature: float = 0.03
    """Divides the agents' squared distance there; the same as `temperature` in the paper's objectives."""
    agent_spread: bool = True
    """Measure that distance by how far apart the agents of a batch stand, where that is more than a step: with short
    steps hardly any two would count as near. The paper's objectives measure it by the steps."""
    egocentric: bool = False
    """The observations are taken by the agent, as by cameras that it carries: the object is told as seen from there,
    and the agent's place is added. It is found at first in what stands out before the world that stands still."""
    contrast_dim: int = 8
    """Dimension of W."""
    contrast_gradient: bool = False
    """Let the contrastive loss move the agent's representation too; its repulsion stretches the frame."""
    contrast_floor: float = 0.001
    """Added to exp(-d_W / tau) in the contrastive loss, so that touched pairs, far apart in W, no longer bend it.
    The higher, the more of the pairs may be touched; `fit` takes 0.1 for observations that are numbers."""
    segment_gradient: bool = False
    """Let the object's losses move the agent's representation; it then collapses."""
    shared_network: bool = False
    """Read the object's position from the contrastive network's features instead of a network of its own."""
    radius: float | None = None
    """Sum of the two bodies' radii in the action's unit, where it is known; needed for one-dimensional actions."""

    def __post_init__(self) -> None:
        _demand(self.external in ("likelihood", "point", "gaussian"), "external", self.external, "one of its names")
        _demand(self.body in ("round", "axes"), "body", self.body, "'round' or 'axes'")
        _demand(self.split_on in ("log", "d"), "split_on", self.split_on, "'log' or 'd'")
        _demand(self.outline == 0 or 2 <= self.outline <= 16, "outline", self.outline, "0, or 2 to 16")
        _demand(type(self.rim) is bool, "rim", self.rim, "True or False; how wide it is is learned")
        _demand(
            not self.rim or (self.external == "likelihood" and self.body == "axes"),
            "rim",
            self.rim,
            "False unless the objective is 'contact' and the body is 'axes'",
        )
        _demand(self.stay_weight >= 0, "stay_weight", self.stay_weight, "0 or more")
        _demand(self.stay_rise > 0, "stay_rise", self.stay_rise, "more than 0")
        _demand(self.stay_level > 0, "stay_level", self.stay_level, "more than 0")
        _demand(type(self.bend) is int and 0 <= self.bend <= 12, "bend", self.bend, "0 to 12, a whole number")
        _demand(self.stay_reach >= 0, "stay_reach", self.stay_reach, "0 or more")
        _demand(
            self.split_window == 0 or self.split_window >= 64, "split_window", self.split_window, "0, or 64 or more"
        )
        _demand(0 <= self.split_floor < 0.5, "split_floor", self.split_floor, "0 to 0.5")
        for name in ("temperature", "agent_temperature"):
            _demand(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        _demand(self.contrast_dim >= 2, "contrast_dim", self.contrast_dim, "2 or more")
        _demand(0 <= self.contrast_floor < 1, "contrast_floor", self.contrast_floor, "0 to 1")
        _demand(self.radius is None or self.radius > 0, "radius", self.radius, "more than 0")
        _demand(
            not (self.egocentric and self.shared_network),
            "shared_network",
            self.shared_network,
            "False for egocentric observations, which need no W",
        )
        _demand(
            not self.egocentric or self.external == "likelihood",
            "egocentric",
            True,
            "False for the paper's objectives, which need W",
        )
        _demand(
            self.bend == 0 or self.external == "likelihood",
            "bend",
            self.bend,
            "0 for the paper's objectives, which foretell no contacts",
        )
        _demand(
            self.bend == 0 or (self.split_window > 0 and not self.egocentric),
            "bend",
            self.bend,
            "0 for egocentric observations, and for a split of one batch, whose contacts are not sure",
        )
        if self.external != "likelihood" and (self.body != "round" or self.radius is not None):
            raise ValueError(
                f"body is {self.body!r} and radius {self.radius}; the paper's objectives know neither: leave them out, "
                "or take the 'contact' objective"
            )

    @staticmethod
    def named(name: str, **changes: Any) -> "ObjectiveConfig":
        """`contact`, `paper` (Eq. 3-7) or `paper-gaussian` (Sec. 4.3), with some fields changed."""
        paper = ObjectiveConfig(
            external="point",
            stay_weight=1.0,
            stay_reach=0.0,
            split_on="d",
            split_window=0,
            split_floor=0.0,
            agent_temperature=0.1,
            agent_spread=False,
            contrast_floor=0.0,
        )
        presets = {
            "contact": ObjectiveConfig(),
            "paper": paper,
            "paper-gaussian": replace(paper, external="gaussian"),
        }
        _demand(name in presets, "objective", name, " or ".join(map(repr, presets)))
        return replace(presets[name], **changes)


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What the baselines leave open."""

    latent_dim: int = 32
    """VAE: dimension of z_ext, the paper's."""
    beta: float = 1.0
    """VAE: weight of the prior; 1 is the evidence bound."""
    keypoint_std: float = 0.1
    """Transporter: standard deviation of a keypoint's heat map, of the picture's longer side."""

    def __post_init__(self) -> None:
        _demand(self.latent_dim >= 1, "latent_dim", self.latent_dim, "1 or more")
        _demand(self.beta >= 0, "beta", self.beta, "0 or more")
        _demand(0 < self.keypoint_std <= 0.5, "keypoint_std", self.keypoint_std, "more than 0, at most 0.5")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is needed to build a model again, together with its weights."""

    method: Method = "interaction"
    encoder: Literal["small", "resnet18", "mlp"]
    observation_shape: tuple[int, ...]
    observation_dtype: Literal["uint8", "float32"] = "uint8"
    n: int
    shrink: int = 1
    """Pictures are averaged over squares of this many pixels on a side before a network sees them."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)

    def __post_init__(self) -> None:
        _demand(self.method in get_args(Method), "method", self.method, " or ".join(map(repr, get_args(Method))))
        picture = len(self.observation_shape) == 3
        wanted = ("small", "resnet18") if picture else ("mlp",)
        kind = "pictures" if picture else "vectors"
        _demand(self.encoder in wanted, f"the encoder for {kind}", self.encoder, " or ".join(map(repr, wanted)))
        _demand(self.n >= 1, "the action's dimension", self.n, "1 or more")
        least = min(self.observation_shape[1:]) // 16 if picture else 1
        _demand(
            type(self.shrink) is int and 1 <= self.shrink <= max(least, 1),
            "shrink",
            self.shrink,
            f"1 to {max(least, 1)} for observations of shape {self.observation_shape}: 16 pixels are to be left",
        )
        _demand(
            self.shrink == 1 or self.method in ("interaction", "supervised"),
            "shrink",
            self.shrink,
            f"1 for the method {self.method!r}, which makes pictures of the size it sees",
        )
        if self.method == "transporter" and (not picture or self.n != 2):
            raise ValueError(
                f"observations have shape {self.observation_shape} and actions {self.n} dimensions; the transporter "
                "finds points of the picture plane: it needs pictures, and actions of 2 dimensions"
            )
        _demand(
            not self.objective.egocentric or self.n <= 3,
            "egocentric",
            True,
            f"False when actions have {self.n} dimensions: a backdrop has room for 3",
        )
        _demand(
            self.objective.body == "round" or self.n == 2,
            "body",
            "axes",
            f"'round' when actions have {self.n} dimensions",
        )
        _demand(
            self.objective.body == "round" or self.method in ("interaction", "supervised"),
            "body",
            self.objective.body,
            f"'round' for the method {self.method!r}, which finds no axes",
        )
        _demand(
            self.objective.outline == 0 or (self.n == 2 and self.objective.body == "round"),
            "outline",
            self.objective.outline,
            "0 unless the body is 'round' and actions have 2 dimensions",
        )
        if self.n == 1 and self.method == "interaction" and self.objective.radius is None:
            raise ValueError(
                "actions have one dimension: an agent that never passes the object untouched cannot tell the object's "
                "position from its radius. Give the sum of the two radii as radius=, in the action's unit, with the "
                "'contact' objective"
            )

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """Shape of what the encoders see."""
        channels, *sides = self.observation_shape
        return (channels, *(side // self.shrink for side in sides))


# What fields of ObjectiveConfig were before there were any such fields, where something else may be chosen now.
OBJECTIVE_ONCE: dict[str, Any] = {"stay_reach": 0.0, "stay_rise": 1.0, "bend": 0, "rim": False}
LEARNING_RATES = {"muon": 8e-3, "adamw": 2e-3}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How it is minimised."""

    steps: int = 2500
    """Optimiser steps; 0: as many as suit the data, which `fit` says and keeps."""
    batch_size: int = 128
    """Triples per step; 0: as many as suit the data."""
    optimizer: Literal["muon", "adamw"] | None = None
    """What moves the matrices inside the networks; AdamW moves everything else. Left out, `fit` takes muon where
    ResNets or MLPs learn by our objective or from true states, else adamw: small CNNs, the paper's objectives and the
    baselines are no better with muon."""
    learning_rate: float | None = None
    """Largest learning rate; left out, 0.008 with muon and 0.002 with adamw, but 0.005 where small CNNs learn by our
    objective or from true states, with fresh triples."""
    schedule: Literal["one-cycle", "constant"] = "one-cycle"
    """Learning rate over the run: up for a quarter and down to 0 along cosines, or constant as in the paper."""
    weight_decay: float = 0.05
    """Decoupled weight decay."""
    clip_norm: float = 10.0
    """Gradients are shortened to this norm."""
    jitter: float | None = None
    """Strength of random changes of light and noise on training pictures; nothing moves. Against overfitting: left out,
    it is 0.2 for a fixed set and 0 for a stream."""
    sway: float | None = None
    """Training pictures of a batch are all moved by the same few pixels, at most this share of a side. Against
    overfitting: left out, it is 0.04 where a large network learns from a fixed set, else 0."""
    least_contacts: float = 0.15
    """Contacts that are rarer than this share are drawn more often, from a fixed set that fits into memory; of a stream
    more is drawn, to choose from, where they or the untouched are rarer. 0: as they come."""
    probing: float | None = None
    """Share of a batch, 0 to 0.9, in which the agent chooses its move in a world that is streamed: of 32 random
    moves the one whose outcome is most in doubt, which says most of where the object is. It begins after 30 % of the
    run, when contacts have been told in 50 batches; the contact loss then rises, since such moves are harder to
    foretell. For a last fit (`bend`) it is nine tenths, of 128 moves. 0: random moves. Left out, it is 0.5 where our
    objective learns from a stream, else 0."""
    seed: int = 0
    """Of weights, batches and everything else random."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU if there is one."""
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    """Arithmetic of the encoders; auto: bf16 on a GPU."""
    graph: bool = True
    """On a GPU, capture the step in a CUDA graph."""
    compile: bool = False
    """Compile the encoders with torch.compile: a minute at the start, faster steps."""
    log_every: int = 25
    """Steps between readings."""
    evaluate_every: int = 100
    """Steps between evaluations on held-out and labelled data, where there are any."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""
    tensorboard: bool = False
    """Write TensorBoard curves too."""

    def __post_init__(self) -> None:
        for name in ("log_every", "evaluate_every", "checkpoint_every"):
            _demand(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _demand(self.steps >= 0, "steps", self.steps, "1 or more, or 0: as many as suit the data")
        _demand(
            self.batch_size == 0 or self.batch_size >= 2,
            "batch_size",
            self.batch_size,
            "2 or more (samples are contrasted with each other), or 0: as many as suit the data",
        )
        _demand(self.optimizer in (None, "muon", "adamw"), "optimizer", self.optimizer, "'muon' or 'adamw'")
        rate = self.learning_rate
        _demand(rate is None or rate > 0, "learning_rate", rate, "more than 0")
        _demand(self.schedule in ("one-cycle", "constant"), "schedule", self.schedule, "'one-cycle' or 'constant'")
        _demand(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        _demand(self.clip_norm > 0, "clip_norm", self.clip_norm, "more than 0")
        _demand(self.jitter is None or 0 <= self.jitter <= 1, "jitter", self.jitter, "0 to 1")
        _demand(self.sway is None or 0 <= self.sway <= 0.25, "sway", self.sway, "0 to 0.25")
        _demand(0 <= self.least_contacts < 1, "least_contacts", self.least_contacts, "0 to below 1")
        # The others show how common contacts are.
        _demand(self.probing is None or 0 <= self.probing <= 0.9, "probing", self.probing, "0 to 0.9")
        _demand(self.device in ("auto", "cpu", "cuda"), "device", self.device, "'auto', 'cpu' or 'cuda'")
        allowed = ("auto", "32-true", "bf16-mixed")
        _demand(self.precision in allowed, "precision", self.precision, " or ".join(map(repr, allowed)))
        _demand(self.seed >= 0, "seed", self.seed, "0 or more")

    @property
    def largest_rate(self) -> float:
        """The learning rate where it is largest."""
        return LEARNING_RATES[self.optimizer or "muon"] if self.learning_rate is None else self.learning_rate

    def learning_rate_at(self, share: float) -> float:
        """The learning rate when `share` of the run is done."""
        most = self.largest_rate
        if self.schedule == "constant":
            return most
        rise, low = 0.25, 0.04
        if share < rise:
            return most * (low + (1 - low) * (1 - math.cos(math.pi * share / rise)) / 2)
        return most * (1 + math.cos(math.pi * (share - rise) / (1 - rise))) / 2
