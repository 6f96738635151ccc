"""What every body promises: a support function, and how far paths pass from it."""

import copy
import math
from typing import Any

import pytest
import torch
from drawn import quick, randn
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from palpate.bodies import BODIES, make_body
from palpate.bodies.base import LR_SCALE, SHAPE_FROM, Body, clearance
from palpate.bodies.footprint import Footprint
from palpate.bodies.gaussian import Gaussian
from palpate.bodies.planar import DIRECTIONS
from palpate.bodies.point import Point
from palpate.geometry import Segment, around, border

NAMES = [*BODIES, "gaussian"]
WAVES = torch.tensor([[0.0, 0.02, 0.05], [0.03, 0.0, 0.0]])  # k = 2, 3, 4; convex
every_body = pytest.mark.parametrize("name", NAMES)


def made(name: str, **settings: Any) -> Body:
    """A body in the plane, in float64, that is no disc if it can help it."""
    body = Gaussian(2) if name == "gaussian" else make_body(name, 2, **settings)
    with torch.no_grad():
        for parameter, value in body.named_parameters():
            if parameter == "waves":
                value.copy_(WAVES)
            elif parameter == "stretch":
                value.copy_(torch.tensor([0.8, 0.6]))
            elif parameter == "raw_rim":
                value.fill_(1.0)
    return body.double()


def poses(body: Body, *shape: int, seed: int = 0) -> Tensor:
    return body.pose(randn(*shape, body.pose_width, seed=seed))


def turned(body: Body, pose: Tensor, angle: float) -> tuple[Body, Tensor]:
    """The same shape at another angle, which belongs to the pose or to the body itself."""
    if isinstance(body, Gaussian):
        turn = rotation(angle)
        return body, torch.linalg.cholesky(turn @ body.covariance(pose) @ turn.T).flatten(-2)
    if "waves" in dict(body.named_parameters()):
        k = torch.arange(2, 5, dtype=torch.float64) * angle
        cos, sin = WAVES.double()
        body = copy.deepcopy(body)
        body.waves.data = torch.stack((cos * k.cos() - sin * k.sin(), cos * k.sin() + sin * k.cos()))
    if isinstance(body, Footprint):
        body = copy.deepcopy(body)
        body.stretch.data = rotation(2 * angle) @ body.stretch.data
    return body, pose @ rotation(2 * angle).T if body.pose_width else pose


def rotation(angle: float) -> Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


def paths(*shape: int, seed: int = 0, length: float = 1.0) -> Segment:
    return Segment(randn(*shape, 2, seed=seed), length * randn(*shape, 2, seed=seed + 1))


def inexact(body: Body, pose: Tensor, path: Segment) -> Tensor:
    """What comparing in few directions may cost: a share of the lengths that are straight."""
    extent = body.support(around(DIRECTIONS, pose), pose).amax()
    return (extent + path.move.norm(dim=-1)) * math.pi / DIRECTIONS


@every_body
def test_the_support_is_that_of_a_convex_body(name: str) -> None:
    """h is positive and, for vectors of any length, subadditive."""
    body = made(name)
    pose, (u, v) = poses(body, 20), randn(2, 20, 50, 2, seed=1)

    def h(x: Tensor) -> Tensor:
        length = x.norm(dim=-1)
        return length * body.support(x / length[..., None], pose)

    assert (h(u) > 0).all()
    assert (h(u + v) < h(u) + h(v) + 1e-5).all()


@every_body
def test_a_point_of_the_border_just_touches(name: str) -> None:
    body = made(name)
    pose = poses(body, 5)
    support = body.support(around(720, pose), pose).expand(5, -1)
    line, centre = border(support, 60), randn(5, 1, 2, seed=1).expand(5, 60, 2)
    pose = pose[:, None].expand(-1, 60, -1)
    for step, outside in ((1.0, 0.0), (1.2, 1.0), (0.8, -1.0)):
        found = clearance(body, centre, pose, Segment(centre + step * line, torch.zeros_like(line)))
        expected = outside * 0.1 * support.amin(-1, keepdim=True)
        assert (found.sign() == outside).all() if outside else (found.abs() < 4e-3 * support.amax()).all()
        assert (found.abs() >= expected.abs()).all()


@every_body
@pytest.mark.parametrize("length", [0.0, 0.3, 2.0])
def test_clearance_is_the_distance_of_the_paths_points(name: str, length: float) -> None:
    """Against very many points of each path, each in very many directions; within, only the sign is that of a point."""
    body = made(name)
    pose, centre, path = poses(body, 4, 40), randn(4, 40, 2, seed=1), paths(4, 40, seed=2, length=length)
    found = clearance(body, centre, pose, path)
    u, t = around(720, pose), torch.linspace(0, 1, 101, dtype=torch.float64)
    h = body.support(u, pose).expand(4, 40, -1)
    nearest = torch.stack([((path.at(x) - centre) @ u.T - h).amax(-1) for x in t[:, None, None]]).amin(0)
    slack = inexact(body, pose, path) + 0.01 * length
    assert (found <= nearest + 2e-3).all()
    outside, inside = nearest > 0, nearest < -slack
    assert (nearest - found < slack)[outside].all()
    assert (nearest - found)[outside].mean() < 0.01
    assert (found[inside] < 0).all()
    assert outside.any()
    assert inside.any()


@every_body
@quick
@given(angle=st.floats(-3, 3))
def test_clearance_under_motions_of_everything(name: str, angle: float) -> None:
    body = made(name)
    pose, centre, path = poses(body, 20), randn(20, 2, seed=1), paths(20, seed=2)
    turn, shift, (other, pose_turned) = rotation(angle), torch.tensor([5.0, -2.0]), turned(body, pose, angle)
    moved = Segment(path.start @ turn.T + shift, path.move @ turn.T)
    before = clearance(body, centre, pose, path)
    after = clearance(other, centre @ turn.T + shift, pose_turned, moved)
    assert ((after - before).abs() < inexact(body, pose, path)).all()
    assert (after - before).abs().mean() < 3e-3
    shifted = Segment(path.start + shift, path.move)
    assert_close(clearance(body, centre + shift, pose, shifted), before)


@every_body
def test_gradients_of_clearance(name: str) -> None:
    """For paths that pass by, that end beside the body, and that do not move."""
    body = made(name)
    raw, centre, start, move = (
        randn(rows, width, seed=seed).requires_grad_()
        for seed, (rows, width) in enumerate(((9, body.pose_width), (9, 2), (9, 2), (6, 2)))
    )
    scale = torch.tensor([[2.0]] * 3 + [[0.1]] * 3)

    def cleared(raw: Tensor, centre: Tensor, start: Tensor, move: Tensor, *learned: Tensor) -> Tensor:
        path = Segment(start, torch.cat((scale * move, torch.zeros(3, 2))))
        return clearance(body, centre, body.pose(raw), path)

    inputs = [raw, centre, start, move, *body.learned]  # gradcheck moves the body's own parameters in place
    assert gradcheck(cleared, inputs)


@every_body
@pytest.mark.parametrize("move", [0.0, 1.0])
def test_a_path_through_the_centre_is_inside_and_has_a_finite_gradient(name: str, move: float) -> None:
    """In the precision of training, with an agent that stays there and one that leaves."""
    body = made(name).float()
    raw, centre = torch.zeros(1, body.pose_width, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    found = clearance(body, centre, body.pose(raw), Segment(torch.ones(1, 2), torch.full((1, 2), move)))
    assert found.item() < -0.5 * body.size(body.pose(raw)).item()
    gradients = torch.autograd.grad(found.sum(), (raw, centre, *body.learned), allow_unused=True)
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


@every_body
def test_size_covariance_and_orientation_are_those_of_the_support(name: str) -> None:
    body = made(name)
    pose, u = poses(body, 4, 3), around(3600, torch.zeros((), dtype=torch.float64))
    covariance, support = body.covariance(pose), body.support(u, pose).expand(4, 3, -1)
    assert covariance is not None
    assert covariance.shape == (4, 3, 2, 2)
    assert_close(body.size(pose), torch.linalg.det(covariance) ** 0.25)
    assert_close(body.turned2(pose, pose), torch.zeros(4, 3, dtype=torch.float64))
    if name == "outline":  # has its mean radius alone
        assert_close(support.log().mean(-1).exp(), body.size(pose), rtol=1e-3, atol=0)
        return
    short, long = torch.linalg.eigvalsh(covariance).sqrt().unbind(-1)
    assert_close(support.amax(-1), long, rtol=1e-3, atol=0)
    assert_close(support.amin(-1), short, rtol=1e-3, atol=0)
    angle = body.orientation(pose)
    assert (angle is None) == (body.pose_width == 0)
    if angle is not None:
        farthest = u[support.argmax(-1)]
        along = torch.stack((angle.cos(), angle.sin()), -1)
        assert ((farthest * along).sum(-1).abs() > 1 - 1e-4).all()


@pytest.mark.parametrize("name", BODIES)
def test_a_known_radius_is_not_learned(name: str) -> None:
    body, unit = made(name, radius=0.6), torch.tensor(2.0)
    body.measure(unit)
    assert body.size(poses(body, 3)).tolist() == pytest.approx([0.3] * 3)
    assert body.vitals(unit)["radius"] == pytest.approx(0.6)
    assert "log_radius" in {name for name, p in body.named_parameters() if not p.requires_grad}
    grouped = [p for group in body.parameter_groups() for p in group["params"]]
    assert {id(p) for p in grouped} == {id(p) for p in body.learned}


@every_body
def test_every_learned_scalar_is_in_one_group_and_the_size_is_learned_first(name: str) -> None:
    body = made(name)
    groups = body.parameter_groups()
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in body.learned)
    decays = [p for group in groups if group["weight_decay"] for p in group["params"]]
    assert [id(p) for p in decays] == [id(p) for name, p in body.named_parameters() if name == "waves"]
    early = [p for group in groups if group.get("starts", 0) < SHAPE_FROM for p in group["params"]]
    if name != "footprint":  # a rod's contacts are not those of a disc
        assert [id(p) for p in early] == [id(p) for name, p in body.named_parameters() if name == "log_radius"]
    rates = {id(p): group.get("lr_scale", 1.0) for group in groups for p in group["params"]}
    for name, p in body.named_parameters():
        assert rates[id(p)] == (1.0 if name == "log_ratio" else LR_SCALE)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_ball_and_a_point_in_any_dimension(n: int) -> None:
    ball, none = make_body("ball", n, radius=0.3).double(), torch.zeros(8, 0, dtype=torch.float64)
    ball.measure(torch.ones(()))
    centre, path = randn(8, n), Segment(randn(8, n, seed=1), randn(8, n, seed=2))
    distance = path.distance2(centre).sqrt()
    assert_close(clearance(ball, centre, none, path), distance - 0.3, atol=1.1e-3, rtol=0)
    assert_close(clearance(Point(n), centre, none, path), distance, atol=1.1e-3, rtol=0)
    assert_close(Point(n).size(torch.zeros(4, 3, 0)), torch.zeros(4, 3))
    assert_close(ball.covariance(none), 0.09 * torch.eye(n, dtype=torch.float64).expand(8, n, n), rtol=1e-6, atol=0)


@pytest.mark.parametrize("n", [1, 3])
def test_a_gaussian_in_other_dimensions(n: int) -> None:
    """Its pose is a lower triangular root, row by row, and its support one standard deviation."""
    body = Gaussian(n)
    pose = poses(body, 4)
    root = body.root(pose)
    assert_close(root, root.tril())
    assert_close(body.covariance(pose), root @ root.mT)
    u = torch.nn.functional.normalize(randn(4, 7, n, seed=1), dim=-1)
    assert_close(body.support(u, pose), torch.einsum("bdi,bij,bdj->bd", u, body.covariance(pose), u).sqrt())
    assert body.orientation(pose) is None


@pytest.mark.parametrize("name", ["outline", "ellipse"])
def test_bodies_of_the_plane_are_refused_elsewhere(name: str) -> None:
    with pytest.raises(ValueError, match=f"body is '{name}', which lies in the plane, but actions have 3 dimensions"):
        make_body(name, 3)


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="body is 'cube'; allowed is 'ball' or 'outline' or 'ellipse' or 'footprint'"):
        make_body("cube", 2)
