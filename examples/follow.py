"""An animation of a trained model at work: the learned positions follow agent and object in new pictures.

python examples/follow.py --model runs/demo --out follow.gif

The agent walks at random, and from time to time towards the object. Each picture is encoded independently.
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image, ImageDraw

import palpate
import palpate.envs  # registers the worlds

SCALE = 6  # a pixel of the world, in pixels of the animation
STEP = 0.12  # largest move of the agent along an axis
SEEK = 25  # steps between two walks to the object
KNOWN = 20  # pictures whose true agent positions align the frames
AGENT, OBJECT = (255, 220, 60), (120, 200, 255)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a run on palpate/Sprites-v0")
    parser.add_argument("--out", type=Path, default=Path("follow.gif"))
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    model = palpate.load(arguments.model)
    size = model.config.observation_shape[-1]
    env = gymnasium.make("palpate/Sprites-v0", size=size)
    pictures, agents = walk(env, arguments.frames, arguments.seed)
    model = model.align({"observation": pictures[:KNOWN], "agent": agents[:KNOWN]})
    found, border = model.encode(pictures), model.border(pictures)
    frames = [
        drawn(picture, *places, size)
        for picture, *places in zip(pictures, found.agent, found.object, border, strict=True)
    ]
    frames[0].save(arguments.out, save_all=True, append_images=frames[1:], duration=120, loop=0, optimize=True)
    print(f"Look at  {arguments.out}")


def walk(env: gymnasium.Env, frames: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [frames, h, w, 3] and the agent's true positions [frames, 2]."""
    rng = np.random.default_rng(seed)
    picture, info = env.reset(seed=seed)
    pictures, agents, move = [picture], [info["agent"]], np.zeros(2)
    while len(pictures) < frames:
        toward = info["object"] - info["agent"] if len(pictures) % SEEK > SEEK // 2 else rng.normal(0, STEP, 2)
        move = np.clip(0.7 * move + 0.5 * toward, -STEP, STEP)
        picture, _, _, _, info = env.step(move.astype(np.float32))
        pictures.append(picture)
        agents.append(info["agent"])
    return np.stack(pictures), np.stack(agents)


def drawn(picture: np.ndarray, agent: np.ndarray, thing: np.ndarray, border: np.ndarray, size: int) -> Image.Image:
    """The picture, enlarged, with a cross on the agent, a dot on the object and the body's boundary."""
    side = size * SCALE
    image = Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(image)

    def pixels(point: np.ndarray) -> tuple[float, float]:
        return float(point[0] * side), float((1 - point[1]) * side)  # y points up

    x, y = pixels(agent)
    draw.line((x - 9, y, x + 9, y), fill=AGENT, width=3)
    draw.line((x, y - 9, x, y + 9), fill=AGENT, width=3)
    x, y = pixels(thing)
    draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=OBJECT)
    draw.line([pixels(thing + point) for point in (*border, border[0])], fill=OBJECT, width=2)
    return image.quantize(64)


if __name__ == "__main__":
    main()
