"""Contacts and rest as likelihoods."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from drawn import quick, randn, seeds, uniform
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import Bernoulli, StudentT
from torch.testing import assert_close

from palpate.geometry import Segment
from palpate.objectives.contact import (
    ADDED_WIDTH,
    Hidden,
    Wrong,
    balanced_nll,
    change_nll,
    levelled,
    responsibility,
    rest_nll,
    spread_nearby,
    unshrinkable,
)
from palpate.objectives.paper import stay

Loss = Callable[[Tensor, Tensor], Tensor]

# Contacts


def test_contacts_by_hand() -> None:
    """Even odds cost log 2 either way; log-odds of log 3 cost log 4/3 when right and log 4 when wrong."""
    logit, contact = torch.tensor([0.0, 0.0, math.log(3), math.log(3)]), torch.tensor([True, False, True, False])
    expected = [math.log(2), math.log(2), math.log(4 / 3), math.log(4)]
    assert change_nll(logit, contact).tolist() == pytest.approx(expected)


@quick
@given(seed=seeds, doubt=st.sampled_from([0.0, 0.01, 0.3]))
def test_contacts_agree_with_a_bernoulli(seed: int, doubt: float) -> None:
    logit, contact = 5 * randn(6, 3, seed=seed), uniform(6, 3, seed=seed + 1) < 0.5
    twin = -Bernoulli(probs=doubt + (1 - 2 * doubt) / (1 + torch.exp(-logit))).log_prob(contact.double())
    assert_close(change_nll(logit, contact, wrong=Wrong.evenly(doubt, torch.ones(()))), twin)


@pytest.mark.parametrize("doubt", [0.0, 0.05])
def test_contacts_stay_finite_far_away(doubt: float) -> None:
    logit = torch.tensor([-5e5, 5e5, -5e5, 5e5], requires_grad=True)
    loss = change_nll(logit, torch.tensor([True, False, False, True]), wrong=Wrong.evenly(doubt, torch.ones(())))
    most = -math.log(doubt) if doubt else 5e5  # a wrong label costs at most that, however far
    least = -math.log(1 - doubt)
    assert loss.tolist() == pytest.approx([most, most, least, least], rel=1e-5, abs=1e-6)
    assert torch.autograd.grad(loss.sum(), logit)[0].isfinite().all()


def test_hidden_objects_by_hand() -> None:
    """P(contact) = 1/2, hidden in o with 1/3 and in o' with 1/4. In both it changes with 3/4.

    P(changed) = 1/2 * 2/3 * 3/4 + 1/3 * 3/4 + 2/3 * 1/4 + 1/3 * 1/4 * 3/4 = 35/48.
    """
    touched, before, after, change = (torch.tensor(math.log(odds)) for odds in (1, 1 / 2, 1 / 3, 3))
    hidden = Hidden(before, after, change)
    assert float(hidden.seen().exp()) == pytest.approx(1 / 2)
    assert float(change_nll(touched, torch.tensor(True), hidden)) == pytest.approx(-math.log(35 / 48))
    assert float(change_nll(touched, torch.tensor(False), hidden)) == pytest.approx(-math.log(13 / 48))


@quick
@given(seed=seeds, scale=st.sampled_from([1.0, 8.0]))
def test_the_chances_of_a_change_and_of_none_sum_to_one(seed: int, scale: float) -> None:
    touched, *logits = (scale * randn(4, 7, seed=seed)).unbind()
    hidden = Hidden(*logits)
    both = [(-change_nll(touched, torch.full((7,), side), hidden)).exp() for side in (True, False)]
    assert_close(both[0] + both[1], torch.ones_like(touched))


@pytest.mark.parametrize(("hidden", "chance"), [((60.0, -60.0), 1.0), ((-60.0, 60.0), 1.0), ((60.0, 60.0), 0.75)])
@pytest.mark.parametrize("touched", [-50.0, 50.0])
def test_paths_say_nothing_about_a_hidden_object(hidden: tuple[float, float], chance: float, touched: float) -> None:
    """An object that appears or vanishes changes the scene for certain."""
    contact, change = torch.tensor(touched, requires_grad=True), torch.tensor(math.log(3))
    loss = change_nll(contact, torch.tensor(True), Hidden(*map(torch.tensor, hidden), change))
    assert loss.item() == pytest.approx(-math.log(chance), abs=1e-4)
    assert abs(torch.autograd.grad(loss, contact)[0].item()) < 1e-6


def test_an_improbable_cause_keeps_its_gradient() -> None:
    """In float32, where the probabilities themselves are 0."""
    far, hidden = torch.tensor(-2000.0, requires_grad=True), torch.tensor(-1900.0, requires_grad=True)
    never, sure = torch.tensor(-1e4), torch.tensor(1e4)
    value = change_nll(far, torch.tensor(True), Hidden(hidden, never, sure))
    assert value.item() == pytest.approx(1900)
    assert [x.item() for x in torch.autograd.grad(value, (far, hidden))] == pytest.approx([0, -1])
    alone = change_nll(far, torch.tensor(True), Hidden(never, never, sure))
    assert torch.autograd.grad(alone, far)[0].item() == pytest.approx(-1)


def test_a_few_false_contacts_do_not_make_the_body_larger() -> None:
    """Paths at all distances of a body of radius 0.1; one in ten of those that missed counts as a contact."""
    distance = torch.linspace(0, 1, 3000, dtype=torch.float64)
    contact = (distance < 0.1) | (torch.arange(3000) % 10 == 0)
    radii = torch.linspace(0.02, 0.9, 89, dtype=torch.float64)[:, None]

    def best(doubt: float) -> float:
        return float(
            radii[
                change_nll((radii - distance) / 0.02, contact.expand(89, -1), wrong=Wrong.evenly(doubt, torch.ones(())))
                .mean(1)
                .argmin()
            ]
        )

    assert best(0.05) == pytest.approx(0.1, abs=0.011)
    assert best(0.0) > 0.15


def test_missed_contacts_do_not_make_the_body_smaller() -> None:
    """One in four of the contacts, anywhere in the body, has no label."""
    distance = torch.linspace(0, 1, 3000, dtype=torch.float64)
    label = (distance < 0.3) & (torch.arange(3000) % 4 != 0)
    radii = torch.linspace(0.02, 0.9, 89, dtype=torch.float64)[:, None]

    def best(missed: float) -> float:
        wrong = Wrong(torch.full_like(distance, missed), torch.zeros_like(distance))
        return float(radii[change_nll((radii - distance) / 0.02, label.expand(89, -1), wrong=wrong).mean(1).argmin()])

    assert best(0.25) == pytest.approx(0.3, abs=0.011)
    assert best(0.0) < 0.27


def test_the_paths_without_contact_are_what_the_points_loss_lacks() -> None:
    """Descending the likelihood from afar finds the centre and the radius together."""
    start, end = uniform(2, 2000, 2, seed=1)
    path = Segment(start, end - start)
    contact = path.distance2(torch.full((2,), 0.5, dtype=torch.float64)) < 0.15**2
    centre = torch.tensor([0.8, 0.25], dtype=torch.float64, requires_grad=True)
    radius = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam((centre, radius), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        change_nll((radius - path.distance2(centre).sqrt()) / 0.02, contact).mean().backward()
        optimiser.step()
    assert (centre - 0.5).norm().item() < 0.01
    assert radius.item() == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("sure", [True, False])
def test_balance_by_hand(sure: bool) -> None:
    """A quarter are contacts: each weighs 2, the others 2/3, so the odds are three times as large, if positions are
    sure. A contact says nothing about o'."""
    before, after = torch.tensor([1.0, 1.0, -2.0, -2.0]), torch.tensor([3.0, -3.0, 0.0, 5.0])
    contact = torch.tensor([True, True, False, False])
    first, second = (change_nll(x + sure * math.log(3), contact) for x in (before, after))
    expected = torch.cat((2 * first[:2], (first + second)[2:] / 3))
    assert_close(balanced_nll(before, after, None, contact.float(), torch.tensor(0.25), sure=sure), expected)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_however_rare_contacts_are_both_classes_weigh_the_same(share: float) -> None:
    """For two objects, of which the second has as many contacts as the first has others: if geometry knows no more than
    the share, both classes cost as much as a coin."""
    count = 1000
    contact = torch.stack([torch.arange(count) < share * count, torch.arange(count) >= share * count], 1)
    shares = contact.float().mean(0)
    known = (shares / (1 - shares)).log().expand(count, 2)
    loss = balanced_nll(known, known, None, contact.float(), shares)
    for side in (contact, ~contact):
        assert ((loss * side).sum(0) / count).tolist() == pytest.approx([math.log(2) / 2] * 2, rel=1e-4)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_the_boundary_does_not_depend_on_the_share_of_contacts(share: float) -> None:
    """Distances with an error. Weights alone would move the boundary by `softness * log(1 / share - 1)`."""
    boundary, softness = 0.5, 0.03
    distance = uniform(100_000) * boundary / share
    contact = uniform(100_000, seed=1) < ((boundary - distance) / softness).sigmoid()
    radius = torch.tensor(0.45, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([radius], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        odds = (radius - distance) / softness
        value = balanced_nll(odds, odds, None, contact.double(), contact.double().mean()).mean()
        value.backward()
        return value

    optimiser.step(loss)
    assert radius.item() == pytest.approx(boundary, abs=0.004)


# Which object


def every_set(odds: Tensor) -> Tensor:
    """A slow twin of `responsibility`: all sets of objects that may have changed, but the empty one."""
    p = odds.double().sigmoid()
    total, mine = torch.zeros(len(odds), dtype=torch.float64), torch.zeros_like(p)
    for chosen in itertools.product((False, True), repeat=odds.shape[1]):
        if any(chosen):
            inside = torch.tensor(chosen)
            weight = torch.where(inside, p, 1 - p).prod(1)
            total, mine = total + weight, mine + weight[:, None] * inside
    return mine / total[:, None]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_responsibility_counts_all_sets(count: int) -> None:
    odds = 6 * randn(200, count)
    nobody = torch.zeros(count, count, dtype=torch.bool)
    assert_close(responsibility(odds, nobody), every_set(odds), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("far", [-20.0, -80.0])
def test_a_change_that_nothing_explains_belongs_to_the_likeliest(far: float) -> None:
    """In float32, where its probability may round to 0."""
    nobody = torch.zeros(3, 3, dtype=torch.bool)
    found = responsibility(torch.tensor([[far, far, far - 30], [far, far - 30, far - 30]]), nobody)
    assert_close(found, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), atol=1e-5, rtol=0)


def test_what_a_surer_object_explains_is_not_left_for_others() -> None:
    """The second is surer than the first: where it explains the change, the first has no part, else nothing differs."""
    odds = torch.tensor([[3.0, 30.0], [3.0, -30.0]])
    surer = torch.tensor([[False, True], [False, False]])
    found = responsibility(odds, surer)
    assert_close(found, torch.tensor([[0.0, 1.0], [1.0, 0.0]]), atol=1e-6, rtol=0)
    assert responsibility(odds, torch.zeros(2, 2, dtype=torch.bool))[0, 0] > 0.9


# Rest


@quick
@given(seed=seeds)
def test_rest_is_a_student_t_in_one_dimension(seed: int) -> None:
    """Up to a constant: the Cauchy density."""
    gap, scale = randn(5, 1, seed=seed), 0.1 + uniform(1, seed=seed + 1)
    twin = -StudentT(1.0, torch.zeros(1, dtype=torch.float64), scale).log_prob(gap)[:, 0] - math.log(math.pi)
    assert_close(rest_nll(gap.square().sum(-1), scale, 1), twin)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_rest_is_a_density(n: int) -> None:
    """It has the same volume at every scale: what a wider one gains far away it loses near by."""
    r = torch.logspace(-6, 6, 200_000, dtype=torch.float64)

    def volume(scale: float) -> float:
        density = torch.exp(-rest_nll(r.square(), torch.tensor(scale, dtype=torch.float64), n))
        return torch.trapezoid(density * r ** (n - 1), r).item()

    assert volume(0.05) == pytest.approx(volume(2.0), rel=1e-3)


def test_one_missed_contact_hardly_widens_the_scale() -> None:
    remained = torch.cat((0.01 * randn(99, 2).square().sum(-1), torch.tensor([1e4])))
    scales = torch.logspace(-2, 2, 400, dtype=torch.float64)[:, None]

    def best(remained: Tensor) -> float:
        return float(scales[rest_nll(remained, scales, 2).mean(1).argmin()])

    assert best(remained) == pytest.approx(best(remained[:-1]), rel=0.05)


@given(st.floats(0, 10), st.floats(0.01, 3))
def test_levelled_keeps_small_distances_and_bounds_large_ones(distance2: float, scale: float) -> None:
    value = levelled(torch.tensor(distance2, dtype=torch.float64), scale).item()
    assert value <= min(distance2, scale**2) + 1e-12
    assert value == pytest.approx(distance2 * scale**2 / (scale**2 + distance2))


# L_- divided by the spread nearby


def pairs(count: int = 64, n: int = 2, noise: float | Tensor = 0.02) -> tuple[Tensor, Tensor]:
    """Positions of objects at rest by o and o', which differ a little."""
    place = randn(count, n)
    return place + noise * randn(count, n, seed=1), place + noise * randn(count, n, seed=2)


def measured(z: Tensor, z_next: Tensor, reach: float = 0.25) -> Tensor:
    return unshrinkable(z, z_next, spread_nearby(z, z_next, reach))


def scaling(loss: Loss, z: Tensor, z_next: Tensor, *, axes: int = 1) -> Tensor:
    """Gradient of the summed loss by one factor for the whole frame, or one for each axis."""
    factor = torch.ones(axes, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(loss(factor * z, factor * z_next).sum(), factor)[0]


def test_spread_nearby_by_hand() -> None:
    """From the middle of each pair, 0.5 and 3, to the two observations of the other pair, along x."""
    z, z_next = torch.tensor([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 0.0], [4.0, 0.0]]], dtype=torch.float64)
    width = 0.5**2 * (35 / 12) / 2  # the variance of 0, 2, 1, 4 is 35/12, and 0 along y

    def mean(*distances2: float) -> float:
        weights = [math.exp(-distance2 / (2 * width)) for distance2 in distances2]
        return sum(map(math.prod, zip(weights, distances2, strict=True))) / sum(weights)

    added = ADDED_WIDTH * width
    expected = [mean(1.5**2, 3.5**2) + added, added, mean(3.0**2, 2.0**2) + added, added]
    assert spread_nearby(z, z_next, 0.5).flatten().tolist() == pytest.approx(expected)


def test_spread_nearby_is_that_of_the_near_ones() -> None:
    cluster = randn(32, 2)
    z = torch.cat((cluster, 3 * cluster + 100))
    spread = spread_nearby(z, z, 0.02)
    assert spread.max() < 20  # the others are 100 away
    assert spread[32:].mean() > 1.5 * spread[:32].mean()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_dividing_by_the_spread_changes_no_value(n: int) -> None:
    z, z_next = pairs(n=n)
    assert_close(measured(z, z_next), stay(z, z_next))


def beside(loss: Loss) -> Loss:
    """The loss with as many more objects in another region, which no factor moves."""
    far = [x + torch.tensor([50.0, 0.0], dtype=torch.float64) for x in pairs(256)]
    return lambda one, two: loss(torch.cat((one, far[0])), torch.cat((two, far[1])))


@pytest.mark.parametrize(
    ("around", "reach", "axes", "noise"),
    [
        (lambda loss: loss, 0.25, 1, torch.tensor([0.02, 0.02])),  # the whole frame
        (lambda loss: loss, 0.25, 2, torch.tensor([0.05, 0.005])),  # along one axis
        (beside, 0.01, 1, torch.tensor([0.02, 0.02])),  # one region
    ],
    ids=["frame", "axis", "region"],
)
def test_shrinking_is_rewarded_by_l_stay_but_not_when_divided_by_the_spread(
    around: Callable[[Loss], Loss], reach: float, axes: int, noise: Tensor
) -> None:
    z, z_next = pairs(256, noise=noise)
    plain = scaling(around(stay), z, z_next, axes=axes)[0]
    gradient = scaling(around(lambda one, two: measured(one, two, reach)), z, z_next, axes=axes)
    assert plain > 0
    assert (gradient.abs() < 0.15 * plain).all()


def test_the_noise_itself_is_still_reduced() -> None:
    z, z_next = (x.requires_grad_() for x in pairs())
    (gradient,) = torch.autograd.grad(measured(z, z_next).sum(), z)
    (plain,) = torch.autograd.grad(stay(z, z_next).sum(), z)
    assert torch.cosine_similarity(gradient.flatten(), plain.flatten(), 0) > 0.95


def test_few_places_are_no_measure() -> None:
    """Objects that rest long, in a few places: a share of the agent's position in z_ext is still reduced."""
    place, agents = 3 * randn(4, 2)[torch.arange(128) % 4], randn(2, 128, 2, seed=3)

    def leaking(loss: Loss) -> Tensor:
        share = torch.tensor(0.02, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(loss(place + share * agents[0], place + share * agents[1]).sum(), share)[0]

    assert leaking(measured) > 0.8 * leaking(stay) > 0


def test_dividing_by_the_spread_survives_a_collapse() -> None:
    z = torch.zeros(8, 2, requires_grad=True)
    value = measured(z, z + 0)
    assert value.tolist() == [0] * 8
    assert torch.autograd.grad(value.sum(), z)[0].isfinite().all()
    assert measured(z, z + 1, 1e-30).isfinite().all()


def test_gradients() -> None:
    logits = [randn(5, 2, seed=seed).requires_grad_() for seed in range(5)]
    contact, share = uniform(5, 2), torch.tensor([0.3, 0.6], dtype=torch.float64)
    for wrong in (None, Wrong.evenly(0.05, share)):
        assert gradcheck(lambda a, b, *h: balanced_nll(a, b, Hidden(*h), contact, share, wrong), logits)  # noqa: B023
    remained, scale = uniform(5, 2).requires_grad_(), torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda r, s: rest_nll(r, s, 2), (remained, scale))
    assert gradcheck(levelled, (remained, scale))
