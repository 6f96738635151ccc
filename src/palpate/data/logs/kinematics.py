"""Joint angles to poses of a site or body: by MuJoCo, or by a function of the user's.

Legend: T rows, d joints.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from palpate.config import TURNING, GroupName
from palpate.data.arrays import require_rigid
from palpate.data.logs.columns import listed
from palpate.envs.simulator.engine import load
from palpate.rotations import vector_of
from palpate.spelling import did_you_mean

LARGEST = 4 * math.pi  # radians; larger angles are refused, because they are probably degrees


TILT = 0.05  # radians: a site that tilts farther does not move in a plane


class Poses(NamedTuple):
    position: np.ndarray  # [T, 3]
    rotation: np.ndarray  # [T, 3, 3], its columns are the axes of the site


def recorded(found: Poses, group: GroupName | None) -> np.ndarray:
    """Numbers `[T, m]` from which a group computes moves: the position; with se2 x, y and the heading of the site's
    first axis, or of its second one if the first is nearly vertical; with se3 the position and the rotation vector."""
    if group not in TURNING:
        return found.position
    if TURNING[group][0] == 3:
        return np.concatenate((found.position, vector_of(torch.from_numpy(found.rotation)).numpy()), 1)
    upright = found.rotation[:, 2]  # the height of each axis, [T, 3]
    tilt = float(np.abs(upright - upright[:1]).max())
    if tilt > TILT:
        raise ValueError(
            f"the site tilts by about {tilt:.2g} radians, so it does not turn in a plane; use group 'se3', or "
            "'translations'"
        )
    axis = 0 if abs(upright[0, 0]) < 0.7 else 1
    heading = np.arctan2(found.rotation[:, 1, axis], found.rotation[:, 0, axis])
    return np.concatenate((found.position[:, :2], heading[:, None]), 1)


def poses_by(forward: Callable[[np.ndarray], Any], values: np.ndarray) -> Poses:
    """Poses by a function from columns [T, d] to matrices [T, 4, 4], or to positions [T, 3] and rotations [T, 3, 3]."""
    made, count = forward(values), len(values)
    position, rotation = made if isinstance(made, tuple) and len(made) == 2 else (np.asarray(made)[..., :3, 3:], made)
    position, rotation = np.asarray(position, np.float64), np.asarray(rotation, np.float64)[..., :3, :3]
    position = position.reshape(position.shape[:2])
    if position.shape != (count, 3) or rotation.shape != (count, 3, 3):
        raise ValueError(
            f"kinematics returns positions {position.shape} and rotations {rotation.shape} for {count} rows; allowed "
            "are matrices [T, 4, 4], or positions [T, 3] and rotations [T, 3, 3]"
        )
    whole = np.tile(np.eye(4), (count, 1, 1))
    whole[:, :3, 3], whole[:, :3, :3] = position, rotation
    require_rigid("what kinematics returns", whole)
    return Poses(position, rotation)


def poses(robot: Path, angles: np.ndarray, site: str | None = None) -> Poses:
    """Poses of a site or a body, for rows of joint angles `[T, d]` in the order of the model's joints.

    The angles are those of all joints, or only of the joints that move the site; the others, such as the fingers'
    joints, then stay as in the model.
    """
    mujoco = load(f"{robot} needs MuJoCo")
    if not robot.exists():
        raise FileNotFoundError(f"there is no MuJoCo model {robot}")
    try:
        model = mujoco.MjModel.from_xml_path(str(robot))
    except ValueError as error:
        raise ValueError(f"{robot} is not a model that MuJoCo reads: {' '.join(str(error).split())}") from error
    kind, number = _place(model, robot, site)
    joints = _joints(model, robot, angles, model.site_bodyid[number] if kind == "site" else number)
    _require_simple(mujoco, model, robot, joints, angles)
    data = mujoco.MjData(model)
    position, rotation = np.empty((len(angles), 3)), np.empty((len(angles), 9))
    at, turned = (data.site_xpos, data.site_xmat) if kind == "site" else (data.xpos, data.xmat)
    places = model.jnt_qposadr[joints]
    for row, values in enumerate(angles):
        data.qpos[places] = values
        mujoco.mj_kinematics(model, data)
        position[row], rotation[row] = at[number], turned[number]
    return Poses(position, rotation.reshape(-1, 3, 3))


def _joints(model: Any, robot: Path, angles: np.ndarray, body: int) -> list[int]:
    """The joints that the columns of `angles` belong to: all, or those that move this body."""
    moving: set[int] = set()
    while body:
        moving |= set(np.flatnonzero(model.jnt_bodyid == body).tolist())
        body = int(model.body_parentid[body])
    every, chain = list(range(model.njnt)), sorted(moving)
    for joints in (every, chain):
        if joints and len(joints) == angles.shape[1]:
            return joints
    names = [_name(model, joint) for joint in every]
    others = len(every) - len(chain)
    some = f", or those of {listed([names[joint] for joint in chain])}, which move the site" if chain and others else ""
    raise ValueError(
        f"position has {angles.shape[1]} numbers, but {robot} has {len(every)} joints, {listed(names)}; select the "
        f"columns of all joints, such as observation.state[:{len(every)}]{some}"
    )


def _name(model: Any, joint: int) -> str:
    return model.joint(joint).name or f"joint {joint}"


def _require_simple(mujoco: Any, model: Any, robot: Path, joints: list[int], angles: np.ndarray) -> None:
    """Hinges and slides; hinges in radians."""
    hinge, slide = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)
    kinds = np.asarray(model.jnt_type)[joints]
    for joint, kind in zip(joints, kinds, strict=True):
        if int(kind) not in (hinge, slide):
            raise ValueError(
                f"{robot}: {_name(model, joint)!r} is a free or ball joint; the columns of position may belong only to "
                "hinges and slides"
            )
    largest = np.abs(angles).max(axis=0) * (kinds == hinge)
    if (largest > LARGEST).any():
        name = _name(model, joints[int(largest.argmax())])
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
    there = [*sites, *bodies]
    meant = did_you_mean(site, there, f"there are {listed(there)}")
    raise ValueError(f"{robot} has no site or body {site!r}{meant}")
