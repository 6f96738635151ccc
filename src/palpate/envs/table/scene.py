"""The visual model of the table: a wooden top, an arm that reaches in from the left, a gripper and a block.

Metres, the workspace's centre at the origin, x to the right, y away from the front camera and z up. Nothing here
touches anything.

Legend: h and w texels, r rays.
"""

import math
from typing import Any

import numpy as np

from palpate.envs.table.config import BLOCK_HEIGHT, BLOCKS, CAMERAS, GRIPPER_RADIUS, SCALE, Block, Camera
from palpate.envs.table.physics import LIFT, slab_geoms

SHOULDER = (-0.5, 0.1, 0.3)
UPPER_ARM, FOREARM = 0.44, 0.42  # lengths
WRIST_HEIGHT = 0.22  # where the forearm meets the hand
ARM_GROUP = 2  # of geoms, so that the arm can be left out
TOP_HALF = 0.42  # half side of the table's top
TEXELS = 256
EYES: dict[Camera, tuple[tuple[float, ...], tuple[float, ...], float]] = {  # place, target, vertical field of view
    "front": ((0.0, -0.72, 0.62), (0.0, -0.03, 0.0), 42.0),
    "side": ((0.72, 0.0, 0.62), (0.03, 0.0, 0.0), 42.0),
    "top": ((0.0, 0.0, 1.1), (0.0, 0.0, 0.0), 32.0),
}


def build(mujoco: Any, block: Block, *, arm: bool, fine: bool, shadows: bool) -> Any:
    """The compiled model; `qpos` as `joints` returns it."""
    model = mujoco.MjModel.from_xml_string(_mjcf(block, arm=arm, fine=fine, shadows=shadows))
    start = model.tex_adr[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXTURE, "wood")]
    texels = wood()
    model.tex_data[start : start + texels.size] = texels.ravel()
    return model


def joints(gripper: np.ndarray, block: np.ndarray, angle: float) -> np.ndarray:
    """`qpos` of one state in the unit square: gripper x, y; yaw, shoulder, elbow; the block's position, orientation."""
    x, y = (gripper - 0.5) * SCALE
    across, along = x - SHOULDER[0], y - SHOULDER[1]
    away, up = math.hypot(across, along), WRIST_HEIGHT - SHOULDER[2]
    reach2 = away**2 + up**2
    inner = math.acos((UPPER_ARM**2 + reach2 - FOREARM**2) / (2 * UPPER_ARM * math.sqrt(reach2)))
    bend = math.acos((UPPER_ARM**2 + FOREARM**2 - reach2) / (2 * UPPER_ARM * FOREARM))
    arm = math.atan2(along, across), math.atan2(up, away) + inner, bend - math.pi
    place = (*(block - 0.5) * SCALE, SCALE * BLOCK_HEIGHT / 2)
    return np.array([x, y, *arm, *place, math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])


def sight_points(block: Block) -> np.ndarray:
    """Points [r, 3] of the block in its own frame, to which a camera looks."""
    grid = np.linspace(-0.8, 0.8, 5)
    points = []
    for (cx, cy), half in BLOCKS[block]:
        wide, deep = half[0], half[-1]
        if len(half) == 1:
            wide = deep = half[0] / math.sqrt(2)
        points += [(cx + u * wide, cy + v * deep, z * BLOCK_HEIGHT / 2) for u in grid for v in grid for z in (0.0, 0.9)]
    return SCALE * np.array(points)


def wood() -> np.ndarray:
    """Boards with grain: [h, w, 3] uint8."""
    y, x = np.mgrid[0:TEXELS, 0:TEXELS] / TEXELS
    board = np.floor(x * 6)
    grain = np.sin(2 * np.pi * (30 * x + 2 * np.sin(2 * np.pi * (y + 0.37 * board)))) * np.sin(
        2 * np.pi * 3 * y + board
    )
    light = 1 + 0.05 * grain + 0.04 * np.sin(12.9 * board) - 0.25 * (np.abs(x * 6 - board) < 0.03)
    return (np.array((188.0, 150.0, 106.0)) * light[..., None]).clip(0, 255).astype(np.uint8)


def _mjcf(block: Block, *, arm: bool, fine: bool, shadows: bool) -> str:
    samples, slices = (4, 40) if fine else (0, 12)
    finger, tall = SCALE * GRIPPER_RADIUS, SCALE * BLOCK_HEIGHT
    palm = LIFT + 2 * tall
    edge = SCALE / 2
    lines = "".join(
        f'<geom type="box" size="{edge if across else 0.002} {0.002 if across else edge} 0.0004" '
        f'pos="{0 if across else s * edge} {s * edge if across else 0} 0.0004" rgba="0.95 0.93 0.88 1"/>'
        for across in (True, False)
        for s in (-1, 1)
    )
    links = f"""
    <body name="base" pos="{_numbers(*SHOULDER)}">
      <geom type="cylinder" size="0.06 0.3" pos="0 0 -0.32" material="dark" group="{ARM_GROUP}"/>
      <body name="turret">
        <joint type="hinge" axis="0 0 1"/>
        <geom type="sphere" size="0.062" material="accent" group="{ARM_GROUP}"/>
        <body name="upper arm">
          <joint type="hinge" axis="0 -1 0"/>
          <geom type="capsule" size="0.042" fromto="0 0 0 {UPPER_ARM} 0 0" material="light" group="{ARM_GROUP}"/>
          <body name="forearm" pos="{UPPER_ARM} 0 0">
            <joint type="hinge" axis="0 -1 0"/>
            <geom type="sphere" size="0.05" material="accent" group="{ARM_GROUP}"/>
            <geom type="capsule" size="0.034" fromto="0 0 0 {FOREARM} 0 0" material="light" group="{ARM_GROUP}"/>
          </body>
        </body>
      </body>
    </body>"""
    slides = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))
    absent = f'<body name="arm">{slides}<geom size="0.01" rgba="0 0 0 0"/></body>'  # as many joints, nothing to see
    return f"""
<mujoco model="table scene">
  <compiler angle="radian"/>
  <visual>
    <quality shadowsize="{2048 if shadows else 0}" offsamples="{samples}" numslices="{slices}" numstacks="{slices}"/>
    <map znear="0.02" zfar="8"/>
    <headlight ambient="0.4 0.4 0.4" diffuse="0.25 0.25 0.25" specular="0.05 0.05 0.05"/>
  </visual>
  <statistic extent="1.5" center="0 0 0"/>
  <asset>
    <texture name="wood" type="2d" builtin="flat" width="{TEXELS}" height="{TEXELS}"/>
    <material name="wood" texture="wood" specular="0.1"/>
    <material name="light" rgba="0.9 0.91 0.93 1" specular="0.4"/>
    <material name="dark" rgba="0.2 0.22 0.25 1" specular="0.3"/>
    <material name="accent" rgba="0.16 0.42 0.72 1" specular="0.4"/>
    <material name="block" rgba="0.88 0.2 0.16 1" specular="0.2"/>
  </asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light directional="true" castshadow="{"true" if shadows else "false"}" pos="0.4 -0.6 2" dir="-0.25 0.35 -1"
      diffuse="0.5 0.5 0.48" specular="0.1 0.1 0.1"/>
    {"".join(map(_camera, CAMERAS))}
    <geom type="plane" size="4 4 1" pos="0 0 -0.6" rgba="0.52 0.55 0.58 1"/>
    <geom type="box" size="{TOP_HALF} {TOP_HALF} 0.02" pos="0 0 -0.02" material="wood"/>
    {lines}
    <body name="gripper">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <geom type="cylinder" size="{finger} {tall}" pos="0 0 {LIFT + tall}" material="dark"/>
      <geom type="box" size="0.034 0.026 0.02" pos="0 0 {palm + 0.02}" material="accent"/>
      <geom type="cylinder" size="0.03 {(WRIST_HEIGHT - palm - 0.04) / 2}" pos="0 0 {(WRIST_HEIGHT + palm + 0.04) / 2}"
        material="light" group="{ARM_GROUP}"/>
      <geom type="sphere" size="0.04" pos="0 0 {WRIST_HEIGHT}" material="accent" group="{ARM_GROUP}"/>
    </body>
    {links if arm else absent}
    <body name="block">
      <freejoint/>
      {slab_geoms(block, 'material="block"')}
    </body>
  </worldbody>
</mujoco>
"""


def homography(camera: Camera, width: int, height: int) -> np.ndarray:
    """The matrix [3, 3] from (x, y, 1) in the unit square, at half the height of a block, to the camera's pixels."""
    place, _, fovy = EYES[camera]
    right, up, forward = _axes(camera)
    middle = np.array((-SCALE / 2, -SCALE / 2, SCALE * BLOCK_HEIGHT / 2)) - place
    plane = np.column_stack(([SCALE, 0, 0], [0, SCALE, 0], middle))  # metres from the camera
    focal = height / 2 / math.tan(math.radians(fovy) / 2)
    lens = np.array(((focal, 0, width / 2), (0, -focal, height / 2), (0, 0, 1)))
    return np.asarray(lens @ np.stack((right, up, forward)) @ plane)


def _axes(camera: Camera) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors [3] of the camera: right, up and forward."""
    place, target, _ = EYES[camera]
    forward = np.subtract(target, place) / math.dist(target, place)
    right = np.array((1.0, 0.0, 0.0)) if camera == "top" else np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    return right, np.cross(right, forward), forward


def _camera(name: Camera) -> str:
    place, _, fovy = EYES[name]
    right, up, _ = _axes(name)
    return f'<camera name="{name}" pos="{_numbers(*place)}" xyaxes="{_numbers(*right, *up)}" fovy="{fovy}"/>'


def _numbers(*values: float) -> str:
    return " ".join(f"{v:.9g}" for v in values)
