"""The body: one border for contacts, for pictures and for what is told of it."""

from typing import Any

import pytest
import torch

from palpate.bodies.body import LR_SCALE, SHARPEST, SOFTNESS, WIDEST_RIM, Body
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.geometry import Segment
from palpate.methods.interaction import Interaction

UNIT = torch.tensor(2.0)
BODIES: list[dict[str, Any]] = [{}, {"outline": 4}, {"body": "axes"}, {"body": "axes", "rim": True}, {"radius": 0.6}]


def a_body(**switches: Any) -> Body:
    body = Body(ObjectiveConfig(**switches))
    with torch.no_grad():
        if body.outline is not None:
            body.outline[0, 2] = -0.04  # toward a square
        if body.rim is not None:
            body.rim.fill_(5.0)  # next to the widest, as of a rod
    return body


def model_of(**switches: Any) -> Interaction:
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(**switches))
    model = Interaction(config).eval()
    model.inputs.unit.copy_(UNIT)
    with torch.no_grad():
        model.body.load_state_dict(a_body(**switches).state_dict())
        if "body" in switches:
            model.phi_ext.head.weight[2:] *= 1e3  # sure of its axis
    return model


@pytest.mark.parametrize("switches", BODIES, ids=str)
def test_on_the_border_a_touch_is_as_likely_as_not(switches: dict[str, Any]) -> None:
    """Of the line that is drawn, by the likelihood that is learned: an agent that stands there and does not move."""
    model = model_of(**switches)
    o = torch.randn(5, 6)
    with torch.no_grad():
        line = model.border(o)
        assert line is not None
        z_ext, shape = model._seen(model.phi_ext(model.inputs(o)))
        form = model.body.form(UNIT)
        depths = []
        for k in range(0, line.shape[1], 7):
            path = Segment(z_ext + line[:, k] / UNIT, torch.zeros(5, 2))
            depths.append(form.touch_logit(z_ext, shape, path) * form.softness)
        # Beside the straight side of a rod the likelihood looks in fewer directions than the picture.
        assert torch.stack(depths).abs().max() < (2e-2 if "rim" in switches else 2e-3) * form.tip()


@pytest.mark.parametrize("switches", BODIES, ids=str)
def test_the_border_is_in_the_unit_of_the_actions(switches: dict[str, Any]) -> None:
    model, o = model_of(**switches), torch.randn(5, 6)
    with torch.no_grad():
        line, covariance, radius = model.border(o), model.encode(o).covariance, model.vitals()["radius"]
        assert line is not None
        assert covariance is not None
        reach = line.norm(dim=-1)
        if "body" not in switches and "outline" not in switches:
            assert torch.allclose(reach, torch.tensor(radius))
        longest, shortest = torch.linalg.eigvalsh(covariance).sqrt().flip(-1).unbind(-1)
        if "outline" not in switches:
            assert torch.allclose(reach.amax(1), longest, rtol=5e-3)
            assert torch.allclose(reach.amin(1), shortest, rtol=5e-3)


def test_the_border_of_a_rod_is_straight_along_it() -> None:
    """An ellipse of the same axes reaches less far beside its ends."""
    model = model_of(body="axes", rim=True)
    o = torch.randn(5, 6)
    with torch.no_grad():
        line, found = model.border(o), model.encode(o)
    assert line is not None
    assert found.orientation is not None
    assert found.covariance is not None
    along = torch.stack((found.orientation.cos(), found.orientation.sin()), -1)[:, None]  # [b, 1, 2]
    across = torch.stack((-along[..., 1], along[..., 0]), -1)
    short, long = torch.linalg.eigvalsh(found.covariance).sqrt().unbind(-1)
    middle = (line * along).sum(-1).abs() < 0.5 * long[:, None]
    width = (line * across).sum(-1).abs()
    assert (width / short[:, None])[middle].amin() > 0.95  # of an ellipse 0.87


def test_checkpoints_number_the_parameters_and_the_body_leads() -> None:
    """As in every version so far; moved, an old run would go on with the moments of other weights."""
    for switches in BODIES:
        names = [name for name, _ in model_of(**switches).named_parameters()]
        own = [name for name in names if name.startswith("body.")]
        assert names[: len(own)] == own
        expected = ["log_radius", "log_ratio", "softness", *(name for name in ("outline", "rim") if name in switches)]
        assert own == [f"body.{name}" for name in expected]


def test_a_gaussian_has_its_ellipse_for_a_border_and_a_point_none() -> None:
    o = torch.randn(5, 6)
    gaussian, point = (model_of(external=kind) for kind in ("gaussian", "point"))
    with torch.no_grad():
        line, covariance = gaussian.border(o), gaussian.encode(o).covariance
        assert line is not None
        assert covariance is not None
        inside = (line @ torch.linalg.inv(covariance) * line).sum(-1)  # 1 all around
        assert torch.allclose(inside, torch.ones(()), atol=5e-3)
        assert point.border(o) is None
    space = ModelConfig(encoder="mlp", observation_shape=(6,), n=3)
    assert Interaction(space).border(o) is None


def test_a_known_radius_is_not_learned() -> None:
    body = a_body(radius=0.6)
    assert float(body.form(UNIT).radius) == pytest.approx(0.3)
    assert body.log_radius not in set(body.learned)
    assert body.vitals(UNIT)["radius"] == pytest.approx(0.6)


def test_what_is_learned_follows_faster_but_for_the_ratio() -> None:
    body = a_body(body="axes", rim=True)
    fast, ratio = body.parameter_groups()
    assert {id(p) for p in fast["params"]} == {id(p) for p in (body.log_radius, body.softness, body.rim)}
    assert (fast["lr_scale"], ratio["params"]) == (LR_SCALE, [body.log_ratio])
    assert not a_body(external="point").learned


def test_bounds() -> None:
    for bend, least in ((0, SOFTNESS[0]), (9, SHARPEST)):
        body = a_body(body="axes", rim=True, bend=bend)
        assert body.rim is not None
        with torch.no_grad():
            for p in (body.softness, body.rim):
                p.fill_(-100.0)
            assert (float(body.form(UNIT).softness), body.vitals(UNIT)["rim"]) == (
                pytest.approx(least),
                pytest.approx(0),
            )
            for p in (body.softness, body.rim):
                p.fill_(100.0)
            assert float(body.form(UNIT).softness) == pytest.approx(SOFTNESS[1])
            assert body.vitals(UNIT)["rim"] == pytest.approx(WIDEST_RIM)
