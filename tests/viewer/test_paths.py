"""Planned paths, against cases solved by hand."""

import numpy as np
import pytest

from palpate.viewer.paths import around, enters, gauge

SQUARE = np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
LOW, HIGH = np.array([-5.0, -5]), np.array([5.0, 5])


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [
        ((-2, 0), (2, 0), True),
        ((-2, 0), (-1.5, 0), False),  # it ends before the side
        ((-2, 1.5), (2, 1.5), False),
        ((-2, 0), (0, 0), True),
        ((-2, 1), (2, 1), False),  # along a side
        ((0, 0), (0.5, 0), True),
        ((-3, 0), (0, 3), False),
        ((-1.9, 0), (0, 1.9), True),  # it cuts a corner
    ],
)
def test_segments_that_enter_a_square(start: tuple[float, float], end: tuple[float, float], inside: bool) -> None:
    for a, b in ((start, end), (end, start)):
        assert enters(np.array([a], float), np.array([b], float), SQUARE).tolist() == [inside]


def test_corners_that_are_repeated_do_not_matter() -> None:
    start, end = np.array([[-2.0, 0], [-2, 1.5]]), np.array([[2.0, 0], [2, 1.5]])
    for polygon in (np.concatenate((SQUARE, SQUARE[:1])), SQUARE.repeat(2, 0)):
        assert enters(start, end, polygon).tolist() == [True, False]
    assert enters(start, end, SQUARE[:1].repeat(3, 0)).tolist() == [False, False]
    body = circle(1)
    path = around(np.array([-2, 0]), np.array([2, 0]), [np.concatenate((body[::5], body[:1]))], LOW, HIGH)
    assert path.note == "around the learned bodies"


def test_gauge() -> None:
    assert gauge(np.array([2.0, 0.5]), SQUARE, np.zeros(2)) == pytest.approx(2)
    assert gauge(np.array([0.5, 0.0]), SQUARE, np.zeros(2)) == pytest.approx(0.5)


def circle(radius: float, x: float = 0, y: float = 0) -> np.ndarray:
    t = np.arange(120) * 2 * np.pi / 120
    return np.stack((x + radius * np.cos(t), y + radius * np.sin(t)), 1)


def length(points: np.ndarray) -> float:
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def test_the_path_around_a_disc_is_nearly_the_shortest() -> None:
    """Two tangents and an arc: 2 sqrt(4 - 1) + 1 * (pi - 2 acos(1/2))."""
    for body in (circle(1), circle(1)[::-1]):
        path = around(np.array([-2, 0]), np.array([2, 0]), [body], LOW, HIGH)
        least = 2 * np.sqrt(3) + np.pi / 3
        assert least < length(path.points) < 1.05 * least
        assert path.note == "around the learned bodies"
        between = np.concatenate(
            [np.linspace(a, b, 50) for a, b in zip(path.points[:-1], path.points[1:], strict=True)]
        )
        assert np.linalg.norm(between, axis=1).min() > 0.999


def test_what_is_not_in_the_way_does_not_matter() -> None:
    path = around(np.array([-2, 0]), np.array([2, 0]), [circle(1, y=3)], LOW, HIGH)
    assert path.points.tolist() == [[-2, 0], [2, 0]]
    assert "nothing is in the way" in path.note


def test_targets_and_starts_inside_a_body() -> None:
    path = around(np.array([-2, 0]), np.array([0.1, 0]), [circle(1)], LOW, HIGH)
    assert len(path.points) == 2
    assert "ends with a contact" in path.note
    path = around(np.array([0.1, 0]), np.array([2, 0]), [circle(1)], LOW, HIGH)
    assert "the agent is inside a body" in path.note


def test_within_the_margin_a_path_is_still_found() -> None:
    path = around(np.array([-1.005, 0]), np.array([2, 0]), [circle(1)], LOW, HIGH)
    assert path.note == "around the learned bodies"


def test_a_wall_across_the_plane_is_said() -> None:
    path = around(np.array([-2, 0]), np.array([2, 0]), [circle(1)], np.array([-5, -0.5]), np.array([5, 0.5]))
    assert len(path.points) == 2
    assert "no way around" in path.note


def test_several_bodies() -> None:
    path = around(np.array([-3, 0]), np.array([3, 0]), [circle(1), circle(1, y=1.9)], LOW, HIGH)
    assert path.points[:, 1].min() < -0.9  # below both: there is no gap between them
