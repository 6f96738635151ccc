"""Observation -> features. An encoder is any module from an observation to a flat vector of `width` numbers.

The last feature map is flattened, not averaged, so it keeps where things are. Views are stacked on the channels.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIRECTIONS = 24  # windows of a scan in the first layer, about


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a skip (He et al. 2016)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + skip)


class ResNet18(nn.Module):
    """ResNet-18 up to its last feature map, flattened; parameter names are torchvision's, so its weights load."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.width = 512 * math.ceil(height / 32) * math.ceil(width / 32)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).flatten(1)


class SmallCNN(nn.Module):
    """Strided convolutions down to at most 9 x 9, for CPUs.

    The first one has a stride of 3: on a CPU its backward pass is most of the cost of a training step.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = [nn.Conv2d(channels, 16, 6, 3, 2), nn.ReLU()]
        height, width, channels = (height - 2) // 3 + 1, (width - 2) // 3 + 1, 16
        while max(height, width) > 9:
            layers += [nn.Conv2d(channels, 32, 3, 2, 1), nn.ReLU()]
            height, width, channels = math.ceil(height / 2), math.ceil(width / 2), 32
        self.convolutions = nn.Sequential(*layers)
        self.width = 128
        self.mix = nn.Linear(channels * height * width, self.width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.mix(self.convolutions(x).flatten(1)))


class MLP(nn.Module):
    """Three hidden layers for observations that are not pictures.

    They are smooth, because positions vary smoothly with the observation; with few triples that halves the error.
    """

    def __init__(self, shape: tuple[int], width: int = 256) -> None:
        super().__init__()
        self.width = width
        self.layers = perceptron(shape[0], width, width, width, activation=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.layers(x))


class Scan(nn.Module):
    """Windows of neighbouring numbers, such as the rays of a laser scanner, then two dense layers.

    The first and the last number count as neighbours. All windows of a layer share their weights, so an edge in a scan
    is learned once, not for each ray. Windows as matrix products: on a CPU they are faster than convolutions.
    """

    windows: Tensor
    coarse: Tensor

    def __init__(self, shape: tuple[int], width: int = 256) -> None:
        super().__init__()
        self.width = width
        stride = max(1, round(shape[0] / DIRECTIONS))
        self.windows = nn.Buffer(_windows(shape[0], 3 * stride + 1, stride), persistent=False)
        self.coarse = nn.Buffer(_windows(len(self.windows), 5, 2), persistent=False)
        self.first = nn.Linear(self.windows.shape[1], 32)
        self.second = nn.Linear(32 * self.coarse.shape[1], 32)
        self.dense = perceptron(32 * len(self.coarse), width, width, activation=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        local = F.silu(self.first(x[:, self.windows]))  # [b, directions, 32]
        wider = F.silu(self.second(local[:, self.coarse].flatten(2)))  # half as many directions
        return F.silu(self.dense(wider.flatten(1)))


def _windows(count: int, size: int, stride: int) -> Tensor:
    """Numbers of the entries in each window `[windows, size]` around a circle of `count` entries."""
    return (torch.arange(0, count, stride)[:, None] + torch.arange(size) - size // 2) % count


def perceptron(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers between these widths, with activations between them."""
    layers: list[nn.Module] = []
    for width_in, width in pairwise(widths):
        layers += [nn.Linear(width_in, width), activation()]
    return nn.Sequential(*layers[:-1])
