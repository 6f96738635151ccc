"""Models with random weights, and what is needed to test one without training."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.methods.store import build
from palpate.representation import Representation

FEATURES = 5  # of an observation
# What makes a tensor from Python numbers, or waits for one: a CUDA graph cannot capture the copy from the host.
FROM_HOST = {"new_tensor", "tensor", "as_tensor", "item", "nonzero"}


def random_model(n: int, actions: int, **objective: Any) -> Representation:
    """A model of vectors with large weights, so that its outputs differ."""
    torch.manual_seed(0)
    scene = ObjectiveConfig(**{"refine": False, "rest_floor": 0.1} | objective)
    shape = (FEATURES,)
    config = ModelConfig(
        encoder="mlp", observation_shape=shape, observation_dtype="float32", n=n, actions=actions, objective=scene
    )
    model = build(config)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5)
    model.inputs.unit.fill_(2.0)
    return Representation(model, {})


def numbers(count: int = 40) -> Tensor:
    """Observations for it."""
    return torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(0))


class Called(TorchFunctionMode):
    """The names of the torch functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(function.__name__)
        return function(*args, **(kwargs or {}))


def shorten(monkeypatch: pytest.MonkeyPatch, steps: tuple[int, int], more: tuple[int, int]) -> None:
    """Fewer steps for the networks of `check`, and for those that compare readings of the actions."""
    for module in ("probe", "following"):
        monkeypatch.setattr(f"palpate.doctor.{module}.STEPS", steps)
    monkeypatch.setattr("palpate.doctor.probe.MORE_STEPS", more)
