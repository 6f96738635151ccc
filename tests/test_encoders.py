"""Encoders: shapes, names that torchvision's weights fit, and features that know where things are."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.encoders import MLP, ResNet18, Scan, SmallCNN

SHAPES = [(3, 20, 20), (1, 48, 64), (12, 33, 47), (3, 100, 100), (1, 101, 32)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("encoder", [SmallCNN, ResNet18])
def test_pictures_of_any_shape(encoder: type[SmallCNN | ResNet18], shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    network = encoder(shape).eval()
    with torch.no_grad():
        features = network(torch.rand(2, *shape))
        alone = network(torch.rand(1, *shape))
    assert features.shape == (2, network.width)
    assert alone.shape == (1, network.width)
    assert features.isfinite().all()
    assert (features[0] != features[1]).any()


@pytest.mark.parametrize("size", range(16, 131, 7))
def test_small_cnn_stays_small_at_every_size(size: int) -> None:
    network = SmallCNN((1, size, 16 + size // 2))
    with torch.no_grad():
        last = network.convolutions(torch.zeros(1, 1, size, 16 + size // 2))
    assert max(last.shape[2:]) <= 9
    assert last.numel() == network.mix.in_features


@pytest.mark.parametrize("inputs", [1, 64])
def test_vectors_of_any_length(inputs: int) -> None:
    network = MLP((inputs,), width=7)
    assert network(torch.rand(3, inputs)).shape == (3, network.width) == (3, 7)


@pytest.mark.parametrize("rays", [1, 16, 20, 47, 48, 180, 360])
def test_scans_of_any_length(rays: int) -> None:
    network = Scan((rays,))
    assert network(torch.rand(3, rays)).shape == (3, network.width)
    for windows, count in ((network.windows, rays), (network.coarse, len(network.windows))):
        assert set(windows.flatten().tolist()) == set(range(count))  # each number is seen


def test_windows_of_a_scan_go_around_the_circle() -> None:
    """A scan turned by a window's stride gives the same windows, one further."""
    network, x = Scan((48,)), torch.rand(3, 48)
    torch.testing.assert_close(x.roll(2, 1)[:, network.windows], x[:, network.windows].roll(1, 1))


def test_vectors_are_encoded_smoothly() -> None:
    """Along a line the slope of a feature has no jumps, which a kink in any layer would cause."""
    encoder = MLP((3,)).double()
    with torch.no_grad():
        features = encoder(torch.linspace(-3, 3, 6001, dtype=torch.float64)[:, None].expand(-1, 3))
    bends = features.diff(dim=0).diff(dim=0).abs()
    assert bends.amax() < 20 * bends.mean()


@pytest.mark.parametrize("encoder", [SmallCNN((3, 20, 20)), ResNet18((3, 40, 40)), MLP((5,)), Scan((20,))], ids=type)
def test_every_parameter_receives_gradient(encoder: nn.Module) -> None:
    torch.manual_seed(0)
    shape = {SmallCNN: (3, 20, 20), ResNet18: (3, 40, 40), MLP: (5,), Scan: (20,)}[type(encoder)]  # type: ignore[index]
    encoder(torch.randn(4, *shape)).square().mean().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


# torchvision.models.resnet18's names, without its last layer fc.
BLOCK = {"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"}
PARAMETER_NAMES = {
    "conv1.weight",
    "bn1.weight",
    "bn1.bias",
    *(f"layer{layer}.{block}.{name}" for layer in (1, 2, 3, 4) for block in (0, 1) for name in BLOCK),
    *(f"layer{layer}.0.downsample.{name}" for layer in (2, 3, 4) for name in ("0.weight", "1.weight", "1.bias")),
}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def test_resnet_has_torchvisions_names() -> None:
    network = ResNet18((3, 100, 100))
    assert {name for name, _ in network.named_parameters()} == PARAMETER_NAMES
    norms = {name.removesuffix(".bias") for name in PARAMETER_NAMES if name.endswith(".bias")}
    assert {name for name, _ in network.named_buffers()} == {f"{norm}.{x}" for norm in norms for x in STATISTICS}
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_176_512


def slow_resnet(x: Tensor, state: dict[str, Tensor]) -> Tensor:
    """ResNet-18 in evaluation mode, written out from the paper (He et al. 2016) over a bare dictionary of weights."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale = state[f"{name}.weight"] / (variance + 1e-5).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]

    x = norm(F.conv2d(x, state["conv1.weight"], stride=2, padding=3), "bn1").clamp(min=0)
    x = F.max_pool2d(x, 3, 2, 1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(norm(y, f"{name}.bn1").clamp(min=0), state[f"{name}.conv2.weight"], padding=1)
            if f"{name}.downsample.0.weight" in state:
                x = norm(F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride), f"{name}.downsample.1")
            x = (norm(y, f"{name}.bn2") + x).clamp(min=0)
    return x.flatten(1)


@torch.no_grad()
def test_resnet_agrees_with_one_written_out() -> None:
    torch.manual_seed(1)
    network = ResNet18((3, 70, 45))
    network(torch.rand(8, 3, 70, 45))  # in training mode, so that the statistics are not those of a fresh network
    for name, parameter in network.named_parameters():
        if "bn" in name or "downsample.1" in name:
            parameter.add_(0.2 * torch.randn_like(parameter))
    x = torch.rand(2, 3, 70, 45)
    torch.testing.assert_close(network.eval()(x), slow_resnet(x, network.state_dict()), atol=1e-4, rtol=1e-3)


def dot(size: int, row: int, column: int) -> Tensor:
    picture = torch.zeros(1, 3, size, size)
    picture[:, :, row : row + 4, column : column + 4] = 1
    return picture


@torch.no_grad()
def test_a_dot_elsewhere_gives_other_features() -> None:
    torch.manual_seed(0)
    network = SmallCNN((3, 100, 100))
    here, there = network(dot(100, 20, 20)), network(dot(100, 70, 60))
    assert (here - there).norm() > 0.1 * here.norm()


@torch.no_grad()
def test_location_survives_in_the_features_and_would_not_in_their_average() -> None:
    """A dot moved by the network's stride of 32, with its receptive field inside the picture, moves the last feature
    map by one: the flattened map differs as much as two maps can, the average not at all."""
    torch.manual_seed(0)
    size = 512
    network = ResNet18((3, size, size)).eval()
    here, there = (network(dot(size, place, place)) for place in (224, 256))
    assert (here - there).norm() > 0.5 * here.norm()
    side = size // 32
    maps = [features.view(512, side, side) for features in (here, there)]
    torch.testing.assert_close(maps[0].mean((1, 2)), maps[1].mean((1, 2)), atol=1e-6, rtol=1e-3)
    torch.testing.assert_close(maps[0][:, :-1, :-1], maps[1][:, 1:, 1:], atol=1e-5, rtol=1e-3)
