"""Seconds, memory and pixel loss of reading a LeRobot folder of 25,000 AV1 frames of 96 x 96 pixels.

    python benchmarks/logs.py [FOLDER] [--frames 25000] [--stride 1]
    python benchmarks/logs.py --train [--triples 5000] [--seeds 0 1] [--steps 3000] [--codec libsvtav1]

FOLDER keeps the log between calls; by default it is temporary. The log holds pictures of Sprites in episodes of 125
frames, in the layout of LeRobot v3, with the codec settings of LeRobot: AV1, crf 30, a key frame every 2 frames. The
same rows are kept as numpy arrays. Reading is timed in a fresh process, which may use two cores; its peak memory
includes Python and torch. Then the triples are compared with those made directly from the arrays.

With --train, walks in Sprites are stored as an HDF5 file and as such a folder. A model is trained on each, with the
same seed, and both are tested on the same pictures without loss. The ratio of L_test shows what the codec costs.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import torch
from balls import walks

import palpate
from palpate.data.transitions import Transitions
from palpate.envs.sprites import Sprites, SpritesConfig

LENGTH, FPS, SIDE, FILE_EPISODES = 125, 10, 96, 50
CAMERA, POSITION = "observation.image", "observation.state[:2]"
SECONDS, BYTES, RATIO = 30.0, 2e9, 1.2  # the bars
TEST_TRIPLES, TEST_SEED = 2000, 10**6


def write(folder: Path, frames: int) -> None:
    """The log, and its rows in rows.npz beside it."""
    episodes = -(-frames // LENGTH)
    world, generator = Sprites(SpritesConfig(size=SIDE)), torch.Generator().manual_seed(0)
    scene, pictures, states = world.reset(episodes, generator), [], []
    for _ in range(LENGTH):
        pictures.append(world.render(scene))
        states.append(scene.agent)
        step = world.step(scene, 0.2 * world.moves(scene, 1, generator)[:, 0], generator)
        scene = type(scene)(step.agent_next, step.object_next, step.angle_next)
    shown, state = _channel_last(torch.stack(pictures, 1)), torch.stack(states, 1).numpy()
    write_folder(folder, shown, state)
    np.savez(folder / "rows.npz", pictures=shown.reshape(-1, SIDE, SIDE, 3), state=state.reshape(-1, 2))


def _channel_last(pictures: torch.Tensor) -> np.ndarray:
    return pictures.movedim(-3, -1).numpy()


def write_folder(folder: Path, shown: np.ndarray, state: np.ndarray, codec: str = "libsvtav1") -> None:
    """A LeRobot folder of the pictures [e, t, h, w, c] and the states [e, t, 2] of episodes of one length."""
    episodes, length = state.shape[:2]
    (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        CAMERA: {"dtype": "video", "shape": [SIDE, SIDE, 3], "names": ["height", "width", "channel"]},
    }
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "features": features,
        "total_episodes": episodes,
        "total_frames": episodes * length,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    rows = []
    for file, low in enumerate(range(0, episodes, FILE_EPISODES)):
        group = range(low, min(low + FILE_EPISODES, episodes))
        where = {"chunk_index": 0, "file_index": file}
        table = {
            "observation.state": pa.array(list(state[group].reshape(-1, 2)), pa.list_(pa.float32())),
            "episode_index": pa.array(np.repeat(list(group), length)),
        }
        path = folder / info["data_path"].format(**where)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(table), path)
        video = folder / info["video_path"].format(video_key=CAMERA, **where)
        _encode(video, shown[group].reshape(-1, SIDE, SIDE, 3), codec)
        for number, episode in enumerate(group):
            row = {"episode_index": episode, "length": length, "data/chunk_index": 0, "data/file_index": file}
            row |= {f"videos/{CAMERA}/chunk_index": 0, f"videos/{CAMERA}/file_index": file}
            rows.append(row | {f"videos/{CAMERA}/from_timestamp": number * length / FPS})
    parquet.write_table(pa.Table.from_pylist(rows), folder / "meta/episodes/chunk-000/file-000.parquet")


def _encode(path: Path, frames: np.ndarray, codec: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    preset = {"preset": "10"} if codec == "libsvtav1" else {}
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, Fraction(FPS), options={"crf": "30", "g": "2", **preset})
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def read(folder: Path, stride: int) -> None:
    """Open the log, and print seconds and peak memory as JSON."""
    start = time.monotonic()
    triples = Transitions.from_lerobot(folder, position=POSITION, stride=stride)
    triples.rows(slice(0, 128))
    seconds = time.monotonic() - start
    print(json.dumps({"triples": len(triples), "seconds": seconds, "processor": time.process_time(), "peak": peak()}))


def peak() -> int:
    """Bytes. On Linux not by `resource`, which counts the parent's memory at the time of the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def compare(folder: Path, stride: int) -> None:
    """The triples of the folder beside those of the same rows in memory."""
    rows = np.load(folder / "rows.npz")
    keep = np.arange(len(rows["state"])) % LENGTH % stride == 0
    pictures, state = rows["pictures"][keep], rows["state"][keep]
    ends = np.cumsum(np.full(len(rows["state"]) // LENGTH, -(-LENGTH // stride))) - 1
    moved = np.append(np.diff(state, axis=0), state[:1], axis=0)
    ours = Transitions.from_lerobot(folder, position=POSITION, stride=stride)
    theirs = Transitions.from_episodes(observation=pictures, action=moved, episode_end=ends, layout="channel-last")
    assert len(ours) == len(theirs)
    assert torch.equal(ours.episode, theirs.episode)
    total, worst, wrong = 0.0, 0, 0.0
    for block in theirs.blocks():
        mine, true = ours.rows(block), theirs.rows(block)
        off = (mine.o.short() - true.o.short()).abs()
        total, worst = total + float(off.float().mean((1, 2, 3)).sum()), max(worst, int(off.max()))
        wrong += float((mine.o.short() - true.o_next.short()).abs().float().mean((1, 2, 3)).sum())
    error = float((ours.action - theirs.action).abs().max())
    print(f"pixel loss {total / len(ours):.2f} of 255 on average, {worst} at most; actions differ by {error:.1e}")
    print(f"a frame beside the right one would differ by {wrong / len(ours):.2f}")


def train(folder: Path, triples: int, seed: int, steps: int | None, codec: str) -> dict[str, float]:
    """L_test of a model trained on the HDF5 file, and of one trained on the folder of the same rows."""
    world = Sprites(SpritesConfig(size=SIDE))
    moves = LENGTH - 1
    labelled = walks(world, triples // moves * moves, moves, seed=seed)
    labelled.transitions.save(folder / "log.h5")
    o, _, o_next = labelled.transitions.rows(slice(None))
    agent, after = labelled.truth.agent, labelled.truth.agent_next

    def joined(first: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
        """The observations of each episode: those of its triples, and the last one."""
        first, then = (x.unflatten(0, (-1, moves)) for x in (first, then))
        return torch.cat((first, then[:, -1:]), 1)

    assert after is not None
    write_folder(folder / "log", _channel_last(joined(o, o_next)), joined(agent, after).numpy(), codec)
    test, found = walks(world, TEST_TRIPLES, 1, seed=TEST_SEED), {}
    with Transitions.open(folder / "log.h5") as plain:
        stored = Transitions.from_lerobot(folder / "log", position=POSITION)
        assert torch.equal(stored.episode, plain.episode)
        for name, log in (("HDF5", plain), ("folder", stored)):
            start = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # findings of a short run
                model = palpate.fit(log, seed=seed, steps=steps, progress=False)
            found[name] = palpate.evaluate(model, test).l_test
            print(f"  seed {seed}, {name}: L_test {found[name]:.4g}, {time.monotonic() - start:.0f} s", flush=True)
    return found


def compare_trainings(triples: int, seeds: list[int], steps: int | None, codec: str) -> None:
    ratios = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as temporary:
            found = train(Path(temporary), triples, seed, steps, codec)
        ratios.append(found["folder"] / found["HDF5"])
    mean = float(np.exp(np.mean(np.log(ratios))))
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"L_test of the folder ({codec}) over that of the HDF5 file: {shown}; geometric mean {mean:.2f} (bar {RATIO})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--frames", type=int, default=25_000)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="compare models trained on a file and on a folder")
    parser.add_argument("--triples", type=int, default=5000, help="with --train")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="with --train")
    parser.add_argument("--steps", type=int, help="with --train; default: chosen by fit")
    parser.add_argument("--codec", choices=("libsvtav1", "libx264"), default="libsvtav1", help="with --train")
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.folder, given.stride)
        return
    if given.train:
        compare_trainings(given.triples, given.seeds, given.steps, given.codec)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "log"
        if not (folder / "rows.npz").exists():
            start = time.monotonic()
            write(folder, given.frames)
            print(f"written in {time.monotonic() - start:.0f} s")
        command = [sys.executable, __file__, str(folder), "--read", "--stride", str(given.stride)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(
            f"{found['triples']:,} triples ready in {found['seconds']:.1f} s (bar {SECONDS:.0f} s), "
            f"{found['processor']:.1f} s of processor time; "
            f"peak memory {found['peak'] / 1e9:.2f} GB (bar {BYTES / 1e9:.0f} GB)"
        )
        compare(folder, given.stride)


if __name__ == "__main__":
    main()
