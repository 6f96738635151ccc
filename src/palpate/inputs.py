"""Observations and actions on a scale that networks train well on."""

from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.data.transitions import Batch
from palpate.groups.base import Group

JITTER, SHIFT = 0.2, 0.04  # strength of changed light; largest shift, as a share of a side
UNITS = (1e-12, 1e12)  # of actions: their squares must be finite in float32
CHUNK_BYTES = 64 * 1024**2  # of float32 observations that are measured or averaged at a time
LEAST_SPREAD = 0.1  # of the most varied channel's: a channel that hardly varies may be noise and is not amplified


class Inputs(nn.Module):
    """Scales of the data: mean and spread of each channel, and one unit for actions.

    Actions are divided by their root mean square, one number: a scale per axis would break isometry.
    """

    mean: Tensor
    spread: Tensor
    unit: Tensor

    def __init__(self, observation_shape: tuple[int, ...], group: Group, shrink: int = 1) -> None:
        super().__init__()
        per_channel = (observation_shape[0], *(1 for _ in observation_shape[1:]))
        self.register_buffer("mean", torch.zeros(per_channel))
        self.register_buffer("spread", torch.ones(per_channel))
        self.register_buffer("unit", torch.ones(()))
        self.group, self.shrink = group, shrink
        self.augment = "none"  # set by training; not part of the model

    @torch.no_grad()
    def measure(self, batch: Batch, actions: Tensor | None = None) -> None:
        """Take the scales from a sample of the data, and the unit from all `actions` [N, n] if they are given."""
        parts = [part for o in (batch.o, batch.o_next) for part in _parts(o)]
        over = [0, *range(2, batch.o.dim())]
        count = 2 * batch.o.numel() / batch.o.shape[1]
        mean = sum(part.double().sum(over, keepdim=True) for part in parts) / count
        variance = sum((part.double() - mean).square().sum(over, keepdim=True) for part in parts) / max(count - 1, 1)
        spread = torch.as_tensor(variance).sqrt()[0]
        self.mean.copy_(torch.as_tensor(mean)[0])
        # The entries of a vector may have different units.
        least = LEAST_SPREAD * float(spread.max()) if batch.o.dim() == 4 else 0.0
        self.spread.copy_(torch.where(spread > 1e-6, spread.clamp(min=least), max(least, 1.0)))
        self.unit.copy_(self.group.length2((batch.a if actions is None else actions).double()).mean().sqrt())
        unit = float(self.unit)
        if unit == 0:
            raise ValueError("all actions are zero: nothing moved, so there is nothing to learn from")
        if not UNITS[0] < unit < UNITS[1]:
            _refuse(unit, 1.0)

    def require_finite(self, actions: Tensor) -> None:
        """Refuse actions [N, ...] that are too large for a trained model; those of length 0 are allowed."""
        size, unit = float(self.group.length2(actions.double()).mean().sqrt()), float(self.unit)
        if size >= UNITS[1] * unit:
            _refuse(size, unit)

    def scaled(self, a: Tensor) -> Tensor:
        """Actions in units of their root mean square."""
        return self.group.scaled(a, 1 / self.unit)

    def forward(self, o: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scaled observations; pictures are augmented in training, if a generator is given."""
        if self.shrink == 1:
            x = o.float()
        else:  # a batch of large pictures in float32 may not fit in memory; users' batches are small
            parts = _parts(o) if self.training else (o,)
            x = torch.cat([F.avg_pool2d(part.float(), self.shrink) for part in parts])
        return self.augmented((x - self.mean) / self.spread, generator)

    def augmented(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Augment scaled pictures in training, if a generator is given."""
        if generator is not None and self.training and x.dim() == 4:
            if self.augment == "shift":
                x = shifted(x, SHIFT, generator)
            if self.augment != "none":
                x = jittered(x, JITTER, generator)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _parts(o: Tensor) -> tuple[Tensor, ...]:
    """Observations in parts of bounded size."""
    return o.split(max(1, CHUNK_BYTES // (4 * o[0].numel())))


def _refuse(size: float, unit: float) -> NoReturn:
    low, high = (limit * unit for limit in UNITS)
    raise ValueError(
        f"actions have a root mean square of {size:.3g}; allowed is {low:.3g} to {high:.3g}: their squares are not "
        "finite in float32, so use another unit"
    )


def jittered(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Pictures `[b, c, h, w]` in another light: contrast and brightness of each colour, and noise."""

    def draw(*shape: int) -> Tensor:
        return strength * torch.randn(*shape, generator=generator, device=x.device)

    return x * draw(*x.shape[:2], 1, 1).exp() + draw(*x.shape[:2], 1, 1) + draw(*x.shape)


def shifted(x: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Pictures `[b, c, h, w]` shifted by the same whole pixels, at most `most` of a side; border pixels are repeated.

    The method's losses hold in any frame. If each pair had a shift of its own, W would identify pairs by their shift.
    A side of fewer than 1 / `most` pixels is not shifted.
    """
    for axis in (2, 3):
        size = x.shape[axis]
        reach = int(most * size)
        shift = torch.randint(-reach, reach + 1, (), generator=generator, device=x.device)
        x = x.index_select(axis, (torch.arange(size, device=x.device) + shift).clamp(0, size - 1))
    return x
