"""InfoNCE (Eq. 5) against a double loop in float64, written from the paper."""

import pytest
import torch
from drawn import quick, randn, rotation, seeds
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import normalize
from torch.testing import assert_close

from palpate.objectives.contrastive import REACH, beyond_reach, infonce, squared_distance


def batch(b: int, k: int = 1, m: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """w, w' [b, k, m] on spheres, and the agents' distances [b, b]."""
    w, w_next = (normalize(randn(b, k, m, seed=seed + i), dim=-1) for i in range(2))
    z = 0.6 * randn(b, 2, seed=seed + 2)
    return w, w_next, (z[:, None] - z[None]).square().sum(-1)


def slow_infonce(w: Tensor, w_next: Tensor, agents: Tensor, *, temperature: float, floor: float = 0.0) -> Tensor:
    """d(w, w') / tau + log of the mean over every *other* o'' of exp(-d(w', w'') / tau - agents); with a floor, each
    exp(-d / tau) is raised by it; over several objects their product."""

    def similarity(x: Tensor, y: Tensor) -> Tensor:
        each = [torch.exp(-((one - two) ** 2).sum() / temperature) + floor for one, two in zip(x, y, strict=True)]
        return torch.stack(each).prod()

    losses = []
    for i in range(len(w)):
        others = [j for j in range(len(w)) if j != i]
        mean = torch.stack([similarity(w_next[i], w_next[j]) * torch.exp(-agents[i, j]) for j in others]).mean()
        losses.append(mean.log() - similarity(w[i], w_next[i]).log())
    return torch.stack(losses)


def test_two_samples_by_hand() -> None:
    """b = 2: the only other one is at d_W = 2 and its agent at 0.5, so the mean is one exponential."""
    w, agents = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), 0.5 * (1 - torch.eye(2))
    assert infonce(w, w, agents, temperature=0.5).tolist() == pytest.approx([-4.5, -4.5])
    assert infonce(-w, w, agents, temperature=0.5).tolist() == pytest.approx([3.5, 3.5])


@quick
@given(seed=seeds, b=st.integers(2, 6), k=st.integers(1, 3), floor=st.sampled_from([0.0, 0.01, 0.5]))
def test_agrees_with_the_double_loop_and_so_does_its_gradient(seed: int, b: int, k: int, floor: float) -> None:
    inputs = [x.requires_grad_() for x in batch(b, k, seed=seed)]
    fast, slow = (function(*inputs, temperature=0.3, floor=floor) for function in (infonce, slow_infonce))
    assert_close(fast.double(), slow, atol=1e-4, rtol=1e-4)
    for quickly, slowly in zip(*(torch.autograd.grad(loss.sum(), inputs) for loss in (fast, slow)), strict=True):
        assert_close(quickly, slowly, atol=1e-4, rtol=1e-4)


def test_gradcheck_as_far_as_float32_inside_allows() -> None:
    inputs = [x.requires_grad_() for x in batch(4, 2)]
    assert gradcheck(
        lambda *x: infonce(*x, temperature=1.0, floor=0.05).double(), inputs, eps=2e-3, atol=2e-3, rtol=1e-2
    )


def test_never_o_next_itself() -> None:
    """Agents infinitely far apart leave nothing to push; itself, at distance 0, would have held the mean at 1 / b."""
    w, agents = torch.eye(4)[:, None], 1e5 * (1 - torch.eye(4))
    assert (infonce(w, w, agents, temperature=0.1) < -1e4).all()


def test_identical_scenes_score_zero() -> None:
    """All at one place: no attraction, and the mean of ones is one."""
    same = torch.ones(6, 2, 3)
    assert infonce(same, same, torch.zeros(6, 6), temperature=0.1).tolist() == pytest.approx([0] * 6, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.3, 0.01])
@pytest.mark.parametrize("floor", [0.0, 0.001])
def test_opposite_scenes_stay_finite(temperature: float, floor: float) -> None:
    """d_W = 4 at a low temperature: exp(-400) is 0 in float32."""
    w, w_next, agents = batch(5)
    w_next[0] = -w[0]
    pair = w.requires_grad_(), w_next.requires_grad_()
    loss = infonce(*pair, agents, temperature=temperature, floor=floor)
    assert loss.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss.sum(), pair))


def test_unrelated_pairs_cannot_lower_a_floored_loss_by_coming_together() -> None:
    """What the floor is for: with a share of pairs unrelated, telling scenes apart beats bringing all pairs closer."""
    b = 64
    scenes, others = (normalize(randn(b, 1, 8, seed=seed), dim=-1) for seed in range(2))
    contact = (torch.arange(b) < 0.9 * b)[:, None, None]  # there w' has nothing to do with w
    common = normalize(randn(1, 1, 8, seed=2), dim=-1)

    def mean_loss(pull: float, floor: float) -> float:
        w = normalize(scenes + pull * common, dim=-1)
        w_next = torch.where(contact, normalize(others + pull * common, dim=-1), w)
        return infonce(w, w_next, torch.zeros(b, b), temperature=0.1, floor=floor).mean().item()

    assert mean_loss(2.0, floor=0.0) < mean_loss(0.0, floor=0.0) - 1
    assert mean_loss(2.0, floor=0.001) > mean_loss(0.0, floor=0.001)


def test_the_floor_stops_the_pull_between_far_pairs_only() -> None:
    w_next = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[:, None]
    w = torch.tensor([[0.99, 0.05], [-1.0, 0.0], [0.0, 1.0]])[:, None].requires_grad_()
    pulls = []
    for floor in (0.0, 0.05):
        loss = infonce(w, w_next, torch.zeros(3, 3), temperature=0.1, floor=floor)
        pulls.append(torch.autograd.grad(loss.sum(), w)[0].norm(dim=-1)[:, 0])
    assert pulls[1][0] > 0.9 * pulls[0][0]  # a near pair is still pulled together
    assert pulls[1][1] < 1e-6 < pulls[0][1]  # a far one no longer


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 1 has no other sample"):
        infonce(*batch(1), temperature=0.1)


@quick
@given(seed=seeds)
def test_ignores_motions_of_w_and_follows_permutation(seed: int) -> None:
    w, w_next, agents = batch(6, 2, seed=seed)
    before = infonce(w, w_next, agents, temperature=0.3, floor=0.01)
    turn, order = rotation(4, seed + 3), torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    moved = infonce(w @ turn, w_next @ turn, agents, temperature=0.3, floor=0.01)
    assert_close(moved, before, atol=1e-4, rtol=1e-4)
    permuted = infonce(w[order], w_next[order], agents[order][:, order], temperature=0.3, floor=0.01)
    assert_close(permuted, before[order], atol=1e-5, rtol=1e-5)


def test_squared_distance_is_taken_in_float32() -> None:
    """Two bf16 vectors one step apart: their difference's square is exact, not rounded away."""
    w = torch.tensor([[1.0, 0.5]], dtype=torch.bfloat16)
    other = torch.tensor([[1.0078125, 0.5]], dtype=torch.bfloat16)
    distance = squared_distance(w, other)
    assert distance.dtype == torch.float32
    assert distance.item() == pytest.approx(2.0**-14)


def test_within_the_agents_reach_positions_cost_nothing() -> None:
    """Agents with a mean of (1, 2) and standard deviations of 1 and 10 along the axes."""
    side = 0.5**0.5
    agents = torch.tensor([[1 - side, 2 - 10 * side], [1 + side, 2 + 10 * side]])[:, None]
    position = torch.tensor(
        [[[1 + REACH, 2 - 10 * REACH]], [[1 + REACH + 3, 2.0]], [[1 - REACH - 3, 2 + 10 * REACH + 40]]]
    )
    assert_close(beyond_reach(position, agents), torch.tensor([[0.0], [9.0], [25.0]]), atol=1e-4, rtol=1e-4)


def test_agents_in_one_place_reach_something() -> None:
    assert beyond_reach(randn(4, 1, 2), torch.ones(4, 1, 2)).isfinite().all()
