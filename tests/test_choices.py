"""What a run chooses by itself."""

from typing import Any

import pytest

from palpate.choices import choose


def chosen(given: dict[str, Any] | None = None, **about: Any) -> dict[str, Any]:
    about = {"shape": (3, 50, 50), "n": 2, "triples": 20_000, "device": "cpu", "method": "interaction"} | about
    return {choice.name: choice.value for choice in choose(given or {}, **about)}


@pytest.mark.parametrize(
    ("shape", "device", "encoder"),
    [
        ((64,), "cpu", "mlp"),
        ((64,), "cuda", "mlp"),
        ((3, 50, 50), "cpu", "small"),
        ((12, 100, 80), "cuda", "resnet18"),
    ],
)
def test_encoder(shape: tuple[int, ...], device: str, encoder: str) -> None:
    assert chosen(shape=shape, device=device)["encoder"] == encoder


@pytest.mark.parametrize(
    ("sides", "device", "shrink"),
    [
        ((20, 20), "cpu", 1),
        ((48, 64), "cpu", 1),
        ((65, 65), "cpu", 2),
        ((100, 100), "cpu", 2),
        ((256, 256), "cpu", 4),
        ((20, 256), "cpu", 1),  # 16 pixels are to be left on the shorter side
        ((256, 128), "cuda", 2),
        ((100, 100), "cuda", 1),
    ],
)
def test_large_pictures_are_shrunk(sides: tuple[int, int], device: str, shrink: int) -> None:
    assert chosen(shape=(3, *sides), device=device)["shrink"] == shrink


def test_who_makes_pictures_sees_them_whole() -> None:
    assert chosen(shape=(3, 256, 256), method="vae")["shrink"] == 1


@pytest.mark.parametrize(
    ("method", "objective", "optimizer"),
    [
        ("interaction", "contact", "muon"),
        ("supervised", "contact", "muon"),
        ("interaction", "paper", "adamw"),
        ("interaction", "paper-gaussian", "adamw"),
        ("vae", "contact", "adamw"),
        ("transporter", "contact", "adamw"),
    ],
)
def test_each_method_has_the_optimizer_that_suits_it(method: str, objective: str, optimizer: str) -> None:
    assert chosen(shape=(64,), method=method, objective=objective)["optimizer"] == optimizer
    assert chosen(shape=(3, 50, 50), device="cuda", method=method, objective=objective)["optimizer"] == optimizer
    assert chosen(shape=(3, 50, 50), device="cpu", method=method, objective=objective)["optimizer"] == "adamw"


@pytest.mark.parametrize(
    ("shape", "triples", "steps", "batch"),
    [
        ((64,), 20_000, 1200, 256),
        ((64,), 12_000, 750, 256),
        ((64,), 200, 600, 25),
        ((1, 48, 64), 20_000, 1200, 128),
        ((1, 48, 64), 500, 600, 62),
        ((64,), 3, 600, 2),
        ((3, 50, 50), None, 2500, 128),
    ],
)
def test_steps_follow_the_triples(shape: tuple[int, ...], triples: int | None, steps: int, batch: int) -> None:
    found = chosen(shape=shape, triples=triples)
    assert (found["steps"], found["batch_size"]) == (steps, batch)


def test_what_is_given_is_taken() -> None:
    given = {
        "encoder": "resnet18",
        "shrink": 3,
        "batch_size": 7,
        "steps": 11,
        "jitter": 0.5,
        "sway": 0.1,
        "probing": 0.2,
        "body": "round",
        "optimizer": "adamw",
        "outline": 3,
        "contrast_floor": 0.2,
        "stay_rise": 2.0,
        "bend": 2,
    }
    assert chosen(given, shape=(3, 256, 256)) == given
    assert chosen({"learning_rate": 0.1}, triples=None)["learning_rate"] == 0.1
    assert chosen({"body": "axes", "rim": False}) == chosen({"body": "axes"}) | {"rim": False}


def test_shrink_follows_the_encoder_given() -> None:
    assert chosen({"encoder": "resnet18"}, shape=(3, 256, 256))["shrink"] == 2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_choice_has_a_reason(n: int) -> None:
    choices = choose({"steps": 5}, shape=(3, 99, 99), n=n, triples=99, device="cpu", method="interaction")
    assert all(len(choice.reason) > 5 for choice in choices)
    assert str(choices[0]) == "encoder small: pictures, on a CPU"
    assert next(choice.reason for choice in choices if choice.name == "steps") == "as given"


@pytest.mark.parametrize(
    ("about", "sway"),
    [
        ({"device": "cuda"}, 0.04),
        ({"device": "cuda", "method": "supervised"}, 0.0),  # its labels would have to move too
        ({"device": "cuda", "method": "vae"}, 0.0),
        ({"device": "cuda", "triples": None}, 0.0),
        ({"device": "cpu"}, 0.0),
        ({"device": "cuda", "shape": (64,)}, 0.0),
    ],
)
def test_the_camera_sways_for_large_networks_on_a_fixed_set(about: dict[str, Any], sway: float) -> None:
    assert chosen(**about)["sway"] == sway


def test_numbers_take_a_higher_floor() -> None:
    assert (chosen(shape=(64,))["contrast_floor"], chosen()["contrast_floor"]) == (0.1, 0.001)


@pytest.mark.parametrize(
    ("given", "about", "outline"),
    [
        ({}, {}, 4),
        ({}, {"n": 3}, 0),
        ({}, {"shape": (64,)}, 0),  # of no use there
        ({"body": "axes"}, {}, 0),  # one that turns
        ({"radius": 0.1}, {}, 0),  # one that is known
        ({"external": "point"}, {}, 0),  # there is none
        ({"outline": 2, "radius": 0.1}, {}, 2),
    ],
)
def test_the_outline_of_a_body_in_the_plane(given: dict[str, Any], about: dict[str, Any], outline: int) -> None:
    assert chosen(given, **about)["outline"] == outline


def test_a_body_with_axes_has_a_rim() -> None:
    assert chosen({"body": "axes"})["rim"] is True
    assert chosen({"body": "axes"}, shape=(64,), triples=None)["rim"] is True
    assert "rim" not in chosen()
    assert "rim" not in chosen({"body": "axes"}, method="supervised")


@pytest.mark.parametrize("about", [{"objective": "paper"}, {"method": "supervised"}, {"method": "vae"}])
def test_only_our_objective_has_a_floor_and_an_outline(about: dict[str, Any]) -> None:
    assert not {"contrast_floor", "outline", "stay_rise", "stay_weight", "bend"} & chosen(triples=None, **about).keys()


@pytest.mark.parametrize(
    ("about", "rise"),
    [
        ({"triples": None, "device": "cuda"}, 30.0),
        ({"triples": None, "shape": (64,)}, 30.0),
        ({"triples": None}, 30.0),
        ({"triples": 10_000, "device": "cuda"}, 1.0),
        ({"triples": None, "device": "cuda", "given": {"external": "point"}}, 1.0),
        ({"triples": None, "device": "cuda", "given": {"egocentric": True}}, 1.0),  # not tried
    ],
)
def test_what_stays_gains_weight_where_triples_are_fresh(about: dict[str, Any], rise: float) -> None:
    assert chosen(**about)["stay_rise"] == rise


@pytest.mark.parametrize(
    ("about", "degree"),
    [
        ({"triples": None, "device": "cuda"}, 9),
        ({"triples": None, "shape": (64,)}, 9),
        ({"triples": None}, 0),  # small CNNs
        ({"triples": 10_000, "device": "cuda"}, 0),
        ({"triples": None, "device": "cuda", "given": {"probing": 0.0}}, 0),
        ({"triples": None, "device": "cuda", "given": {"external": "point"}}, 0),
        ({"triples": None, "device": "cuda", "given": {"split_window": 0}}, 0),
        ({"triples": None, "device": "cuda", "given": {"egocentric": True}}, 0),
    ],
)
def test_a_last_fit_where_moves_are_chosen(about: dict[str, Any], degree: int) -> None:
    assert chosen(**about)["bend"] == degree


@pytest.mark.parametrize(
    ("given", "about", "rate", "weight"),
    [
        ({}, {"triples": None}, 5e-3, 3.0),
        ({}, {"triples": 10_000}, None, None),
        ({}, {"triples": None, "device": "cuda"}, None, None),
        ({}, {"triples": None, "shape": (64,)}, None, None),
        ({"optimizer": "muon"}, {"triples": None}, None, 3.0),  # which has a rate of its own
        ({"external": "point"}, {"triples": None}, 5e-3, None),  # the paper's placing, with the paper's weight
        ({"egocentric": True}, {"triples": None}, 5e-3, None),
        ({}, {"triples": None, "method": "supervised"}, 5e-3, None),
        ({}, {"triples": None, "objective": "paper"}, None, None),
        ({}, {"triples": None, "method": "transporter"}, None, None),
    ],
)
def test_small_networks_learn_faster_and_stay_less_at_first_where_triples_are_fresh(
    given: dict[str, Any], about: dict[str, Any], rate: float | None, weight: float | None
) -> None:
    made = chosen(given, **about)
    assert (made.get("learning_rate"), made.get("stay_weight")) == (rate, weight)


@pytest.mark.parametrize(("given", "rise"), [({"stay_weight": 100.0}, 1.0), ({"stay_rise": 2.0}, 2.0)])
def test_small_networks_take_what_stays_as_it_is_given(given: dict[str, Any], rise: float) -> None:
    made = chosen(given, triples=None)
    assert made["stay_rise"] == rise
    assert "stay_weight" not in made  # the default, or what was given


def test_adams_cheaper_steps_are_more() -> None:
    assert chosen({"optimizer": "adamw"}, shape=(64,), triples=20_000)["steps"] == 3000
    assert chosen(shape=(64,), triples=20_000, objective="paper")["steps"] == 3000


@pytest.mark.parametrize(("triples", "steps"), [(20_000, 2000), (12_000, 1200), (200, 1000)])
def test_space_takes_more_steps_than_the_plane(triples: int, steps: int) -> None:
    assert chosen(shape=(64,), n=3, triples=triples)["steps"] == steps
    assert chosen(shape=(64,), n=2, triples=triples)["steps"] < steps


@pytest.mark.parametrize(
    ("about", "probing"),
    [
        ({"triples": None}, 0.5),
        ({"triples": 10_000}, 0.0),  # moves that were made
        ({"triples": None, "objective": "paper"}, 0.0),
        ({"triples": None, "method": "vae"}, 0.0),
        ({"triples": None, "given": {"external": "point"}}, 0.0),
        ({"triples": None, "given": {"split_window": 0}}, 0.0),
        ({"triples": None, "given": {"probing": 0.0}}, 0.0),
    ],
)
def test_moves_are_chosen_where_their_outcome_is_foretold(about: dict[str, Any], probing: float) -> None:
    assert chosen(**about)["probing"] == probing
