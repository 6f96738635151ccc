"""Settings check themselves: what, the value received, what is allowed."""

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, Literal

import pytest

from palpate.config import BaselineConfig, ModelConfig, ObjectiveConfig, TrainingConfig


def model(**changes: Any) -> ModelConfig:
    return ModelConfig(**({"encoder": "mlp", "observation_shape": (12,), "n": 2} | changes))


def message(what: str, value: object, allowed: str) -> str:
    return f"{what} is {value!r}; allowed is {allowed}"


class TestObjective:
    @pytest.mark.parametrize(
        ("field", "value", "allowed"),
        [
            ("external", "gauss", "one of its names"),
            ("body", "square", "'round' or 'axes'"),
            ("split_on", "d_w", "'log' or 'd'"),
            ("stay_weight", -0.1, "0 or more"),
            ("stay_rise", 0.0, "more than 0"),
            ("stay_level", 0.0, "more than 0"),
            ("stay_reach", -0.1, "0 or more"),
            ("bend", -1, "0 to 12, a whole number"),
            ("bend", 13, "0 to 12, a whole number"),
            ("bend", 2.5, "0 to 12, a whole number"),
            ("split_window", 63, "0, or 64 or more"),
            ("split_window", -1, "0, or 64 or more"),
            ("split_floor", 0.5, "0 to 0.5"),
            ("split_floor", -0.01, "0 to 0.5"),
            ("temperature", 0.0, "more than 0"),
            ("contrast_dim", 1, "2 or more"),
            ("contrast_floor", 1.0, "0 to 1"),
            ("contrast_floor", -0.1, "0 to 1"),
            ("radius", 0.0, "more than 0"),
            ("radius", -1.0, "more than 0"),
        ],
    )
    def test_refuses(self, field: str, value: object, allowed: str) -> None:
        with pytest.raises(ValueError) as error:
            ObjectiveConfig(**{field: value})  # type: ignore[arg-type]
        assert str(error.value) == message(field, value, allowed)

    @pytest.mark.parametrize("beside", [{}, {"external": "point"}, {"external": "gaussian"}])
    def test_a_rim_is_one_of_a_body_with_axes(self, beside: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="rim is True; allowed is False unless the objective is 'contact' and"):
            ObjectiveConfig(rim=True, **beside)
        for width in (0.05, "false", 1):
            with pytest.raises(ValueError, match=f"rim is {width!r}; allowed is True or False; how wide it is is lea"):
                ObjectiveConfig(body="axes", rim=width, **beside)  # type: ignore[arg-type]

    @pytest.mark.parametrize("beside", [{"egocentric": True, "split_floor": 0.02}, {"split_window": 0}])
    def test_a_last_fit_needs_sure_contacts_and_a_still_camera(self, beside: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="bend is 3; allowed is 0 for egocentric observations, and for a split of"):
            ObjectiveConfig(bend=3, **beside)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("stay_weight", 0.0),
            ("split_window", 0),
            ("split_window", 64),
            ("split_floor", 0.0),
            ("split_floor", 0.49),
            ("contrast_dim", 2),
            ("contrast_floor", 0.0),
            ("contrast_floor", 0.99),
            ("radius", None),
            ("radius", 1e-6),
        ],
    )
    def test_accepts_the_border(self, field: str, value: object) -> None:
        assert getattr(ObjectiveConfig(**{field: value}), field) == value  # type: ignore[arg-type]

    def test_is_frozen_and_takes_names_only(self) -> None:
        with pytest.raises(FrozenInstanceError):
            ObjectiveConfig().temperature = 1.0  # type: ignore[misc]
        with pytest.raises(TypeError):
            ObjectiveConfig("likelihood")  # type: ignore[misc]

    @pytest.mark.parametrize("value", [math.nan])
    @pytest.mark.parametrize("field", ["stay_weight", "split_floor", "temperature", "contrast_floor", "radius"])
    def test_refuses_what_is_no_number(self, field: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{field} is nan"):
            ObjectiveConfig(**{field: value})


class TestNamed:
    def test_contact_is_the_default(self) -> None:
        assert ObjectiveConfig.named("contact") == ObjectiveConfig()
        assert ObjectiveConfig().external == "likelihood"

    def test_paper_is_equations_3_to_7_as_printed(self) -> None:
        paper = ObjectiveConfig.named("paper")
        assert (paper.external, paper.body) == ("point", "round")
        assert (paper.split_on, paper.split_window, paper.split_floor) == ("d", 0, 0.0)
        assert paper.stay_weight == 1.0
        assert paper.contrast_floor == 0.0
        assert not paper.segment_gradient
        assert not paper.shared_network

    def test_paper_gaussian_differs_from_paper_in_the_distribution_alone(self) -> None:
        gaussian = ObjectiveConfig.named("paper-gaussian")
        assert gaussian.external == "gaussian"
        assert replace(gaussian, external="point") == ObjectiveConfig.named("paper")

    @pytest.mark.parametrize("name", ["contact", "paper", "paper-gaussian"])
    def test_changes_apply_over_the_preset(self, name: str) -> None:
        changed = ObjectiveConfig.named(name, stay_weight=7.0, temperature=0.2)
        assert (changed.stay_weight, changed.temperature) == (7.0, 0.2)
        assert replace(changed, stay_weight=1.0, temperature=0.1) == ObjectiveConfig.named(name, stay_weight=1.0)

    @pytest.mark.parametrize("name", ["paper", "paper-gaussian"])
    @pytest.mark.parametrize("change", [{"radius": 0.2}, {"body": "axes"}])
    def test_the_paper_has_no_body(self, name: str, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="the paper's objectives know neither"):
            ObjectiveConfig.named(name, **change)

    def test_changes_are_checked(self) -> None:
        with pytest.raises(ValueError, match="temperature is -1"):
            ObjectiveConfig.named("paper", temperature=-1)

    def test_unknown_name(self) -> None:
        with pytest.raises(ValueError) as error:
            ObjectiveConfig.named("papper")
        assert str(error.value) == message("objective", "papper", "'contact' or 'paper' or 'paper-gaussian'")


class TestBaseline:
    @pytest.mark.parametrize(
        ("name", "bad", "allowed"),
        [
            ("latent_dim", 0, "1 or more"),
            ("beta", -1.0, "0 or more"),
            ("keypoint_std", 0.0, "more than 0, at most 0.5"),
            ("keypoint_std", 0.6, "more than 0, at most 0.5"),
        ],
    )
    def test_refuses(self, name: str, bad: Any, allowed: str) -> None:
        with pytest.raises(ValueError) as error:
            BaselineConfig(**{name: bad})
        assert str(error.value) == message(name, bad, allowed)

    def test_the_papers_latent(self) -> None:
        assert BaselineConfig().latent_dim == 32


class TestModel:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            (
                {"method": "gan"},
                message("method", "gan", "'interaction' or 'vae' or 'transporter' or 'supervised'"),
            ),
            ({"encoder": "small"}, message("the encoder for vectors", "small", "'mlp'")),
            (
                {"observation_shape": (3, 20, 20)},
                message("the encoder for pictures", "mlp", "'small' or 'resnet18'"),
            ),
            ({"n": 0}, message("the action's dimension", 0, "1 or more")),
        ],
    )
    def test_refuses(self, changes: dict[str, Any], expected: str) -> None:
        with pytest.raises(ValueError) as error:
            model(**changes)
        assert str(error.value) == expected

    @pytest.mark.parametrize(
        "changes", [{}, {"encoder": "small", "observation_shape": (3, 20, 20), "n": 3}], ids=["vectors", "space"]
    )
    def test_keypoints_are_points_of_a_picture(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="it needs pictures, and actions of 2 dimensions"):
            model(method="transporter", **changes)

    @pytest.mark.parametrize("method", ["vae", "transporter"])
    def test_baselines_have_no_body(self, method: str) -> None:
        picture = {"encoder": "small", "observation_shape": (3, 20, 20)}
        with pytest.raises(ValueError) as error:
            model(method=method, objective=ObjectiveConfig(body="axes"), **picture)
        assert str(error.value) == message("body", "axes", f"'round' for the method {method!r}, which finds no axes")
        assert model(method=method, **picture).method == method

    @pytest.mark.parametrize("n", [1, 3])
    def test_axes_are_for_the_plane(self, n: int) -> None:
        with pytest.raises(ValueError) as error:
            model(n=n, objective=ObjectiveConfig(body="axes", radius=0.1))
        with pytest.raises(
            ValueError, match="outline is 4; allowed is 0 unless the body is 'round' and actions have 2"
        ):
            model(n=3, objective=ObjectiveConfig(outline=4))
        assert str(error.value) == message("body", "axes", f"'round' when actions have {n} dimensions")
        assert model(n=2, objective=ObjectiveConfig(body="axes")).objective.body == "axes"

    def test_a_backdrop_has_room_for_three_dimensions(self) -> None:
        assert model(n=3, objective=ObjectiveConfig(egocentric=True)).objective.egocentric
        with pytest.raises(ValueError, match="egocentric is True; allowed is False when actions have 4 dimensions"):
            model(n=4, objective=ObjectiveConfig(egocentric=True))
        with pytest.raises(ValueError, match="shared_network is True; allowed is False for egocentric observations"):
            ObjectiveConfig(egocentric=True, shared_network=True)
        with pytest.raises(ValueError, match="egocentric is True; allowed is False for the paper's objectives"):
            ObjectiveConfig.named("paper", egocentric=True)

    @pytest.mark.parametrize("name", ["contact", "paper", "paper-gaussian"])
    def test_a_line_needs_the_radius(self, name: str) -> None:
        with pytest.raises(ValueError) as error:
            model(n=1, objective=ObjectiveConfig.named(name))
        assert str(error.value) == (
            "actions have one dimension: an agent that never passes the object untouched cannot tell the object's "
            "position from its radius. Give the sum of the two radii as radius=, in the action's unit, with the "
            "'contact' objective"
        )

    def test_a_line_with_the_radius(self) -> None:
        assert model(n=1, objective=ObjectiveConfig(radius=0.1)).n == 1

    def test_true_states_know_positions_on_a_line(self) -> None:
        assert model(n=1, method="supervised").n == 1

    @pytest.mark.parametrize("n", [2, 3, 7])
    def test_any_further_dimension(self, n: int) -> None:
        assert model(n=n).n == n


class TestTraining:
    @pytest.mark.parametrize(
        ("field", "value", "allowed"),
        [
            ("steps", -1, "1 or more, or 0: as many as suit the data"),
            ("log_every", 0, "1 or more"),
            ("evaluate_every", 0, "1 or more"),
            ("checkpoint_every", -1, "1 or more"),
            (
                "batch_size",
                1,
                "2 or more (samples are contrasted with each other), or 0: as many as suit the data",
            ),
            ("optimizer", "sgd", "'muon' or 'adamw'"),
            ("learning_rate", 0.0, "more than 0"),
            ("schedule", "cosine", "'one-cycle' or 'constant'"),
            ("weight_decay", -1e-3, "0 or more"),
            ("clip_norm", 0.0, "more than 0"),
            ("device", "gpu", "'auto', 'cpu' or 'cuda'"),
        ],
    )
    def test_refuses(self, field: str, value: object, allowed: str) -> None:
        with pytest.raises(ValueError) as error:
            TrainingConfig(**{field: value})  # type: ignore[arg-type]
        assert str(error.value) == message(field, value, allowed)

    def test_refuses_unknown_arithmetic(self) -> None:
        with pytest.raises(ValueError, match="precision is 'fp16'"):
            TrainingConfig(precision="fp16")  # type: ignore[arg-type]

    @pytest.mark.parametrize("rate", [2e-3, 1.0])
    def test_one_cycle(self, rate: float) -> None:
        """Up along a cosine from 4 % for a quarter of the run, down along another to nothing."""
        at = TrainingConfig(learning_rate=rate).learning_rate_at
        assert at(0) == pytest.approx(0.04 * rate)
        assert at(0.125) == pytest.approx(0.52 * rate)
        assert at(0.25) == pytest.approx(rate)
        assert at(0.625) == pytest.approx(0.5 * rate)
        assert at(1) == pytest.approx(0, abs=1e-15)
        shares = [i / 400 for i in range(401)]
        assert max(map(at, shares)) == at(0.25)
        rates = [at(share) for share in shares]
        assert rates[:101] == sorted(rates[:101])
        assert rates[100:] == sorted(rates[100:], reverse=True)

    @pytest.mark.parametrize(("optimizer", "most"), [("muon", 8e-3), ("adamw", 2e-3)])
    def test_each_optimizer_has_a_rate_of_its_own(self, optimizer: Literal["muon", "adamw"], most: float) -> None:
        assert TrainingConfig(optimizer=optimizer).learning_rate_at(0.25) == pytest.approx(most)
        assert TrainingConfig(optimizer=optimizer, learning_rate=1e-4).learning_rate_at(0.25) == pytest.approx(1e-4)

    def test_constant_as_in_the_paper(self) -> None:
        at = TrainingConfig(schedule="constant", learning_rate=1e-3).learning_rate_at
        assert [at(share) for share in (0, 0.25, 0.5, 1)] == [1e-3] * 4

    def test_every_switch_is_a_flag_with_a_default(self) -> None:
        for config in (TrainingConfig(), ObjectiveConfig()):
            assert all(field.kw_only for field in fields(config))
