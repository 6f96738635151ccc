"""Pictures of a MuJoCo model, by OpenGL.

Legend: h and w picture height and width.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Hashable
from numbers import Integral
from typing import Any, final

import numpy as np

from palpate.envs.simulator import engine

LARGEST_PICTURE = 4096
FINE_FROM = 257  # pixels on a side: smaller pictures are data and drawn fast, larger ones are for the eye
MOST_GEOMS = 200


def require_picture_size(width: int, height: int) -> None:
    for side in (width, height):
        if not isinstance(side, Integral) or not 1 <= int(side) <= LARGEST_PICTURE:
            raise ValueError(
                f"the picture is {width!r} x {height!r}; allowed is 1 to {LARGEST_PICTURE} pixels on a side"
            )


@final
class Renderer:
    """An OpenGL context with a model's textures and meshes in it, and a buffer to draw into."""

    def __init__(self, model: Any) -> None:
        mujoco = self._mujoco = engine.load()
        self.model, self.data = model, mujoco.MjData(model)
        self._size = model.vis.global_.offwidth, model.vis.global_.offheight
        self._gl, self._context = engine.open_gl(model, *self._size)
        self._process = os.getpid()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=MOST_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._option = mujoco.MjvOption()

    def focus(self, width: int, height: int) -> None:
        """Make this the context to draw in, with pictures of this size."""
        self._gl.make_current()
        if self._size != (width, height):
            self._mujoco.mjr_resizeOffscreen(width, height, self._context)
            self._size = width, height
        self._rectangle = self._mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)

    def pose(self, qpos: np.ndarray) -> None:
        """Move the bodies, and the cameras that they carry, to these coordinates of the model's joints."""
        self.data.qpos[:] = qpos
        self._mujoco.mj_kinematics(self.model, self.data)
        self._mujoco.mj_camlight(self.model, self.data)

    def shoot(self, camera: int, *, sky: bool = False, without: int | None = None) -> np.ndarray:
        """One picture [h, w, 3], valid until the next; `without` is a group of geoms to leave out."""
        mujoco = self._mujoco
        self._camera.fixedcamid = camera
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = sky
        if without is not None:
            self._option.geomgroup[without] = 0
        mujoco.mjv_updateScene(
            self.model, self.data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        if without is not None:
            self._option.geomgroup[without] = 1
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        return self._pixels[::-1]  # OpenGL's rows run upwards

    def __del__(self) -> None:
        if hasattr(self, "_process") and self._process == os.getpid() and not sys.is_finalizing():
            self._gl.make_current()
            self._context.free()
            self._gl.free()


_thread = threading.local()


def shared(key: Hashable, build: Callable[[], Any]) -> Renderer:
    """The renderer of this process and thread for the model that `build` makes. All worlds of this key share it.

    OpenGL is bound to a thread. A new renderer takes half a second in software, so it is kept until its thread ends.
    """
    renderers = _thread.__dict__.setdefault("renderers", {})
    own = (os.getpid(), key)
    if own not in renderers:
        renderers[own] = Renderer(build())
        atexit.unregister(_free)
        atexit.register(_free)  # last in, first out: before the display, which now exists, is closed
    found: Renderer = renderers[own]
    return found


def _free() -> None:
    _thread.__dict__.pop("renderers", None)
