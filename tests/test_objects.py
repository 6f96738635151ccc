"""From a network's output to objects in the common frame."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from palpate.bodies import make_body
from palpate.bodies.base import Body, clearance
from palpate.bodies.point import Point
from palpate.geometry import Segment
from palpate.groups.translations import Translations
from palpate.objects import BORDER_POINTS, ObjectHead
from palpate.refine import Correction

B = 6


def head_of(*bodies: Body, n: int = 2, **settings: object) -> ObjectHead:
    """Bodies of different sizes, so that none can be taken for another."""
    for i, body in enumerate(bodies):
        for name, value in body.named_parameters():
            if name == "log_radius":
                value.data += 0.5 * i
    return ObjectHead(Translations(n), bodies, **settings)  # type: ignore[arg-type]


def some(head: ObjectHead, seed: int = 0) -> tuple[Tensor, Tensor]:
    """phi_ext's output and the agents' poses."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, head.width, generator=generator), torch.randn(B, head.group.n, generator=generator)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(("name", "n"), [("ball", 3), ("outline", 2), ("ellipse", 2)])
def test_each_object_is_read_and_answered_for_as_if_alone(name: str, n: int, k: int) -> None:
    head = head_of(*(make_body(name, n) for _ in range(k)), n=n)
    raw, z_int = some(head)
    objects, path = head(raw, z_int), Segment(z_int, torch.ones(B, n))
    later = head(raw.flip(0), z_int)
    assert objects.position.shape == (B, k, n)
    assert objects.pose.shape == (B, k, head[0].pose_width)
    for i, part in enumerate(raw.chunk(k, -1)):
        body, position, pose = head[i], part[:, :n], head[i].pose(part[:, n:])
        assert_close(objects.position[:, i], position)
        assert_close(objects.pose[:, i], pose)
        assert_close(head.clearance(objects, path)[:, i], clearance(body, position, pose, path))
        assert_close(head.sizes(objects)[:, i], body.size(pose))
        assert_close(head.turned2(objects, later)[:, i], body.turned2(pose, later.pose[:, i]))
        covariances, lines = head.covariances(objects, z_int), head.borders(objects, z_int)
        angles = head.orientations(objects)
        assert covariances is not None
        assert_close(covariances[:, i], body.covariance(pose))
        assert (angles is None) == (name != "ellipse")
        assert (lines is None) == (n != 2)
        if lines is not None:
            assert lines.shape == (B, k, BORDER_POINTS, 2)
            standing = Segment(position[:, None] + lines[:, i], torch.zeros(()).expand(B, BORDER_POINTS, 2))
            touching = clearance(body, position[:, None], pose[:, None], standing)
            assert touching.abs().max() < 0.01


def test_rows_are_repeated_for_several_moves() -> None:
    head = head_of(make_body("ellipse", 2), make_body("ellipse", 2))
    objects = head(*some(head))
    repeated = objects.repeated(3)
    assert_close(repeated.position.unflatten(0, (B, 3)), objects.position[:, None].expand(-1, 3, -1, -1))
    assert_close(repeated.pose.unflatten(0, (B, 3)), objects.pose[:, None].expand(-1, 3, -1, -1))


def test_carried_cameras_see_relative_to_the_agent() -> None:
    bodies = [make_body("ball", 2) for _ in range(2)]
    still, carried = head_of(*bodies), head_of(*bodies, carried=True)
    raw, z_int = some(still)
    assert_close(carried(raw, z_int).position, still(raw, z_int).position + z_int[:, None])


def test_a_correction_applies_once_training_is_over() -> None:
    correction = Correction(2, degree=1)
    correction.coefficients[0] = torch.tensor([3.0, -2.0])  # of the constant term
    head = head_of(make_body("ball", 2), make_body("ball", 2), correction=correction)
    raw, z_int = some(head)
    plain = head.train()(raw, z_int).position
    assert_close(plain.flatten(1), raw)
    assert_close(head.eval()(raw, z_int).position, plain + torch.tensor([3.0, -2.0]))


def test_points_have_neither_ellipsoid_nor_border() -> None:
    head = head_of(Point(2))
    raw, z_int = some(head)
    objects = head(raw, z_int)
    assert (head.covariances(objects, z_int), head.borders(objects, z_int)) == (None, None)


def test_what_belongs_to_several_bodies_is_joined() -> None:
    head, unit = head_of(*(make_body("ball", 2, radius=radius) for radius in (0.2, None))), torch.tensor(2.0)
    head.measure(unit)
    assert head.vitals(unit) == pytest.approx({"radius_0": 0.2, "radius_1": 2 * 0.25 * 2.718281828**0.5})
    assert [id(p) for p in head.learned] == [id(head[1].get_parameter("log_radius"))]
    assert [p for group in head.parameter_groups() for p in group["params"]] == head.learned
    assert set(head_of(make_body("ball", 2)).vitals(unit)) == {"radius"}
