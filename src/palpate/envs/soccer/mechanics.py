"""The soccer world in the simulator: a ball on the grass, a fence around it, and the agent.

Metres, the field's centre at the origin, x to the right and y up as in the unit square, z towards the sky. Nothing
touches but the ball: the agent a cylinder, so that they meet where two discs do, and the fence half spaces, so that
nothing tunnels.
"""

import math
from typing import Any

import numpy as np

from palpate.envs.soccer.config import AGENT_RADIUS, BALL_RADIUS, FENCE_CORNER, FENCE_RANGE, FENCE_SIDES, SCALE

TIMESTEP = 0.006
BALL_MASS = 0.43  # kilograms
SLIDING_FRICTION = 0.6  # of the ball on the grass
ROLLING_FRICTION = 0.3  # a rolling ball slows by about 0.8 of this, in units of gravity
RESTITUTION = 0.6  # of the ball against the agent and the fence
AGENT_MASS = 1e7  # so heavy that a ball does nothing to it between two writings of its state
STIFFNESS = 1.1e4  # of contacts, per second squared: a collision lasts pi / sqrt(STIFFNESS), five time steps
SIDE_FRICTION = 0.2  # of the ball on the agent and on the fence
SPIN_FRICTION = 0.03  # metres, against spinning on the spot
GRIP_TIME = 0.3  # seconds, of the friction's regularisation: in MuJoCo, a hard grip makes a sliding ball hop


def fence() -> tuple[np.ndarray, np.ndarray]:
    """The ball's centre stays where `normals @ (x - 0.5) <= offsets`: normals [s, 2] and offsets [s], unit square."""
    angle = np.arange(FENCE_SIDES) * 2 * np.pi / FENCE_SIDES
    normals = np.stack((np.cos(angle), np.sin(angle)), -1)
    straight = (FENCE_RANGE[1] - FENCE_RANGE[0]) / 2 - FENCE_CORNER
    return normals, straight * np.abs(normals).sum(-1) + FENCE_CORNER


def build(mujoco: Any) -> Any:
    """The compiled model; `qpos` is the agent's x and y, then the ball's position and orientation."""
    ball, slide = SCALE * BALL_RADIUS, SLIDING_FRICTION
    rolling = 1.4 * ball * ROLLING_FRICTION  # a torque m g x slows a rolling solid sphere by g x / (7/5 r)
    # A linear spring with this damping returns the share RESTITUTION of the ball's speed.
    decay = -math.log(RESTITUTION)
    damping = 2 * math.sqrt(STIFFNESS) * decay / math.hypot(math.pi, decay)
    bounce = f'condim="3" friction="{SIDE_FRICTION} {SIDE_FRICTION} 0 0 0" solref="{-STIFFNESS} {-damping}"'
    planes, pairs = [], []
    for i, (normal, offset) in enumerate(zip(*fence(), strict=True)):
        x, y = normal * (offset * SCALE + ball)  # the ball's surface lies its radius beyond its centre
        inward = f"{-normal[0]:.12g} {-normal[1]:.12g} 0"
        planes.append(f'<geom name="fence{i}" type="plane" size="1 1 1" pos="{x:.12g} {y:.12g} 0" zaxis="{inward}"/>')
        pairs.append(f'<pair geom1="fence{i}" geom2="ball" {bounce}/>')
    lines = "\n    ".join
    # The cone is elliptic, or friction would depend on the direction of motion.
    mjcf = f"""
<mujoco model="soccer mechanics">
  <option timestep="{TIMESTEP}" cone="elliptic"><flag island="disable"/></option>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    {lines(planes)}
    <body name="agent">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <geom name="agent" type="cylinder" size="{SCALE * AGENT_RADIUS} 3" pos="0 0 3" mass="{AGENT_MASS}"/>
    </body>
    <body name="ball" pos="0 0 {ball}">
      <freejoint/>
      <geom name="ball" type="sphere" size="{ball}" mass="{BALL_MASS}"/>
    </body>
  </worldbody>
  <contact>
    <pair geom1="floor" geom2="ball" condim="6" solref="0.024 1" solreffriction="{GRIP_TIME} 1"
      friction="{slide} {slide} {SPIN_FRICTION} {rolling} {rolling}"/>
    <pair geom1="agent" geom2="ball" {bounce}/>
    {lines(pairs)}
  </contact>
</mujoco>
"""
    return mujoco.MjModel.from_xml_string(mjcf)
