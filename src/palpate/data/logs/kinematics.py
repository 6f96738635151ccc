"""Joint angles to poses of a site or body, by MuJoCo.

Legend: T rows, d joints.
"""

import difflib
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from palpate.data.logs.columns import listed
from palpate.envs.simulator.engine import load

LARGEST = 4 * math.pi  # radians; larger angles are refused, because they are probably degrees


class Poses(NamedTuple):
    position: np.ndarray  # [T, 3]
    rotation: np.ndarray  # [T, 3, 3], its columns are the axes of the site


def poses(robot: Path, angles: np.ndarray, site: str | None = None) -> Poses:
    """Poses of a site or a body, for rows of joint angles `[T, d]` in the order of the model's joints."""
    mujoco = load(f"{robot} needs MuJoCo")
    if not robot.exists():
        raise FileNotFoundError(f"there is no MuJoCo model {robot}")
    try:
        model = mujoco.MjModel.from_xml_path(str(robot))
    except ValueError as error:
        raise ValueError(f"{robot} is not a model that MuJoCo reads: {' '.join(str(error).split())}") from error
    _require_joints(mujoco, model, robot, angles)
    kind, number = _place(model, robot, site)
    data = mujoco.MjData(model)
    position, rotation = np.empty((len(angles), 3)), np.empty((len(angles), 9))
    at, turned = (data.site_xpos, data.site_xmat) if kind == "site" else (data.xpos, data.xmat)
    for row, values in enumerate(angles):
        data.qpos[:] = values
        mujoco.mj_kinematics(model, data)
        position[row], rotation[row] = at[number], turned[number]
    return Poses(position, rotation.reshape(-1, 3, 3))


def _require_joints(mujoco: Any, model: Any, robot: Path, angles: np.ndarray) -> None:
    joints = [model.joint(index).name or f"joint {index}" for index in range(model.njnt)]
    simple = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
    for name, kind in zip(joints, model.jnt_type, strict=True):
        if int(kind) not in simple:
            raise ValueError(
                f"{robot}: {name!r} is a free or ball joint; allowed are hinges and slides, so use a model "
                "of the robot alone"
            )
    if angles.shape[1] != len(joints):
        raise ValueError(
            f"position has {angles.shape[1]} numbers, but {robot} has {len(joints)} joints, {listed(joints)}; "
            "select the columns of the joints, such as observation.state[:6]"
        )
    hinges = np.asarray(model.jnt_type) == simple[0]
    largest = np.abs(angles).max(axis=0) * hinges
    if (largest > LARGEST).any():
        name = joints[int(largest.argmax())]
        raise ValueError(
            f"position: {name!r} has angles up to {largest.max():.4g}, which are not radians; convert them"
        )


def _place(model: Any, robot: Path, site: str | None) -> tuple[str, int]:
    sites = {model.site(index).name: index for index in range(model.nsite)}
    bodies = {model.body(index).name: index for index in range(1, model.nbody)}
    if site is None:
        if len(sites) == 1:
            return "site", next(iter(sites.values()))
        raise ValueError(f"give site, the part of {robot} that is the agent: {listed([*sites, *bodies])}")
    if site in sites:
        return "site", sites[site]
    if site in bodies:
        return "body", bodies[site]
    near = difflib.get_close_matches(site, [*sites, *bodies], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {listed([*sites, *bodies])}"
    raise ValueError(f"{robot} has no site or body {site!r}; {hint}")
