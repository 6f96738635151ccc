"""InfoNCE (Eq. 5) against a double loop in float64, written from the paper."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import normalize

from palpate.objectives.contrastive import infonce, pairwise, squared_distance

quick = settings(deadline=None, max_examples=30, derandomize=True, database=None)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(b: int, m: int = 4, n: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """w, w' on the sphere and z_int'."""
    w, w_next = (normalize(randn(b, m, seed=seed + i), dim=-1) for i in range(2))
    return w, w_next, 0.3 * randn(b, n, seed=seed + 2)


def slow_infonce(w: Tensor, w_next: Tensor, z_int_next: Tensor, *, temperature: float, floor: float = 0.0) -> Tensor:
    """d(w, w') / tau + log of the mean over every *other* o'' of exp(-(d(w', w'') + d(z', z'')) / tau); with a floor,
    each exp(-d(w, .) / tau) is raised by it."""

    def similarity(x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(-((x - y) ** 2).sum() / temperature) + floor

    losses = []
    for i in range(len(w)):
        terms = []
        for j in range(len(w)):
            if j != i:
                agents = torch.exp(-((z_int_next[i] - z_int_next[j]) ** 2).sum() / temperature)
                terms.append(similarity(w_next[i], w_next[j]) * agents)
        losses.append(torch.stack(terms).mean().log() - similarity(w[i], w_next[i]).log())
    return torch.stack(losses)


def test_two_samples_by_hand() -> None:
    """b = 2: the only other one is at d_W = 2 and agent distance 0.25, so the mean is one exponential."""
    w, w_next = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    z_int_next = torch.tensor([[0.0], [0.5]])
    loss = infonce(w, w_next, z_int_next, temperature=0.5)
    assert loss.tolist() == pytest.approx([-4.5, -4.5])
    apart = infonce(-w, w_next, z_int_next, temperature=0.5)
    assert apart.tolist() == pytest.approx([3.5, 3.5])


@quick
@given(
    seed=st.integers(0, 1000),
    b=st.integers(2, 7),
    temperature=st.sampled_from([0.1, 0.3, 1.0]),
    floor=st.sampled_from([0.0, 0.01, 0.05, 0.5]),
)
def test_agrees_with_the_double_loop(seed: int, b: int, temperature: float, floor: float) -> None:
    inputs = batch(b, seed=seed)
    fast = infonce(*inputs, temperature=temperature, floor=floor)
    slow = slow_infonce(*inputs, temperature=temperature, floor=floor)
    assert fast.shape == (b,)
    torch.testing.assert_close(fast.double(), slow, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_gradient_agrees_with_that_of_the_double_loop(floor: float) -> None:
    inputs = [x.requires_grad_() for x in batch(5)]
    fast = torch.autograd.grad(infonce(*inputs, temperature=0.3, floor=floor).sum(), inputs)
    slow = torch.autograd.grad(slow_infonce(*inputs, temperature=0.3, floor=floor).sum(), inputs)
    for quickly, slowly in zip(fast, slow, strict=True):
        assert slowly.abs().max() > 0.1
        torch.testing.assert_close(quickly, slowly, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_gradcheck_as_far_as_float32_inside_allows(floor: float) -> None:
    inputs = [x.requires_grad_() for x in batch(4)]
    assert gradcheck(
        lambda *x: infonce(*x, temperature=1.0, floor=floor).double(), inputs, eps=2e-3, atol=2e-3, rtol=1e-2
    )


def test_never_o_next_itself() -> None:
    """Scenes infinitely far apart leave nothing to push; itself, at distance 0, would have held the mean at 1 / b."""
    w = torch.eye(4)
    z_int_next = 100 * torch.arange(4.0)[:, None]
    loss = infonce(w, w, z_int_next, temperature=0.1)
    assert (loss < -1e4).all()


def test_identical_scenes_score_zero() -> None:
    """All at one place: no attraction, and the mean of ones is one."""
    same = torch.ones(6, 3)
    assert infonce(same, same, torch.zeros(6, 2), temperature=0.1).tolist() == pytest.approx([0] * 6, abs=1e-6)


def test_agents_apart_push_less() -> None:
    """The agents' distance counts as distance: scenes that differ there already have less to gain in w."""
    w, w_next, z_int_next = batch(6)
    near = infonce(w, w_next, torch.zeros_like(z_int_next), temperature=0.3)
    far = infonce(w, w_next, 3 * z_int_next, temperature=0.3)
    assert (far < near).all()


def test_temperature_divides_every_distance() -> None:
    w, w_next, z_int_next = batch(6)
    at_one = infonce(2 * w, 2 * w_next, 2 * z_int_next, temperature=1.0)
    at_quarter = infonce(w, w_next, z_int_next, temperature=0.25)
    torch.testing.assert_close(at_quarter, at_one)


def test_the_floor_goes_to_the_plain_term() -> None:
    inputs = batch(6)
    plain = infonce(*inputs, temperature=0.3)
    gaps = [
        (infonce(*inputs, temperature=0.3, floor=floor) - plain).abs().max().item()
        for floor in (1e-1, 1e-3, 1e-5, 1e-9)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 1
    assert gaps[-1] < 1e-3


@pytest.mark.parametrize("temperature", [0.3, 0.1, 0.03, 0.01])
@pytest.mark.parametrize("floor", [0.0, 0.001])
def test_opposite_scenes_stay_finite(temperature: float, floor: float) -> None:
    """d_W = 4 at a low temperature: exp(-400) is 0 in float32."""
    w, w_next, z_int_next = batch(5)
    w_next[0] = -w[0]
    w.requires_grad_()
    w_next.requires_grad_()
    loss = infonce(w, w_next, z_int_next, temperature=temperature, floor=floor)
    assert loss.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss.sum(), (w, w_next)))


def test_unrelated_pairs_cannot_lower_a_floored_loss_by_coming_together() -> None:
    """What the floor is for: with a share of pairs unrelated, telling scenes apart beats bringing all pairs closer."""
    b, temperature = 64, 0.1
    scenes = normalize(randn(b, 8), dim=-1)
    others = normalize(randn(b, 8, seed=1), dim=-1)
    touched = torch.arange(b) < 0.9 * b  # there w' has nothing to do with w
    common = normalize(randn(1, 8, seed=2), dim=-1)

    def mean_loss(pull: float, floor: float) -> float:
        w = normalize(scenes + pull * common, dim=-1)
        w_next = torch.where(touched[:, None], normalize(others + pull * common, dim=-1), w)
        return infonce(w, w_next, torch.zeros(b, 2), temperature=temperature, floor=floor).mean().item()

    assert mean_loss(2.0, floor=0.0) < mean_loss(0.0, floor=0.0) - 1
    assert mean_loss(2.0, floor=0.001) > mean_loss(0.0, floor=0.001)


def test_the_floor_stops_the_pull_between_far_pairs_only() -> None:
    w_next = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    w = torch.tensor([[0.99, 0.05], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    pulls = []
    for floor in (0.0, 0.05):
        loss = infonce(w, w_next, torch.zeros(3, 1), temperature=0.1, floor=floor)
        pulls.append(torch.autograd.grad(loss.sum(), w)[0].norm(dim=1))
    assert pulls[1][0] > 0.9 * pulls[0][0]  # a near pair is still pulled together
    assert pulls[1][1] < 1e-6 < pulls[0][1]  # a far one no longer


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 1 has no other"):
        infonce(*batch(1), temperature=0.1)


@quick
@given(seed=st.integers(0, 1000))
def test_ignores_motions_of_either_space_and_follows_permutation(seed: int) -> None:
    w, w_next, z_int_next = batch(6, seed=seed)
    before = infonce(w, w_next, z_int_next, temperature=0.3)
    turn = torch.linalg.qr(randn(4, 4, seed=seed + 3)).Q
    shift = randn(2, seed=seed + 4)
    moved = infonce(w @ turn, w_next @ turn, z_int_next + shift, temperature=0.3)
    torch.testing.assert_close(moved, before, atol=1e-4, rtol=1e-4)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    permuted = infonce(w[order], w_next[order], z_int_next[order], temperature=0.3)
    torch.testing.assert_close(permuted, before[order], atol=1e-5, rtol=1e-5)


def test_squared_distance_is_taken_in_float32() -> None:
    """Two bf16 vectors one step apart: their difference's square is exact, not rounded away."""
    w = torch.tensor([[1.0, 0.5]], dtype=torch.bfloat16)
    other = torch.tensor([[1.0078125, 0.5]], dtype=torch.bfloat16)
    distance = squared_distance(w, other)
    assert distance.dtype == torch.float32
    assert distance.item() == pytest.approx(2.0**-14)


def test_squared_distance_by_hand_and_gradcheck() -> None:
    assert squared_distance(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0]])).tolist() == [25]
    inputs = [randn(3, 2, seed=seed).requires_grad_() for seed in range(2)]
    assert gradcheck(lambda *x: squared_distance(*x).double(), inputs, eps=2e-3, atol=2e-3)


def test_pairwise_by_hand_and_keeps_small_distances() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert pairwise(x).tolist() == [[0, 25, 1], [25, 0, 18], [1, 18, 0]]
    close = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2.0**-20]])
    assert pairwise(close)[0, 1].item() == 2.0**-40
    assert math.isclose(pairwise(randn(3, 2))[0, 2].item(), pairwise(randn(3, 2))[2, 0].item())
    assert gradcheck(pairwise, randn(4, 3).requires_grad_())
