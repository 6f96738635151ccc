"""What every model shares: its face to the loop and to users, how observations enter, and how encoders are made."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.encoders import MLP, ResNet18, SmallCNN


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
    inputs: "Inputs"
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


class Inputs(nn.Module):
    """Observations and actions on a scale a network likes.

    Actions are divided by one number, their root mean square: a scale per axis would break isometry.
    """

    mean: Tensor
    spread: Tensor
    unit: Tensor

    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__()
        per_channel = (observation_shape[0], *(1 for _ in observation_shape[1:]))
        self.register_buffer("mean", torch.zeros(per_channel))
        self.register_buffer("spread", torch.ones(per_channel))
        self.register_buffer("unit", torch.ones(()))
        self.jitter = self.sway = 0.0  # choices of the training, not of the model
        self.shrink = 1  # see ModelConfig

    @torch.no_grad()
    def measure(self, batch: Batch, actions: Tensor | None = None) -> None:
        """Take the scales from a sample of the data, the unit from `actions` [N, n] where all of them are at hand."""
        o = torch.cat((batch.o, batch.o_next)).float()
        spread, mean = torch.std_mean(o, dim=[0, *range(2, o.dim())], keepdim=True)
        self.mean.copy_(mean[0])
        # A colour that hardly varies is noise at most and not blown up; the entries of a vector may have any units.
        least = 0.1 * float(spread.max()) if o.dim() == 4 else 0.0
        self.spread.copy_(torch.where(spread[0] > 1e-6, spread[0].clamp(min=least), max(least, 1.0)))
        self.unit.copy_((batch.a if actions is None else actions).square().sum(-1).mean().sqrt())
        if not self.unit > 0:
            raise ValueError("all actions are zero: nothing moved, so there is nothing to learn from")

    def forward(self, o: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scaled observations; with a generator, in training, pictures are disturbed as `jitter` and `sway` say."""
        x = o.float()
        if self.shrink > 1:
            x = F.avg_pool2d(x, self.shrink)
        return self.disturbed((x - self.mean) / self.spread, generator)

    def disturbed(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Scaled observations, as they are without a generator or outside of training."""
        if generator is not None and self.training and x.dim() == 4:
            if self.sway > 0:
                x = swayed(x, self.sway, generator)
            if self.jitter > 0:
                x = jittered(x, self.jitter, generator)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def observation(self, x: Tensor, like: Tensor) -> Tensor:
        """The way back, for those who reconstruct."""
        o = x.float() * self.spread + self.mean
        return o if like.is_floating_point() else o.round().clamp(0, 255).to(like.dtype)


def jittered(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Pictures `[b, c, h, w]` in another light: contrast and brightness of each colour, and noise. Nothing moves."""

    def draw(*shape: int) -> Tensor:
        return strength * torch.randn(*shape, generator=generator, device=x.device)

    return x * draw(*x.shape[:2], 1, 1).exp() + draw(*x.shape[:2], 1, 1) + draw(*x.shape)


def swayed(x: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Pictures `[b, c, h, w]` of a camera that has moved aside: all by the same whole pixels, at most `most` of a side.

    The frame is anybody's choice, so that the method's losses hold in each; pixels at the border are repeated. Had each
    pair a shift of its own, W would tell pairs by their shift. Pictures with fewer than 1 / `most` pixels stay.
    """
    for axis in (2, 3):
        size = x.shape[axis]
        reach = int(most * size)
        shift = torch.randint(-reach, reach + 1, (), generator=generator, device=x.device)
        x = x.index_select(axis, (torch.arange(size, device=x.device) + shift).clamp(0, size - 1))
    return x


def make_encoder(config: ModelConfig, shape: tuple[int, ...] | None = None) -> nn.Module:
    """One encoder of the configured kind, for what the model sees or for observations of another shape."""
    kind = {"small": SmallCNN, "resnet18": ResNet18, "mlp": MLP}[config.encoder]
    encoder: nn.Module = kind(config.seen_shape if shape is None else shape)
    if len(config.observation_shape) == 3:
        encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return encoder


class Branch(nn.Module):
    """An encoder and a linear read-out in float32: bf16 has 8 bits, and a position needs more.

    Adam moves every weight by about the learning rate, so a read-out of thousands of features would jump by whole
    units in one step and throw the object off the field. Wide features are scaled down to what 128 of them could do.
    """

    def __init__(self, encoder: nn.Module, out: int) -> None:
        super().__init__()
        width: int = encoder.width  # type: ignore[assignment]
        self.encoder = encoder
        self.fused: Callable[[Tensor], Tensor] | None = None
        self.scale = min(1.0, 128 / width)
        self.head = nn.Linear(width, out)
        nn.init.normal_(self.head.weight, std=0.1)
        nn.init.zeros_(self.head.bias)

    def fuse(self) -> None:
        """Compile the encoder for training, where batches have one size; elsewhere any size may come."""
        self.fused = torch.compile(self.encoder.forward, dynamic=False)

    def forward(self, x: Tensor) -> Tensor:
        features = self.fused(x) if self.fused is not None and self.training else self.encoder(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.head(features.float() * self.scale)


def side_by_side(branches: Sequence[Branch], x: Tensor) -> list[Tensor]:
    """What each branch says of `x`; on a GPU each on a stream of its own, and so is its backward pass.

    The late layers of an encoder are too small to fill a GPU: three at once take less than three times as long.
    """
    shared = len({branch.encoder for branch in branches}) < len(branches)
    if not x.is_cuda or shared:  # a shared encoder keeps one running average, which two streams would race for
        return [branch(x) for branch in branches]
    main = torch.cuda.current_stream(x.device)
    streams = [main, *_streams(x.device, len(branches) - 1)]
    outputs = []
    for branch, stream in zip(branches, streams, strict=True):
        stream.wait_stream(main)
        x.record_stream(stream)
        with torch.cuda.stream(stream):
            outputs.append(branch(x))
    for output, stream in zip(outputs, streams, strict=True):
        main.wait_stream(stream)
        output.record_stream(main)
    return outputs


@cache
def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(count)]
