"""A film of a policy that plays, as a GIF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw

from palpate.envs.soccer import Scene, Soccer

WIDTH, HEIGHT = 320, 270
COLOURS = 96
FRAME_MS, PAUSE_MS = 350, 1100
AFTER_GOAL = 1  # frames shown after a goal
GOLD, WHITE, SHADE = (255, 214, 60), (255, 255, 255), (20, 40, 20)


def film(
    path: Path,
    env: gymnasium.Env[Any, Any],
    act: Callable[[Any], np.ndarray],
    seed: int,
    episodes: int,
) -> None:
    """Play `episodes` with the starts `seed`, `seed + 1`, ... and write the pictures of the camera beside the field."""
    frames: list[Image.Image] = []
    durations: list[int] = []
    game: Any = env.unwrapped
    stage = Soccer()  # a second world: alternating between small and large pictures in one is slow
    try:
        for episode in range(episodes):
            o, info = env.reset(seed=seed + episode)
            step, left, ended = 0, AFTER_GOAL, False
            frames.append(_frame(stage, game.scene, episode, step, info["goal"]))
            durations.append(FRAME_MS)
            while not ended and left >= 0:
                o, _, terminated, truncated, info = env.step(act(o))
                step, ended = step + 1, terminated or truncated
                frames.append(_frame(stage, game.scene, episode, step, info["goal"]))
                durations.append(FRAME_MS)
                left -= info["goal"]
            durations[-1] = PAUSE_MS
    finally:
        stage.close()
        env.close()
    # One palette and no dithering: pixels that do not change are stored once.
    sample = Image.fromarray(np.concatenate([np.asarray(frame) for frame in frames[:: max(1, len(frames) // 6)]]))
    palette = sample.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    temporary = path.with_name(f".{path.name}")
    flat[0].save(temporary, "GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True)
    temporary.replace(path)


def _frame(stage: Soccer, scene: Scene, episode: int, step: int, goal: bool) -> Image.Image:
    picture = Image.fromarray(stage.render(scene, "third", WIDTH, HEIGHT)[0])
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, WIDTH, 16), fill=SHADE)
    draw.text((6, 3), f"episode {episode + 1}   step {step}", fill=WHITE)
    if goal:
        draw.text((WIDTH - 42, 3), "GOAL", fill=GOLD)
        draw.rectangle((0, 0, WIDTH - 1, HEIGHT - 1), outline=GOLD, width=3)
    return picture
