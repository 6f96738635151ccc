"""OpenGL for the soccer world: a context with the scene's textures and meshes in it, and a buffer to draw into."""

import atexit
import os
import threading
from typing import Any, final

import numpy as np

from palpate.envs.soccer import engine
from palpate.envs.soccer.config import CAMERAS, FIRST_PERSON, SCALE, SoccerConfig
from palpate.envs.soccer.scene import AGENT_GROUP, Look, build

MOST_GEOMS = 200


@final
class Renderer:
    """Draws the scene of some worlds with one look."""

    def __init__(self, config: SoccerConfig, look: Look) -> None:
        mujoco = self._mujoco = engine.load()
        self.serves, self.users = _serves(config, look), 0
        self._model = build(mujoco, config, look)
        self._data = mujoco.MjData(self._model)
        self._size = self._model.vis.global_.offwidth, self._model.vis.global_.offheight
        self._gl, self._context = engine.open_gl(self._model, *self._size)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self._model, maxgeom=MOST_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._all, self._others = mujoco.MjvOption(), mujoco.MjvOption()
        self._others.geomgroup[AGENT_GROUP] = 0
        _live.add(self)
        atexit.unregister(_free_all)
        atexit.register(_free_all)  # last in, first out: before the display, which now exists, is closed

    def focus(self, width: int, height: int) -> None:
        """Make this the context to draw in, with pictures of this size."""
        self._gl.make_current()
        if self._size != (width, height):
            self._mujoco.mjr_resizeOffscreen(width, height, self._context)
            self._size = width, height
        self._rectangle = self._mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)

    def name(self) -> str:
        """What OpenGL calls itself here: a GPU, or one of its software renderers."""
        self._gl.make_current()
        return engine.renderer_name()

    def pose(self, agent: np.ndarray, position: np.ndarray, orientation: np.ndarray) -> None:
        """Move the bodies to one state."""
        pose(self._model, self._data, agent, position, orientation)

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

    def free(self) -> None:
        """May be called again; nothing is drawn afterwards."""
        if self in _live and self.serves[:2] == _whose():
            self._gl.make_current()
            self._context.free()
            self._gl.free()
        _live.discard(self)


def pose(model: Any, data: Any, agent: np.ndarray, position: np.ndarray, orientation: np.ndarray) -> None:
    """Move the bodies, and with them the cameras, to one state in the unit square."""
    mujoco = engine.load()
    data.qpos[:2] = (agent - 0.5) * SCALE
    data.qpos[2:4] = (position - 0.5) * SCALE
    data.qpos[5:9] = orientation
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)


_live: set[Renderer] = set()
# The last unused renderer, kept for the next world: a new one takes half a second in software.
_idle: list[Renderer] = []
_lock = threading.RLock()  # garbage collection may close a world at any moment
_thread = threading.local()


def take(config: SoccerConfig, look: Look) -> Renderer:
    """The renderer for worlds of this kind, a new one if there is none.

    Worlds of one thread share it: contexts on one GPU take turns, and switching costs more than a small picture.
    """
    with _lock:
        wanted = _serves(config, look)
        found = next((each for each in tuple(_live) if each.serves == wanted), None) or Renderer(config, look)
        found.users += 1
        if found in _idle:
            _idle.remove(found)
        return found


def leave(renderer: Renderer) -> None:
    """Called by a world that no longer draws. An unused renderer is kept; the one kept before is freed."""
    with _lock:
        renderer.users -= 1
        if renderer.users or renderer not in _live:
            return
        while _idle:
            _idle.pop().free()
        _idle.append(renderer)


def _free_all() -> None:
    _idle.clear()
    for renderer in tuple(_live):
        renderer.free()


def _whose() -> tuple[int, object]:
    """Process and thread: OpenGL is bound to a thread and does not survive a fork. Thread numbers are reused."""
    if not hasattr(_thread, "token"):
        _thread.token = object()
    return os.getpid(), _thread.token


def _serves(config: SoccerConfig, look: Look) -> tuple[object, ...]:
    return *_whose(), look, config.shadows, config.agent_radius, config.ball_radius
