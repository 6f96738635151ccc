"""The footprint: a shape of the agent that turns with it, and what it sweeps."""

import math

import pytest
import torch
from drawn import randn
from torch import Tensor
from torch.testing import assert_close

from palpate.bodies import make_body
from palpate.bodies.base import clearance
from palpate.bodies.footprint import Footprint
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.geometry import Segment, around, rotated, unit
from palpate.groups import group_of_actions
from palpate.groups.se2 import SE2
from palpate.methods.store import build
from palpate.objects import ObjectHead

NONE = torch.zeros(0)
MOVES = {"arc": ((3,), {}), "straight": ((3,), {"motion": "straight"}), "sub-steps": ((2, 3), {})}


def rod(log_ratio: float = 1.5, angle: float = 0.4, centre: tuple[float, float] = (0.1, -0.05)) -> Footprint:
    body = make_body("footprint", 2)
    assert isinstance(body, Footprint)
    with torch.no_grad():
        body.log_radius.fill_(math.log(0.3))
        body.stretch.copy_(log_ratio * unit(torch.tensor(2 * angle)))
        body.centre.copy_(torch.tensor(centre))
    return body.requires_grad_(False).double()


def depth(body: Footprint, seen: Tensor) -> Tensor:
    """How far outside the footprint points [..., 2] in the agent's axes lie."""
    u = around(180, seen)
    return ((seen - body.centre) @ u.T - body.support(u, NONE)).amax(-1)


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_clearance_is_that_of_the_swept_shape(moves: tuple[tuple[int, ...], dict[str, str]]) -> None:
    """Against many moments of the motion, at each of which the footprint is placed by hand."""
    shape, motion = moves
    group = group_of_actions(shape, ObjectiveConfig(group="se2", **motion))  # type: ignore[arg-type]
    body, z, thing = rod(), SE2().posed(randn(60, 3)), 0.7 * randn(60, 2, seed=1)
    parts = 0.7 * randn(60, *([1] if len(shape) == 1 else []), *shape, seed=2)
    found = clearance(body, thing, NONE, group.path(z, parts.flatten(1)))
    nearest = torch.full((60,), math.inf, dtype=torch.float64)
    for part in parts.unbind(1):
        for share in torch.linspace(0, 1, 60, dtype=torch.float64):
            turn = part[:, 2] * share
            if "motion" in motion:  # drives, then turns
                way, turn = part[:, :2] * (2 * share).clamp(max=1), part[:, 2] * (2 * share - 1).clamp(min=0)
            else:
                chord = share * torch.sinc(turn / (2 * math.pi)) / torch.sinc(part[:, 2] / (2 * math.pi))
                way = rotated(chord[:, None] * part[:, :2], unit((share - 1) * part[:, 2] / 2))
            here = SE2().act(z, torch.cat((way, turn[:, None]), 1))
            nearest = torch.minimum(nearest, depth(body, SE2().seen(here, thing)))
        z = SE2().act(z, part)
    outside, inside = nearest > 0.05, nearest < -0.05
    assert (found - nearest).abs()[outside].max() < 0.05
    assert (found[inside] < 0).all()
    assert outside.any()
    assert inside.any()


def test_a_rod_that_turns_in_place_touches_what_it_sweeps() -> None:
    body, z = rod(2.0, 0.0, (0.0, 0.0)), SE2().posed(torch.zeros(1, 3, dtype=torch.float64))
    tip = float(body.support(torch.tensor([[1.0, 0.0]], dtype=torch.float64), NONE))
    for turn in (0.8, -0.8, 1.2):
        path = SE2().path(z, torch.tensor([[0.0, 0.0, turn]], dtype=torch.float64))
        for angle, distance, touched in (
            (0.9 * turn, 0.9 * tip, True),
            (0.9 * turn, 1.1 * tip, False),
            (-0.9 * turn, 0.9 * tip, abs(turn) > 1.5),  # by the other end, only if it comes so far
            (0.9 * turn + math.pi, 0.9 * tip, True),  # by the other end
        ):
            thing = (distance * unit(torch.tensor(angle, dtype=torch.float64)))[None]
            assert (float(clearance(body, thing, NONE, path)) < 0) == touched
            disc = make_body("ball", 2).double()
            standing = Segment(z[:, :2], torch.zeros(1, 2, dtype=torch.float64))
            assert_close(clearance(disc, thing, NONE, path), clearance(disc, thing, NONE, standing))


def test_a_round_footprint_is_a_ball() -> None:
    body, ball = make_body("footprint", 2).double(), make_body("ball", 2).double()
    z, a, thing = SE2().posed(randn(50, 3)), randn(50, 3, seed=1), randn(50, 2, seed=2)
    path = SE2().path(z, a)
    theirs = clearance(ball, thing, NONE, path)
    # The agent's chords in the common frame are not the object's in the agent's.
    assert_close(clearance(body, thing, NONE, path), theirs, atol=0.05, rtol=0)
    straight = SE2().path(z, a * torch.tensor([1, 1, 0]))
    assert_close(clearance(body, thing, NONE, straight), clearance(ball, thing, NONE, straight), atol=1e-4, rtol=0)


def test_the_border_around_an_object_is_where_the_agent_just_touches() -> None:
    """It turns with the agent, and reaches to the other side of the object."""
    body = rod()
    head = ObjectHead(SE2(), [body]).double()
    z_int = SE2().posed(randn(6, 3))
    objects = head(randn(6, head.width, seed=1), z_int)
    lines = head.borders(objects, z_int)
    assert lines is not None
    for i in range(6):
        agent = objects.position[i] + lines[i, 0]
        pose = torch.cat((agent, z_int[i, 2:].expand(len(agent), 2)), 1)
        standing = SE2().path(pose, torch.zeros(len(agent), 3, dtype=torch.float64))
        assert clearance(body, objects.position[i].expand_as(agent), NONE, standing).abs().max() < 0.02
    covariances = head.covariances(objects, z_int)
    assert covariances is not None
    long = torch.linalg.eigh(covariances[:, 0])[1][..., -1]
    wanted = rotated(z_int[:, 2:], unit(torch.tensor(0.4, dtype=torch.float64)))
    assert ((long * wanted).sum(1).abs() > 1 - 1e-6).all()


def test_gradients_where_it_is_round_and_nothing_moves() -> None:
    body = make_body("footprint", 2)
    z = SE2().posed(torch.zeros(3, 3))
    thing = torch.tensor([[0.0, 0.0], [0.3, 0.0], [1.0, 1.0]], requires_grad=True)
    clearance(body, thing, NONE, SE2().path(z, torch.zeros(3, 3))).sum().backward()
    for x in (thing, *body.parameters()):
        assert x.grad is not None
        assert x.grad.isfinite().all()
    assert isinstance(body, Footprint)
    assert body.stretch.grad is not None
    assert body.stretch.grad.abs().max() > 0  # a round footprint learns to be long


def test_a_model_with_a_footprint_has_finite_losses() -> None:
    scene = ObjectiveConfig(body="footprint", refine=False, rest_floor=0.1, group="se2")
    model = build(
        ModelConfig(encoder="mlp", observation_shape=(5,), observation_dtype="float32", n=2, actions=3, objective=scene)
    )
    encoding = model.eval().encode(torch.randn(7, 5))
    assert encoding.covariances is not None
    assert encoding.covariances.shape == (7, 1, 2, 2)
    assert encoding.orientations is None
