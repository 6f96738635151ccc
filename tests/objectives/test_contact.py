"""Where the object must be: the paper's point and Gaussian losses, and the contact likelihood."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import Bernoulli, MultivariateNormal, kl_divergence

from palpate.geometry import Segment, double_angle, ellipse, segment_distance2, segment_mahalanobis2
from palpate.objectives.contact import (
    ADDED_WIDTH,
    DISTANCE_EPS,
    contact_logit,
    contact_nll,
    gaussian_stay,
    gaussian_touch,
    levelled,
    spread_nearby,
    stay,
    touch,
    unshrinkable,
)

quick = settings(deadline=None, max_examples=30, derandomize=True, database=None)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def root_of(*shape: int, seed: int = 0) -> Tensor:
    return 0.4 * randn(*shape, shape[-1], seed=seed).tril(-1) + torch.diag_embed(0.5 + randn(*shape, seed=seed).abs())


# The paper's points


def test_stay_by_hand() -> None:
    assert stay(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])).tolist() == [25, 0]


def test_touch_by_hand() -> None:
    path = Segment(torch.zeros(3, 2), torch.tensor([[2.0, 0.0]] * 3))
    assert touch(torch.tensor([[1.0, 3.0], [5.0, 4.0], [2.0, 0.0]]), path).tolist() == [9, 25, 0]


def test_touch_with_a_zero_action_is_the_distance_to_the_agent() -> None:
    z_ext = torch.tensor([[3.0, 4.0]], requires_grad=True)
    loss = touch(z_ext, Segment(torch.zeros(1, 2), torch.zeros(1, 2)))
    assert loss.tolist() == [25]
    assert torch.autograd.grad(loss.sum(), z_ext)[0].tolist() == [[6, 8]]


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 3))
def test_points_agree_with_slow_twins(seed: int, n: int) -> None:
    z_ext, z_ext_next, start, move = (randn(3, 2, n, seed=seed + i) for i in range(4))
    assert stay(z_ext, z_ext_next).shape == (3, 2)
    gap = stay(z_ext, z_ext_next)[1, 1].item()
    assert gap == pytest.approx(sum((z_ext[1, 1, j] - z_ext_next[1, 1, j]).item() ** 2 for j in range(n)))
    sampled = min(
        (z_ext[1, 1] - start[1, 1] - t * move[1, 1]).square().sum().item() for t in torch.linspace(0, 1, 501).double()
    )
    assert touch(z_ext, Segment(start, move))[1, 1].item() == pytest.approx(sampled, abs=1e-4)


def test_gradients_of_the_points_losses() -> None:
    z_ext, other, start, move = (randn(4, 2, seed=seed).requires_grad_() for seed in range(4))
    assert gradcheck(stay, (z_ext, other))
    assert gradcheck(lambda z_ext, start, move: touch(z_ext, Segment(start, move)), (z_ext, start, move))


# Its Gaussians


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 3))
def test_gaussian_stay_averages_both_directions(seed: int, n: int) -> None:
    mean, mean_next = randn(4, n, seed=seed), randn(4, n, seed=seed + 1)
    root, root_next = root_of(4, n, seed=seed + 2), root_of(4, n, seed=seed + 3)
    before, after = MultivariateNormal(mean, scale_tril=root), MultivariateNormal(mean_next, scale_tril=root_next)
    twin = (kl_divergence(before, after) + kl_divergence(after, before)) / 2
    loss = gaussian_stay(mean, root, mean_next, root_next)
    torch.testing.assert_close(loss, twin)
    torch.testing.assert_close(gaussian_stay(mean_next, root_next, mean, root), loss)


def test_gaussian_stay_by_hand() -> None:
    """Unit covariances a distance 3 apart: 9 / 2; the same body: 0. One of twice the width: 9/16 for each axis."""
    eye, zero = torch.eye(2)[None], torch.zeros(1, 2)
    assert gaussian_stay(zero, eye, torch.tensor([[0.0, 3.0]]), eye).item() == pytest.approx(4.5)
    assert gaussian_stay(zero, eye, zero, eye).item() == 0
    # (log 2 + 1/8 - 1/2 - log 2 + 4/2 - 1/2) / 2 = 9/16
    assert gaussian_stay(zero, eye, zero, 2 * eye).item() == pytest.approx(2 * 9 / 16)


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 3))
def test_gaussian_touch_is_the_likelihood_of_the_paths_point(seed: int, n: int) -> None:
    mean, start, move = (randn(4, n, seed=seed + i) for i in range(3))
    root = root_of(4, n, seed=seed + 3)
    t = torch.rand(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    twin = -MultivariateNormal(mean, scale_tril=root).log_prob(start + t[:, None] * move)
    torch.testing.assert_close(gaussian_touch(mean, root, Segment(start, move), t), twin)


def test_gaussian_touch_with_a_zero_action_ignores_the_parameter() -> None:
    mean, root, path = randn(2, 2), root_of(2, 2), Segment(randn(2, 2, seed=1), torch.zeros(2, 2, dtype=torch.float64))
    low, high = (gaussian_touch(mean, root, path, torch.full((2,), t, dtype=torch.float64)) for t in (0.0, 1.0))
    assert torch.equal(low, high)


def test_gradients_of_the_gaussian_losses() -> None:
    mean, other, start, move = (randn(3, 2, seed=seed).requires_grad_() for seed in range(4))
    root, root_other = (root_of(3, 2, seed=seed).requires_grad_() for seed in (4, 5))
    t = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    assert gradcheck(
        lambda mean, root, other, root_other: gaussian_stay(mean, root.tril(), other, root_other.tril()),
        (mean, root, other, root_other),
    )
    assert gradcheck(
        lambda mean, root, start, move: gaussian_touch(mean, root.tril(), Segment(start, move), t),
        (mean, root, start, move),
    )


# The contact likelihood


def test_logit_by_hand() -> None:
    distance2 = torch.tensor([0.04, 0.01, 0.09], dtype=torch.float64)
    logit = contact_logit(distance2, radius=0.2, softness=0.05)
    assert logit.tolist() == pytest.approx([0, 2, -2], abs=1e-3)
    assert contact_logit(torch.zeros(1), 0.2, 0.05).item() == pytest.approx(4, abs=0.03)
    assert math.sqrt(DISTANCE_EPS) < 0.05 * 0.045, "the smoothing must not be felt at the size of a body"


def test_nll_by_hand() -> None:
    """Even odds cost log 2 either way; log-odds of log 3 cost log 4/3 when right and log 4 when wrong."""
    logit, contact = torch.tensor([0.0, 0.0, math.log(3), math.log(3)]), torch.tensor([True, False, True, False])
    expected = [math.log(2), math.log(2), math.log(4 / 3), math.log(4)]
    assert contact_nll(logit, contact).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("doubt", [0.01, 0.05, 0.3])
def test_doubted_contacts_by_hand(doubt: float) -> None:
    logit = torch.tensor([-300.0, -2.0, 0.0, 2.0, 300.0], dtype=torch.float64)
    for contact in (True, False):
        right = logit.sigmoid() if contact else (-logit).sigmoid()
        expected = -torch.log(doubt + (1 - 2 * doubt) * right)
        found = contact_nll(logit, torch.full((5,), contact), doubt)
        assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert float(found.max()) == pytest.approx(-math.log(doubt))  # at most so much for a wrong one, however far


def test_a_few_false_contacts_do_not_make_the_body_larger() -> None:
    """Paths at all distances of a body of radius 0.1; one of ten that missed is said to have touched."""
    distance = torch.linspace(0, 1, 3000, dtype=torch.float64)
    contact = (distance < 0.1) | (torch.arange(3000) % 10 == 0)
    radii = torch.linspace(0.02, 0.9, 89, dtype=torch.float64)

    def best(doubt: float) -> float:
        losses = [contact_nll(contact_logit(distance**2, r, 0.02), contact, doubt).mean() for r in radii]
        return float(radii[int(torch.stack(losses).argmin())])

    assert best(0.05) == pytest.approx(0.1, abs=0.011)
    assert best(0.0) > 0.15


@quick
@given(
    seed=st.integers(0, 1000),
    b=st.integers(1, 6),
    radius=st.floats(0.01, 2),
    softness=st.floats(0.05, 1),
    k=st.booleans(),
)
def test_likelihood_agrees_with_a_bernoulli(seed: int, b: int, radius: float, softness: float, k: bool) -> None:
    shape = (b, 3) if k else (b,)
    distance2 = randn(*shape, seed=seed).square()
    contact = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    logit = contact_logit(distance2, torch.tensor(radius, dtype=torch.float64), softness)
    odds = (radius - (distance2 + DISTANCE_EPS).sqrt()) / softness
    twin = -Bernoulli(probs=1 / (1 + torch.exp(-odds))).log_prob(contact.double())
    loss = contact_nll(logit, contact)
    assert loss.shape == shape
    torch.testing.assert_close(loss, twin, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_likelihood_with_no_contacts_or_nothing_else(share: float) -> None:
    distance2 = torch.tensor([0.0, 0.01, 4.0])
    loss = contact_nll(contact_logit(distance2, 0.1, 0.01), torch.full((3,), bool(share)))
    assert loss.isfinite().all()
    assert (loss.diff() >= 0).all() if share else (loss.diff() <= 0).all()


def test_likelihood_stays_finite_far_away() -> None:
    distance2 = torch.tensor([1e6, 0.0], requires_grad=True)
    loss = contact_nll(contact_logit(distance2, 0.1, 0.002), torch.tensor([True, False]))
    assert loss.tolist() == pytest.approx([(1e3 - 0.1) / 0.002, 0.099 / 0.002], rel=1e-4)
    assert torch.autograd.grad(loss.sum(), distance2)[0].isfinite().all()


def test_gradient_of_the_likelihood_also_on_the_path() -> None:
    contact = torch.tensor([True, False, True, False])
    point, start, move = (randn(4, 2, seed=seed) for seed in range(3))
    radius = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    softness = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def loss(point: Tensor, start: Tensor, move: Tensor, radius: Tensor, softness: Tensor) -> Tensor:
        distance2 = segment_distance2(point, Segment(start, move))
        return contact_nll(contact_logit(distance2, radius, softness), contact)

    assert gradcheck(loss, (*(x.requires_grad_() for x in (point, start, move)), radius, softness))
    on_path = (start + 0.5 * move).detach().requires_grad_()
    gradient = torch.autograd.grad(loss(on_path, start, move, radius, softness).sum(), on_path)[0]
    assert gradient.abs().max() < 1e-6, "the distance has a kink there, its smoothed version a slope of 0"


def test_zero_action_is_judged_by_the_distance_to_the_agent() -> None:
    path = Segment(torch.zeros(2, 2), torch.zeros(2, 2))
    distance2 = segment_distance2(torch.tensor([[0.05, 0.0], [0.5, 0.0]]), path)
    logit = contact_logit(distance2, 0.1, 0.01)
    assert (logit > 0).tolist() == [True, False]


def sweeps(count: int, seed: int) -> tuple[Segment, Tensor]:
    """Random moves in the unit square and whether each touches a ball of radius 0.15 at (0.5, 0.5)."""
    start, end = torch.rand(2, count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    path = Segment(start, end - start)
    return path, segment_distance2(torch.full((2,), 0.5, dtype=torch.float64), path) < 0.15**2


def test_likelihood_prefers_the_true_centre_and_radius() -> None:
    path, contact = sweeps(4000, seed=0)
    assert 0.2 < contact.double().mean() < 0.8

    def loss(x: float, y: float, radius: float) -> float:
        distance2 = segment_distance2(torch.tensor([x, y], dtype=torch.float64), path)
        return contact_nll(contact_logit(distance2, radius, 0.01), contact).mean().item()

    grid = [0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65]
    assert min((loss(x, y, 0.15), x, y) for x in grid for y in grid)[1:] == (0.5, 0.5)
    assert min((loss(0.5, 0.5, radius), radius) for radius in (0.05, 0.1, 0.13, 0.15, 0.17, 0.2))[1] == 0.15


def test_the_paths_that_did_not_touch_are_what_the_points_loss_lacks() -> None:
    """Descending the likelihood from afar finds the centre and the radius together."""
    path, contact = sweeps(2000, seed=1)
    centre = torch.tensor([0.8, 0.25], dtype=torch.float64, requires_grad=True)
    radius = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam((centre, radius), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        contact_nll(contact_logit(segment_distance2(centre, path), radius, 0.02), contact).mean().backward()
        optimiser.step()
    assert (centre - 0.5).norm().item() < 0.01
    assert radius.item() == pytest.approx(0.15, abs=0.01)


def test_elliptic_likelihood_prefers_the_true_angle() -> None:
    start, end = torch.rand(2, 4000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    path, centre = Segment(start, end - start), torch.full((2,), 0.5, dtype=torch.float64)
    long, short = 0.3, 0.08

    def distance2(angle: float) -> Tensor:
        axis = double_angle(torch.tensor(angle, dtype=torch.float64))
        root = ellipse(axis, math.sqrt(long * short), math.log(long / short), power=-1.0)
        return segment_mahalanobis2(centre, path, root)

    contact = distance2(0.7) < 1
    angles = [i * math.pi / 20 for i in range(20)] + [0.7]
    losses = [contact_nll(contact_logit(distance2(angle), 1.0, 0.1), contact).mean().item() for angle in angles]
    assert angles[losses.index(min(losses))] == 0.7


@given(st.floats(0, 10), st.floats(0.01, 3))
def test_levelled_keeps_small_distances_and_bounds_large_ones(distance2: float, scale: float) -> None:
    value = levelled(torch.tensor(distance2, dtype=torch.float64), scale).item()
    assert value <= min(distance2, scale**2) + 1e-12
    assert value == pytest.approx(distance2 * scale**2 / (scale**2 + distance2))


def test_gradient_of_levelled_vanishes_far_away() -> None:
    distance2 = torch.tensor([1e-6, 100.0], dtype=torch.float64, requires_grad=True)
    levelled(distance2, 0.3).sum().backward()
    near, far = distance2.grad.tolist()
    assert near == pytest.approx(1, rel=1e-3)
    assert far < 1e-4


# L_- measured by the spread nearby


def pairs(count: int = 64, n: int = 2, noise: float = 0.02) -> tuple[Tensor, Tensor]:
    """Places of untouched objects as o and o' tell them, which differ a little."""
    place = randn(count, n)
    return place + noise * randn(count, n, seed=1), place + noise * randn(count, n, seed=2)


def measured(z: Tensor, z_next: Tensor, reach: float = 0.25) -> Tensor:
    return unshrinkable(z, z_next, spread_nearby(z, z_next, reach))


def scaling(loss: Callable[[Tensor, Tensor], Tensor], z: Tensor, z_next: Tensor, *, axes: int = 1) -> Tensor:
    """Gradient of the summed loss by one factor for the whole frame, or one for each axis."""
    factor = torch.ones(axes, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(factor * z, factor * z_next).sum(), factor)
    return gradient


def test_spread_nearby_by_hand() -> None:
    z = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    # Of two triples that rest, each sees the two observations of the other one: 2 away along x. The variance of all
    # four is 4/3 along x and 0 along y.
    added = ADDED_WIDTH * 0.25**2 * (4 / 3) / 2
    assert spread_nearby(z, z, 0.25).tolist() == [pytest.approx([4 + added, added])] * 2


def test_spread_nearby_looks_at_the_near_ones() -> None:
    cluster = randn(32, 2)
    z = torch.cat((cluster, 3 * cluster + 100))
    spread = spread_nearby(z, z, 0.02)
    assert spread.max() < 20  # the others are 100 away
    assert spread[32:].mean() > 1.5 * spread[:32].mean()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_measuring_by_the_spread_changes_no_value(n: int) -> None:
    z, z_next = pairs(n=n)
    assert torch.allclose(measured(z, z_next), stay(z, z_next))


def test_shrinking_the_frame_is_rewarded_by_l_stay_but_not_when_measured_by_the_spread() -> None:
    z, z_next = pairs(256)
    plain, gradient = scaling(stay, z, z_next), scaling(measured, z, z_next)
    assert plain > 0
    assert gradient.abs() < 0.1 * plain


def test_nor_is_shrinking_along_the_axis_with_the_larger_noise() -> None:
    place = randn(256, 2)
    z, z_next = (place + torch.tensor([0.05, 0.005]) * randn(256, 2, seed=k) for k in (1, 2))
    plain, gradient = scaling(stay, z, z_next, axes=2), scaling(measured, z, z_next, axes=2)
    assert plain[0] > 0
    assert (gradient.abs() < 0.1 * plain[0]).all()


def test_shrinking_one_region_is_not_rewarded_either() -> None:
    z, z_next = pairs(256)
    shift = torch.tensor([50.0, 0.0], dtype=torch.float64)

    def beside(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda one, two: loss(torch.cat((one, z + shift)), torch.cat((two, z_next + shift)))

    plain = scaling(beside(stay), z, z_next)
    gradient = scaling(beside(lambda one, two: measured(one, two, 0.01)), z, z_next)
    assert plain > 0
    assert gradient.abs() < 0.15 * plain


def test_the_noise_itself_is_still_pulled_together() -> None:
    z, z_next = (x.requires_grad_() for x in pairs())
    (gradient,) = torch.autograd.grad(measured(z, z_next).sum(), z)
    (plain,) = torch.autograd.grad(stay(z, z_next).sum(), z)
    assert torch.cosine_similarity(gradient.flatten(), plain.flatten(), 0) > 0.95


def test_few_places_are_no_measure() -> None:
    """Objects that rest long, in a few places: what z_ext says of the agent is still pulled out of it."""
    place, agents = 3 * randn(4, 2)[torch.arange(128) % 4], randn(2, 128, 2, seed=3)

    def leaking(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        share = torch.tensor(0.02, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(place + share * agents[0], place + share * agents[1]).sum(), share)
        return gradient

    assert leaking(measured) > 0.8 * leaking(stay) > 0


def test_measuring_by_the_spread_survives_a_collapse() -> None:
    z = torch.zeros(8, 2, requires_grad=True)
    value = measured(z, z + 0)
    assert value.tolist() == [0] * 8
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert gradient.isfinite().all()
    assert measured(z, z + 1, 1e-30).isfinite().all()
