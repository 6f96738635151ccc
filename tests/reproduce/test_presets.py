import json
import warnings
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from made_up import TINY

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.data.stream import Stream
from palpate.envs.registration import world
from palpate.evaluation import evaluate
from palpate.methods.contact import Contact
from palpate.methods.store import build, sealed
from palpate.representation import load
from palpate.reproduce.presets import ABLATION, EXPERIMENTS, METHODS, PRESETS, VARIANTS, cases
from palpate.reproduce.runs import Place
from palpate.traits import traits_of


def test_sprites_is_three_worlds_by_seven_methods() -> None:
    small = cases(["sprites"], PRESETS["small"], 2)
    assert len({case.name for case in small}) == 42
    assert Counter(case.world for case in small) == {"vanilla": 14, "background": 14, "anisotropic": 14}
    assert [case.seed for case in small] == [0] * 21 + [1] * 21  # a whole table as early as possible
    assert all(case.training.seed == case.seed for case in small)
    bodies = {(case.world, case.method) for case in small if case.fit.get("body") == "ellipse"}
    assert bodies == {("anisotropic", method) for method in ("ours", "ours-plain", "supervised")}


def test_soccer_trains_on_one_set_and_has_no_keypoints_in_first_person() -> None:
    soccer = cases(["soccer"], PRESETS["paper"], 1)
    assert {case.triples for case in soccer} == {10_000}
    assert {case.method for case in soccer if case.world == "third"} == set(METHODS)
    assert {case.method for case in soccer if case.world == "first"} == set(METHODS) - {"transporter"}


def test_entries_of_the_ablation_differ() -> None:
    settings = {case.method: case.settings() for case in cases(["ablation"], PRESETS["paper"], 1)}
    ways = {json.dumps([each["fit"].get("objective"), each["chosen"]]) for each in settings.values()}
    assert len(ways) == len(ABLATION)
    assert {name for name, each in settings.items() if each["chosen"]["chosen_moves"]} == {"chosen-moves", "refine"}
    assert [name for name, each in settings.items() if each["chosen"]["refine"]] == ["refine"]


def train(objective: str, folder: Path) -> None:
    settings = {"encoder": "small", "steps": 2, "batch_size": 16, "chosen_moves": 0.0, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of two steps
        fit(world("palpate/Sprites-v0", size=16), objective=objective, out=folder / "run", progress=False, **settings)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_replaces_a_hook_of_our_method_and_has_a_finite_loss(name: str) -> None:
    sprites = world("palpate/Sprites-v0", size=16)
    batch = Stream(sprites).draw(16, torch.Generator().manual_seed(0))
    planned = cases(["ablation"], replace(TINY, size=16), 1, methods=[name])[0]._plan()
    model = build(planned.model)
    model.measure(batch)
    terms = model.loss(batch, torch.Generator(), torch.tensor(0.5)).terms
    assert all(bool(term.isfinite()) for term in terms.values())
    moves = batch.a[:, None].repeat(1, 3, 1)
    answers = (model.eval().would_touch(batch.o, batch.a), model.uncertainty(batch.o, moves))
    assert [answer is not None for answer in answers] == [traits_of(planned.model.method).predicts] * 2
    kind = type(model)
    changed = vars(kind).keys() - {"__module__", "__doc__", "__firstlineno__", "__static_attributes__", "WEIGHT"}
    assert kind.__name__ == VARIANTS[name]
    assert changed
    assert all(hasattr(Contact, hook) for hook in changed if not hook.startswith("_")), "no hook of our method"


def test_a_variant_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    train(ABLATION["paper-placing"]["objective"], tmp_path)
    model = load(tmp_path / "run")
    assert type(model.model).__name__ == "PaperPlacing"
    scores = evaluate(model, collect("palpate/Sprites-v0", 40, seed=1, labelled=True, size=16))
    assert scores.would_touch_accuracy is not None  # its traits say so


class Mine(Contact):
    agent_temperature = 0.3


def test_a_variant_of_ones_own_is_named_by_module_and_class(tmp_path: Path) -> None:
    train(f"{__name__}:Mine", tmp_path)
    assert type(load(tmp_path / "run").model) is Mine
    path = tmp_path / "run" / "config.json"
    text = path.read_text()
    for name, says in (
        ("this:s", "import this first"),  # importing it would run its code
        ("json:JSONDecoder", "allowed is module:Class for a subclass of palpate.methods.contact:Contact"),
        (f"{__name__}:Nobody", "has no class 'Nobody'"),
    ):
        path.write_text(json.dumps(sealed(json.loads(text.replace(f"{__name__}:Mine", name)))))
        with pytest.raises(ValueError, match=says):
            load(tmp_path / "run")


@pytest.mark.parametrize("name", ["vae:VAE", "supervised:Supervised", "paper:Paper", "base:Model"])
def test_what_is_no_variant_of_our_method_is_refused(name: str, tmp_path: Path) -> None:
    import_module(f"palpate.methods.{name.partition(':')[0]}")
    with pytest.raises(ValueError, match="allowed is module:Class for a subclass of palpate.methods.contact:Contact"):
        train(f"palpate.methods.{name}", tmp_path)


def test_shares_have_random_moves_but_for_the_fixed_set() -> None:
    *streams, fixed = cases(["shares"], PRESETS["small"], 1)
    assert sorted(case.options["contact_share"] for case in streams) == [0.03, 0.1, 0.5, 0.9]
    assert {case.settings()["chosen"]["chosen_moves"] for case in streams} == {0.0}
    assert (fixed.triples, fixed.options) == (10_000, {})


def test_worlds_and_methods_select_cases() -> None:
    named = cases(EXPERIMENTS, PRESETS["paper"], 1, worlds=["vanilla", "first"], methods=["ours"])
    assert [(case.experiment, case.world) for case in named] == [
        ("sprites", "vanilla"), ("soccer", "first"), ("ablation", "vanilla")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 0}, "seeds is 0; allowed is 1 or more"),
        ({"worlds": ["thirt"]}, "world is 'thirt'; these experiments have third.* did you mean 'third'"),
        ({"methods": ["our"]}, "method is 'our'.* did you mean 'ours'"),
        ({"worlds": ["first"], "methods": ["transporter"]}, "method is 'transporter'"),
    ],
)
def test_mistakes(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cases(["soccer"], TINY, **{"seeds": 1, **changes})


def test_runs_with_other_settings_have_other_folders() -> None:
    place, case = Place(out=Path(), data=Path()), cases(["ablation"], TINY, 1)[1]
    folder = place.run(case)
    assert folder == place.run(replace(case, training=replace(case.training, device="cuda", log_every=7)))
    for other in (
        replace(case, training=replace(case.training, steps=5)),
        replace(case, fit={}),
        replace(case, size=21),
        replace(case, seed=1),
    ):
        assert place.run(other) != folder
