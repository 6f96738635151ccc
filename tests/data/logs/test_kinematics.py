"""Poses from joint angles, against a planar arm solved by hand."""

from pathlib import Path

import numpy as np
import pytest
from written import CAMERAS, truth, write_lerobot

from palpate.data.logs.kinematics import poses
from palpate.data.transitions import Transitions

ARM = """
<mujoco>
  <worldbody>
    <body name="upper">
      <joint name="shoulder" axis="0 0 1"/><geom size=".01"/>
      <body name="fore" pos="0.5 0 0">
        <joint name="elbow" axis="0 0 1"/><geom size=".01"/>
        <body name="hand" pos="0.3 0 0">
          <joint name="lift" type="slide" axis="0 0 1"/><geom size=".01"/>
          <site name="tip" pos="0.1 0 0"/>{more}
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
FINGERS = """
<body><joint name="left" type="slide" axis="0 1 0"/><geom size=".01"/></body>
<body name="finger"><joint name="right" type="slide" axis="0 1 0"/><geom size=".01"/></body>
"""
ANGLES = np.random.default_rng(0).uniform(-3, 3, (20, 3))
FOUR = np.hstack((ANGLES, ANGLES[:, :1]))


def arm(folder: Path, more: str = "") -> Path:
    path = folder / "robot.xml"
    path.write_text(ARM.format(more=more))
    return path


def by_hand(angles: np.ndarray, reach: float) -> np.ndarray:
    first, both = angles[:, 0], angles[:, 0] + angles[:, 1]
    x, y = (0.5 * part(first) + reach * part(both) for part in (np.cos, np.sin))
    return np.stack([x, y, angles[:, 2]], 1)


def test_a_site(tmp_path: Path) -> None:
    found = poses(arm(tmp_path), ANGLES, "tip")
    np.testing.assert_allclose(found.position, by_hand(ANGLES, 0.4), atol=1e-12)
    both = ANGLES[:, 0] + ANGLES[:, 1]
    np.testing.assert_allclose(found.rotation[:, 0], np.stack([np.cos(both), -np.sin(both), 0 * both], 1), atol=1e-12)
    np.testing.assert_allclose(found.rotation[:, 2], [[0, 0, 1]] * 20, atol=1e-12)
    np.testing.assert_array_equal(poses(arm(tmp_path), ANGLES).position, found.position)  # the only site


def test_a_body(tmp_path: Path) -> None:
    np.testing.assert_allclose(poses(arm(tmp_path), ANGLES, "hand").position, by_hand(ANGLES, 0.3), atol=1e-12)


def test_joints_that_do_not_move_the_site_may_be_missing(tmp_path: Path) -> None:
    """Fingers, or the free joint of an object; all joints may be given too."""
    expected = by_hand(ANGLES, 0.4)
    for more in (FINGERS, "<body><joint type='ball'/><geom size='.1'/></body>"):
        np.testing.assert_allclose(poses(arm(tmp_path, more), ANGLES, "tip").position, expected, atol=1e-12)
    whole = np.hstack((ANGLES, np.full((20, 2), 0.02)))
    np.testing.assert_allclose(poses(arm(tmp_path, FINGERS), whole, "tip").position, expected, atol=1e-12)
    finger = poses(arm(tmp_path, FINGERS), FOUR, "finger").position
    both, reach = ANGLES[:, 0] + ANGLES[:, 1], ANGLES[:, 0]
    sideways = np.stack([-np.sin(both), np.cos(both), 0 * both], 1) * reach[:, None]
    np.testing.assert_allclose(finger, by_hand(ANGLES, 0.3) + sideways, atol=1e-12)


@pytest.mark.parametrize(
    ("angles", "site", "more", "message"),
    [
        (
            ANGLES[:, :2],
            "tip",
            "",
            "position has 2 numbers, but .*robot.xml has 3 joints, shoulder, elbow, lift; .*:3]$",
        ),
        (
            ANGLES[:, :2],
            "tip",
            FINGERS,
            "has 5 joints, .*lift, left, right; .*those of shoulder, elbow, lift, which move",
        ),
        (ANGLES[:, :2], "post", '<site name="other"/>', "no site or body 'post'"),
        (ANGLES, "tipp", "", "no site or body 'tipp'; did you mean 'tip'"),
        (ANGLES, "xyz", "", "no site or body 'xyz'; there are tip, upper, fore, hand"),
        (ANGLES, None, '<site name="other"/>', "give site, the part of .* that is the agent: tip, other, upper"),
        (np.rad2deg(ANGLES), "tip", "", "'(shoulder|elbow)' has angles up to 1.*, which are not radians"),
        (ANGLES, "end", "<body name='end'><joint type='ball'/><geom size='.1'/></body>", "has 4 joints, .*joint 3"),
        (FOUR, "end", "<body name='end'><joint type='ball'/><geom size='.1'/></body>", "'joint 3' is a free or ball"),
        (ANGLES, "tip", "<nonsense/>", "robot.xml is not a model that MuJoCo reads"),
    ],
)
def test_mistakes(tmp_path: Path, angles: np.ndarray, site: str | None, more: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        poses(arm(tmp_path, more), angles, site)
    assert "\n" not in str(raised.value)


def test_a_slide_is_not_an_angle(tmp_path: Path) -> None:
    angles = ANGLES * [1, 1, 100]
    np.testing.assert_allclose(poses(arm(tmp_path), angles, "tip").position[:, 2], angles[:, 2])


def test_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no MuJoCo model"):
        poses(tmp_path / "robot.xml", ANGLES)


def test_from_a_log(tmp_path: Path) -> None:
    log = truth(cameras=CAMERAS[:1])
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    triples = Transitions.from_lerobot(
        folder, position="observation.state", kinematics=arm(tmp_path), site="tip", stride=2
    )
    place = by_hand(log.state.astype(float), 0.4)
    _, _, row = log.pairs(2)
    np.testing.assert_allclose(triples.action, place[row + 2] - place[row], atol=1e-6)
    assert triples.recipe["kinematics"] == str(tmp_path / "robot.xml")
