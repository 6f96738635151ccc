import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import TINY

from palpate.api import fit
from palpate.envs.registration import world
from palpate.methods.contact import Contact
from palpate.representation import load
from palpate.reproduce.presets import ABLATION, EXPERIMENTS, METHODS, PRESETS, VARIANTS, cases, listed


def test_sprites_is_three_worlds_by_six_methods() -> None:
    small = cases(["sprites"], PRESETS["small"], 2)
    assert len(small) == len({case.name for case in small}) == 36
    assert Counter(case.world for case in small) == {"vanilla": 12, "background": 12, "anisotropic": 12}
    assert {case.method for case in small} == set(METHODS)
    assert [case.seed for case in small] == [0] * 18 + [1] * 18  # a whole table as early as possible
    assert all(case.training.seed == case.seed for case in small)
    assert all(case.source == "stream" for case in small)
    bodies = {(case.world, case.method) for case in small if case.fit.get("body") == "ellipse"}
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


def test_every_ablation_is_a_run_of_its_own() -> None:
    settings = {case.method: case.settings() for case in cases(["ablation"], PRESETS["paper"], 1)}
    assert list(settings) == list(ABLATION)
    ways = {json.dumps([each["fit"].get("objective"), each["chosen"]]) for each in settings.values()}
    assert len(ways) == len(ABLATION)
    assert {name for name, each in settings.items() if each["chosen"]["chosen_moves"]} == {"chosen-moves", "last-fit"}
    assert [name for name, each in settings.items() if each["chosen"]["refine"]] == ["last-fit"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_our_method_in_one_part(name: str, tmp_path: Path) -> None:
    """It can be trained, saved and loaded, and one of its hooks is another than ours."""
    settings = {"encoder": "small", "steps": 2, "batch_size": 16, "chosen_moves": 0.0, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of two steps
        fit(world("palpate/Sprites-v0", size=16), out=tmp_path / "run", progress=False, **settings, **ABLATION[name])
    again = load(tmp_path / "run").model
    assert type(again).__name__ == VARIANTS[name]
    changed = vars(type(again)).keys() - {"__module__", "__doc__", "__firstlineno__", "__static_attributes__", "WEIGHT"}
    assert changed
    assert all(hasattr(Contact, hook) for hook in changed if not hook.startswith("_")), "no hook of our method"


def test_shares_and_what_else_they_are_compared_with() -> None:
    shares = cases(["shares"], PRESETS["small"], 1)
    streams = [case for case in shares if case.source == "stream"]
    assert sorted(case.options["contact_share"] for case in streams) == [0.03, 0.1, 0.5, 0.9]
    assert {case.settings()["chosen"]["chosen_moves"] for case in streams} == {0.0}
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
        assert (training.steps, training.learning_rate, training.schedule) == (100 * 9000 // 128, 1e-3, "paper")
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


def test_settings_hold_what_fit_chooses() -> None:
    (case,) = cases(["sprites"], TINY, 1, worlds=["anisotropic"], methods=["ours"])
    training = replace(case.training, steps=1, batch_size=8, evaluate_every=1, compile=False, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of one step
        model = fit(
            world(case.env, size=case.size), encoder=case.encoder, training=training, progress=False, **case.fit
        )
    chosen, objective = case.settings()["chosen"], model.config.objective
    assert chosen["body"] == objective.body == "ellipse"
    assert (chosen["refine"], chosen["rest_floor"]) == (objective.refine, objective.rest_floor)


class Mine(Contact):
    agent_temperature = 0.3


def test_a_variant_of_ones_own_is_named_by_module_and_class(tmp_path: Path) -> None:
    settings = {"encoder": "small", "steps": 2, "batch_size": 16, "device": "cpu", "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of two steps
        fit(world("palpate/Sprites-v0", size=16), objective=f"{__name__}:Mine", out=tmp_path / "run", **settings)
    assert type(load(tmp_path / "run").model) is Mine
    path = tmp_path / "run" / "config.json"
    for name, says in (
        ("this:s", "import this first"),  # importing it would run its code
        ("json:JSONDecoder", "is no model of palpate"),
        (f"{__name__}:Nobody", "has no class 'Nobody'"),
    ):
        path.write_text(path.read_text().replace(f"{__name__}:Mine", name))
        with pytest.raises(ValueError, match=says):
            load(tmp_path / "run")
        path.write_text(path.read_text().replace(name, f"{__name__}:Mine"))
