"""Draw what was found in Soccer on pictures by the camera beside the field.

    python benchmarks/soccer_picture.py results/soccer/third-ours-0.npz found.png

The first argument is a file that `palpate reproduce soccer` leaves for seed 0: estimates for the first scenes of the
test set, their boundaries and the true positions. The scenes are rendered again, larger than the network saw them.
"""

import argparse
from pathlib import Path

import mujoco
import numpy as np
from matplotlib.figure import Figure

from palpate.disk import write_whole
from palpate.envs.soccer import Scene, Soccer
from palpate.envs.soccer.config import BALL_RADIUS, SCALE
from palpate.envs.soccer.scene import FINE, build
from palpate.figures import blank, draw_scene, png, shared_legend

CAMERA, WIDTH, HEIGHT = "third", 480, 360
SHOWN = (1, 3)  # scenes
NAMES = ("agent", "object", "border", "true_agent", "true_object")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrays", type=Path, help="third-ours-0.npz or first-ours-0.npz")
    parser.add_argument("out", type=Path, help="the picture, PNG")
    arguments = parser.parse_args()
    with np.load(arguments.arrays) as arrays:
        if missing := [name for name in NAMES if name not in arrays]:
            parser.error(f"{arguments.arrays} has no {', '.join(missing)}; give the file of seed 0 of `ours`")
        write_whole(arguments.out, png(drawn({name: arrays[name][list(SHOWN)] for name in NAMES})))
    print(f"Look at  {arguments.out}")


def drawn(found: dict[str, np.ndarray]) -> Figure:
    upright = np.tile(np.array([1, 0, 0, 0], np.float32), (len(found["agent"]), 1))
    with Soccer() as soccer:
        scenes = Scene(found["true_agent"], found["true_object"], upright)
        pictures = soccer.render(scenes, CAMERA, WIDTH, HEIGHT)
    figure = blank(4.0 * len(pictures), 3.35)
    grid = figure.subplots(1, len(pictures), squeeze=False)[0]
    for i, axes in enumerate(grid):
        agent, thing, border, true_agent, true_thing = (found[name][i] for name in NAMES)
        true = np.stack((true_agent, true_thing))
        draw_scene(axes, pictures[i], projected, agent, thing[None], border[None], true)
    shared_legend(figure, 4)
    return figure


def projected(positions: np.ndarray) -> np.ndarray:
    """Pixels [k, 2] of positions [k, 2] in the unit square, at the height of the ball."""
    model = build(mujoco, FINE, shadows=False)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, CAMERA)
    height = np.full((*positions.shape[:-1], 1), SCALE * BALL_RADIUS)
    metres = np.concatenate(((positions - 0.5) * SCALE, height), -1)
    x, y, z = np.moveaxis((metres - data.cam_xpos[camera]) @ data.cam_xmat[camera].reshape(3, 3), -1, 0)
    focal = HEIGHT / 2 / np.tan(np.radians(model.cam_fovy[camera]) / 2)
    return np.stack((WIDTH / 2 + focal * x / -z, HEIGHT / 2 - focal * y / -z), -1)


if __name__ == "__main__":
    main()
