"""The networks of a method: encoders with their read-outs."""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.encoders import MLP, ResNet18, SmallCNN


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
