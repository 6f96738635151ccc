"""Refinement: a polynomial correction of positions, kept only where it explains other contacts better."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from palpate import refine as module
from palpate.bodies.ellipse import Ellipse
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.geometry import Segment
from palpate.methods.contact import Contact
from palpate.objects import NEVER
from palpate.refine import JUDGES, SHARE, Correction, keep_best

STEPS, ROWS, UNIT = 120, 512, 2.0


class TestCorrection:
    @pytest.mark.parametrize(("n", "degree", "terms"), [(1, 3, 4), (2, 1, 3), (2, 9, 55), (3, 2, 10)])
    def test_is_zero_at_first_and_has_every_term(self, n: int, degree: int, terms: int) -> None:
        correction, z = Correction(n, degree), torch.randn(40, n)
        assert correction.coefficients.shape == (terms, n)
        for _ in range(2):
            assert torch.equal(correction(z), z)
            correction.measure(z)
        assert not correction.fitted

    def test_any_polynomial_inside_the_field_and_that_of_the_border_beyond_it(self) -> None:
        torch.manual_seed(0)
        correction = Correction(2, 3).double()
        z = torch.rand(4000, 2, dtype=torch.float64) * torch.tensor([2.0, 6.0]) + 1
        correction.measure(z)
        x, y = z.T
        wanted = torch.stack((0.1 * x * y**2 - x, 0.2 * x**3 + 1), 1)
        inside = ((z - correction.centre).abs() <= correction.reach).all(1)
        assert 0.98 < inside.double().mean() < 1
        terms = correction._terms(z) @ correction.mixing
        assert torch.allclose(terms.T @ terms / len(z), torch.eye(10, dtype=torch.float64), atol=1e-6)
        correction.coefficients.copy_(torch.linalg.lstsq(terms[inside], wanted[inside]).solution)
        assert torch.allclose((correction(z) - z)[inside], wanted[inside], atol=1e-6)
        corner, beyond = (correction.centre + k * correction.reach for k in (1, 5))
        assert torch.allclose(*((correction(p[None]) - p) for p in (corner, beyond)))


class Outputs(nn.Module):
    """A network that is a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def bent(position: Tensor) -> Tensor:
    x, y = position.T
    return position + 0.08 * torch.stack((x * y, x**2 - y**2), 1)


def model_with(phi_ext: Callable[[Tensor], Tensor], body: str = "ball", radius: float = 0.3) -> Contact:
    """A model that sees agent and object, tells contacts apart, and outputs `phi_ext` of the object's position."""
    torch.manual_seed(0)
    scene = ObjectiveConfig(body=body, refine=True, rest_floor=0.02)
    model = Contact(ModelConfig(encoder="mlp", observation_shape=(4,), n=2, objective=scene)).eval()
    model.head.correction = Correction(2, 3)
    model.inputs.unit.fill_(UNIT)
    model.phi_int = Outputs(lambda x: x[:, :2] / UNIT)  # type: ignore[assignment]
    model.phi_ext = Outputs(lambda x: F.pad(phi_ext(x[:, 2:]) / UNIT, (0, 1), value=NEVER))  # type: ignore[assignment]
    model.phi_cont = Outputs(lambda x: F.pad(x[:, 2:], (0, 6), value=1.0))  # type: ignore[assignment]
    with torch.no_grad():
        known = world(0.3, 7)()
        model.scenes.split(0).update(model.scene_distance(known.o, known.o_next)[:, 0], torch.full((ROWS,), 1e-4))
        model.head[0].log_radius.fill_(math.log(radius / UNIT))  # type: ignore[operator,union-attr]
    return model


def world(radius: float, seed: int, missed: float = 0.0, ratio: float = 1.0) -> Callable[[], Batch]:
    """A disc, or an ellipse along x, that lands somewhere else when touched, except in a share of `missed` contacts."""
    generator = torch.Generator().manual_seed(seed)

    def anywhere(most: float) -> Tensor:
        return most * (2 * torch.rand(ROWS, 2, generator=generator) - 1)

    def draw() -> Batch:
        agent, place, a = anywhere(1.5), anywhere(1.0), anywhere(1.5)
        semi_axes = radius * torch.tensor([ratio, 1 / ratio]).sqrt()
        path = Segment((agent - place) / semi_axes, a / semi_axes)
        contact = (path.distance2(torch.zeros(2)) < 1) & (torch.rand(ROWS, generator=generator) >= missed)
        landed = torch.where(contact[:, None], anywhere(1.0), place)
        return Batch(torch.cat((agent, place), 1), a, torch.cat((agent + a, landed), 1))

    return draw


def error(model: Contact) -> float:
    o = world(0.3, 5)().o
    with torch.no_grad():
        return float((model.encode(o).object - o[:, 2:]).norm(dim=1).mean())


def never() -> Batch:
    raise AssertionError("nothing is to be drawn")


@pytest.mark.parametrize("missed", [0.0, 0.01])
@pytest.mark.slow
def test_finds_the_error_that_positions_have_in_common(missed: float) -> None:
    model = model_with(bent, radius=0.27)
    with torch.no_grad():
        model.raw_softness.fill_(-2.0)
    before = error(model)
    model.refine(world(0.3, 1, missed), STEPS)
    assert error(model) < before / 2.5
    assert model.vitals()["radius"] == pytest.approx(0.3, rel=0.02)
    assert model.vitals()["softness"] < 0.01
    assert all(p.requires_grad for p in (*model.head.learned, model.raw_softness))
    assert model.head.correction is not None
    assert not model.head.correction.coefficients.requires_grad
    model.refine(never, STEPS)  # not a second time: the field would be measured anew


@pytest.mark.slow
def test_a_body_that_turns_is_fitted_too() -> None:
    along = torch.tensor([[100.0, 0.0]])  # in the unit disc it has length 1
    model = model_with(lambda place: torch.cat((place, UNIT * along.expand(len(place), 2)), 1), "ellipse")
    model.refine(world(0.3, 1, ratio=2.0), 24)
    assert isinstance(model.head[0], Ellipse)
    assert model.vitals()["ratio"] == pytest.approx(2.0, rel=0.05)  # it was 3


@pytest.mark.slow
def test_a_correction_is_not_kept_for_the_sake_of_a_sharper_boundary() -> None:
    """This error changes faster than any such polynomial; the softness is still to be fitted."""
    model = model_with(lambda place: place + 0.004 * torch.sin(37 * place))
    before, soft = error(model), model.vitals()["softness"]
    model.refine(world(0.3, 1), 60)
    assert model.vitals()["softness"] < soft / 4
    assert error(model) < 1.1 * before


@pytest.mark.slow
def test_where_other_triples_are_explained_worse_all_stays() -> None:
    """The triples that judge come first: there the radius is the model's, in those fitted to it is another."""
    model = model_with(lambda place: place, radius=0.5)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    judging = math.ceil(JUDGES * math.ceil(SHARE * STEPS))
    drawn: Iterator[Batch] = (world(0.5 if k < judging else 0.8, k)() for k in range(100))
    model.refine(lambda: next(drawn), STEPS)
    changed = {name for name, x in model.state_dict().items() if not x.equal(state[name]) and not x.isnan().any()}
    assert changed == {f"head.correction.{name}" for name in ("centre", "reach", "mixing")}  # it was tried
    assert model.head.correction is not None
    assert not model.head.correction.fitted


@pytest.mark.slow
def test_no_more_triples_than_memory_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRIPLES", 5 * ROWS)
    drawn: list[Batch] = []
    draw = world(0.3, 1)
    model_with(bent).refine(lambda: drawn.append(draw()) or drawn[-1], STEPS)  # type: ignore[func-returns-value]
    assert len(drawn) == 5


def test_nothing_is_drawn_where_nothing_is_to_be_fitted() -> None:
    model = model_with(bent)
    model.refine(never, 1)  # a single batch would have to judge itself
    model.scenes.split(0).valley.zero_()  # contacts are not told apart
    model.refine(never, STEPS)
    plain = model_with(bent)
    plain.head.correction = None
    plain.refine(never, STEPS)


def test_positions_that_are_not_finite_are_left_alone() -> None:
    model = model_with(lambda place: torch.where(place > 0.9, torch.inf, place))
    model.refine(world(0.3, 1), 60)
    assert model.head.correction is not None
    assert not model.head.correction.fitted


def test_nothing_is_kept_that_cannot_be_judged() -> None:
    correction, body = Correction(1, 1), [nn.Parameter(torch.tensor(3.0))]

    def fit(judge: Any) -> float:
        keep_best(correction, body, lambda: (body[0] + correction(torch.ones(1, 1)) - 1).square().sum(), judge)
        return float(body[0].detach())

    assert fit(lambda: torch.tensor(torch.nan)) == 3
    assert not correction.fitted
    assert fit(lambda: body[0].square()) == pytest.approx(0.0, abs=1e-3)
