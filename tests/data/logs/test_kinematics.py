"""Poses from joint angles, against a planar arm solved by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from written import CAMERAS, Truth, truth, write_lerobot

import palpate
from palpate.data.logs.kinematics import poses
from palpate.data.transitions import Transitions
from palpate.rotations import matrix_of

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


# Moves along the agent's own axes


def pose_by_hand(angles: np.ndarray, reach: float = 0.4) -> np.ndarray:
    """[T, 4, 4]."""
    both = angles[:, 0] + angles[:, 1]
    whole = np.tile(np.eye(4), (len(angles), 1, 1))
    whole[:, 0, :2] = np.stack([np.cos(both), -np.sin(both)], 1)
    whole[:, 1, :2] = np.stack([np.sin(both), np.cos(both)], 1)
    whole[:, :3, 3] = by_hand(angles, reach)
    return whole


def tumbling(angles: np.ndarray) -> np.ndarray:
    """Poses [T, 4, 4] that turn about all axes."""
    whole = pose_by_hand(angles)
    whole[:, :3, :3] = matrix_of(torch.from_numpy(angles))
    return whole


def between(whole: np.ndarray, log: Truth) -> np.ndarray:
    """The motions [N, 4, 4] over two frames, seen from the poses before."""
    _, _, row = log.pairs(2)
    return np.linalg.inv(whole[row]) @ whole[row + 2]


def read(tmp_path: Path, **options: Any) -> tuple[Transitions, Truth]:
    log = truth(cameras=CAMERAS[:1])
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    return Transitions.from_lerobot(folder, stride=2, **{"position": "observation.state"} | options), log


def six(motions: np.ndarray) -> torch.Tensor:
    """The actions of motions [N, 4, 4]."""
    o = np.zeros((len(motions), 1), np.float32)
    return Transitions(observation=o, action=motions, next_observation=o).action


def test_a_models_poses_give_moves_in_space(tmp_path: Path) -> None:
    triples, log = read(tmp_path, kinematics=arm(tmp_path), site="tip", group="se3")
    torch.testing.assert_close(triples.action, six(between(pose_by_hand(log.state.astype(float)), log)))
    assert triples.recipe["group"] == triples.attributes["group"] == "se3"


def test_a_models_poses_give_moves_in_the_plane(tmp_path: Path) -> None:
    """The heading is that of the site's first axis."""
    triples, log = read(tmp_path, kinematics=arm(tmp_path), site="tip", group="se2")
    motion = between(pose_by_hand(log.state.astype(float)), log)
    turn = np.arctan2(motion[:, 1, 0], motion[:, 0, 0])
    expected = np.stack([motion[:, 0, 3], motion[:, 1, 3], turn], 1)
    np.testing.assert_allclose(triples.action, expected, atol=1e-5)


@pytest.mark.parametrize("pair", [False, True])
def test_a_function_gives_poses(tmp_path: Path, pair: bool) -> None:
    def forward(angles: np.ndarray) -> Any:
        whole = tumbling(angles)
        return (whole[:, :3, 3], whole[:, :3, :3]) if pair else whole

    triples, log = read(tmp_path, kinematics=forward, group="se3")
    whole = tumbling(log.state.astype(float))
    torch.testing.assert_close(triples.action, six(between(whole, log)), atol=1e-5, rtol=0)
    assert triples.recipe == {}  # no file can hold the function
    _, _, row = log.pairs(2)
    placed, _ = read(tmp_path / "again", kinematics=forward)
    np.testing.assert_allclose(placed.action, whole[row + 2, :3, 3] - whole[row, :3, 3], atol=1e-5)


def test_poses_in_columns(tmp_path: Path) -> None:
    """x, y and heading; or x, y, z and a rotation vector."""
    triples, log = read(tmp_path, group="se2")
    _, _, row = log.pairs(2)
    heading = log.state[row, 2].astype(float)
    step = (log.state[row + 2] - log.state[row]).astype(float)
    ahead = np.cos(heading) * step[:, 0] + np.sin(heading) * step[:, 1]
    np.testing.assert_allclose(triples.action[:, 0], ahead, atol=1e-5)
    turn = (step[:, 2] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(triples.action[:, 2], turn, atol=1e-5)
    state = np.hstack((log.state, np.flip(log.state, 1)))
    folder = write_lerobot(tmp_path / "space", log._replace(state=state), stored="PNG")
    space = Transitions.from_lerobot(folder, position="observation.state", stride=2, group="se3")
    whole = np.tile(np.eye(4), (len(state), 1, 1))
    whole[:, :3, 3], whole[:, :3, :3] = state[:, :3], matrix_of(torch.from_numpy(state[:, 3:].astype(float)))
    torch.testing.assert_close(space.action, six(between(whole, log)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"position": "observation.state[:2]", "group": "se2"},
            "position has 2 numbers; with group 'se2' it needs 3: x",
        ),
        ({"group": "se3"}, "position has 3 numbers; with group 'se3' it needs 6: x, y, z and a rotation vector"),
        ({"group": "so3"}, "group is 'so3'; allowed is 'translations' or 'se2' or 'se3'"),
        (
            {"kinematics": tumbling, "group": "se2"},
            "the site tilts by about .* radians, so it does not turn in a plane",
        ),
        ({"kinematics": lambda angles: angles}, r"returns positions .* for \d+ rows; allowed are matrices \[T, 4, 4\]"),
        ({"kinematics": lambda angles: 2 * tumbling(angles)}, "in row 0, which is no rigid motion"),
    ],
)
def test_poses_that_do_not_fit(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(tmp_path, **options)


def test_fit_refuses_another_group_than_the_logs(tmp_path: Path) -> None:
    triples, _ = read(tmp_path, kinematics=arm(tmp_path), site="tip", group="se3")
    with pytest.raises(ValueError, match="the log was read with group='se3', .* give group='se3'"):
        palpate.fit(triples, steps=3, progress=False, device="cpu")


@pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps
def test_the_commands_read_moves_of_the_group(command: Any, tmp_path: Path) -> None:
    """A run records the group, so that `encode` reads the log as the run did."""
    log = truth((40, 30, 20), CAMERAS[:1], side=16)
    folder = write_lerobot(tmp_path / "log", log, stored="PNG")
    reading = ["--position", "observation.state", "--kinematics", arm(tmp_path), "--site", "tip", "--group", "se3"]
    code, out, err = command("check", folder, *reading, "--no-probe")
    assert "never-turns" not in out, err
    short = ["--steps", 2, "--batch-size", 8, "--device", "cpu"]
    code, out, err = command("train", "--data", folder, *reading, *short, "--out", tmp_path / "run")
    assert code == 0, err
    assert 'group = "se3"' in (tmp_path / "run" / "run.toml").read_text()
    code, out, err = command("encode", folder, "--model", tmp_path / "run", "--out", tmp_path / "table.npz")
    assert code == 0, err
    assert "group se3" in out
    assert "palpate.rotation" in out
