"""The paper's objective as printed, against a slow twin that goes through a batch triple by triple."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.methods.store import build

TAU = 0.1


def config(method: str, n: int = 2) -> ModelConfig:
    return ModelConfig(method=method, encoder="mlp", observation_shape=(6,), observation_dtype="float32", n=n)


def otsu(distances: list[float]) -> float:
    """Every cut between two neighbours tried: the one with the least variance within the two classes."""

    def scatter(values: list[float]) -> float:
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values)

    ordered = sorted(distances)
    cuts = range(1, len(ordered))
    best = min(cuts, key=lambda i: scatter(ordered[:i]) + scatter(ordered[i:]))
    return (ordered[best - 1] + ordered[best]) / 2


def to_path(point: Tensor, start: Tensor, a: Tensor) -> float:
    """Least squared distance over a fine grid of the path."""
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None]
    return float((start + t * a - point).square().sum(1).min())


def gaussian(ext: Tensor) -> MultivariateNormal:
    """Mean, diagonal of the root, and what is below it."""
    root = torch.diag(torch.nn.functional.softplus(ext[2:4]) + 1e-3)
    root[1, 0] = ext[4]
    return MultivariateNormal(ext[:2], scale_tril=root)


def by_hand(outputs: tuple[Tensor, ...], volume: bool) -> dict[str, float]:
    z, z_next, ext, ext_next, cont, cont_next, a, t = (x.detach().double() for x in outputs)
    t, b = t.flatten(), len(a)
    w, w_next = (x / x.norm(dim=1, keepdim=True) for x in (cont, cont_next))
    d = [float((w[i] - w_next[i]).square().sum()) for i in range(b)]
    threshold = otsu(d)
    sums = dict.fromkeys(("agent", "contrast", "stay", "touch"), 0.0)
    for i in range(b):
        sums["agent"] += float((z_next[i] - z[i] - a[i]).square().sum())  # Eq. 3
        others = [
            math.exp(-float((w_next[i] - w_next[j]).square().sum() + (z_next[i] - z_next[j]).square().sum()) / TAU)
            for j in range(b)
            if j != i
        ]
        sums["contrast"] += d[i] / TAU + math.log(sum(others) / len(others))  # Eq. 5
        here, there = ext[i], ext_next[i]
        if d[i] > threshold:  # C_+: Eq. 4, right, and Sec. 4.3
            likelihood = -gaussian(here).log_prob(z[i] + t[i] * a[i]) if volume else to_path(here[:2], z[i], a[i])
            sums["touch"] += float(likelihood)
        elif volume:
            p, q = gaussian(here), gaussian(there)
            sums["stay"] += float(kl_divergence(p, q) + kl_divergence(q, p)) / 2
        else:
            sums["stay"] += float((here - there).square().sum())  # Eq. 4, left
    return {name: value / b for name, value in sums.items()}


@pytest.mark.parametrize("method", ["paper", "paper-gaussian"])
@pytest.mark.parametrize("seed", range(3))
def test_the_losses_as_printed(method: str, seed: int) -> None:
    torch.manual_seed(seed)
    model, o = build(config(method)), torch.randn(9, 6)
    batch = Batch(
        o, torch.randn(9, 2), o + torch.tensor([0.05, 1.0, 0.1])[torch.arange(9) % 3, None] * torch.randn(9, 6)
    )
    model.measure(batch)
    outputs = model.outputs(batch, torch.Generator().manual_seed(seed), torch.tensor(0.5))
    found = {name: float(x.detach()) for name, x in model.objective(outputs, torch.tensor(0.5)).terms.items()}
    expected = by_hand(outputs, volume=method == "paper-gaussian")
    assert expected["stay"] > 0
    assert expected["touch"] != 0
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("method", ["paper", "paper-gaussian"])
def test_neither_l_ext_nor_l_cont_moves_the_agent(method: str) -> None:
    torch.manual_seed(0)
    model = build(config(method))
    batch = Batch(torch.randn(16, 6), torch.randn(16, 2), torch.randn(16, 6))
    terms = model.loss(batch, torch.Generator(), torch.tensor(0.5)).terms
    sum(term for name, term in terms.items() if name != "agent").backward()  # type: ignore[union-attr]
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"phi_ext", "phi_cont"}


@pytest.mark.parametrize("method", ["paper", "paper-gaussian"])
def test_on_a_line_position_and_extent_cannot_be_told_apart(method: str) -> None:
    with pytest.raises(ValueError, match=r"actions have one dimension: .* use objective='contact'"):
        build(config(method, n=1))


def test_a_threshold_of_one_batch_is_not_acted_on() -> None:
    """Two classes far apart: contacts are known, and yet no triple is oversampled."""
    torch.manual_seed(0)
    model = build(config("paper"))
    o = torch.randn(300, 6)
    o_next = torch.where(torch.arange(300)[:, None] < 150, o, torch.randn(300, 6))
    batch = Batch(o, torch.randn(300, 2), o_next)
    loss = model.loss(batch, torch.Generator(), torch.tensor(0.5))
    assert loss.contacts is not None
    assert not loss.contacts.any()
    seen = model.examine(batch)
    assert seen is not None
    assert seen.contact.any()
