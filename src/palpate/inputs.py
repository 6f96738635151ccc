"""Observations and actions on a scale that networks train well on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.data.transitions import Batch


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
