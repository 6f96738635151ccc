"""Features -> observation, for the baselines that reconstruct; each about as large as the encoder of the same name.

Pictures grow by resizing and convolving: transposed convolutions leave a checkerboard. Any size and channel count.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.encoders import BasicBlock, perceptron

Shape = tuple[int, int, int]
WAVES, FREQUENCY = 256, 6.0  # number of waves, and their spread in radians per root mean square of the actions


def require_full_size(config: ModelConfig) -> None:
    if config.shrink != 1:
        raise ValueError(
            f"shrink is {config.shrink}; allowed is 1 for the method {config.method!r}, which reconstructs pictures "
            "at full size"
        )


class Grow(nn.Module):
    """From a feature map to a picture of `shape`: a convolution for each of `widths`, and doubling in between.

    The last enlargement, by `fold`, rearranges channels (Shi et al. 2016): a convolution at full resolution would take
    longer than all the rest.
    """

    def __init__(self, channels_in: int, widths: list[int], shape: Shape, *, residual: bool) -> None:
        super().__init__()
        channels, *self.size = shape
        self.fold = 2 if residual else 4
        stages = []
        for width in widths:
            stages.append(BasicBlock(channels_in, width, 1) if residual else _convolution(channels_in, width))
            channels_in = width
        self.stages = nn.ModuleList(stages)
        self.last = nn.Conv2d(channels_in, self.fold**2 * channels, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        for i, stage in enumerate(self.stages):
            scale = self.fold * 2 ** (len(self.stages) - 1 - i)
            x = stage(F.interpolate(x, coarse(self.size, scale), mode="nearest") if i else x)
        height, width = self.size
        return F.pixel_shuffle(self.last(x), self.fold)[:, :, :height, :width]


def coarse(size: Sequence[int], scale: int) -> list[int]:
    """Height and width of a map whose cells are `scale` pixels wide."""
    return [math.ceil(side / scale) for side in size]


def _convolution(channels_in: int, channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, 1, 1), nn.ReLU())


class Waves(nn.Module):
    """Poses `[b, pose]` as random waves `[b, WAVES]`, from which a linear layer can make a bump anywhere.

    From the plain numbers a decoder does not learn to draw an agent a few pixels wide (Tancik et al. 2020).
    """

    def __init__(self, pose: int) -> None:
        super().__init__()
        self.frequency = nn.Buffer(FREQUENCY * torch.randn(pose, WAVES))
        self.phase = nn.Buffer(2 * torch.pi * torch.rand(WAVES))

    def forward(self, z: Tensor) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):  # in bf16 a phase is off by a few pixels
            return math.sqrt(2) * torch.cos(z @ self.frequency + self.phase)


class PictureDecoder(nn.Module):
    """z_int and z_ext, spread over a coarse map, grown to a picture."""

    def __init__(self, pose: int, latent: int, shape: Shape, *, residual: bool) -> None:
        super().__init__()
        # The coarsest map has the size of the encoder's.
        coarsest, fold, widest, least, hidden = (4, 2, 512, 64, 512) if residual else (9, 4, 32, 32, 256)
        stages = max(1, math.ceil(math.log2(max(shape[1:]) / coarsest / fold)) + 1)
        self.first = coarse(shape[1:], fold * 2 ** (stages - 1))
        cells = widest * math.prod(self.first)
        self.agent = nn.Sequential(Waves(pose), nn.Linear(WAVES, cells, bias=False))  # `object` has one
        self.object = perceptron(latent, hidden, hidden, cells)
        widths = [max(widest // 2**i, least) for i in range(stages)]
        self.grow = Grow(widest, widths, shape, residual=residual)

    def forward(self, z_int: Tensor, z_ext: Tensor) -> Tensor:
        x = F.relu(self.agent(z_int) + self.object(z_ext)).view(len(z_int), -1, *self.first)
        return self.grow(x.contiguous(memory_format=torch.channels_last))


class VectorDecoder(nn.Module):
    """Three hidden layers."""

    def __init__(self, pose: int, latent: int, out: int, width: int = 256) -> None:
        super().__init__()
        self.waves = Waves(pose)
        self.layers = perceptron(pose + WAVES + latent, width, width, width, out)

    def forward(self, z_int: Tensor, z_ext: Tensor) -> Tensor:
        return self.layers(torch.cat((z_int, self.waves(z_int), z_ext), -1))


def make_decoder(config: ModelConfig, pose: int, latent: int) -> nn.Module:
    """A decoder from z_int [b, pose] and z_ext [b, latent] to an observation, which matches the configured encoder."""
    if config.encoder == "mlp":
        return VectorDecoder(pose, latent, config.observation_shape[0])
    shape: Any = config.observation_shape
    decoder: nn.Module = PictureDecoder(pose, latent, shape, residual=config.encoder == "resnet18")
    decoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return decoder
