"""Pictures of the soccer world, by OpenGL.

Legend: b batch, v views, h and w picture height and width.
"""

import atexit
import importlib
import os
import sys
import threading
from numbers import Integral
from typing import final

import numpy as np

from palpate.envs.soccer import engine
from palpate.envs.soccer.config import CAMERAS, FIRST_PERSON, SCALE
from palpate.envs.soccer.scene import AGENT_GROUP, FAST, FINE, Look, build

LARGEST_PICTURE = 4096
FINE_FROM = 257  # pixels on a side: smaller pictures are data and drawn fast, larger ones are for the eye
MOST_GEOMS = 200


def draw(
    states: tuple[np.ndarray, np.ndarray, np.ndarray],
    cameras: tuple[str, ...],
    width: int,
    height: int,
    shadows: bool,
) -> np.ndarray:
    """Pictures [b, v, h, w, 3] uint8 of states: agents [b, 2], balls [b, 2] and their orientations [b, 4]."""
    for name in cameras:
        if name not in CAMERAS:
            raise ValueError(f"camera is {name!r}; allowed are {', '.join(map(repr, CAMERAS))}")
    require_picture_size(width, height)
    renderer = _renderer(max(width, height), shadows)
    renderer.focus(width, height)
    pictures = np.empty((len(states[0]), len(cameras), height, width, 3), np.uint8)
    for i, state in enumerate(zip(*states, strict=True)):
        renderer.pose(*state)
        for v, name in enumerate(cameras):
            pictures[i, v] = renderer.shoot(name)
    return pictures


def drawn_by(side: int, shadows: bool) -> str:
    """OpenGL's name for what draws pictures of this size: a GPU, or a software renderer."""
    return _renderer(side, shadows).name()


def require_picture_size(width: int, height: int) -> None:
    for side in (width, height):
        if not isinstance(side, Integral) or not 1 <= int(side) <= LARGEST_PICTURE:
            raise ValueError(
                f"the picture is {width!r} x {height!r}; allowed is 1 to {LARGEST_PICTURE} pixels on a side"
            )


@final
class Renderer:
    """An OpenGL context with the scene's textures and meshes in it, and a buffer to draw into."""

    def __init__(self, look: Look, shadows: bool) -> None:
        mujoco = self._mujoco = engine.load()
        self._model = build(mujoco, look, shadows)
        self._data = mujoco.MjData(self._model)
        self._size = self._model.vis.global_.offwidth, self._model.vis.global_.offheight
        self._gl, self._context = engine.open_gl(self._model, *self._size)
        self._process = os.getpid()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self._model, maxgeom=MOST_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._all, self._others = mujoco.MjvOption(), mujoco.MjvOption()
        self._others.geomgroup[AGENT_GROUP] = 0

    def focus(self, width: int, height: int) -> None:
        """Make this the context to draw in, with pictures of this size."""
        self._gl.make_current()
        if self._size != (width, height):
            self._mujoco.mjr_resizeOffscreen(width, height, self._context)
            self._size = width, height
        self._rectangle = self._mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)

    def name(self) -> str:
        self._gl.make_current()
        gl = importlib.import_module("OpenGL.GL")  # configured by MuJoCo
        return bytes(gl.glGetString(gl.GL_RENDERER) or b"").decode(errors="replace")

    def pose(self, agent: np.ndarray, ball: np.ndarray, orientation: np.ndarray) -> None:
        """Move the bodies, and with them the cameras, to one state in the unit square."""
        qpos = self._data.qpos
        qpos[:2], qpos[2:4], qpos[5:9] = (agent - 0.5) * SCALE, (ball - 0.5) * SCALE, orientation
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_camlight(self._model, self._data)

    def shoot(self, camera: str) -> np.ndarray:
        """One picture [h, w, 3], valid until the next."""
        mujoco, on_agent = self._mujoco, camera in FIRST_PERSON
        self._camera.fixedcamid = CAMERAS.index(camera)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = on_agent  # the others look down
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._others if on_agent else self._all,  # the agent's cameras would see its hair from inside
            None,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        return self._pixels[::-1]  # OpenGL's rows run upwards

    def __del__(self) -> None:
        if hasattr(self, "_process") and self._process == os.getpid() and not sys.is_finalizing():
            self._gl.make_current()
            self._context.free()
            self._gl.free()


_thread = threading.local()


def _renderer(side: int, shadows: bool) -> Renderer:
    """The renderer of this process and thread for pictures of this size. All worlds share it.

    OpenGL is bound to a thread. A new renderer takes half a second in software, so it is kept until its thread ends.
    """
    renderers = _thread.__dict__.setdefault("renderers", {})
    key = (os.getpid(), FINE if side >= FINE_FROM else FAST, shadows)
    if key not in renderers:
        renderers[key] = Renderer(*key[1:])
        atexit.unregister(_free)
        atexit.register(_free)  # last in, first out: before the display, which now exists, is closed
    return renderers[key]


def _free() -> None:
    _thread.__dict__.pop("renderers", None)
