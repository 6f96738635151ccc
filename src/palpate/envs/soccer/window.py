"""A window in which a person sees the soccer world."""

import importlib
import os
import sys
from typing import Any, final

from palpate.envs.soccer import engine
from palpate.envs.soccer.config import CAMERAS, SoccerConfig
from palpate.envs.soccer.renderer import pose
from palpate.envs.soccer.scene import FINE, build


@final
class Window:
    """MuJoCo's own viewer, which runs in a thread of its own; the camera can be moved with the mouse."""

    def __init__(self, config: SoccerConfig) -> None:
        if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise RuntimeError(
                "render_mode is 'human', which needs a screen, and there is none (DISPLAY is not set); use 'rgb_array'"
            )
        mujoco = engine.load()
        viewer = importlib.import_module("mujoco.viewer")

        self._model = build(mujoco, config, FINE)
        self._data = mujoco.MjData(self._model)
        self._viewer = viewer.launch_passive(self._model, self._data, show_left_ui=False, show_right_ui=False)
        with self._viewer.lock():
            self._viewer.cam.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._viewer.cam.fixedcamid = CAMERAS.index("third")

    def show(self, scene: Any) -> None:
        """A scene with b = 1."""
        with self._viewer.lock():
            pose(self._model, self._data, *(x[0] for x in scene))
        self._viewer.sync()

    def close(self) -> None:
        self._viewer.close()
