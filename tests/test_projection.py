"""Homographies against a camera whose matrix is known, and projections estimated from pictures alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palpate.envs.sprites import Scene, Sprites, SpritesConfig
from palpate.projection import FEWEST_PICTURES, Homography, fit_projection

WIDTH, HEIGHT = 640, 480
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def camera(points: np.ndarray, tilt: float = 0.7, focal: float = 500.0) -> np.ndarray:
    """Pixels of a pinhole camera 1.5 above the plane and 1 before it, looking ahead and down; written out by hand."""
    x, y = points[..., 0] - 0.5, points[..., 1] + 1.0
    depth = y * np.cos(tilt) + 1.5 * np.sin(tilt)
    up = y * np.sin(tilt) - 1.5 * np.cos(tilt)
    return np.stack((WIDTH / 2 + focal * x / depth, HEIGHT / 2 - focal * up / depth), -1)


def places(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 2))


class TestHomography:
    @pytest.mark.parametrize("count", [4, 5, 100])
    def test_a_camera_is_recovered(self, count: int) -> None:
        points = np.concatenate((CORNERS, places(count - 4)))
        found = Homography.fit(points, camera(points))
        new = 3 * places(50, seed=1) - 1
        np.testing.assert_allclose(found(new), camera(new), atol=1e-6)

    @given(st.floats(0.3, 1.5), st.floats(100, 3000), st.floats(1e-3, 1e4), st.floats(-1e4, 1e4))
    def test_at_any_tilt_zoom_scale_and_origin(self, tilt: float, focal: float, scale: float, shift: float) -> None:
        points = np.concatenate((CORNERS, places(6)))
        pixels = camera(points, tilt, focal)
        found = Homography.fit(scale * points + shift, pixels)
        np.testing.assert_allclose(found(scale * points + shift), pixels, atol=1e-3)

    def test_noise_averages_out_and_the_fit_is_least_squares(self) -> None:
        points = places(400)
        pixels = camera(points) + np.random.default_rng(1).normal(0, 2.0, (400, 2))
        found = Homography.fit(points, pixels)
        left = np.sqrt(np.square(found(points) - camera(points)).sum(1).mean())
        assert left == pytest.approx(2.0 * np.sqrt(8 / 400), rel=0.6)  # eight numbers are fitted to 800

        def loss(matrix: np.ndarray) -> float:
            return float(np.square(Homography(matrix)(points) - pixels).sum())

        best = loss(found.matrix)
        for i in range(8):  # any change of the matrix makes it worse
            change = np.zeros(9)
            change[i] = 3e-3 * abs(found.matrix.flat[i])
            assert min(loss(found.matrix + s * change.reshape(3, 3)) for s in (-1, 1)) > best

    def test_weights(self) -> None:
        points, pixels = places(20), camera(places(20))
        pixels[0] += 300
        weights = np.ones(20)
        weights[0] = 0
        np.testing.assert_allclose(Homography.fit(points, pixels, weights)(points[1:]), pixels[1:], atol=1e-6)

    def test_an_extent_is_one_kind_of_projection(self) -> None:
        project = Homography.of_extent((-1.0, 3.0, 0.0, 2.0), 80, 20)
        found = project([[-1, 2], [3, 0], [1, 1], [0, 2]])  # upper left, lower right, middle
        np.testing.assert_allclose(found, [[0, 0], [80, 20], [40, 10], [20, 0]])
        down = Homography.of_extent((0.0, 512.0, 512.0, 0.0), 64, 64)
        np.testing.assert_allclose(down([[128.0, 256.0]]), [[16, 32]])

    def test_behind_the_camera_there_is_no_pixel(self) -> None:
        found = Homography.fit(CORNERS, camera(CORNERS))
        assert np.isfinite(found([[0.5, -1.0]])).all()
        assert np.isnan(found([[0.5, -5.0], [0.5, 0.5]])).all(1).tolist() == [True, False]

    def test_any_shape_of_points(self) -> None:
        found = Homography.fit(CORNERS, camera(CORNERS))
        assert found(CORNERS[0]).shape == (2,)
        assert found(places(6).reshape(2, 3, 2)).shape == (2, 3, 2)
        np.testing.assert_allclose(Homography(found.matrix)(torch.tensor(CORNERS)), camera(CORNERS))

    @pytest.mark.parametrize(
        ("points", "pixels", "says"),
        [
            (CORNERS[:3], CORNERS[:3], r"points have shape \(3, 2\); allowed are \[k, 2\] with k of 4 or more"),
            (CORNERS, places(5), "4 points and 5 pixels"),
            (CORNERS, np.zeros((4, 3)), r"pixels have shape \(4, 3\)"),
            (CORNERS, CORNERS * np.nan, "pixels have values that are not finite"),
            (CORNERS, [["a", "b"]] * 4, "are not arrays of numbers"),
            (CORNERS, np.ones((4, 2)), "pixels are all the same"),
            (np.outer(np.arange(6.0), [1, 2]), camera(np.outer(np.arange(6.0), [1, 2])), "lie on one line"),
            (
                np.array([[0.0, 0], [1, 0], [2, 0], [3, 0], [1, 1]]),
                camera(np.array([[0.0, 0], [1, 0], [2, 0], [3, 0], [1, 1]])),
                "all of them, or all but one, lie on one line",
            ),
            (CORNERS, camera(CORNERS)[[1, 0, 2, 3]], "no camera maps these points"),
            (places(9), np.outer(places(9)[:, 0], [1, 2]), "no camera maps|do not determine"),
        ],
        ids=str,
    )
    def test_points_that_determine_nothing(self, points: np.ndarray, pixels: np.ndarray, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            Homography.fit(points, pixels)

    def test_what_is_no_matrix_or_no_extent(self) -> None:
        with pytest.raises(ValueError, match=r"allowed are finite numbers \[3, 3\]"):
            Homography(np.zeros((2, 3)))
        with pytest.raises(ValueError, match="rectangle with an area above 0"):
            Homography.of_extent((0.0, 0.0, 0.0, 1.0), 8, 8)


@pytest.fixture(scope="module")
def sprites() -> tuple[torch.Tensor, np.ndarray]:
    """Pictures, two pixels wide for each one high, and the object's positions."""
    world = Sprites(SpritesConfig(size=40))
    states = world.sample(150, torch.Generator().manual_seed(0))
    pictures = world.render(Scene(states.agent, states.object, states.angle))
    return pictures.repeat_interleave(2, -1), states.object.numpy()


class TestFromPictures:
    def test_the_object_shows_where_the_plane_is(self, sprites: tuple[torch.Tensor, np.ndarray]) -> None:
        pictures, at = sprites
        found = fit_projection(pictures, at)
        assert found is not None
        exact = Homography.of_extent((0.0, 1.0, 0.0, 1.0), 80, 40)
        assert np.median(np.linalg.norm(found(at) - exact(at), axis=1)) < 1.0

    def test_in_a_turned_and_scaled_frame_with_errors(self, sprites: tuple[torch.Tensor, np.ndarray]) -> None:
        pictures, at = sprites
        turned = 1000 * at @ np.array([[0.6, 0.8], [-0.8, 0.6]]) - 300
        found = fit_projection(pictures, turned + np.random.default_rng(0).normal(0, 20, at.shape))
        assert found is not None
        exact = Homography.of_extent((0.0, 1.0, 0.0, 1.0), 80, 40)
        assert np.median(np.linalg.norm(found(turned) - exact(at), axis=1)) < 2.0

    def test_positions_that_the_pictures_do_not_show(self, sprites: tuple[torch.Tensor, np.ndarray]) -> None:
        pictures, at = sprites
        assert fit_projection(pictures, at[::-1]) is None  # those of other pictures
        assert fit_projection(pictures[:1].repeat(150, 1, 1, 1), at) is None
        assert fit_projection(pictures, np.zeros((150, 2))) is None
        assert fit_projection(pictures[: FEWEST_PICTURES - 1], at[: FEWEST_PICTURES - 1]) is None
        assert fit_projection(pictures, np.full((150, 2), np.nan)) is None
        with pytest.raises(ValueError, match=r"allowed are \[N, c, h, w\] and \[N, 2\]"):
            fit_projection(pictures, at[:9])
