"""Write the folders v3 and v2.1 beside this file with lerobot itself. How: see README.md.

    python write.py v3      with lerobot 0.4.4
    python write.py v2.1    with lerobot 0.3.3

The scene is made with numpy alone, so the tests make it again and compare.
"""

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
FPS, SIDE = 10, 64
LENGTHS = (9, 12, 7)
VIDEO, IMAGE = "observation.images.top", "observation.images.side"


def scene() -> list[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    """Of each episode the states [t, 3], the actions [t, 2] and the pictures [t, h, w, 3] of both cameras.

    A bright spot, the agent, moves over a dark ground with a square, the object. The second camera sees it mirrored.
    """
    rng, episodes = np.random.default_rng(0), []
    y, x = (np.mgrid[:SIDE, :SIDE] + 0.5) / SIDE
    for length in LENGTHS:
        turn = rng.uniform(0, 6) + np.cumsum(rng.uniform(0.4, 0.9, length))
        place = 0.5 + 0.3 * np.column_stack((np.cos(turn), np.sin(1.3 * turn)))
        thing = rng.uniform(0.3, 0.7, 2)
        away = np.hypot(x - place[:, 0, None, None], y - place[:, 1, None, None])
        agent = np.exp(-((away / 0.2) ** 2))
        square = np.exp(-((np.maximum(abs(x - thing[0]), abs(y - thing[1])) / 0.15) ** 4)) * np.ones_like(agent)
        top = np.stack((40 + 190 * agent, 40 + 150 * agent + 40 * square, 40 + 130 * agent + 60 * square), -1)
        top = np.rint(top.clip(0, 255)).astype(np.uint8)
        state = np.column_stack((place, np.arange(length) / length)).astype(np.float32)
        target = np.append(place[1:], place[-1:], 0).astype(np.float32)
        episodes.append((state, target, {VIDEO: top, IMAGE: np.ascontiguousarray(top[:, :, ::-1])}))
    return episodes


def write(folder: Path, new: bool) -> None:
    """`new` for v3, whose lerobot takes the task as a part of a frame and needs `finalize`."""
    _stub_torchvision()
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    picture = {"shape": (SIDE, SIDE, 3), "names": ["height", "width", "channels"]}
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "clock"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        VIDEO: {"dtype": "video", **picture},
        IMAGE: {"dtype": "image", **picture},
    }
    dataset = LeRobotDataset.create("palpate/recorded", FPS, features, root=folder, use_videos=True)
    for state, action, pictures in scene():
        for t in range(len(state)):
            frame = {"observation.state": state[t], "action": action[t]}
            frame |= {name: each[t] for name, each in pictures.items()}
            if new:
                dataset.add_frame(frame | {"task": "push"})
            else:
                dataset.add_frame(frame, task="push")
        dataset.save_episode()
    if new:
        dataset.finalize()
    shutil.rmtree(folder / "images", ignore_errors=True)  # lerobot's temporary pictures


def _stub_torchvision() -> None:
    """lerobot imports it for reading alone."""
    import datasets  # noqa: F401 - it looks for the real one

    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore[attr-defined]
    sys.modules["torchvision.transforms"].v2 = sys.modules["torchvision.transforms.v2"]  # type: ignore[attr-defined]


if __name__ == "__main__":
    version = sys.argv[1]
    shutil.rmtree(HERE / version, ignore_errors=True)
    write(HERE / version, new=version == "v3")
