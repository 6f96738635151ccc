"""What the method does with a batch beyond the contract of all models."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.geometry import Segment, segment_distance2
from palpate.methods.interaction import Interaction


def contact_gradients(touched: bool) -> tuple[float, float]:
    """How much the contact likelihood of one triple asks of z_ext in o and in o'."""
    generator = torch.Generator().manual_seed(0)
    ext, ext_next = (torch.randn(1, 2, generator=generator, requires_grad=True) for _ in range(2))
    path = Segment(torch.zeros(1, 2), torch.ones(1, 2))
    t, progress = torch.zeros(1), torch.tensor(0.6)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2))
    terms = model._external(ext, ext_next, path, torch.tensor([touched]), torch.tensor(0.5), t, progress)
    here, there = torch.autograd.grad(terms["contact"], (ext, ext_next), allow_unused=True, materialize_grads=True)
    return float(here.norm()), float(there.norm())


def test_an_untouched_path_tells_of_both_observations_a_touching_one_of_the_first() -> None:
    here, there = contact_gradients(touched=False)
    assert here > 0
    assert there > 0
    here, there = contact_gradients(touched=True)
    assert here > 0
    assert there == 0  # where the object went the path does not say


def test_what_the_agent_sees_is_told_from_where_it_stands() -> None:
    """Moved elsewhere as a whole, an egocentric model moves the object with the agent."""
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model, o = Interaction(config).eval(), torch.randn(5, 6)
    before = model.encode(o)
    with torch.no_grad():
        model.phi_int.head.bias += torch.tensor([1.0, -2.0])
    after = model.encode(o)
    assert torch.allclose(after.object - before.object, torch.tensor([1.0, -2.0]).expand(5, 2), atol=1e-5)


def contact_term(slip: float, objective: ObjectiveConfig, name: str = "contact") -> float:
    """The term for agents of whom o says too much and o' too little, by `slip`."""
    torch.manual_seed(0)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective))
    start, a, ext, w = torch.randn(32, 2), torch.randn(32, 2), torch.randn(64, 2), torch.randn(64, 8)
    both = torch.cat((start + slip, start + a - slip))
    return model._objective(both, ext, w, a, torch.zeros(32), torch.tensor(0.6)).terms[name].item()


def test_a_path_begins_where_both_observations_say() -> None:
    ours = ObjectiveConfig()
    assert contact_term(0.5, ours) == pytest.approx(contact_term(0.0, ours), rel=1e-5)
    paper = ObjectiveConfig.named("paper")
    assert contact_term(0.5, paper, "touch") != pytest.approx(contact_term(0.0, paper, "touch"), rel=0.05)


def test_no_single_contact_decides_which_weights_are_kept() -> None:
    """Far from every path and taken for a contact: in training it counts in full, held out it is doubted."""
    ext, path = torch.full((1, 2), 1e3), Segment(torch.zeros(1, 2), torch.ones(1, 2))
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2))
    surprise = {}
    for training in (True, False):
        model.train(training)
        terms = model._external(
            ext, ext, path, torch.tensor([True]), torch.tensor(0.5), torch.zeros(1), torch.tensor(1.0)
        )
        surprise[training] = terms["contact"].item()
    assert surprise[True] > 1000
    assert surprise[False] == pytest.approx(-math.log(0.05), rel=1e-3)


def shrinking(stay_reach: float, *, training: bool = True) -> tuple[float, float]:
    """L_- of untouched triples whose z_ext is a little noisy, and its gradient by a factor of the whole frame."""
    generator = torch.Generator().manual_seed(0)
    place, noise = torch.randn(128, 2, generator=generator), 0.02 * torch.randn(2, 128, 2, generator=generator)
    factor = torch.ones((), requires_grad=True)
    objective = ObjectiveConfig(stay_reach=stay_reach)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).train(training)
    term = model._external(
        factor * (place + noise[0]), factor * (place + noise[1]), Segment(place, place),
        torch.zeros(128, dtype=torch.bool), torch.tensor(0.5), torch.zeros(128), torch.tensor(0.6),
    )["stay"]  # fmt: skip
    (gradient,) = torch.autograd.grad(term, factor)
    return term.item(), gradient.item()


def test_l_stay_does_not_shrink_the_frame() -> None:
    (value, gradient), (plain_value, plain) = shrinking(0.25), shrinking(0.0)
    assert value == pytest.approx(plain_value, rel=1e-5)
    assert plain > 0
    assert abs(gradient) < 0.1 * plain
    assert shrinking(0.25, training=False) == pytest.approx(shrinking(0.0, training=False))


@pytest.mark.parametrize(
    ("kind", "progress", "times"),
    [
        ("likelihood", 0.0, 1.0),
        ("likelihood", 0.4, 1.0),
        ("likelihood", 0.6, 3.0),
        ("likelihood", 0.8, 9.0),
        ("likelihood", 1.0, 9.0),
        ("point", 1.0, 1.0),
    ],
)
def test_l_stay_gains_weight_in_the_contact_likelihood(kind: Any, progress: float, times: float) -> None:
    def term(rise: float) -> float:
        torch.manual_seed(0)
        objective = ObjectiveConfig(external=kind, stay_rise=rise)
        model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective))
        o = torch.randn(64, 6)
        batch = Batch(o, torch.randn(64, 2), o + 0.01 * torch.randn(64, 6))
        return model.loss(batch, torch.Generator().manual_seed(0), torch.tensor(progress)).terms["stay"].item()

    assert term(1.0) > 0
    assert term(9.0) == pytest.approx(times * term(1.0), rel=1e-5)


def overfitted() -> tuple[Interaction, list[Batch]]:
    """A model to whom all unseen pairs look like contacts by its own threshold, though they are of two kinds."""
    torch.manual_seed(0)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2)).eval()
    o = torch.randn(512, 6)
    touched = torch.arange(512) % 2 == 0
    o_next = torch.where(touched[:, None], torch.randn(512, 6), o + 0.05 * torch.randn(512, 6))
    blocks = [Batch(*rows) for rows in zip(*(x.split(256) for x in (o, torch.randn(512, 2), o_next)), strict=True)]
    with torch.no_grad():
        unseen = model._distances(blocks)
        seen = torch.where(touched, unseen, unseen * 1e-4)
        model.split.update(seen, unseen.new_full((512,), 1e-5))
        assert model.split(unseen).double().mean() > 0.75
    return model, blocks


def test_unseen_triples_are_told_apart_among_themselves() -> None:
    model, blocks = overfitted()
    with torch.no_grad():
        judged, before = model.held_out(blocks), float(model.split.threshold)
        plain = super(Interaction, model).held_out(blocks)
        assert float(model.split.threshold) == before
        model.recall(blocks)
        assert model.split(model._distances(blocks)).double().mean() == pytest.approx(0.5, abs=0.03)
        assert super(Interaction, model).held_out(blocks) == pytest.approx(judged)
    assert judged != pytest.approx(plain, rel=1e-3)


def test_nothing_unseen_changes_nothing() -> None:
    model, _ = overfitted()
    before = float(model.split.threshold)
    model.recall([])
    assert float(model.split.threshold) == before


def asked(term: Tensor, parts: dict[str, nn.Parameter]) -> dict[str, bool]:
    """Which of some parameters a term would move."""
    gradients = torch.autograd.grad(
        term, list(parts.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return {name: bool(gradient.count_nonzero()) for name, gradient in zip(parts, gradients, strict=True)}


@pytest.mark.parametrize("progress", [0.1, 0.4, 0.7, 0.9])
def test_the_object_follows_the_scout_and_then_stands_on_its_own_feet(progress: float) -> None:
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    assert model.scout is not None
    batch = Batch(torch.randn(64, 6), torch.randn(64, 2), torch.randn(64, 6))
    terms = model.loss(batch, torch.Generator(), torch.tensor(progress)).terms
    assert terms.keys() == {"agent", "scout", "follow", "contact", "stay"}
    parts: dict[str, nn.Parameter] = {
        "agent": model.phi_int.head.weight,
        "scout": model.scout.branch.head.weight,
        "object": model.phi_ext.head.weight,
        "body": model.body.log_radius,
    }
    moved = {name: {part for part, is_moved in asked(term, parts).items() if is_moved} for name, term in terms.items()}
    assert moved == {
        "agent": {"agent"},
        "scout": {"scout"},
        "follow": {"object"} if progress < 0.8 else set(),  # left slowly, when its own losses count in full
        "contact": {"object", "body"} if progress >= 0.3 else set(),
        "stay": {"object"} if progress > 0.5 else set(),
    }


def test_contacts_move_only_the_mean_of_an_object_that_follows() -> None:
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    z, ext, w = torch.randn(3, 64, 2)
    ext.requires_grad_()
    asks = []
    for progress in (0.4, 0.9):
        terms = model._objective(z, ext, w, torch.randn(32, 2), torch.zeros(32), torch.tensor(progress)).terms
        asks.append(torch.autograd.grad(terms["contact"], ext)[0])
    led, free = asks
    assert led.norm() > 0
    assert torch.allclose(led, led[:1].expand_as(led))
    assert free.std(0).min() > 1e-6


def test_where_the_scout_is_does_not_matter_but_for_a_constant() -> None:
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    z, ext, w = torch.randn(3, 64, 2)

    def follow(shift: float) -> float:
        terms = model._objective(z, ext, w + shift, torch.ones(32, 2), torch.zeros(32), torch.tensor(0.2)).terms
        return float(terms["follow"])

    assert follow(7.0) == pytest.approx(follow(0.0), rel=1e-4)
    with torch.no_grad():
        assert float(model._objective(
            z, w - z, w + 3, torch.ones(32, 2), torch.zeros(32), torch.tensor(0.2)
        ).terms["follow"]) == pytest.approx(0.0, abs=1e-4)  # fmt: skip


def scouted(
    scout: float, own: float, progress: float, *, apart: bool = True, threshold: float = 0.1
) -> dict[str, float]:
    """Terms of 64 triples without any step; in half of them the object moves, as the `scout` and as z_ext itself say
    by so much. Squared, more than `threshold` of the scout's and 0.1 of z_ext's counts as moved.
    """
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    assert model.scout is not None
    for split, least in ((model.split, 0.1), (model.scout.split, threshold)):
        split.eval()  # keeps what is put there
        split.threshold.fill_(math.log(least))
        split.smallest.fill_(1e-30)
        split.valley.fill_(float(apart))
    moving = (torch.arange(128) >= 96)[:, None] * torch.tensor([0.6, 0.8])
    here, z_int = torch.randn(2, 64, 2).repeat(1, 2, 1)
    ext = here + own * moving - z_int
    with torch.no_grad():
        terms = model._objective(
            z_int, ext, here + scout * moving, torch.zeros(64, 2), torch.zeros(64), torch.tensor(progress)
        ).terms
    return {name: float(term) for name, term in terms.items()}


def test_the_object_follows_the_scout() -> None:
    # 32 of 128 observations are off by 0.2, and the mean does not count: 10 x 0.04 x 1/4 x 3/4.
    assert scouted(0.2, 0.0, 0.2)["follow"] == pytest.approx(0.075, rel=1e-4)


def test_but_not_one_who_says_that_it_was_touched() -> None:
    """For that is what a scout says who has lost it."""
    for own in (0.0, 5.0):
        assert scouted(50.0, own, 0.2)["follow"] == pytest.approx(0.0, abs=1e-6)  # of the others both say the same


def test_a_batch_of_contacts_alone_is_not_followed_anywhere() -> None:
    terms = scouted(50.0, 0.0, 0.2, threshold=1e-40)
    assert terms["follow"] == 0
    assert all(map(math.isfinite, terms.values()))


def test_a_contact_needs_a_second_witness_as_soon_as_there_is_one() -> None:
    def contacts(scout: float, own: float, progress: float, *, apart: bool = True) -> bool:
        """Nobody goes anywhere near those objects, so that contacts are a surprise."""
        return scouted(scout, own, progress, apart=apart)["contact"] > 2 * scouted(0.0, 0.0, progress)["contact"]

    assert contacts(5.0, 5.0, 0.56)
    assert not contacts(5.0, 0.0, 0.56)
    assert not contacts(0.0, 5.0, 0.56)
    assert contacts(5.0, 0.0, 0.54)  # z_ext is not free yet,
    assert contacts(5.0, 0.0, 0.56, apart=False)  # or cannot tell


def contrast(apart: float, agent_spread: bool) -> float:
    """The contrastive loss of unrelated scenes whose agents step by 1 and stand about `apart` from each other."""
    generator = torch.Generator().manual_seed(0)
    objective = ObjectiveConfig(agent_spread=agent_spread)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).train()
    z = apart * torch.randn(64, 2, generator=generator)
    w = torch.randn(128, 8, generator=generator)
    with torch.no_grad():
        terms = model._objective(
            torch.cat((z, z)), torch.zeros(128, 2), w, torch.ones(64, 2), torch.zeros(64), torch.tensor(0.5)
        ).terms
    return float(terms["contrast"])


def test_agents_count_as_near_by_how_far_they_are_spread_not_by_how_far_they_step() -> None:
    assert contrast(20.0, agent_spread=False) < contrast(1.0, agent_spread=False) - 10  # none is near another
    assert contrast(20.0, agent_spread=True) == pytest.approx(contrast(1.0, agent_spread=True), abs=1e-3)
    assert contrast(0.2, agent_spread=True) == pytest.approx(contrast(0.2, agent_spread=False))


def test_held_out_triples_are_judged_by_the_split_that_tells_their_contacts() -> None:
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    assert model.scout is not None
    assert model.telling is model.scout.split
    model.take_down_scaffold()
    assert model.telling is model.split


@pytest.mark.parametrize("switches", [{"outline": 4}, {"body": "axes"}, {"body": "axes", "rim": True}])
def test_a_form_is_learned_when_the_object_is_found(switches: dict[str, Any]) -> None:
    torch.manual_seed(0)
    objective = ObjectiveConfig(**switches)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective))
    form = [p for p in (model.body.log_ratio, model.body.outline, model.body.rim) if p is not None and p.requires_grad]
    assert len(form) == len(switches)
    batch = Batch(torch.randn(64, 6), torch.randn(64, 2), torch.randn(64, 6))
    for progress, learned in ((0.1, False), (0.6, True)):
        contact = model.loss(batch, torch.Generator(), torch.tensor(progress)).terms["contact"]
        assert all(bool(g.any()) is learned for g in torch.autograd.grad(contact, form))


@pytest.mark.parametrize("switches", [{}, {"outline": 4}, {"body": "axes", "rim": True}])
def test_how_far_a_move_passes(switches: dict[str, Any]) -> None:
    """In the action's unit, a radius away where it is as likely to touch as not."""
    torch.manual_seed(0)
    objective = ObjectiveConfig(**switches)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).eval()
    model.inputs.unit.fill_(3.0)
    with torch.no_grad():
        o, a = torch.randn(500, 6), 5 * torch.randn(500, 2)
        passing, likely = model.passing(o, a), model.would_touch(o, a)
        assert torch.equal(passing < model.vitals()["radius"], likely > 0.5)
        if not switches:
            encoding = model.encode(o)
            distance = segment_distance2(encoding.object, Segment(encoding.agent, a)).sqrt()
            assert torch.allclose(passing, distance, atol=1e-2)


def test_the_most_doubtful_move_is_the_one_that_just_touches() -> None:
    """As `would_touch` says: nearest to a half, whatever the unit; a model without a body has no preference."""
    torch.manual_seed(0)
    rim = ObjectiveConfig(body="axes", rim=True)
    for objective in (ObjectiveConfig(), ObjectiveConfig(outline=4), ObjectiveConfig(body="axes"), rim):
        model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).eval()
        model.inputs.unit.fill_(3.0)
        o, moves = torch.randn(5, 6), 5 * torch.randn(5, 40, 2)
        with torch.no_grad():
            doubts = model.doubts(o, moves)
            likely = torch.stack([model.would_touch(o, moves[:, k]) for k in range(40)], 1)
        assert doubts.shape == (5, 40)
        assert torch.equal(doubts.argmax(1), (likely - 0.5).abs().argmin(1))
        assert doubts.unique().numel() > 50
    paper = ObjectiveConfig.named("paper")
    plain = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=paper))
    assert plain.doubts(o, moves).unique().tolist() == [0]
