"""The last fit: z_ext bent by a polynomial of itself, so that it explains contacts."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from palpate.methods.interaction import JUDGES, SETTLES, Interaction
from torch import Tensor, nn
from torch.nn import functional as F

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.geometry import Segment, ellipse, segment_mahalanobis2
from palpate.methods import interaction
from palpate.refine import Bend, keep_the_best

STEPS, ROWS, UNIT = 300, 512, 2.0


@pytest.mark.parametrize(("n", "degree", "terms"), [(1, 3, 4), (2, 1, 3), (2, 9, 55), (3, 2, 10)])
def test_a_bend_is_none_at_first_and_has_every_term(n: int, degree: int, terms: int) -> None:
    bend, z = Bend(n, degree), torch.randn(40, n)
    assert torch.equal(bend(z), z)
    assert bend.coefficients.shape == (terms, n)
    bend.measure(z)
    assert torch.equal(bend(z), z)


def test_any_polynomial_can_be_said_and_beyond_the_field_it_stays_what_it_is_at_the_border() -> None:
    torch.manual_seed(0)
    bend, z = Bend(2, 3), torch.rand(4000, 2, dtype=torch.float64) * torch.tensor([2.0, 6.0]) + 1
    bend.double().measure(z)
    x, y = z.T
    wanted = torch.stack((0.1 * x * y**2 - x, 0.2 * x**3 + 1), 1)
    inside = ((z - bend.centre).abs() <= bend.reach).all(1)
    terms = bend._terms(z) @ bend.mixing
    assert torch.allclose(terms.T @ terms / len(z), torch.eye(10, dtype=torch.float64), atol=1e-6)
    bend.coefficients.copy_(torch.linalg.lstsq(terms[inside], wanted[inside]).solution)
    assert torch.allclose((bend(z) - z)[inside], wanted[inside], atol=1e-6)
    corner, beyond = bend.centre + bend.reach, bend.centre + 5 * bend.reach
    assert torch.allclose(*((bend(p[None]) - p) for p in (corner, beyond)))


class Says(nn.Module):
    def __init__(self, what: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Tensor) -> Tensor:
        return self.what(x)


def bent(place: Tensor) -> Tensor:
    x, y = place.T
    return place + 0.08 * torch.stack((x * y, x**2 - y**2), 1)


def knowing(phi_ext: Callable[[Tensor], Tensor], **switches: Any) -> Interaction:
    """A model that sees agent and object, told apart already, and says of the object what `phi_ext` makes of it."""
    objective = ObjectiveConfig(bend=3, **switches)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(4,), n=2, objective=objective)).eval()
    model.inputs.unit.fill_(UNIT)
    model.phi_int = Says(lambda x: x[:, :2] / UNIT)  # type: ignore[assignment]
    model.phi_ext = Says(lambda x: phi_ext(x[:, 2:]) / UNIT)  # type: ignore[assignment]
    model.phi_cont = Says(lambda x: F.pad(x[:, 2:], (0, 1), value=1.0))  # type: ignore[assignment]
    with torch.no_grad():
        known = world(0.3, 7)()
        model.split.update(model.distance(known.o, known.o_next), torch.full((ROWS,), 1e-4))
    return model


def world(radius: float, seed: int, wrong: float = 0.0, ratio: float = 1.0) -> Callable[[], Batch]:
    """A disc, or an ellipse along x, that lands somewhere else when it is touched.

    A share of those that are stays, as if it were not.
    """
    generator = torch.Generator().manual_seed(seed)

    def somewhere(most: float) -> Tensor:
        return most * (2 * torch.rand(ROWS, 2, generator=generator) - 1)

    def draw() -> Batch:
        agent, place, a = somewhere(1.5), somewhere(1.0), somewhere(1.5)
        back = ellipse(torch.tensor([1.0, 0.0]), radius, math.log(ratio), power=-1.0)  # to the unit disc
        touched = segment_mahalanobis2(place, Segment(agent, a), back) < 1
        told = touched & (torch.rand(ROWS, generator=generator) >= wrong)
        landed = torch.where(told[:, None], somewhere(1.0), place)
        return Batch(torch.cat((agent, place), 1), a, torch.cat((agent + a, landed), 1))

    return draw


def error(model: Interaction) -> float:
    o = world(0.3, 5)().o
    with torch.no_grad():
        return float((model.encode(o).object - o[:, 2:]).norm(dim=1).mean())


@pytest.mark.parametrize(("switches", "wrong"), [({}, 0.0), ({"outline": 4}, 0.0), ({}, 0.01)])
def test_a_last_fit_finds_what_the_network_has_wrong_in_common(switches: dict[str, int], wrong: float) -> None:
    torch.manual_seed(0)
    model = knowing(bent, **switches)
    with torch.no_grad():
        model.body.log_radius.fill_(math.log(0.27 / UNIT))
        model.body.softness.fill_(-2.0)
    before = error(model)
    model.settle(world(0.3, 1, wrong), STEPS)
    assert error(model) < before / 5
    assert model.vitals()["radius"] == pytest.approx(0.3, rel=0.02)
    assert model.vitals()["softness"] < 0.01
    assert all(p.requires_grad for p in (model.body.log_radius, model.body.softness))
    assert model.bend is not None
    assert not model.bend.coefficients.requires_grad
    assert model.body.outline is None or model.body.outline.abs().max() > 1e-4
    # In its own unit, which is the spread of these places' errors.
    assert model.vitals()["bend"] == pytest.approx(0.08 * (1 / 9 + 8 / 45) ** 0.5, rel=0.1)
    bent_once = error(model)
    model.settle(world(0.3, 2), STEPS)  # not a second time: what is bent already would be measured anew
    assert error(model) == bent_once


@pytest.mark.parametrize("rim", [False, True])
def test_a_body_with_axes_is_fitted_too(rim: bool) -> None:
    torch.manual_seed(0)
    along = torch.tensor([100.0, 0.0]).expand(2 * ROWS, 2)  # in the disc it is 1
    model = knowing(lambda place: torch.cat((place, UNIT * along[: len(place)]), 1), body="axes", rim=rim)
    with torch.no_grad():
        model.body.log_radius.fill_(math.log(0.3 / UNIT))
    model.settle(world(0.3, 1, ratio=2.0), STEPS)
    assert model.vitals()["ratio"] == pytest.approx(2.0, rel=0.02)
    assert model.vitals().get("rim", 0.0) < 0.1  # it was 0.49, and this is an ellipse


def test_a_path_is_seen_from_both_its_ends() -> None:
    model, batch = knowing(bent), world(0.3, 1)()
    off = 0.1 * torch.randn(ROWS, 2)
    model.phi_int = Says(lambda x: x[:, :2] / UNIT + torch.cat((off, -off)))  # type: ignore[assignment]
    assert torch.allclose(model._told(batch).start, batch.o[:, :2] / UNIT, atol=1e-6)


def test_a_bend_that_is_none_is_not_kept_for_the_sake_of_a_sharper_border() -> None:
    """What is wrong here changes faster than any such polynomial; how softly a border begins is to be learned."""
    torch.manual_seed(0)
    model = knowing(lambda place: place + 0.004 * torch.sin(37 * place))
    with torch.no_grad():
        model.body.log_radius.fill_(math.log(0.3 / UNIT))
    before, soft = error(model), model.vitals()["softness"]
    model.settle(world(0.3, 1), 60)
    assert model.vitals()["softness"] < soft / 4
    assert error(model) < 1.1 * before


def test_where_others_are_explained_worse_all_stays() -> None:
    """The triples that judge come first: there the body is as the model says, in those fitted to it is another."""
    model = knowing(lambda place: place)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    judging = math.ceil(JUDGES * math.ceil(SETTLES * STEPS))
    drawn: Iterator[Batch] = (world(0.5 if k < judging else 0.8, k)() for k in range(100))
    model.settle(lambda: next(drawn), STEPS)
    for name in ("body.log_radius", "body.softness", "bend.coefficients"):
        assert torch.equal(model.state_dict()[name], state[name])
    assert model.bend is not None
    assert not torch.equal(model.bend.reach, state["bend.reach"])  # it was tried
    assert model.vitals()["bend"] == 0


def test_no_more_triples_than_memory_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interaction, "MOST_SETTLING", 5 * ROWS)
    drawn: list[Batch] = []
    draw = world(0.3, 1)
    knowing(bent).settle(lambda: drawn.append(draw()) or drawn[-1], STEPS)  # type: ignore[func-returns-value]
    assert len(drawn) == 5


def test_nothing_is_drawn_where_nothing_is_to_be_fitted() -> None:
    def never() -> Batch:
        raise AssertionError

    model = knowing(bent)
    model.settle(never, 1)  # a single batch, which would have to judge itself
    Interaction(ModelConfig(encoder="mlp", observation_shape=(4,), n=2)).settle(never, STEPS)
    model.split.valley.zero_()  # contacts are not told apart
    model.settle(never, STEPS)


def test_places_that_are_not_numbers_are_left_alone() -> None:
    model = knowing(lambda place: torch.where(place > 0.9, torch.inf, place))
    model.settle(world(0.3, 1), 60)
    assert model.vitals()["bend"] == 0


def test_nor_is_anything_kept_that_cannot_be_judged() -> None:
    bend, body = Bend(1, 1), [nn.Parameter(torch.tensor(3.0))]
    keep_the_best(
        bend, body, lambda: (body[0] + bend(torch.ones(1, 1)) - 1).square().sum(), lambda: torch.tensor(torch.nan)
    )
    assert body[0] == 3
    assert not bend.coefficients.any()
