"""What a run chooses by itself."""

from typing import Any

import pytest

from palpate.choices import Facts, choose
from palpate.traits import METHODS


def chosen(given: dict[str, Any] | None = None, method: str = "contact", **about: Any) -> dict[str, Any]:
    facts = {"shape": (3, 50, 50), "n": 2, "triples": 20_000, "steerable": True, "device": "cpu"} | about
    facts["steerable"] = facts["steerable"] and facts["triples"] is None
    return {choice.name: choice.value for choice in choose(given or {}, Facts(**facts), METHODS[method])}


FRESH: dict[str, Any] = {"triples": None}
GPU: dict[str, Any] = {"device": "cuda"}
VECTOR: dict[str, Any] = {"shape": (64,)}
SCAN: dict[str, Any] = VECTOR | {"scan": True}


@pytest.mark.parametrize(
    ("about", "encoder"),
    [
        (VECTOR, "mlp"),
        (VECTOR | GPU, "mlp"),
        (SCAN, "scan"),
        ({}, "small"),
        ({"shape": (12, 100, 80)} | GPU, "resnet18"),
    ],
)
def test_encoder(about: dict[str, Any], encoder: str) -> None:
    assert chosen(**about)["encoder"] == encoder


@pytest.mark.parametrize(
    ("sides", "device", "shrink"),
    [
        ((48, 64), "cpu", 1),
        ((65, 65), "cpu", 2),
        ((256, 256), "cpu", 4),
        ((20, 256), "cpu", 1),  # 16 pixels are left on the shorter side
        ((256, 128), "cuda", 2),
        ((100, 100), "cuda", 1),
    ],
)
def test_large_pictures_are_shrunk(sides: tuple[int, int], device: str, shrink: int) -> None:
    assert chosen(shape=(3, *sides), device=device)["shrink"] == shrink
    assert chosen(shape=(3, *sides), device=device, method="vae")["shrink"] == 1  # it draws them


def test_large_pictures_come_with_their_cost() -> None:
    def reason(method: str, side: int) -> str:
        facts = Facts(shape=(3, side, side), n=2, triples=10_000, steerable=False, device="cpu")
        return next(choice.reason for choice in choose({}, facts, METHODS[method]) if choice.name == "shrink")

    assert "with shrink=1 a step would cost about 64 times as much" in reason("contact", 480)
    assert "things smaller than 8 pixels may vanish" in reason("contact", 480)
    assert "a step with 480 x 480 pixels costs about 64 times as much as with 60 x 60" in reason("vae", 480)
    assert reason("contact", 64) == reason("vae", 64) == "pictures keep their size"


def test_shrink_follows_the_encoder_given() -> None:
    assert chosen({"encoder": "resnet18"}, shape=(3, 256, 256))["shrink"] == 2


@pytest.mark.parametrize("method", METHODS)
def test_small_networks_take_adamw_and_others_what_suits_the_method(method: str) -> None:
    suits = "muon" if METHODS[method].muon else "adamw"
    assert chosen(method=method, **VECTOR)["optimizer"] == chosen(method=method, **GPU)["optimizer"] == suits
    assert chosen(method=method)["optimizer"] == "adamw"


@pytest.mark.parametrize(
    ("about", "steps", "batch"),
    [
        (VECTOR, 1200, 256),
        (VECTOR | {"triples": 12_000}, 750, 256),
        (VECTOR | {"triples": 200}, 600, 25),
        (VECTOR | {"triples": 3}, 600, 2),
        (SCAN, 1500, 256),
        (SCAN | {"triples": 12_000}, 1000, 256),
        (VECTOR | {"n": 3}, 2000, 256),  # space takes more steps than the plane
        (VECTOR | {"n": 3, "triples": 200}, 1000, 25),
        (VECTOR | {"method": "paper"}, 3000, 256),  # AdamW's cheaper steps are more
        ({"shape": (1, 48, 64)}, 1200, 128),
        ({"shape": (1, 48, 64), "triples": 500}, 600, 62),
        (GPU, 2500, 128),
        (FRESH, 2500, 128),
    ],
)
def test_steps_and_batches_follow_the_triples(about: dict[str, Any], steps: int, batch: int) -> None:
    found = chosen(**about)
    assert (found["steps"], found["batch_size"]) == (steps, batch)


def test_fresh_vectors_of_an_agent_that_turns_come_in_larger_batches() -> None:
    about = FRESH | VECTOR
    assert chosen({"group": "se2"}, **about)["batch_size"] == 2 * chosen(**about)["batch_size"] == 256
    assert chosen({"group": "se2"}, **FRESH)["batch_size"] == 128  # pictures


@pytest.mark.parametrize(
    ("about", "augment"),
    [
        (GPU, "shift"),
        (GPU | {"method": "supervised"}, "light"),  # its labels would have to move too
        (GPU | {"method": "egocentric"}, "light"),
        (GPU | {"method": "vae"}, "light"),
        ({}, "light"),
        (GPU | FRESH, "none"),
        (VECTOR, "none"),
    ],
)
def test_pictures_that_come_again_are_augmented(about: dict[str, Any], augment: str) -> None:
    assert chosen(**about)["augment"] == augment


@pytest.mark.parametrize(
    ("about", "moves"),
    [
        (FRESH, 0.5),
        (FRESH | {"method": "egocentric"}, 0.5),
        (FRESH | {"steerable": False}, 0.0),
        ({}, 0.0),
        (FRESH | {"method": "paper"}, 0.0),
        (FRESH | {"method": "vae"}, 0.0),
    ],
)
def test_moves_are_chosen_where_their_contact_is_predicted(about: dict[str, Any], moves: float) -> None:
    assert chosen(**about)["chosen_moves"] == moves


@pytest.mark.parametrize(
    ("given", "about", "refine"),
    [
        ({}, FRESH | GPU, True),
        ({}, FRESH | VECTOR, True),
        ({}, FRESH, False),  # small CNNs
        ({}, GPU, False),  # a fixed set
        ({}, FRESH | VECTOR | {"n": 3}, True),
        ({}, FRESH | VECTOR | {"n": 4}, False),
        ({}, FRESH | GPU | {"steerable": False}, False),
        ({}, FRESH | GPU | {"method": "egocentric"}, False),
        ({"chosen_moves": 0.0}, FRESH | GPU, False),
    ],
)
def test_refinement_where_moves_are_chosen(given: dict[str, Any], about: dict[str, Any], refine: bool) -> None:
    assert chosen(given, **about)["refine"] is refine


@pytest.mark.parametrize(
    ("given", "about", "body"),
    [
        ({}, {}, "outline"),
        ({}, {"n": 3}, "ball"),
        ({}, VECTOR, "ball"),
        ({"radius": 0.1}, {}, "ball"),  # one that is known
        ({"group": "se2"}, {}, "outline"),
        ({"group": "se2"}, VECTOR, "ball"),
        ({"group": "se2", "radius": 0.1}, VECTOR, "ball"),
        ({"group": "arm"}, {}, "footprint"),
        ({"group": "so2"}, {}, "ball"),
        ({"group": "se3"}, VECTOR | {"n": 3}, "ball"),
        ({"radius": 0.1, "body": "ellipse"}, {}, "ellipse"),
    ],
)
def test_the_body(given: dict[str, Any], about: dict[str, Any], body: str) -> None:
    assert chosen(given, **about)["body"] == body


def test_rest_is_sharper_where_triples_are_fresh() -> None:
    assert chosen(**FRESH)["rest_floor"] < chosen()["rest_floor"]


@pytest.mark.parametrize("method", METHODS)
def test_only_methods_with_a_body_choose_one(method: str) -> None:
    of_a_body = {"body", "refine", "rest_floor"}
    of_others = set() if METHODS[method].unsupervised else {"body"}  # for the angle of one that turns
    wanted = of_a_body if METHODS[method].has_body else of_others
    assert chosen(method=method, **FRESH).keys() & of_a_body == wanted


@pytest.mark.parametrize(
    ("given", "about", "higher"),
    [
        ({}, FRESH, True),
        ({}, FRESH | {"method": "supervised"}, True),
        ({}, {}, False),
        ({}, FRESH | GPU, False),
        ({}, FRESH | VECTOR, False),
        ({"optimizer": "muon"}, FRESH, False),  # which has a rate of its own
        ({}, FRESH | {"method": "paper"}, False),
        ({"group": "se2"}, {}, True),
        ({"group": "se2"}, GPU, False),
        ({"group": "translations"}, {}, False),
    ],
)
def test_small_networks_learn_faster_from_fresh_triples_and_with_agents_that_turn(
    given: dict[str, Any], about: dict[str, Any], higher: bool
) -> None:
    assert ("learning_rate" in chosen(given, **about)) == higher


def test_what_is_given_is_taken() -> None:
    given = {
        "encoder": "resnet18", "shrink": 3, "batch_size": 7, "steps": 11, "augment": "none", "chosen_moves": 0.2,
        "body": "ball", "optimizer": "adamw", "refine": True, "rest_floor": 0.5,
    }  # fmt: skip
    assert chosen(given, shape=(3, 256, 256)) == given
    assert chosen({"learning_rate": 0.1}, **FRESH)["learning_rate"] == 0.1


@pytest.mark.parametrize("triples", [None, 99])
@pytest.mark.parametrize("method", METHODS)
def test_every_choice_has_a_reason(method: str, triples: int | None) -> None:
    facts = Facts((3, 99, 99), 2, triples, triples is None, "cpu")
    choices = choose({"steps": 5}, facts, METHODS[method])
    assert all(len(choice.reason) > 5 for choice in choices)
    assert str(choices[0]) == "encoder small: pictures, on a CPU"
    assert next(str(choice) for choice in choices if choice.name == "steps") == "steps 5: as given"
