"""What is asked for is kept, what is left open is chosen, and the two are one plan."""

from typing import Any

import pytest

from palpate.config import TrainingConfig
from palpate.plan import Asked, Plan, plan

OPEN = TrainingConfig(steps=0, batch_size=0)


def planned(asked: Asked | None = None, **about: Any) -> Plan:
    pictures: dict[str, Any] = {"shape": (3, 50, 50), "n": 2, "triples": None, "device": "cpu"}
    return plan(asked or Asked(training=OPEN), **pictures | about)


def test_what_is_left_open_is_chosen_and_said() -> None:
    made = planned()
    assert made.choices == made.open
    chosen = {choice.name: choice.value for choice in made.choices}
    for settings, names in (
        (made.training, ("steps", "batch_size", "optimizer", "learning_rate", "probing")),
        (made.model, ("encoder", "shrink")),
        (made.model.objective, ("body", "outline", "stay_weight", "stay_rise", "bend")),
    ):
        assert {name: chosen[name] for name in names} == {name: getattr(settings, name) for name in names}
    assert made.training.steps > 0


@pytest.mark.parametrize(
    "way",
    [
        {"switches": {"body": "axes", "bend": 3, "stay_rise": 2.0}},
        {"body": "axes", "switches": {"bend": 3, "stay_rise": 2.0}},
    ],
)
def test_what_is_given_is_kept(way: dict[str, Any]) -> None:
    training = TrainingConfig(steps=7, batch_size=5, optimizer="muon", learning_rate=0.1, probing=0.2)
    made = planned(Asked(encoder="resnet18", shrink=2, training=training, **way))
    assert made.training == training.__class__(
        steps=7, batch_size=5, optimizer="muon", learning_rate=0.1, probing=0.2, jitter=0.0, sway=0.0
    )
    assert (made.model.encoder, made.model.shrink) == ("resnet18", 2)
    objective = made.model.objective
    assert (objective.body, objective.bend, objective.stay_rise, objective.rim) == ("axes", 3, 2.0, True)
    given = {"steps", "batch_size", "optimizer", "learning_rate", "probing", "encoder", "shrink", "body", "bend"}
    assert not {choice.name for choice in made.open} & (given | {"stay_rise"})
    assert "rim" in {choice.name for choice in made.open}


def test_a_rate_that_nobody_gave_is_said() -> None:
    made = planned(Asked(encoder="resnet18", training=OPEN), device="cuda")
    assert "learning_rate" not in {choice.name for choice in made.choices}
    assert made.training.learning_rate == made.training.largest_rate is not None


def test_a_known_radius_leaves_no_outline() -> None:
    objective = planned(Asked(radius=0.3, training=OPEN)).model.objective
    assert (objective.radius, objective.outline) == (0.3, 0)
    assert planned().model.objective.outline > 0
