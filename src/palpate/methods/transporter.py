"""A baseline: a keypoint in the picture for the agent and each object (Kulkarni et al. 2019, "Unsupervised learning of
object keypoints").

The features at the keypoints of one picture are put into another picture, which then must reconstruct the first. The
keypoints have no order: `palpate.metrics.reading`, which may use true states, decides which one is the agent.
Legend: b batch, k keypoints, c feature channels, h and w height and width of the feature maps.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.encoders import BasicBlock
from palpate.methods.base import Encoding, Loss, Model, paired
from palpate.methods.decoders import Grow, require_full_size
from palpate.objectives.keypoints import heat, soft_argmax, transport

STRIDE = 4  # pixels per cell of the feature maps
# Heat maps start wide and shrink until this share of the run. With the final width from the start, both keypoints
# settle on the larger body.
# Standard deviations are relative to the picture's longer side.
FIRST_STD, LAST_STD, SHRUNK_AT = 0.4, 0.1, 0.6


class FeatureMap(nn.Module):
    """A picture at a quarter of its resolution, `width` channels deep.

    Kernels of even size with even strides are centred: cell j is centred on pixels 4j to 4j + 3.
    """

    def __init__(self, shape: tuple[int, int, int], *, residual: bool) -> None:
        super().__init__()
        channels, height, width = shape
        self.margin = (0, -width % STRIDE, 0, -height % STRIDE)
        layers: list[nn.Module]
        if residual:
            layers = [*_convolution(channels, 64, 8, 2), *_convolution(64, 64, 4, 2)]
            layers += [BasicBlock(64, 64, 1), BasicBlock(64, 64, 1), BasicBlock(64, 128, 1), BasicBlock(128, 128, 1)]
        else:
            layers = [*_convolution(channels, 32, 8, 4), *_convolution(32, 32, 3, 1), *_convolution(32, 32, 3, 1)]
        self.width = 128 if residual else 32
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(F.pad(x, self.margin, mode="replicate"))


def _convolution(channels_in: int, channels: int, side: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels, side, stride, (side - stride + 1) // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels), nn.ReLU()]


class Transporter(Model):
    """Phi (feature maps), Psi (keypoints) and a decoder of the transported features."""

    tells_apart = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        require_full_size(config)
        if not config.picture or config.n != 2:
            raise ValueError(
                f"observations have shape {config.observation_shape} and actions {config.n} dimensions; the "
                "transporter needs pictures and actions of 2 dimensions"
            )
        _, height, width = shape = config.observation_shape
        residual = config.encoder == "resnet18"
        self.phi = FeatureMap(shape, residual=residual)  # type: ignore[arg-type]
        self.psi = FeatureMap(shape, residual=residual)  # type: ignore[arg-type]
        self.head = nn.Conv2d(self.psi.width, 1 + config.objects, 1, bias=False)
        self.decoder = Grow(self.phi.width, [128, 64] if residual else [32], shape, residual=residual)  # type: ignore[arg-type]
        for network in (self.phi, self.psi, self.decoder):
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Middles of the cells, in pictures: y is up.
        rows, columns = ((torch.arange(math.ceil(side / STRIDE)) + 0.5) * STRIDE / side for side in (height, width))
        self.rows, self.columns = nn.Buffer(1 - rows, persistent=False), nn.Buffer(columns, persistent=False)
        longer = max(height, width)  # heat maps are round in pixels
        self.stretch = nn.Buffer(torch.tensor([longer / width, longer / height]), persistent=False)
        self.fused_parts: dict[str, Callable[[Tensor], Tensor]] = {}

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        both = torch.cat((batch.o, batch.o_next))
        # Reconstruction targets are not augmented.
        return paired(self._transported(self.inputs(both, generator), progress)), paired(self.inputs(both))

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """Squared error of each picture of a pair, reconstructed by transport from the other."""
        drawn, x = outputs
        return Loss({"reconstruction": (drawn.float() - x).square().mean() / 2}, {})

    def _transported(self, x: Tensor, progress: Tensor) -> Tensor:
        """Each picture of o and o', stacked [2b, ...], drawn from the other and the features at its own keypoints."""
        features, points = self._apply_part("phi", x), self._points(x)
        std = LAST_STD * (FIRST_STD / LAST_STD) ** (1 - progress / SHRUNK_AT).clamp(min=0)
        mask = heat(points, self.rows, self.columns, std * self.stretch)  # [2b, h, w]
        # No gradient as a source: features would learn to vanish there.
        source, source_mask = (y.detach().roll(len(x) // 2, 0) for y in (features, mask))
        return self._apply_part("decoder", transport(source, features, source_mask, mask))

    def _points(self, x: Tensor) -> Tensor:
        """Keypoints `[b, k, 2]` in the unit square."""
        maps = self._apply_part("psi", x)
        with torch.autocast(x.device.type, enabled=False):  # a position needs more than bf16's 8 bits
            return soft_argmax(self.head(maps.float()), self.rows, self.columns)

    def _apply_part(self, name: str, x: Tensor) -> Tensor:
        fused = self.fused_parts.get(name) if self.training else None
        return self.ranks.by_rows(getattr(self, name) if fused is None else fused, x)

    def encode(self, o: Tensor) -> Encoding:
        """The keypoints, in the unit square of the picture and in no particular order."""
        points = self._points(self.inputs(o))
        return Encoding(points[:, 0], points[:, 1:])

    def compile_step(self) -> None:
        parts = ("phi", "psi", "decoder")
        self.fused_parts = {name: torch.compile(getattr(self, name).forward, dynamic=False) for name in parts}
