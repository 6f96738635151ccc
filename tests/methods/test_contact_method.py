"""What our method does with a batch beyond the contract of all methods, for one object and for two."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from walks import RADIUS, stored, walked

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.contacts.mistakes import MEMORY
from palpate.contacts.relocation import Place
from palpate.data.transitions import Batch
from palpate.geometry import Segment
from palpate.methods.base import Model
from palpate.methods.contact import AGAIN_RAW_SOFTNESS, SHARPENS_FROM, Contact
from palpate.methods.geometric import (
    DOUBT,
    FIRST_RAW_SOFTNESS,
    FIRST_REST_SCALE,
    GEOMETRY_DOUBT,
    REACH,
    UNSEEN_DOUBT,
    Geometric,
)
from palpate.methods.refinement import Evidence, evidence_of, surprise, uncorrected
from palpate.objectives.contact import HIDING_COST, Wrong, change_nll
from palpate.objects import NEVER, Objects
from palpate.quality import assess
from palpate.representation import Representation

END = torch.tensor(1.0)  # of the run
BODIES = ["ball", "outline", "ellipse"]


def config(body: str = "ball", **scene: Any) -> ModelConfig:
    settled = {"body": body, "refine": False, "rest_floor": 0.1}
    return ModelConfig(
        encoder="mlp",
        observation_shape=(6,),
        observation_dtype="float32",
        n=2,
        objective=ObjectiveConfig(**settled | scene),
    )


RIGHT = Wrong.evenly(0.0, torch.zeros(1))  # no label is wrong


def contact(body: str = "ball", objects: int = 1, **scene: Any) -> Contact:
    torch.manual_seed(0)
    return Contact(config(body, objects=objects, **scene))


def batch(count: int = 64, seed: int = 0) -> Batch:
    """Half of the scenes stay, up to noise."""
    generator = torch.Generator().manual_seed(seed)
    o, fresh = torch.randn(2, count, 6, generator=generator)
    stays = torch.arange(count)[:, None] % 2 == 0
    return Batch(o, torch.randn(count, 2, generator=generator), torch.where(stays, o + 0.02 * fresh, fresh))


def outputs(model: Model, given: Batch, progress: float = 0.6) -> tuple[Tensor, ...]:
    return model.outputs(given, torch.Generator().manual_seed(0), torch.tensor(progress))


def terms(model: Model, raw: tuple[Tensor, ...], progress: float = 0.6) -> dict[str, Tensor]:
    return model.objective(raw, torch.tensor(progress)).terms


def moved(term: Tensor, parts: dict[str, Tensor]) -> set[str]:
    """Which of some tensors a term has a gradient for."""
    found = torch.autograd.grad(
        term, list(parts.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return {name for name, gradient in zip(parts, found, strict=True) if gradient.any()}


def at(*positions: Tensor) -> list[Objects]:
    """Visible objects."""
    return [Objects(z[:, None], z.new_zeros(len(z), 1, 0), z.new_full((len(z), 1), NEVER)) for z in positions]


def visible(ext: Tensor) -> Tensor:
    """phi_ext's output with visible objects at `ext` [b, n]."""
    return torch.cat((ext, torch.full((len(ext), 1), NEVER)), 1)


@pytest.mark.parametrize(("hidden", "hidden_next", "geometry_decides"), [
    (NEVER, NEVER, False), (50.0, NEVER, True), (NEVER, 50.0, True), (50.0, 50.0, True)
])  # fmt: skip
@pytest.mark.parametrize("through", [True, False])
def test_a_change_is_a_contact_unless_the_object_is_hidden(
    through: bool, hidden: float, hidden_next: float, geometry_decides: bool
) -> None:
    """Geometry is never certain, neither of a contact nor of its absence."""
    model: Any = contact().eval()
    (thing,) = at(torch.tensor([[0.0 if through else 50.0, 0.0]]))
    things = iter([thing._replace(hidden=torch.full((1, 1), x)) for x in (hidden, hidden_next)])
    model.located = lambda x: (torch.tensor([[-5.0, 0.0]]), next(things))
    model.scene_distance = lambda o, o_next: torch.zeros(1, 1)
    model.scenes.probability = torch.ones_like  # the scene has changed
    model.raw_softness.data.fill_(-10.0)
    o = torch.zeros(1, 6)
    prior = 1 - GEOMETRY_DOUBT if through else GEOMETRY_DOUBT
    expected = prior if geometry_decides else 1.0
    assert model.contact(o, torch.tensor([[10.0, 0.0]]), o).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("may_hide", [True, False])
def test_an_object_counts_as_visible_until_it_may_be_hidden(may_hide: bool) -> None:
    """For users, in training and in the criterion for weights alike."""
    model, given = contact(refine=True), batch()
    model.head.may_hide.fill_(may_hide)
    with torch.no_grad():
        model.phi_ext.head.bias[-1] = 50.0  # the output for "hidden"
    found = outputs(model, given)
    for training in (True, False):
        model.train(training)
        (gradient,) = torch.autograd.grad(model.objective(found, END).terms["contact"], model.phi_ext.head.bias)
        assert bool(gradient[-1] != 0) == may_hide
        model.phi_ext.head.zero_grad()
        found = outputs(model, given)
    confidence = model.encode(given.o).confidence
    assert confidence is not None
    assert bool((confidence > 0.99).all()) != may_hide
    assert bool(model.examine(given).visible.all()) != may_hide


@pytest.mark.parametrize("placed", [True, False])
def test_labels_are_doubted_once_the_object_is_placed(placed: bool) -> None:
    """Not before: doubt would explain contacts that are far from every path."""
    model, given = contact(), batch()
    model.head.placed.fill_(placed)
    model.mistakes.counts.copy_(torch.tensor([[100.0, 80.0], [100.0, 4.0]])[..., None])
    found = outputs(model, given)
    model.eval()
    missed, false = model.wrong()
    assert (missed.item(), false.item()) == pytest.approx((0.2, 0.04) if placed else (0, 0), abs=1e-6)
    sure = model.objective(found, END).terms
    model.mistakes.counts.zero_()
    assert (sure["stay"] != model.objective(found, END).terms["stay"]) == placed


@pytest.mark.parametrize(
    ("share", "separate", "agree", "decide"),
    [
        (0.4, False, True, True),
        (0.6, False, True, True),
        (0.39, False, True, False),
        (0.61, False, True, False),
        (0.4, True, True, False),
        (0.4, False, False, False),
    ],
)
def test_joint_odds_decide_if_contacts_do_not_separate(share: float, separate: bool, agree: bool, decide: bool) -> None:
    model = contact()
    assert model.joint is not None
    model.joint.agree[0] = agree
    split = model.scenes.scenes.split(0)
    split.valley.fill_(0.9 if separate else 0.1)
    anew = model.adapt(share)
    assert bool(model.joint.decide) == decide
    assert [x.parameter for x in anew] == [model.raw_softness] * decide
    assert model.raw_softness.item() == (AGAIN_RAW_SOFTNESS if decide else FIRST_RAW_SOFTNESS)
    split.valley.fill_(0.9)
    model.adapt(0.5)
    assert bool(model.joint.decide) == decide  # to the end of the run


@pytest.mark.parametrize(
    ("share", "placed", "softness", "sharpens"),
    [
        (SHARPENS_FROM, True, 0.09, True),
        (SHARPENS_FROM, True, 0.022, False),  # somewhat too soft: left to the gradient
        (SHARPENS_FROM, True, 0.005, False),  # too sharp
        (SHARPENS_FROM - 0.01, True, 0.09, False),
        (SHARPENS_FROM, False, 0.09, False),
    ],
)
def test_a_boundary_that_is_far_too_soft_is_sharpened(
    share: float, placed: bool, softness: float, sharpens: bool
) -> None:
    """To what explains the last triples best, here a softness of 0.02."""
    path, thing, _ = walked(4000)
    clearance = path.distance2(thing).sqrt() - RADIUS
    changed = torch.rand(4000, generator=torch.Generator().manual_seed(0)) < (-clearance / 0.02).sigmoid()
    model = contact()
    model.recent, model.joint = stored(path, thing, changed, clearance), None
    model.head.placed.fill_(placed)
    model.raw_softness.data.fill_(math.log((softness - 0.004) / (0.1 - softness)))
    before = model.softness.item()
    anew = model.adapt(share)
    assert [x.parameter for x in anew] == [model.raw_softness] * sharpens
    assert model.softness.item() == pytest.approx(0.02 if sharpens else before, rel=0.15 if sharpens else 1e-6)


def test_a_boundary_is_not_sharpened_by_clearances_from_before_a_move() -> None:
    path, thing, changed = walked(4000)
    model = contact()
    model.recent = stored(path, thing, changed)
    assert model.sharpen(0, model.recent, RIGHT)
    model.raw_softness.data.fill_(FIRST_RAW_SOFTNESS)
    model.recent.shift(0, torch.zeros(2))
    assert not model.sharpen(0, model.recent, RIGHT)


def test_the_losses_follow_joint_odds_once_they_decide() -> None:
    given, found = batch(), []
    for decide in (False, True):
        model = contact()
        assert model.joint is not None
        model.joint.decide.fill_(decide)
        found.append(model.objective(outputs(model, given), END))
        assert not model.joint.clearance[: len(given.a)].isnan().any()
    one, other = found
    assert one.terms["contact"] != other.terms["contact"]
    assert one.terms["agent"] == other.terms["agent"]
    assert other.readings["contact_share"] == 0  # nothing agrees with geometry yet, so no triple is rather a change


def test_joint_odds_are_weighed_with_geometry() -> None:
    """-log(q P + (1 - q) (1 - P)), where q is the joint probability of a change and P what the path predicts."""
    model = contact()
    assert model.joint is not None
    p, q = 0.9, torch.tensor([[0.7], [0.2]])
    given = torch.zeros(2, 1), RIGHT, torch.tensor([0.3])
    kept = model.weighed(*given, q.logit(), torch.tensor(0.6))
    for x, y in zip((kept[0], *kept[1], kept[2]), (given[0], *RIGHT, given[2]), strict=True):
        assert bool((x == y).all())
    model.joint.decide.fill_(True)
    label, wrong, share = model.weighed(*given, q.logit(), torch.tensor(0.6))
    assert label.tolist() == [[1], [0]]
    assert share.item() == pytest.approx(0.6)
    contact_odds = torch.tensor([[p], [p]]).logit()
    expected = -torch.log(q * p + (1 - q) * (1 - p))
    torch.testing.assert_close(change_nll(contact_odds, label > 0.5, wrong=wrong), expected)


@pytest.mark.parametrize("placed", [True, False])
def test_a_better_place_is_taken_once_the_object_is_placed(placed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions, body, stored triples and the refinement's field all move."""
    model = contact("outline")
    model.head.placed.fill_(placed)
    assert model.joint is not None
    model.joint.clearance.fill_(0.1)
    offset, calls = torch.tensor([0.5, -1.0]), []
    found = Place(offset, torch.tensor(0.4))
    monkeypatch.setattr("palpate.methods.contact.better_place", lambda *_, **__: calls.append(1) or found)
    raw, z_int = torch.zeros(3, model.phi_ext.head.out_features), torch.zeros(3, 2)
    for share in (0.0, 0.2, 0.25, 0.26, 0.3):
        model.adapt(share)
    moved = offset if placed else torch.zeros(2)
    assert len(calls) == int(placed)  # of the five shares, one passes the first search
    torch.testing.assert_close(model.head(raw, z_int).position, moved.expand(3, 1, 2))
    assert model.joint.clearance.isnan().all() == placed  # they were measured from the old place
    assert model.recent is not None
    torch.testing.assert_close(model.recent.object[0, 0], moved)
    torch.testing.assert_close(model.recent.apart[0, 0], moved.repeat(2))
    evidence = Evidence(z_int, z_int, raw, raw, z_int, torch.zeros(3, 1, dtype=torch.bool))
    torch.testing.assert_close(uncorrected(model, evidence), moved.expand(3, 2))
    assert model.head[0].size(raw[:1, :0]).item() == pytest.approx(0.4 if placed else 0.25)


@pytest.mark.parametrize(
    ("placed", "hides", "expected"),
    [(True, True, [True, True]), (True, False, [False, True]), (False, True, [False] * 2)],
)
def test_a_placed_object_may_be_hidden_from_when_this_explains_changes(
    placed: bool, hides: bool, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it may, it stays so."""
    model = contact()
    model.head.placed.fill_(placed)
    found = []
    for now in (hides, True):
        monkeypatch.setattr("palpate.methods.contact.agent_hides", lambda *_, answer=now: answer)
        model.adapt(0.1)
        found.append(bool(model.head.may_hide))
    monkeypatch.setattr("palpate.methods.contact.agent_hides", lambda *_: False)
    model.adapt(0.2)
    assert [*found, bool(model.head.may_hide)] == [*expected, expected[-1]]


def test_each_network_minimises_its_own_loss() -> None:
    model = contact()
    parts: dict[str, Tensor] = {
        "agent": model.phi_int.head.weight,
        "scene": model.phi_cont.head.weight,
        "object": model.phi_ext.head.weight,
        "radius": model.head[0].learned[0],
        "softness": model.raw_softness,
        "rest": model.log_rest_scale,
    }
    model.head.may_hide.fill_(True)
    found = terms(model, outputs(model, batch()))
    assert {name: moved(term, parts) for name, term in found.items()} == {
        "agent": {"agent"},
        "contrast": {"scene"},
        "contact": {"object", "radius", "softness"},
        "stay": {"object", "rest"},
    }


@pytest.mark.parametrize("touched", [True, False])
def test_a_path_without_contact_is_evidence_about_both_observations(touched: bool) -> None:
    """Where an object went after a contact, the path does not say."""
    generator = torch.Generator().manual_seed(0)
    here, there = (torch.randn(1, 2, generator=generator, requires_grad=True) for _ in range(2))
    path, share = Segment(torch.zeros(1, 2), torch.ones(1, 2)), torch.tensor([0.5])
    term = contact().contact_term(*at(here, there), path, torch.tensor([[float(touched)]]), share, RIGHT)
    assert moved(term, {"here": here, "there": there}) == ({"here"} if touched else {"here", "there"})


def test_a_path_begins_where_both_observations_say() -> None:
    """o says too much and o' too little, by the same."""
    model, generator = contact(), torch.Generator().manual_seed(0)
    start, a, ext, ext_next = torch.randn(4, 32, 2, generator=generator)
    w, w_next = torch.randn(2, 32, 8, generator=generator)
    straight, slipped = (
        terms(
            model, (start + slip, start + a - slip, visible(ext), visible(ext_next), w, w_next, torch.ones(len(a)), a)
        )
        for slip in (0.0, 0.5)
    )
    torch.testing.assert_close(slipped["contact"], straight["contact"])
    assert slipped["agent"] > straight["agent"] + 1


def test_a_doubted_contact_that_nothing_explains_costs_a_bounded_loss() -> None:
    (far,), path = at(torch.full((1, 2), 1e3)), Segment(torch.zeros(1, 2), torch.ones(1, 2))
    model, touched, share = contact(), torch.ones(1, 1), torch.tensor([0.5])
    sure, doubted = (
        float(model.contact_term(far, far, path, touched, share, Wrong.evenly(doubt, share)).detach())
        for doubt in (0.0, DOUBT)
    )
    assert sure > 1000
    assert doubted == pytest.approx(-math.log(DOUBT), rel=1e-3)


def test_changed_and_geometry_join_by_the_rule_of_bayes() -> None:
    """The posterior from equally many changes and others, with the prior of geometry."""
    model: Any = contact().eval()
    (thing,) = at(torch.tensor([[0.0, 0.0]]))
    model.raw_softness.data.fill_(0.0)
    a, o = torch.tensor([[10.0, 0.0]]), torch.zeros(1, 6)
    for offset, hidden, changed in itertools.product((0.0, 0.3, 2.0), (NEVER, 0.0, 50.0), (0.1, 0.5, 0.9)):
        seen = thing._replace(hidden=torch.full((1, 1), hidden))
        model.located = lambda x, y=offset, z=seen: (torch.tensor([[-5.0, y]]).repeat(len(x), 1), z.repeated(len(x)))
        model.scenes.probability = lambda d, p=changed: torch.full_like(d, p)
        prior = model.logit(seen, model.group.path(torch.tensor([[-5.0, offset]]), model.inputs.scaled(a))).sigmoid()
        prior = prior.clamp(GEOMETRY_DOUBT, 1 - GEOMETRY_DOUBT).item()
        gone = 1 / (1 + math.exp(min(-hidden, 500)))  # in o as in o'
        both_seen, anyway = (1 - gone) ** 2, 2 * gone * (1 - gone) + gone**2 * model.hidden_change.sigmoid().item()
        yes, no = (
            p * (change * changed + (1 - change) * (1 - changed))
            for p, change in ((prior, both_seen + anyway), (1 - prior, anyway))
        )
        assert model.contact(o, a, o).item() == pytest.approx(yes / (yes + no), rel=1e-4)


def test_an_object_at_rest_is_visible_rather_than_hidden() -> None:
    """Far from the path, visible and hidden explain an unchanged scene about equally well, but hiding has a cost."""
    model, (thing,) = contact(), at(torch.zeros(4, 2))
    path = Segment(torch.full((4, 2), 30.0), torch.ones(4, 2))
    still = torch.zeros(4, 1)

    def loss(hidden: float) -> float:
        seen = thing._replace(hidden=torch.full((4, 1), hidden))
        return model.contact_term(seen, seen, path, still, torch.full((1,), 0.5), RIGHT).item()

    assert loss(-20.0) == pytest.approx(0, abs=1e-6)
    assert loss(20.0) == pytest.approx(HIDING_COST - math.log(1 - UNSEEN_DOUBT), rel=1e-4)


@pytest.mark.parametrize("changes", [0.4, 0.6])
def test_a_scene_with_an_object_hidden_in_both_changes_nearly_always_or_nearly_never(changes: float) -> None:
    """As most of such triples did lately in training; those with a visible object do not count."""
    model = contact()
    (thing,) = at(torch.zeros(10, 2))
    unseen = thing._replace(hidden=torch.full((10, 1), 20.0))
    changed = (torch.arange(10)[:, None] < 10 * changes).float()
    path = model.group.path(torch.ones(10, 2), torch.ones(10, 2))
    expected = 1 - UNSEEN_DOUBT if changes > 0.5 else UNSEEN_DOUBT
    share = torch.tensor([0.5])
    for after, times, now in ((thing, 9, UNSEEN_DOUBT), (unseen, 1, UNSEEN_DOUBT), (unseen, 9, expected)):
        for _ in range(times):  # one batch is too little evidence for "always"
            model.contact_term(unseen, after, path, changed, share, RIGHT)
        assert model.hidden_change.sigmoid().item() == pytest.approx(now)
    model.eval()
    for _ in range(99):
        model.contact_term(unseen, unseen, path, 1 - changed, share, RIGHT)
    assert model.hidden_change.sigmoid().item() == pytest.approx(expected)


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize(("training", "shares"), [(True, [0.02, 0.25, 0.02]), (False, [0.5, 0.5, 0.5])])
def test_rare_contacts_weigh_more_in_training_up_to_a_bound(training: bool, shares: list[float], placed: bool) -> None:
    """A contact weighs 0.5 / share, with a share of at least 0.02, and so do its odds once the object is placed;
    held-out triples are not balanced."""
    (here,), path = at(torch.zeros(1, 2)), Segment(torch.zeros(1, 2), torch.zeros(1, 2))
    model, touched = contact().train(training), torch.ones(1, 1)
    model.head.placed.fill_(placed)
    odds = float(model.logit(here, path).detach())
    found = [
        float(model.contact_term(here, here, path, touched, torch.tensor([share]), RIGHT).detach())
        for share in (0.0, 0.25, 0.02)
    ]
    doubt, chance = 0.0 if training else DOUBT, 1 / (1 + math.exp(-odds))
    right = (1 - doubt) * chance + doubt * (1 - chance)
    rarity = [share / (1 - share) if placed else 1.0 for share in shares]
    each = [math.log1p((1 - right) / right * rare) for rare in rarity]
    balanced = [0.5 / share * cost for share, cost in zip(shares, each, strict=True)]
    assert found == pytest.approx(balanced, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("placed", [True, False])
def test_log_odds_of_a_change_count_the_share_of_changes_once(placed: bool) -> None:
    """Until the object is placed, geometry is for equally many changes; the odds of several objects always are."""
    (here,), path = at(torch.zeros(1, 2)), Segment(torch.full((1, 2), 0.3), torch.zeros(1, 2))
    model = contact()
    model.scenes.scenes.split(0).share.fill_(0.2)
    contact_odds, found = model.logit(here, path).item(), []
    for now in (False, placed):
        model.head.placed.fill_(now)
        found.append((model.changes(here, here, path).item(), model.odds(here, here, path, END).item()))
    rarity = math.log(0.25)
    assert found[0][0] == pytest.approx(contact_odds + rarity, abs=1e-4)
    assert found[1][0] == pytest.approx(contact_odds + (0 if placed else rarity), abs=1e-4)
    assert found[1][1] - found[0][1] == pytest.approx(-rarity if placed else 0, abs=1e-4)


def test_turning_counts_as_moving() -> None:
    place = torch.zeros(1, 1, 2)
    seen = torch.full((1, 1), NEVER)
    here, turned = (Objects(place, torch.tensor([[axis]]), seen) for axis in ([1.0, 0.0], [0.0, 1.0]))
    model, without = contact("ellipse").eval(), torch.zeros(1, 1)
    assert model.stay_term(here, turned, without, END) > model.stay_term(here, here, without, END) + 0.5


def test_rest_does_not_shrink_the_frame() -> None:
    """L_- of objects at rest whose positions are noisy, and its gradient for a factor of the whole frame."""
    generator = torch.Generator().manual_seed(0)
    place, noise = torch.randn(128, 2, generator=generator), 0.02 * torch.randn(2, 128, 2, generator=generator)
    values, gradients = {}, {}
    for training in (True, False):
        factor = torch.ones((), requires_grad=True)
        model = contact().train(training)
        term = model.stay_term(*at(*(factor * (place + noise))), torch.zeros(128, 1), END)
        values[training] = float(term.detach())
        gradients[training] = float(torch.autograd.grad(term, factor)[0])
    assert values[True] == pytest.approx(values[False], rel=1e-5)
    assert gradients[False] > 0
    assert abs(gradients[True]) < 0.1 * gradients[False]


def test_an_object_in_contact_may_go_anywhere() -> None:
    here, there = at(torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [9.0, 9.0]]))
    model = contact().eval()
    with torch.no_grad():
        free, bound = (
            float(model.stay_term(here, there, torch.tensor([[0.0], [touched]]), END)) for touched in (1.0, 0.0)
        )
        assert free == pytest.approx(
            float(model.rest_scale(END).log()), rel=1e-5
        )  # n log s of the one at rest, over two
    assert bound > free + 3


def test_the_scale_of_rest_is_learned_down_to_a_floor() -> None:
    model = contact(rest_floor=0.07).eval()
    still, touched = at(torch.zeros(8, 2))[0], torch.zeros(8, 1)
    (gradient,) = torch.autograd.grad(model.stay_term(still, still, touched, END), model.log_rest_scale)
    assert gradient > 0  # observations that agree make it smaller
    model.log_rest_scale.data.fill_(-50.0)
    floors = [float(model.rest_scale(torch.tensor(progress)).detach()) for progress in (0.0, 0.4, 0.6, 0.8, 1.0)]
    assert floors == pytest.approx([0.1, 0.1, 0.007**0.5, 0.07, 0.07])  # reached when the object is found
    high = contact(rest_floor=0.4)
    high.log_rest_scale.data.fill_(math.log(0.3))
    assert [float(high.rest_scale(progress).detach()) for progress in (0 * END, END)] == pytest.approx([0.5, 0.5])


def test_scalars_learn_faster_and_do_not_decay() -> None:
    model = contact()
    (group,) = (each for each in model.parameter_groups() if any(p is model.raw_softness for p in each["params"]))
    assert any(p is model.log_rest_scale for p in group["params"])
    assert (group["lr_scale"], group["weight_decay"]) == (10, 0)


def test_the_border_is_in_the_unit_of_the_actions() -> None:
    model = contact().eval()
    model.inputs.unit.fill_(3.0)
    with torch.no_grad():
        line = model.border(batch(2).o)
    assert line is not None
    torch.testing.assert_close(line.norm(dim=-1), torch.full(line.shape[:-1], 0.25 * 3), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("refine", "least"), [(False, 0.004), (True, 0.001)])
def test_the_softness_stays_in_its_range(refine: bool, least: float) -> None:
    model = contact(refine=refine)
    bounds = []
    for raw in (-100.0, 100.0):
        model.raw_softness.data.fill_(raw)
        bounds.append(float(model.softness.detach()))
    assert bounds == pytest.approx([least, 0.1])


@pytest.mark.parametrize(("shape", "floor"), [((6,), 0.1), ((3, 16, 16), 0.001)])
def test_the_contrast_by_hand(shape: tuple[int, ...], floor: float) -> None:
    """For three triples whose agents are 1 and 2 apart: their mean squared distance is 2 (1 + 1 + 4) / 6 = 2."""
    encoder: Any = "mlp" if len(shape) == 1 else "small"
    model = Contact(replace(config(), encoder=encoder, observation_shape=shape))
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    w, w_next = nn.functional.normalize(torch.randn(2, 3, 1, 8, generator=torch.Generator().manual_seed(0)), dim=-1)

    def similarity(one: Tensor, two: Tensor) -> float:
        return math.exp(-float((one - two).square().sum()) / 0.1) + floor

    expected = 0.0
    for i in range(3):
        others = [similarity(w_next[i], w_next[j]) * math.exp(-((i - j) ** 2) / (2 * 0.03)) for j in range(3) if j != i]
        expected += (math.log(sum(others) / 2) - math.log(similarity(w[i], w_next[i]))) / 3
    assert float(model.contrast(w, w_next, z, torch.ones(3))) == pytest.approx(expected, rel=1e-4)


def test_agents_count_as_near_by_their_spread_not_by_their_step() -> None:
    model, generator = contact(), torch.Generator().manual_seed(0)
    z, (w, w_next) = torch.randn(64, 2, generator=generator), torch.randn(2, 64, 1, 8, generator=generator)
    one, twenty, small = (model.contrast(w, w_next, spread * z, torch.ones(64)) for spread in (1.0, 20.0, 1e-3))
    torch.testing.assert_close(twenty, one)
    assert small > one + 0.1  # but never by less than a step: these are all near


def overfitted() -> tuple[Contact, list[Batch]]:
    """A model to which all unseen pairs look like contacts by its own threshold, though they are of two kinds."""
    model = contact().eval()
    o, a, fresh = torch.randn(512, 6), torch.randn(512, 2), torch.randn(512, 6)
    touched = torch.arange(512) % 2 == 0
    o_next = torch.where(touched[:, None], fresh, o + 0.05 * torch.randn(512, 6))
    blocks = [Batch(*rows) for rows in zip(*(x.split(256) for x in (o, a, o_next)), strict=True)]
    with torch.no_grad():
        unseen = model.scene_distance(o, o_next)[:, 0]
        model.scenes.split(0).update(torch.where(touched, unseen, unseen * 1e-4), unseen.new_full((512,), 1e-5))
        assert model.scenes.contact(unseen[:, None]).double().mean() > 0.75
    return model, blocks


def test_the_threshold_is_that_of_the_leading_witness() -> None:
    model, _ = overfitted()
    by_scene = model.threshold()
    model.scenes.lead.fill_(True)
    by_position = model.threshold()
    assert by_scene is not None
    assert by_position is not None
    assert (by_scene.positions, by_position.positions) == (False, True)
    assert by_scene.value == float(model.scenes.scenes.split(0).threshold) != by_position.value


def test_unseen_triples_are_split_among_themselves() -> None:
    model, blocks = overfitted()
    before = model.threshold()
    with torch.no_grad():
        judged, by_training = model.held_out(blocks), Geometric.held_out(model, blocks)
        model.recall([])
        assert model.threshold() == before  # judging leaves no trace, and nothing unseen says nothing
        model.recall(blocks)
        found = torch.cat([model.scenes.contact(model.scene_distance(x.o, x.o_next)) for x in blocks])
        assert found.double().mean() == pytest.approx(0.5, abs=0.03)
        assert Geometric.held_out(model, blocks) == pytest.approx(judged)
    assert judged != pytest.approx(by_training, rel=1e-3)


def test_held_out_triples_are_judged_by_the_agent_and_the_contacts() -> None:
    model, given = contact().eval(), batch()
    with torch.no_grad():
        found = terms(model, outputs(model, given), 1.0)
        assert Model.held_out(model, [given]) == pytest.approx(float(found["agent"] + found["contact"]))


def test_held_out_triples_say_nothing_while_contacts_do_not_separate() -> None:
    assert contact().eval().held_out([batch()]) is None


@pytest.mark.parametrize("body", BODIES)
def test_a_contact_is_likely_where_a_path_comes_within_the_body(body: str) -> None:
    model, given = contact(body).eval(), batch(300)
    model.inputs.unit.fill_(3.0)
    with torch.no_grad():
        seen, would = model.examine(given), model.would_touch(given.o, given.a)
        radius = float(model.head[0].size(torch.zeros(1, 0))) * 3
        assert torch.equal(seen.distance < radius, would > 0.5)
        if body == "ball":
            encoding = model.encode(given.o)
            distance = Segment(encoding.agent, given.a).distance2(encoding.object).sqrt()
            torch.testing.assert_close(seen.distance[:, 0], distance, atol=1e-2, rtol=0)


@pytest.mark.parametrize("body", BODIES)
def test_the_most_uncertain_move_is_the_one_that_just_touches(body: str) -> None:
    model, o = contact(body).eval(), torch.randn(5, 6)
    model.inputs.unit.fill_(3.0)
    moves = 5 * torch.randn(5, 40, 2)
    with torch.no_grad():
        uncertainty = model.uncertainty(o, moves)
        would = torch.stack([model.would_touch(o, moves[:, c])[:, 0] for c in range(40)], 1)
    assert torch.equal(uncertainty.argmax(1), (would - 0.5).abs().argmin(1))
    assert uncertainty.unique().numel() > 50


class TestTwoObjects:
    """An object axis everywhere; nothing may assume that there is one."""

    def test_labels_that_objects_share_are_not_doubted(self) -> None:
        """W says that some object has changed. That another one did is no mistake."""
        model = contact(objects=2)
        model.head.placed.fill_(True)
        model.mistakes.counts.copy_(torch.tensor([[100.0, 80.0], [100.0, 4.0]])[..., None])
        model.scenes.lead.copy_(torch.tensor([True, False]))
        missed, false = model.wrong()
        assert missed.tolist() == pytest.approx([0.2, 0])
        assert false.tolist() == pytest.approx([0.04, 0])
        before = model.mistakes.counts.clone()
        model.objective(outputs(model, batch()), END)
        torch.testing.assert_close(model.mistakes.counts[..., 1], MEMORY * before[..., 1])

    @pytest.mark.parametrize("body", BODIES)
    def test_axes(self, body: str) -> None:
        model, given, moves = contact(body, objects=2).eval(), batch(10), torch.randn(10, 7, 2)
        encoding = model.encode(given.o)
        assert encoding.objects.shape == (10, 2, 2)
        assert encoding.covariances is not None
        assert encoding.covariances.shape == (10, 2, 2, 2)
        assert (encoding.orientations is None) == (body != "ellipse")
        assert encoding.orientations is None or encoding.orientations.shape == (10, 2)
        assert encoding.confidences is not None
        assert encoding.confidences.shape == (10, 2)
        assert model.contact(*given).shape == model.would_touch(given.o, given.a).shape == (10, 2)
        assert model.scene_distance(given.o, given.o_next).shape == (10, 2)
        uncertainty = model.uncertainty(given.o, moves)
        odds = torch.stack([model.would_touch(given.o, moves[:, c]).logit() for c in range(7)], 1)  # [b, c, k]
        finite = odds.isfinite().all(-1)
        torch.testing.assert_close(uncertainty[finite], -odds.abs().amin(-1)[finite], rtol=1e-2, atol=1e-2)
        line, seen = model.border(given.o), model.examine(given)
        assert line is not None
        assert (
            line.shape[:2]
            == seen.scene.shape
            == seen.contact.shape
            == seen.visible.shape
            == seen.distance.shape
            == (10, 2)
        )
        assert model.contacts(given).shape == (10,)
        assert model.threshold() is None
        with pytest.raises(ValueError, match="there are 2 objects; use objects, covariances"):
            _ = encoding.object

    def test_every_weight_learns(self) -> None:
        model = contact("ellipse", objects=2)
        model.head.may_hide.fill_(True)
        model.slots.counts.copy_(torch.tensor([[999.0], [999.0], [999.0], [0.0]]))  # both hold objects
        torch.stack(list(terms(model, outputs(model, batch())).values())).sum().backward()
        still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert set(still) <= {"phi_int.head.bias"}  # the frame is free
        for each in (model.raw_softness, model.log_rest_scale, model.phi_ext.head.bias, model.phi_cont.head.bias):
            assert each.grad is not None
            assert each.grad.all()  # of both

    @pytest.mark.parametrize("body", BODIES)
    @pytest.mark.parametrize("training", [True, False])
    def test_their_terms_are_the_sums_of_those_of_each(self, body: str, training: bool) -> None:
        """A slow twin: two models of one object, with the parts of the one of two and the same changes."""
        both = contact(body, objects=2).train(training)
        for i in range(2):
            both.raw_softness.data[i], both.log_rest_scale.data[i] = i, -1 - i
            for p in both.head[i].parameters():
                p.data += 0.1 * (i + 1)
        both.slots.counts.copy_(torch.tensor([[9.0], [9.0], [9.0], [0.0]]))  # both hold objects
        int_, int_next, ext, ext_next, _, _, _, a = outputs(both, batch())
        changed, share = torch.rand(64, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0.3, 0.6])

        def found(model: Contact, objects: slice) -> list[Tensor]:
            width = ext.shape[1] // 2
            columns = slice(objects.start * width, objects.stop * width)
            before, after = (model.head(x[:, columns], z) for x, z in ((ext, int_), (ext_next, int_next)))
            path = model.group.path(int_, a)
            return [
                model.contact_term(before, after, path, changed[:, objects], share[objects], RIGHT),
                model.stay_term(before, after, changed[:, objects], END),
            ]

        alone = []
        for i in range(2):
            one = contact(body).train(training)
            one.raw_softness.data, one.log_rest_scale.data = (
                p.data[i : i + 1] for p in (both.raw_softness, both.log_rest_scale)
            )
            one.head[0].load_state_dict(both.head[i].state_dict())
            alone.append(found(one, slice(i, i + 1)))
        for together, first, second in zip(found(both, slice(0, 2)), *alone, strict=True):
            torch.testing.assert_close(together, first + second)

    def test_refinement(self) -> None:
        model = contact(objects=2, refine=True).eval()
        model.head.may_hide.copy_(torch.tensor([True, False]))
        evidence = evidence_of(model, batch(10))
        assert evidence.changed.shape == (10, 2)
        assert uncorrected(model, evidence).shape == (20, 2)
        assert surprise(model, evidence).shape == ()
        for touched in (True, False):  # a path without contact is evidence about o' too
            raw = evidence.raw_next.detach().requires_grad_()
            alike = evidence._replace(raw_next=raw, changed=torch.full((10, 2), float(touched)))
            (gradient,) = torch.autograd.grad(surprise(model, alike), raw)
            positions, hidden = gradient.unflatten(1, (2, -1)).split((2, 1), 2)
            assert positions.any() != touched
            assert hidden.any(0)[:, 0].tolist() == [
                True,
                False,
            ]  # a change may also be a hidden object, if it may be hidden
        assert model.head.correction is not None
        nn.init.normal_(model.head.correction.coefficients)
        here = model.encode(batch(10).o).objects
        model.head.correction.coefficients.data.zero_()
        assert (here - model.encode(batch(10).o).objects).abs().amin(2).amin(0).gt(0).all()

    def test_a_user_meets_them_as_an_axis(self) -> None:
        model, given = Representation(contact(objects=2), {}), batch(10)
        moved = model.align({"observation": given.o, "agent": model.encode(given.o).agent + 3})
        torch.testing.assert_close(moved.encode(given.o).objects, model.encode(given.o).objects + 3)
        assert model.contact(*given).shape == model.distances(given.o, given.o_next).shape == (10, 2)
        assert model.encode(given.o.numpy()).objects.shape == (10, 2, 2)
        with pytest.raises(ValueError, match="this model has 2 objects, which have no order"):
            model.align({"observation": given.o, "object": given.a})

    def test_quality_is_that_of_the_worse(self) -> None:
        model, given = contact(objects=2).eval(), batch(400)
        with torch.no_grad():
            known = model.scene_distance(given.o, given.o_next)
            for i in range(2):
                model.scenes.split(i).update(known[:, i], known[:, i].roll(1))
            model.scenes.split(1).threshold.fill_(99.0)  # the second is never in contact
            found, seen = assess(model, given), model.examine(given)
        assert found is not None
        assert found.stay == pytest.approx(
            float((seen.objects - seen.objects_next)[:, 1].square().sum(1).mean().sqrt())
        )
        assert found.contact_share == pytest.approx(float(seen.contact[:, 0].double().mean()))
        spread = float((seen.agent - seen.agent.mean(0)).square().sum(1).mean().sqrt())
        assert found.error > spread  # the second may be anywhere

    def test_slots_that_start_anew_differ(self) -> None:
        """Two slots are spare; the third keeps everything."""
        model = contact("ellipse", objects=3)
        model.slots.counts.copy_(torch.tensor([[99.0], [0.0], [99.0], [0.0]]))
        model.slots.counts[1, 2] = 99.0
        model.raw_softness.data.fill_(-1.0)
        model.head.offset.fill_(1.0)
        before = {name: x.clone() for name, x in model.state_dict().items()}
        model.adapt(0.1)
        torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0, equal_nan=True)
        anew = {x.parameter for x in model.adapt(0.5)}
        scalars = {model.raw_softness, model.log_rest_scale, *model.head[0].parameters(), *model.head[1].parameters()}
        assert anew == {model.phi_ext.head.weight, model.phi_ext.head.bias, *scalars}
        first, second, third = model.phi_ext.head.weight.detach().chunk(3)
        old = before["phi_ext.head.weight"].chunk(3)
        assert not torch.equal(first, old[0])
        assert (first - second).abs().min() > 0
        assert torch.equal(third, old[2])
        assert first.std().item() == pytest.approx(old[0].std().item(), rel=0.1)
        assert model.raw_softness.tolist() == [FIRST_RAW_SOFTNESS, FIRST_RAW_SOFTNESS, -1]
        assert model.head.offset.tolist() == [[0, 0], [0, 0], [1, 1]]

    def test_and_differ_from_those_of_another_seed(self) -> None:
        rows = []
        for seed in (1, 2):
            settings = config("ball", objects=2)
            torch.manual_seed(seed)
            model = Contact(settings)
            model.slots.counts.copy_(torch.tensor([[99.0, 99.0], [99.0, 0.0], [99.0, 99.0], [0.0, 0.0]]))
            model.adapt(0.5)
            rows.append(model.phi_ext.head.weight.detach().chunk(2)[1])
        assert not torch.equal(*rows)

    def test_a_duplicate_that_started_anew_is_not_placed_by_its_past(self) -> None:
        model = contact(objects=2)
        model.head.placed.fill_(True)
        model.head.may_hide.fill_(True)
        model.scenes.agreed.fill_(99.0)
        model.scenes.lead.fill_(True)
        model.slots.counts.copy_(torch.tensor([[99.0, 99.0], [99.0, 90.0], [99.0, 99.0], [0.0, 0.0]]))
        model.slots.moves.fill_(99.0)
        model.adapt(0.33)
        assert model.head.placed.tolist() == model.head.may_hide.tolist() == [True, False]
        assert model.scenes.agrees.tolist() == [True, False]
        assert model.scenes.lead.tolist() == [True, False]
        assert model.recent.since.tolist() == [0, int(model.recent.next)]

    def test_a_slot_that_may_hold_nothing_has_a_loose_rest(self) -> None:
        model = contact(objects=2)
        model.log_rest_scale.data.fill_(-9.0)
        model.slots.counts.copy_(torch.tensor([[99.0, 99.0], [99.0, 0.0], [99.0, 99.0], [0.0, 0.0]]))
        tight, loose = model.rest_scale(END).tolist()
        assert tight == pytest.approx(0.1, rel=1e-3)  # the floor
        assert loose == pytest.approx(FIRST_REST_SCALE)

    def test_odds_follow_the_path_and_the_motion(self) -> None:
        """Log-odds of a contact, and of a jump against rest, as a slow twin computes them."""
        model = contact(objects=2).eval()
        model.slots.counts.copy_(torch.tensor([[9.0], [9.0], [9.0], [0.0]]))
        before = Objects(torch.randn(20, 2, 2), torch.zeros(20, 2, 0), torch.full((20, 2), NEVER))
        after = before._replace(position=before.position + torch.tensor([0.0, 1.0])[:, None])
        path = model.group.path(torch.randn(20, 2), torch.randn(20, 2))
        scale = model.rest_scale(END).detach()
        expected = model.logit(before, path).detach()
        for i, step in enumerate((0.0, 1.0)):
            density = (1 + 2 * step**2 / scale[i] ** 2) ** -1.5 / (2 * math.pi * scale[i] ** 2)
            expected[:, i] += math.log(REACH**-2) - density.log()
        torch.testing.assert_close(model.odds(before, after, path, END), expected, rtol=1e-4, atol=1e-3)
