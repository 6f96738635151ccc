"""The networks of a method: encoders with their read-outs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.encoders import MLP, ResNet18, Scan, SmallCNN
from palpate.ranks import ALONE


def make_encoder(config: ModelConfig, shape: tuple[int, ...] | None = None) -> nn.Module:
    """An encoder of the configured kind, for the model's observations or for another shape."""
    kind = {"small": SmallCNN, "resnet18": ResNet18, "mlp": MLP, "scan": Scan}[config.encoder]
    encoder: nn.Module = kind(config.seen_shape if shape is None else shape)
    if len(config.observation_shape) == 3:
        encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return encoder


class Branch(nn.Module):
    """An encoder and a linear read-out in float32: bf16 has 8 bits, and a position needs more.

    Adam changes every weight by about the learning rate, so thousands of features could move the output by whole units
    in one step. Wide features are scaled down to the effect of 128.
    """

    def __init__(self, encoder: nn.Module, out: int) -> None:
        super().__init__()
        width: int = encoder.width  # type: ignore[assignment]
        self.encoder = encoder
        self.fused: Callable[[Tensor], Tensor] | None = None
        self.ranks = ALONE
        self.scale = min(1.0, 128 / width)
        self.head = nn.Linear(width, out)
        nn.init.normal_(self.head.weight, std=0.1)
        nn.init.zeros_(self.head.bias)

    def fuse(self) -> None:
        """Compile the encoder for training only, where all batches have one size."""
        self.fused = torch.compile(self.encoder.forward, dynamic=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.ranks.by_rows(self._output, x)

    def _output(self, x: Tensor) -> Tensor:
        features = self.fused(x) if self.fused is not None and self.training else self.encoder(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.head(features.float() * self.scale)


def side_by_side(branches: Sequence[Branch], x: Tensor) -> list[Tensor]:
    """The outputs of all branches for `x`. On a GPU each branch has a stream of its own, forward and backward.

    The late layers of one encoder are too small to fill a GPU.
    """
    shared = len({branch.encoder for branch in branches}) < len(branches)
    if not x.is_cuda or shared:  # two streams would race for the running averages of a shared encoder
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


@contextmanager
def few_threads(count: int | None = None) -> Iterator[None]:
    """Let torch use so many threads in this one; None stands for half of them, so that other work keeps some cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2) if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """Let torch use one thread: for small networks several gain little, and wait long if the machine is busy."""
    return few_threads(1)
