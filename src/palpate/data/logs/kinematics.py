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
    near = difflib.get_close_matches(site, [*sites, *bodies], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {listed([*sites, *bodies])}"
    raise ValueError(f"{robot} has no site or body {site!r}; {hint}")
