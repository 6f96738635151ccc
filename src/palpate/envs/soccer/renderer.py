"""Pictures of the soccer world.

Legend: b batch, v views, h and w picture height and width.
"""

import math

import numpy as np

from palpate.envs.simulator import engine
from palpate.envs.simulator.renderer import FINE_FROM, Renderer, require_picture_size, shared
from palpate.envs.soccer.config import CAMERAS, FIGURE_FACES, SCALE
from palpate.envs.soccer.scene import AGENT_GROUP, FAST, FINE, build


def draw(
    states: dict[str, np.ndarray],
    cameras: tuple[str, ...],
    width: int,
    height: int,
    shadows: bool,
) -> np.ndarray:
    """Pictures [b, v, h, w, 3] uint8 of states [b, ...], by the names of the arguments of `pose`."""
    for name in cameras:
        if name not in CAMERAS:
            raise ValueError(f"camera is {name!r}; allowed are {', '.join(map(repr, CAMERAS))}")
    require_picture_size(width, height)
    renderer = _renderer(max(width, height), shadows, math.prod(states["ball"].shape[1:-1]))
    renderer.focus(width, height)
    pictures = np.empty((len(states["agent"]), len(cameras), height, width, 3), np.uint8)
    for i in range(len(pictures)):
        pose(renderer, **{name: x[i] for name, x in states.items()})
        for v, name in enumerate(cameras):
            pictures[i, v] = shoot(renderer, name)
    return pictures


def pose(
    renderer: Renderer, agent: np.ndarray, ball: np.ndarray, orientation: np.ndarray, heading: float = FIGURE_FACES
) -> None:
    """Move the bodies to one state in the unit square: one ball at [2], or several at [k, 2]."""
    turn, height = heading - FIGURE_FACES, renderer.model.qpos0[5]
    balls = [
        ((at - 0.5) * SCALE, [height], q) for at, q in zip(ball.reshape(-1, 2), orientation.reshape(-1, 4), strict=True)
    ]
    renderer.pose(np.concatenate(((agent - 0.5) * SCALE, [turn], *(part for parts in balls for part in parts))))


def shoot(renderer: Renderer, camera: str) -> np.ndarray:
    """Cameras on the agent look at the sky too, and would see its hair from inside."""
    on_agent = camera not in ("third", "above")
    return renderer.shoot(CAMERAS.index(camera), sky=on_agent, without=AGENT_GROUP if on_agent else None)


def _renderer(side: int, shadows: bool, balls: int) -> Renderer:
    look = FINE if side >= FINE_FROM else FAST
    return shared(("soccer", look, shadows, balls), lambda: build(engine.load(), look, shadows, balls))
