"""What is given is kept, what is left open is chosen, and what would be ignored is refused."""

from typing import Any

import pytest

from palpate.choices import Facts
from palpate.config import ObjectiveConfig, TrainingConfig
from palpate.plan import Asked, Plan, plan
from palpate.traits import METHODS

STREAM = Facts((3, 50, 50), 2, None, True, "cpu")
SET = Facts((3, 50, 50), 2, 10_000, False, "cpu")


def asked(training: dict[str, Any] | None = None, scene: dict[str, Any] | None = None, **options: Any) -> Asked:
    return Asked(training=TrainingConfig(**training or {}), scene=ObjectiveConfig(**scene or {}), **options)


def values(made: Plan) -> dict[str, Any]:
    """All settings of a plan, by name."""
    return vars(made.training) | vars(made.model) | vars(made.model.objective)


WRITTEN: dict[str, dict[str, Any]] = {
    "contact": {},
    "one-by-one": {"scene": {"objects": 2}},
    "egocentric": {"scene": {"egocentric": True}},
    "carried": {"scene": {"egocentric": True}},
    "paper": {"objective": "paper"},
    "paper-gaussian": {"objective": "paper-gaussian"},
    "vae": {"method": "vae"},
    "transporter": {"method": "transporter"},
    "supervised": {"method": "supervised"},
}


def test_every_method_can_be_written() -> None:
    assert WRITTEN.keys() == METHODS.keys()


@pytest.mark.parametrize("facts", [STREAM, SET])
@pytest.mark.parametrize("method", METHODS)
def test_what_is_left_open_is_chosen_and_used(method: str, facts: Facts) -> None:
    facts = facts._replace(shape=(48,)) if method == "carried" else facts
    made = plan(asked(**WRITTEN[method]), facts)
    assert made.choices == made.open
    found = values(made)
    assert {choice.name: choice.value for choice in made.choices}.items() <= found.items()
    assert made.model.method == method
    still_open = {name for name, value in found.items() if value is None}
    traits = METHODS[method]
    of_a_body = {"refine", "rest_floor"} | ({"body"} if traits.unsupervised else set())  # else it has one for its angle
    assert still_open == {"radius", "device", "precision"} | (set() if traits.has_body else of_a_body)


SCAN = SET._replace(shape=(48,), scan=True, carried=True)


@pytest.mark.parametrize(
    ("options", "facts", "name", "carried"),
    [
        ({}, SCAN, "carried", True),
        ({"scene": {"group": "se2"}}, SCAN._replace(n=3), "carried", True),
        ({"method": "supervised"}, SCAN, "supervised", True),
        ({"objective": "paper"}, SCAN, "paper", False),  # a method that needs a fixed sensor
        ({"method": "vae"}, SCAN, "vae", False),
        ({"scene": {"egocentric": False}}, SCAN, "contact", False),
        ({"scene": {"egocentric": True}}, SCAN._replace(carried=False), "carried", True),
        ({}, SCAN._replace(carried=False), "contact", False),
    ],
)
def test_a_carried_scanner(options: dict[str, Any], facts: Facts, name: str, carried: bool) -> None:
    made = plan(asked(**options), facts)
    assert (made.model.method, made.model.objective.egocentric) == (name, carried)
    found = [choice for choice in made.open if choice.name == "egocentric"]
    given = "egocentric" in options.get("scene", {})
    assert [(choice.value, "the agent carries the scanner" in choice.reason) for choice in found] == (
        [(True, True)] if carried and not given else []
    )


def test_what_is_given_is_kept() -> None:
    training = {"steps": 7, "batch_size": 5, "optimizer": "muon", "learning_rate": 0.1, "chosen_moves": 0.2, "seed": 3}
    scene = {"body": "ellipse", "refine": True, "rest_floor": 0.3, "radius": 0.2}
    made = plan(asked(training, scene, encoder="resnet18", shrink=2), STREAM)
    given = training | scene | {"encoder": "resnet18", "shrink": 2}
    assert given.items() <= values(made).items()
    assert {choice.name for choice in made.open} == {"augment"}


def test_a_rate_that_nobody_gave_is_said() -> None:
    made = plan(asked(encoder="resnet18"), STREAM._replace(device="cuda"))
    assert made.training.learning_rate == made.training.largest_rate
    assert "learning_rate" not in {choice.name for choice in made.choices}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "contact"),
        ({"objective": "paper"}, "paper"),
        ({"objective": "paper-gaussian"}, "paper-gaussian"),
        ({"method": "vae"}, "vae"),
        ({"scene": {"egocentric": True}}, "egocentric"),
        ({"method": "supervised", "scene": {"egocentric": True}}, "supervised"),
        ({"objective": "palpate.reproduce.variants:SplitOnD"}, "palpate.reproduce.variants:SplitOnD"),
    ],
)
def test_the_methods_name(options: dict[str, Any], name: str) -> None:
    made = plan(asked(**options), SET)
    assert made.model.method == name
    assert made.model.objective.egocentric == ("scene" in options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "gan"}, "method is 'gan'; allowed is one of interaction, vae, "),
        ({"method": "egocentric"}, "method is 'egocentric'; allowed is one of interaction, vae, "),
        ({"objective": "papper"}, "objective is 'papper'; allowed is one of contact, paper, paper-gaussian, or"),
        ({"objective": "vae"}, "objective is 'vae'; allowed is one of contact, paper, paper-gaussian, or"),
        ({"method": "vae", "objective": "paper"}, "objective is 'paper', which the method 'vae' does not use"),
        ({"objective": "paper", "scene": {"egocentric": True}}, "egocentric is True; allowed is False for 'paper'"),
        ({"method": "vae", "scene": {"egocentric": True}}, "egocentric is True; allowed is False for 'vae'"),
        ({"objective": "paper", "scene": {"body": "ball"}}, "body is 'ball'; leave it out: the method 'paper'"),
        ({"method": "vae", "scene": {"radius": 0.1}}, "radius is 0.1; leave it out: the method 'vae' learns no body"),
        ({"method": "supervised", "scene": {"rest_floor": 0.1}}, "rest_floor is 0.1; leave it out"),
        ({"objective": "paper", "scene": {"objects": 2}}, "objects is 2; leave it out: the method 'paper' places one"),
        (
            {"scene": {"egocentric": True, "objects": 2}},
            "the method 'egocentric' places one object",
        ),
        (
            {"scene": {"egocentric": True, "group": "se2"}},
            "the method 'egocentric' learns no agent that turns",
        ),
        ({"scene": {"egocentric": True, "refine": True}}, "refine is True; leave it out: the method 'egocentric'"),
        ({"method": "vae", "shrink": 2}, "shrink is 2; leave it out: the method 'vae' reconstructs pictures"),
        ({"method": "vae", "training": {"chosen_moves": 0.5}}, "chosen_moves is 0.5; leave it out: the method 'vae'"),
        ({"method": "vae", "training": {"augment": "shift"}}, "augment is 'shift'; allowed is 'none' or 'light'"),
        ({"method": "supervised", "training": {"augment": "shift"}}, "whose targets are not shifted"),
        ({"scene": {"egocentric": True}, "training": {"augment": "shift"}}, "'light' for the method 'egocentric'"),
    ],
)
def test_what_would_be_ignored_is_refused(options: dict[str, Any], says: str) -> None:
    turns = options.get("scene", {}).get("group") == "se2"
    with pytest.raises(ValueError, match=says):
        plan(asked(**options), STREAM._replace(n=3 if turns else 2))


@pytest.mark.parametrize(
    ("options", "facts", "says"),
    [
        ({"scene": {"refine": True}}, SET, "refine is True; leave it out: a refinement needs fresh triples"),
        ({"scene": {"refine": True}}, STREAM._replace(n=4), "refine is True; leave it out: it has too many terms"),
        ({"training": {"chosen_moves": 0.5}}, SET, "chosen_moves is 0.5; leave it out: the moves of a data set"),
        ({"training": {"chosen_moves": 0.5}}, STREAM._replace(steerable=False), "this world is not steerable"),
        ({"training": {"batch_size": 8}}, SET._replace(triples=9), "there are 9 triples for batches of 8"),
        ({"training": {"steps": 2}, "scene": {"objects": 3}}, STREAM, "steps is 2; allowed is 3 or more"),
        (
            {"method": "transporter", "scene": {"objects": 2}},
            SET._replace(shape=(6,)),
            "objects is 2; leave it out: several objects are not found in vectors yet",
        ),
        ({"training": {"augment": "light"}}, SET._replace(shape=(6,)), "augment is 'light'; leave it out"),
    ],
)
def test_what_the_data_do_not_allow(options: dict[str, Any], facts: Facts, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan(asked(**options), facts)


def test_the_keywords_of_fit_are_settings() -> None:
    made = Asked.of(method="vae", encoder="small", training=TrainingConfig(seed=3, steps=9), steps=4, egocentric=None)
    assert made == asked({"seed": 3, "steps": 4}, method="vae", encoder="small")


def test_switched_off_is_not_asked_for() -> None:
    """A zero or False that a method would have anyway is no mistake."""
    off = {"chosen_moves": 0.0, "augment": "none"}
    assert plan(asked(off, {"refine": False}, method="vae", shrink=1), SET).model.method == "vae"


def test_a_body_that_turns_is_for_the_limit_too() -> None:
    assert plan(asked(method="supervised"), SET).model.objective.body == "ball"
    assert plan(asked(method="supervised", scene={"body": "ellipse"}), SET).model.objective.body == "ellipse"
