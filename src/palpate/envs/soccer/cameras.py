"""Pictures of the soccer world.

Legend: b batch, v views, h and w picture height and width.
"""

import sys
from numbers import Integral
from typing import final

import numpy as np

from palpate.envs.soccer import renderer
from palpate.envs.soccer.config import CAMERAS, SoccerConfig
from palpate.envs.soccer.scene import FAST, FINE, Look

LARGEST_PICTURE = 4096
FINE_FROM = 257  # pixels on a side: smaller pictures are data and drawn fast, larger ones are for the eye


def demand_shown(width: int, height: int) -> tuple[int, int]:
    """Refuse a picture that is too large; returns both sides."""
    for side in (width, height):
        if not isinstance(side, Integral) or not 1 <= int(side) <= LARGEST_PICTURE:
            raise ValueError(
                f"the picture is {width!r} x {height!r}; allowed is 1 to {LARGEST_PICTURE} pixels on a side"
            )
    return width, height


@final
class Cameras:
    """Draws states. The first picture opens OpenGL, `close` releases it."""

    def __init__(self, config: SoccerConfig) -> None:
        self._config = config
        self._renderer: renderer.Renderer | None = None
        self._look: Look | None = None
        self._closed = False

    def draw(
        self,
        agent: np.ndarray,
        position: np.ndarray,
        orientation: np.ndarray,
        cameras: tuple[str, ...],
        width: int,
        height: int,
    ) -> np.ndarray:
        """States [b, 2], [b, 2] and [b, 4] in the unit square to pictures [b, v, h, w, 3] uint8."""
        for name in cameras:
            if name not in CAMERAS:
                raise ValueError(f"camera is {name!r}; allowed are {', '.join(map(repr, CAMERAS))}")
        demand_shown(width, height)
        ready = self._ready(FINE if max(width, height) >= FINE_FROM else FAST)
        ready.focus(width, height)
        picture = np.empty((len(agent), len(cameras), height, width, 3), np.uint8)
        for i in range(len(agent)):
            ready.pose(agent[i], position[i], orientation[i])
            for v, name in enumerate(cameras):
                picture[i, v] = ready.shoot(name)
        return picture

    def drawn_by(self) -> str:
        """OpenGL's name for what draws."""
        return self._ready(FAST if self._look is None else self._look).name()

    def close(self) -> None:
        """May be called again; nothing is drawn afterwards."""
        self._closed = True
        if self._renderer is not None:
            renderer.leave(self._renderer)
            self._renderer = None

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def _ready(self, look: Look) -> renderer.Renderer:
        if self._closed:
            raise ValueError("this world was closed; make another to draw more pictures")
        if self._renderer is None or self._look != look:
            before = self._renderer
            self._renderer, self._look = renderer.take(self._config, look), look
            if before is not None:
                renderer.leave(before)  # last, so that it is the one kept for the next picture of its kind
        return self._renderer
