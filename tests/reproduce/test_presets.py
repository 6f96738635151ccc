import warnings
from collections import Counter
from dataclasses import replace

import pytest
from made_up import TINY

from palpate.api import fit
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.envs.registration import world
from palpate.reproduce.presets import ABLATION, EXPERIMENTS, METHODS, PRESETS, Preset, cases, listed


def test_sprites_is_three_worlds_by_six_methods() -> None:
    small = cases(["sprites"], PRESETS["small"], 2)
    assert len(small) == len({case.name for case in small}) == 36
    assert Counter(case.world for case in small) == {"vanilla": 12, "background": 12, "anisotropic": 12}
    assert {case.method for case in small} == set(METHODS)
    assert [case.seed for case in small] == [0] * 18 + [1] * 18  # a whole table as early as possible
    assert all(case.training.seed == case.seed for case in small)
    assert all(case.source == "stream" for case in small)
    bodies = {(case.world, case.method) for case in small if case.fit.get("body") == "axes"}
    assert bodies == {("anisotropic", "ours"), ("anisotropic", "supervised")}


def test_the_transporter_is_also_trained_longer_where_there_is_time() -> None:
    paper = cases(["sprites"], PRESETS["paper"], 1)
    assert Counter(case.training.steps for case in paper) == {2500: 18, 10_000: 3}
    assert {case.method for case in paper if case.training.steps == 10_000} == {"transporter-long"}


def test_soccer_learns_from_one_set_and_has_no_keypoints_in_first_person() -> None:
    soccer = cases(["soccer"], PRESETS["paper"], 1)
    assert {(case.source, case.triples) for case in soccer} == {("shared", 10_000)}
    assert {case.method for case in soccer if case.world == "third"} == set(METHODS)
    assert {case.method for case in soccer if case.world == "first"} == set(METHODS) - {"transporter"}


@pytest.mark.parametrize(("preset", "weight"), [(PRESETS["paper"], 100.0), (PRESETS["small"], 3.0)])
def test_every_ablation_is_a_way_of_its_own(preset: Preset, weight: float) -> None:
    settings = [case.settings() for case in cases(["ablation"], preset, 1)]
    ways = [(ObjectiveConfig(**each["objective"]), each["chosen"]["probing"]) for each in settings]
    assert len(set(ways)) == len(ABLATION) == len(ways)
    objectives = [objective for objective, _ in ways]
    ours = ObjectiveConfig(outline=4, stay_weight=weight, stay_rise=30.0)
    last_fit = replace(ours, bend=9)
    assert ways[:3] == [(ours, 0.0), (ours, 0.5), (last_fit, 0.5)]
    assert {(probing, objective.bend) for objective, probing in ways[3:]} == {(0.0, 0)}
    assert {objective.external for objective in objectives} == {"likelihood", "point", "gaussian"}
    for objective in objectives:
        ModelConfig(encoder="small", observation_shape=(3, 20, 20), n=2, objective=objective)


def test_shares_and_what_else_they_are_compared_with() -> None:
    shares = cases(["shares"], PRESETS["small"], 1)
    streams = [case for case in shares if case.source == "stream"]
    assert sorted(case.options["contact_share"] for case in streams) == [0.03, 0.1, 0.5, 0.9]
    assert {case.settings()["chosen"]["probing"] for case in streams} == {0.0}
    (fixed,) = (case for case in shares if case.source == "set")
    assert (fixed.triples, fixed.options) == (10_000, {})
    vectors = [case for case in shares if case.source == "vectors"]
    assert sorted(case.options["contact_share"] for case in vectors) == [0.03, 0.1, 0.5, 0.9]
    assert {(c.encoder, c.triples, c.training.steps, c.training.batch_size) for c in vectors} == {
        ("mlp", 20_000, 4000, 256)
    }


def test_the_papers_schedule() -> None:
    plain, both = (cases(["sprites", "soccer"], PRESETS["paper"], 1, paper_schedule=more) for more in (False, True))
    added = [case for case in both if case not in plain]
    assert {case.method for case in added} == {"paper-100-epochs", "paper-gaussian-100-epochs"}
    assert len(added) == 2 * 5
    for case in added:
        training = case.training
        assert (training.steps, training.learning_rate, training.schedule) == (100 * 9000 // 128, 1e-3, "constant")
        assert (training.weight_decay, case.triples) == (0.0, 10_000)
        assert case.source == ("shared" if case.experiment == "soccer" else "set")


def test_only_what_is_named() -> None:
    named = cases(EXPERIMENTS, PRESETS["paper"], 1, worlds=["vanilla", "first"], methods=["ours"])
    assert [(case.experiment, case.world) for case in named] == [
        ("sprites", "vanilla"), ("soccer", "first"), ("ablation", "vanilla")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 0}, "seeds is 0; allowed is 1 or more"),
        ({"worlds": ["vanila"]}, "world is 'vanila'; these experiments have vanilla.* did you mean 'vanilla'"),
        ({"methods": ["our"]}, "method is 'our'.* did you mean 'ours'"),
        ({"worlds": ["first"], "methods": ["transporter"]}, "nothing to do|method is 'transporter'"),
    ],
)
def test_mistakes(changes: dict, says: str) -> None:
    experiment = "soccer" if changes.get("worlds") == ["first"] else "sprites"
    with pytest.raises(ValueError, match=says):
        cases([experiment], TINY, **{"seeds": 1, **changes})


def test_settings_are_what_the_numbers_depend_on() -> None:
    case = cases(["ablation"], TINY, 1)[1]
    assert case.digest() == replace(case, training=replace(case.training, device="cuda", log_every=7)).digest()
    for other in (
        replace(case, training=replace(case.training, steps=5)),
        replace(case, fit={}),
        replace(case, size=21),
        replace(case, seed=1),
    ):
        assert other.digest() != case.digest()


def test_listed_in_the_order_of_the_runs() -> None:
    worlds, methods = listed("sprites")
    assert worlds == ["vanilla", "background", "anisotropic"]
    assert methods[:6] == ["ours", "paper-gaussian", "paper", "transporter", "vae", "supervised"]


def test_settings_hold_the_objective_of_the_model_that_is_fitted() -> None:
    (case,) = cases(["sprites"], TINY, 1, worlds=["anisotropic"], methods=["ours"])
    training = replace(case.training, steps=1, batch_size=8, evaluate_every=1, compile=False, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of one step
        model = fit(
            world(case.env, size=case.size), encoder=case.encoder, training=training, progress=False, **case.fit
        )
    assert ObjectiveConfig(**case.settings()["objective"]) == model.config.objective
    assert model.config.objective.body == "axes"
    assert model.config.objective.outline == 0


@pytest.mark.parametrize("method", ["supervised", "vae", "transporter"])
def test_an_objective_is_no_setting_of_what_has_none(method: str) -> None:
    (case,) = cases(["sprites"], TINY, 1, worlds=["anisotropic"], methods=[method])
    assert "objective" not in case.settings()
