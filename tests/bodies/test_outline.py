"""The outline of a body that does not turn."""

import math

import pytest
import torch
from torch import Tensor, nn

from palpate.bodies import make_body
from palpate.bodies.base import clearance
from palpate.bodies.outline import MOST_BENT, Outline, bounded, harmonics
from palpate.envs.sprites import Sprites
from palpate.geometry import Segment, around
from palpate.objectives.contact import change_nll
from palpate.optimizers import make_optimizers

CORNER, FLAT = 0.130, 0.105
CPU = torch.device("cpu")


def test_by_hand() -> None:
    cosines, sines = torch.tensor([0.1, 0.0, 0.2]), torch.tensor([0.0, 0.3, 0.0])  # k = 2, 3, 4
    for angle in (0.0, 0.4, 2.0, -1.3):
        toward = torch.tensor([math.cos(angle), math.sin(angle)])
        expected = 0.1 * math.cos(2 * angle) + 0.3 * math.sin(3 * angle) + 0.2 * math.cos(4 * angle)
        assert float(harmonics(toward, cosines, sines)) == pytest.approx(expected, abs=1e-6)


def test_the_bound_by_hand() -> None:
    waves = torch.tensor([[0.3, 0.0, 0.0], [0.4, 0.0, 0.1]])  # amplitudes 0.5, 0, 0.1: 3 * 0.5 + 15 * 0.1 = 3
    assert torch.allclose(bounded(waves), waves / 2, atol=1e-5)
    assert torch.equal(bounded(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_the_support_is_positive_and_its_centre_stays() -> None:
    """The mean of h(u) u, the Steiner point of a convex body, is the centre."""
    u = around(360, torch.zeros(1, dtype=torch.float64))
    for seed in range(20):
        body = Outline(2).double()
        torch.manual_seed(seed)
        body.waves.data = 3 * torch.randn(2, 3, dtype=torch.float64)
        h = body.support(u, torch.zeros(1, 0)).detach()
        assert h.min() > 0
        assert (h[:, None] * u).mean(0).norm() < 1e-9


def test_a_path_that_ends_beside_the_flat_of_a_side() -> None:
    """Between corner and middle a point is outside, though the body extends further in the point's own direction."""
    body = Outline(2)
    with torch.no_grad():
        body.log_radius.fill_(math.log((CORNER + FLAT) / 2))
        wave = (CORNER - FLAT) / (CORNER + FLAT)
        body.waves[0, 2] = wave / (1 - 15 * wave / MOST_BENT)
    toward = torch.tensor([[math.cos(math.pi / 8), math.sin(math.pi / 8)]])
    none = torch.zeros(1, 0)
    assert body.support(toward, none).item() > 0.116
    assert clearance(body, torch.zeros(1, 2), none, Segment(0.115 * toward, torch.zeros(1, 2))).item() > 0.001


@pytest.mark.slow
def test_without_evidence_the_outline_becomes_a_disc_and_with_evidence_it_does_not() -> None:
    """Gradients without information would let it drift: Adam's steps do not depend on their size."""

    def bent(signal: float, **changed: float) -> float:
        torch.manual_seed(0)
        body = Outline(2)
        groups = [{**group, **changed} for group in body.shape_groups()]
        (optimizer,) = make_optimizers(groups, weight_decay=0.0, orthogonalise=False, device=CPU)
        for step in range(1500):
            optimizer.param_groups[0]["lr"] = 0.08 * (1 - step / 1500)
            body.waves.grad = torch.randn(2, 3)
            body.waves.grad[0, 2] -= signal
            optimizer.step()
        return float(bounded(body.waves.detach()).norm(dim=0) @ torch.tensor([3.0, 8.0, 15.0]))

    assert bent(0.0) < 0.6 * bent(0.0, weight_decay=0.0)
    assert bent(2.0) > 0.7 * bent(2.0, weight_decay=0.0)


@pytest.mark.slow
def test_the_diamond_is_found() -> None:
    """Given the true positions, the likelihood finds the four corners and is the better for it."""
    triple = Sprites().sample(1500, torch.Generator().manual_seed(0))
    path, none = Segment(triple.agent, triple.displacement), torch.zeros(1500, 0)

    def fitted(name: str) -> tuple[float, Tensor]:
        body, log_softness = make_body(name, 2), nn.Parameter(torch.tensor(math.log(0.004)))
        body.get_parameter("log_radius").data.fill_(math.log(0.12))
        optimizer = torch.optim.Adam([*body.learned, log_softness], lr=0.02)
        for _ in range(100):
            logit = -clearance(body, triple.object, none, path) / log_softness.exp()
            loss = change_nll(logit, triple.contact).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item(), body.support(around(8, none), none).detach().expand(8)

    (disc, _), (diamond, support) = fitted("ball"), fitted("outline")
    assert diamond < 0.6 * disc
    # Of disc and diamond together it is 0.045 + 0.085 max(|cos|, |sin|).
    assert support.tolist() == pytest.approx([CORNER, FLAT] * 4, abs=0.01)
