"""From commands to displacements."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tilted import Tilted
from torch import Tensor

from palpate.exploring.steering import fit_steering
from palpate.groups.translations import Translations

GROUP = Translations(2)


def drawn(count: int, low: float, high: float, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, (count, 2)))


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(0.1, 3.0), offset=st.floats(-5.0, 5.0), seed=st.integers(0, 9))
def test_commands_that_are_displacements_up_to_walls(scale: float, offset: float, seed: int) -> None:
    """Half of the paths end at a wall. The learned frame has another origin than the environment's."""
    agent, command = drawn(400, 0, 1, seed), drawn(400, -1, 1, seed + 10)
    moved = (agent + scale * command).clamp(0, 1) - agent
    steering = fit_steering(GROUP, agent + offset, command, moved)
    assert steering.explained > 0.999
    start, asked = drawn(50, 0, 1, seed + 20), drawn(50, -1, 1, seed + 30)
    wanted = (start + scale * asked).clamp(0, 1) - start
    assert torch.allclose(steering.predict(start + offset, asked), wanted, atol=0.02)


@pytest.mark.parametrize("reach", [1.0, 0.4])
def test_commands_that_are_targets(reach: float) -> None:
    agent, target = drawn(400, 0, 512, 0), drawn(400, 0, 512, 1)
    steering = fit_steering(GROUP, agent - 300, target, reach * (target - agent))
    assert steering.explained > 0.999
    start, asked = drawn(50, 100, 400, 2), drawn(50, 100, 400, 3)
    assert torch.allclose(steering.predict(start - 300, asked), reach * (asked - start), atol=0.1)


def test_discrete_commands() -> None:
    """North, east, south and west, as one-hot numbers."""
    steps = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]]).double()
    which = torch.from_numpy(np.random.default_rng(0).integers(0, 4, 300))
    steering = fit_steering(GROUP, drawn(300, 0, 20, 1), torch.eye(4).double()[which], steps[which])
    assert torch.allclose(steering.predict(drawn(4, 5, 15, 2), torch.eye(4).double()), steps, atol=1e-3)


def test_unrelated_commands_explain_nothing() -> None:
    agent, command = drawn(400, 0, 1, 0), drawn(400, -1, 1, 1)
    assert fit_steering(GROUP, agent, command, drawn(400, -0.1, 0.1, 2)).explained < 0.3


def test_poses_of_another_group() -> None:
    """A pose has three numbers there, and an action two; half of the paths end at a wall."""
    group, (at, command) = Tilted(), (drawn(400, 0, 1, 0), drawn(400, -1, 1, 1))
    moved = (at + 2 * command).clamp(0, 1) - at
    nowhere = torch.zeros(400, 3).double()
    steering = fit_steering(group, group.act(nowhere, at), command, moved)
    assert steering.explained > 0.999
    start, asked = drawn(50, 0, 1, 2), drawn(50, -1, 1, 3)
    wanted = (start + 2 * asked).clamp(0, 1) - start
    assert torch.allclose(steering.predict(group.act(nowhere[:50], start), asked), wanted, atol=0.02)
