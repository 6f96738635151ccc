"""Policies: their input, and loading a trained one."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from palpate.checkpoint import read_state
from palpate.control.settings import ControlConfig
from palpate.encoders import SmallCNN

Act = Callable[[Any], np.ndarray]


class Standardised(BaseFeaturesExtractor):
    """Standardises vectors by the mean and spread that a random policy observes; stored with the policy."""

    mean: Tensor
    spread: Tensor

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, space.shape[0])
        self.register_buffer("mean", torch.zeros(space.shape))
        self.register_buffer("spread", torch.ones(space.shape))

    def measure(self, observations: np.ndarray) -> None:
        seen = torch.from_numpy(observations).to(self.mean)
        self.mean.copy_(seen.mean(0))
        # A constant number carries no information and must not be amplified.
        spread = seen.std(0)
        self.spread.copy_(torch.where(spread > 1e-6, spread, 1.0))

    def forward(self, observations: Tensor) -> Tensor:
        return (observations - self.mean) / self.spread


class Convolutions(BaseFeaturesExtractor):
    """Pictures through the small CNN of our representations, learned with the policy."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        cnn = SmallCNN(space.shape)  # type: ignore[arg-type]
        super().__init__(space, cnn.width)
        self.cnn = cnn

    def forward(self, observations: Tensor) -> Tensor:
        return self.cnn(observations)


def policy_arguments(representation: str, config: ControlConfig) -> dict[str, Any]:
    """Arguments of stable-baselines3's policy."""
    pixels = representation == "pixels"
    return {
        "net_arch": {"pi": [config.hidden] * 2, "vf": [config.hidden] * 2},
        "log_std_init": math.log(config.spread * config.max_step),
        "features_extractor_class": Convolutions if pixels else Standardised,
    }


def load_policy(path: Path) -> Act:
    """A trained policy as a function from observations [b, ...] to actions [b, n], without noise; nothing is unpickled.

    `path` is the folder of a run, or its `policy.safetensors`. The observations are those of the run: from
    `palpate.wrap`, true states, or pictures with channels first.
    """
    path = path / "policy.safetensors" if path.is_dir() else path
    groups, facts = read_state(path)
    if "policy" not in groups or "settings" not in facts:
        raise ValueError(f"{path} holds no policy; a run of `palpate control` leaves policy.safetensors at its end")
    config = ControlConfig(**facts["settings"])
    shape = tuple(facts["observation"]["shape"])
    picture = facts["observation"]["dtype"] == "uint8"
    policy = ActorCriticPolicy(
        gymnasium.spaces.Box(0, 255, shape, np.uint8) if picture else gymnasium.spaces.Box(-np.inf, np.inf, shape),
        gymnasium.spaces.Box(-config.max_step, config.max_step, (2,), np.float32),
        lambda _: config.learning_rate,
        **policy_arguments(facts["representation"], config),
    )
    policy.load_state_dict(groups["policy"])
    return lambda o: policy.predict(o, deterministic=True)[0]
