"""Settings check themselves: what, the value received, what is allowed."""

import math
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palpate.config import ModelConfig, ObjectiveConfig, SettledTraining, TrainingConfig
from palpate.methods.store import build


def model(**changes: Any) -> ModelConfig:
    return ModelConfig(**({"encoder": "mlp", "observation_shape": (12,), "n": 2} | changes))


def picture(*shape: int, **changes: Any) -> ModelConfig:
    return model(**({"encoder": "small", "observation_shape": shape} | changes))


@pytest.mark.parametrize(
    ("kind", "name", "value", "allowed"),
    [
        (ObjectiveConfig, "body", 3, "the name of a shape"),
        (ObjectiveConfig, "radius", 0.0, "more than 0"),
        (ObjectiveConfig, "radius", -1.0, "more than 0"),
        (ObjectiveConfig, "radius", math.nan, "more than 0"),
        (ObjectiveConfig, "radius", True, "more than 0"),
        (ObjectiveConfig, "egocentric", 1, "True or False"),
        (ObjectiveConfig, "refine", 1, "True or False"),
        (ObjectiveConfig, "rest_floor", 0, "more than 0"),
        (ObjectiveConfig, "rest_floor", math.inf, "more than 0"),
        (TrainingConfig, "steps", 0, "1 to 2**62"),
        (TrainingConfig, "steps", 10**23, "1 to 2**62"),
        (TrainingConfig, "steps", 2.0, "1 to 2**62"),
        (TrainingConfig, "batch_size", 1, "2 to 2**31: samples are contrasted with each other"),
        (TrainingConfig, "optimizer", "sgd", "'muon' or 'adamw'"),
        (TrainingConfig, "learning_rate", 0.0, "more than 0"),
        (TrainingConfig, "learning_rate", math.nan, "more than 0"),
        (TrainingConfig, "schedule", "cosine", "'one-cycle' or 'paper'"),
        (TrainingConfig, "schedule", None, "'one-cycle' or 'paper'"),
        (TrainingConfig, "augment", "sway", "'none' or 'light' or 'shift'"),
        (TrainingConfig, "least_contacts", 1.0, "0 to below 1"),
        (TrainingConfig, "least_contacts", True, "0 to below 1"),
        (TrainingConfig, "least_contacts", "0.2", "0 to below 1"),
        (TrainingConfig, "chosen_moves", 1.0, "0 to 0.9"),
        (TrainingConfig, "chosen_moves", np.float32(0.5), "0 to 0.9"),
        (TrainingConfig, "device", "gpu", "'cpu' or 'cuda'"),
        (TrainingConfig, "precision", "fp16", "'32-true' or 'bf16-mixed'"),
        (TrainingConfig, "seed", -1, "0 to 2**62"),
        (TrainingConfig, "log_every", 0, "1 to 2**62"),
        (TrainingConfig, "evaluate_every", 0, "1 to 2**62"),
        (TrainingConfig, "checkpoint_every", -1, "1 to 2**62"),
    ],
)
def test_what_is_refused(kind: Any, name: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError) as error:
        kind(**{name: value})
    assert str(error.value) == f"{name} is {value!r}; allowed is {allowed}"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encoder": "small"}, "the encoder for vectors is 'small'; allowed is 'mlp'"),
        ({"observation_shape": (3, 20, 20)}, "the encoder for pictures is 'mlp'; allowed is 'small' or 'resnet18'"),
        ({"n": 0}, "the action's dimension is 0; allowed is 1 to 64"),
        ({"observation_shape": (3, 4)}, r"observation_shape is \[3, 4\]; allowed is 1 or 3 sizes"),
        ({"observation_dtype": "int8"}, "observation_dtype is 'int8'; allowed is 'uint8' or 'float32'"),
        ({"shrink": 2}, r"shrink is 2; allowed is 1 to 1 for observations of shape \(12,\)"),
    ],
)
def test_what_is_no_model(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        model(**changes)


def test_shrinking_leaves_sixteen_pixels() -> None:
    assert picture(3, 40, 100, shrink=2).seen_shape == (3, 20, 50)
    with pytest.raises(ValueError, match="shrink is 3; allowed is 1 to 2"):
        picture(3, 40, 100, shrink=3)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (model(method="gan"), "method is 'gan'; allowed is one of contact, "),
        (model(objective=ObjectiveConfig(body="square")), "body is 'square'; allowed is 'ball' or 'outline' or"),
        (model(n=3, objective=ObjectiveConfig(body="ellipse")), "body is 'ellipse', which lies in the plane, but"),
        (model(n=3, method="supervised", objective=ObjectiveConfig(body="outline")), "body is 'outline', which lies"),
        (model(n=1, objective=ObjectiveConfig(body="ball")), "actions have one dimension: .* Give the sum of the two"),
        (model(method="transporter"), "the transporter needs pictures and actions of 2 dimensions"),
        (picture(3, 20, 20, method="transporter", n=3), "the transporter needs pictures and actions of 2 dimensions"),
        (picture(3, 40, 40, method="vae", shrink=2), "shrink is 2"),
    ],
)
def test_what_cannot_be_built(config: ModelConfig, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(config)


@pytest.mark.parametrize(("kind", "most"), [(ObjectiveConfig, 8), (TrainingConfig, 16)])
def test_few_settings_frozen_and_by_name(kind: Any, most: int) -> None:
    assert len(fields(kind)) <= most
    assert all(field.kw_only for field in fields(kind))
    with pytest.raises(FrozenInstanceError):
        setattr(kind(), fields(kind)[0].name, None)


@pytest.mark.parametrize("rate", [2e-3, 1.0])
def test_one_cycle(rate: float) -> None:
    """Up along a cosine from 4 % for a quarter of the run, down along another to nothing."""
    at = TrainingConfig(learning_rate=rate).learning_rate_at
    assert [at(share) for share in (0, 0.125, 0.25, 0.625, 1)] == pytest.approx(
        [0.04 * rate, 0.52 * rate, rate, 0.5 * rate, 0], abs=1e-15
    )
    rates = [at(i / 400) for i in range(401)]
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)


def test_the_papers_schedule_is_constant_without_decay_or_clipping() -> None:
    config = TrainingConfig(schedule="paper", learning_rate=1e-3)
    assert {config.learning_rate_at(share) for share in (0, 0.25, 0.5, 1)} == {1e-3}
    assert (config.weight_decay, config.clip_norm) == (0, math.inf)


def test_each_optimizer_has_a_rate_of_its_own() -> None:
    rates = {TrainingConfig(optimizer=name).largest_rate for name in ("muon", "adamw")}  # type: ignore[arg-type]
    assert len(rates) == 2
    assert TrainingConfig(optimizer="muon", learning_rate=1e-4).largest_rate == 1e-4


def test_settled_steps_are_checked_too() -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        SettledTraining(steps=0)


@pytest.mark.parametrize("config", [ObjectiveConfig, TrainingConfig])
def test_the_page_has_the_effect_of_every_setting(config: type) -> None:
    page = (Path(__file__).parent.parent / "docs" / "method.md").read_text(encoding="utf-8")
    _, _, table = page.partition(f"| `{config.__name__}` | measured effect |")
    rows = table.strip("\n").split("\n\n")[0].splitlines()[1:]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])] == [
        field.name for field in fields(config)
    ]
