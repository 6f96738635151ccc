"""FetchPush, an arm that pushes a block: collect, train, measure, draw; see docs/guide/own-environment.md.

pip install 'palpate[fetch]'
python examples/fetchpush.py --out runs/fetch --workers 16                         # one camera, from the front
python examples/fetchpush.py --out runs/fetch-two --workers 16 --cameras front,side      # two cameras
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch

import palpate
from palpate.cli.parsing import parse
from palpate.collecting.readings import Moment
from palpate.envs.simulator import engine
from palpate.figures import overlay

ID = "PlanarFetchPush-v0"
CENTRE = (1.3, 0.75)  # of the workspace, in the robot's frame; metres, as all lengths
SIDE = 0.33  # of the workspace, a square in which the gripper moves
BLOCK_SIDE = 0.22  # of the square in which the block stays, so that the gripper passes on all sides
STRIDE = 0.1  # longest move along an axis
APART = 0.06  # between gripper and block at the start of an episode
HEIGHT = 0.445  # of the wrist: the fingertips are 6 mm above the table
PLANE = 0.425  # height of the block's centre
PARKED = (1.45, 1.04, PLANE)  # where the block is while the gripper goes to its start
SPEED = 0.25  # metres per second, of the gripper
REST = 1e-3  # metres per second, of gripper and block
PATIENCE = 1.5  # simulated seconds until both rest
MOVED = 5e-4  # a contact moves a corner of the block farther than this
SEEN = 0.5  # share of free sight lines from which a block counts as visible
EPISODE = 20  # triples
BLOCK_HALF = 0.025
FOVY = 45.0  # degrees, field of view of the cameras


class View(NamedTuple):
    """A camera aimed at the workspace's centre; angles in degrees."""

    azimuth: float  # of its direction of view: 0 is away from the robot, 90 to the robot's left
    elevation: float = -42.0
    distance: float = 0.65

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """The camera's position [3], and its axes [3, 3] as rows: right, up, forward."""
        azimuth, elevation = math.radians(self.azimuth), math.radians(self.elevation)
        flat = np.array((math.cos(azimuth), math.sin(azimuth), 0.0))
        forward = math.cos(elevation) * flat + (0.0, 0.0, math.sin(elevation))
        right = np.array((flat[1], -flat[0], 0.0))
        return np.array((*CENTRE, PLANE)) - self.distance * forward, np.stack(
            (right, np.cross(right, forward), forward)
        )

    def project(self, points: Any, size: int) -> np.ndarray:
        """Pixels [..., 2] of points [..., 2] of the plane through the block's centre, in a picture of size x size.

        The picture's upper left corner is (0, 0); x points to the right and y down.
        """
        points = np.asarray(points, float)
        eye, axes = self.frame()
        seen = (np.concatenate((points, np.full_like(points[..., :1], PLANE)), -1) - eye) @ axes.T
        scale = size / (2 * math.tan(math.radians(FOVY) / 2) * seen[..., 2:])
        return size / 2 + scale * seen[..., :2] * (1, -1)


VIEWS = {"front": View(azimuth=180.0), "side": View(azimuth=90.0)}


class PlanarFetchPush(gymnasium.Env[np.ndarray, np.ndarray]):
    """FetchPush with moves in the plane and pictures as observations.

    An action is a displacement of the closed gripper, up to `STRIDE` along each axis. A move that would leave the
    workspace is mirrored. One step makes the whole move, at finite speed on a straight line, and lasts until gripper
    and block rest. An episode ends when the block leaves its square.

    A picture is [size, size, 3]; those of several cameras are [v, size, size, 3]. `info` holds true states: agent,
    object, visible (one of the cameras sees half of the block) and, after a step, contact (the block has moved).
    """

    def __init__(self, cameras: str = "front", size: int = 100) -> None:
        self.views = views_of(cameras)
        if not 16 <= size <= 1024:
            raise ValueError(f"size is {size}; allowed is 16 to 1024 pixels")
        self.size = size
        self._mujoco = engine.load()  # first: it finds an OpenGL that needs no screen
        self._fetch: Any = fetch_push()
        self.model, self.data = self._fetch.model, self._fetch.data
        self._grip = self.model.site("robot0:grip").id
        self._block, mocap = self.model.body("object0").id, self.model.body("robot0:mocap").id
        self._joint = int(self.model.joint("object0:joint").qposadr[0])
        fingers = [self.model.joint(f"robot0:{side}_gripper_finger_joint") for side in ("l", "r")]
        self._fingers = [int(x.qposadr[0]) for x in fingers], [int(x.dofadr[0]) for x in fingers]
        self.model.geom_rgba[self.model.geom_bodyid == mocap, 3] = 0  # a cross that marks the target of the wrist
        self.model.vis.global_.fovy = FOVY
        self.model.vis.global_.offwidth = self.model.vis.global_.offheight = size
        self._gl: Any = None  # opened by the first picture
        shape = (size, size, 3) if len(self.views) == 1 else (len(self.views), size, size, 3)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Box(-STRIDE, STRIDE, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._fetch.reset(seed=0)
        self.data.mocap_pos[0] = self.data.body("robot0:gripper_link").xpos
        self.data.mocap_quat[0] = (math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0)  # the fingers point down
        self._place(PARKED, 0.0)
        gripper = CENTRE + self.np_random.uniform(-SIDE / 2, SIDE / 2, 2)
        self._go(gripper)
        self._rest()
        block = gripper
        while math.dist(block, gripper) < APART:
            block = CENTRE + self.np_random.uniform(-BLOCK_SIDE / 2, BLOCK_SIDE / 2, 2)
        self._place((*block, PLANE), self.np_random.uniform(-math.pi, math.pi))
        self._rest()
        return self.picture(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before, at = self._corners(), self.data.mocap_pos[0, :2].copy()
        target = at + action
        outside = np.abs(target - CENTRE) > SIDE / 2
        self._go(np.where(outside, at - action, target))
        settled = self._rest()
        moved = np.linalg.norm(self._corners() - before, axis=1).max() > MOVED
        info = self._info() | {"contact": bool(moved), "unsettled": not settled}
        left = bool((np.abs(info["object"] - CENTRE) > BLOCK_SIDE / 2).any())
        return self.picture(), 0.0, left, False, info

    def close(self) -> None:
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
        self._gl = None
        self._fetch.close()

    def picture(self) -> np.ndarray:
        """The present scene, [h, w, 3] from one camera or [v, h, w, 3] from several, uint8."""
        mujoco, side = self._mujoco, self.size
        if self._gl is None:
            self._gl, self._context = engine.open_gl(self.model, side, side)
            self._scene = mujoco.MjvScene(self.model, maxgeom=200)
        self._gl.make_current()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        option, camera, everything = mujoco.MjvOption(), mujoco.MjvCamera(), mujoco.mjtCatBit.mjCAT_ALL
        option.sitegroup[:] = 0  # the goal of FetchPush
        camera.lookat[:] = *CENTRE, PLANE
        pictures, whole = np.empty((len(self.views), side, side, 3), np.uint8), mujoco.MjrRect(0, 0, side, side)
        for picture, view in zip(pictures, self.views, strict=True):
            camera.azimuth, camera.elevation, camera.distance = view.azimuth, view.elevation, view.distance
            mujoco.mjv_updateScene(self.model, self.data, option, None, camera, everything, self._scene)
            mujoco.mjr_render(whole, self._scene, self._context)
            mujoco.mjr_readPixels(picture, None, whole, self._context)
        upright = np.ascontiguousarray(pictures[:, ::-1])  # OpenGL's rows run upwards
        return upright[0] if len(self.views) == 1 else upright

    def seen(self, view: View) -> float:
        """Share of the block's sight lines to this camera that are free."""
        eye, hit = view.frame()[0], np.zeros(1, np.int32)
        free, ends = 0, self._on_block(np.linspace(-0.8, 0.8, 3))
        for end in ends:
            self._mujoco.mj_ray(self.model, self.data, eye, end - eye, None, True, -1, hit)
            free += int(self.model.geom_bodyid[hit[0]] == self._block)
        return free / len(ends)

    def _info(self) -> dict[str, Any]:
        return {
            "agent": self.data.site_xpos[self._grip, :2].copy(),
            "object": self.data.xpos[self._block, :2].copy(),
            "visible": any(self.seen(view) >= SEEN for view in self.views),
        }

    def _place(self, position: Any, angle: float) -> None:
        """Put the block down, at rest."""
        self.data.qpos[self._joint : self._joint + 7] = (*position, math.cos(angle / 2), 0, 0, math.sin(angle / 2))
        self.data.joint("object0:joint").qvel[:] = 0

    def _go(self, target: np.ndarray) -> None:
        """Move the target of the wrist to `target` [2] on a straight line."""
        start, end = self.data.mocap_pos[0].copy(), np.array((*target, HEIGHT))
        steps = max(1, math.ceil(math.dist(start, end) / SPEED / self.model.opt.timestep))
        for share in np.arange(1, steps + 1) / steps:
            self.data.mocap_pos[0] = start + share * (end - start)
            self._advance()

    def _rest(self) -> bool:
        """Wait until gripper and block rest; false if they do not."""
        every = 10  # time steps between two looks
        before = self._still()
        for _ in range(round(PATIENCE / self.model.opt.timestep / every)):
            for _ in range(every):
                self._advance()
            now = self._still()
            if np.linalg.norm(now - before, axis=1).max() < REST * every * self.model.opt.timestep:
                return True
            before = now
        return False

    def _advance(self) -> None:
        """One time step, after which the fingers are closed."""
        self._mujoco.mj_step(self.model, self.data)
        self.data.qpos[self._fingers[0]] = 0
        self.data.qvel[self._fingers[1]] = 0

    def _still(self) -> np.ndarray:
        """Points that must rest: [9, 3]."""
        return np.concatenate((self._corners(), self.data.site_xpos[self._grip][None]))

    def _corners(self) -> np.ndarray:
        return self._on_block(np.array((-1.0, 1.0)))  # [8, 3]

    def _on_block(self, along: np.ndarray) -> np.ndarray:
        """Points of the block on a grid with these coordinates, shares of its half side: [k^3, 3]."""
        grid = np.stack(np.meshgrid(along, along, along), -1).reshape(-1, 3)
        return self.data.xpos[self._block] + BLOCK_HALF * grid @ self.data.xmat[self._block].reshape(3, 3).T


def views_of(cameras: str) -> tuple[View, ...]:
    names = cameras.split(",")
    if any(name not in VIEWS for name in names):
        raise ValueError(f"cameras is {cameras!r}; allowed are one or several of {', '.join(VIEWS)}")
    return tuple(VIEWS[name] for name in names)


def fetch_push() -> Any:
    """FetchPush itself, made to run with MuJoCo 3.12 and newer.

    gymnasium-robotics 1.4.2 reads and writes joints with four functions that compare `jnt_type`, an int32, with
    MuJoCo's constants by `in`. From MuJoCo 3.12 on this is false for every hinge and slide, and an assertion fails. So
    the four are replaced: MuJoCo finds a joint's coordinates by its name. With older versions nothing changes.
    """
    try:
        import gymnasium_robotics  # noqa: F401  it registers FetchPush
        from gymnasium_robotics.utils import mujoco_utils
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; pip install 'palpate[fetch]'", name=error.name) from error

    def get(field: str) -> Any:
        return lambda model, data, name: getattr(data.joint(name), field).copy()

    def put(field: str) -> Any:
        return lambda model, data, name, value: getattr(data.joint(name), field).__setitem__(slice(None), value)

    for field in ("qpos", "qvel"):
        setattr(mujoco_utils, f"get_joint_{field}", get(field))
        setattr(mujoco_utils, f"set_joint_{field}", put(field))
    return gymnasium.make("FetchPush-v4").unwrapped


def approach(now: Moment, rng: np.random.Generator) -> Any:
    """A move towards the block, so that contacts are frequent. It uses the block's true position; training does not."""
    return now.info["object"] - now.info["agent"] + rng.normal(0, 0.025, 2)


@dataclass(frozen=True, kw_only=True)
class FetchPush:
    """Learn where FetchPush's gripper and its block are."""

    out: Path
    """Folder of the run."""
    cameras: str = "front"
    """Cameras: front, side, or front,side for two views of each scene."""
    size: int = 100
    """Pixels on a side of each picture."""
    data: Path | None = None
    """File of training triples; they are collected if it does not exist. Default: a name with cameras and size."""
    test: Path | None = None
    """File of test triples; they are collected if it does not exist. Default: likewise."""
    num: int = 10_000
    """Number of training triples to collect."""
    num_test: int = 2_000
    """Number of test triples to collect."""
    workers: int = 2
    """Number of processes that collect."""
    body: Literal["ball", "outline", "ellipse"] | None = None
    """Shape of the block, dilated by the gripper. Default: `fit` chooses."""
    steps: int | None = None
    """Optimiser steps. Default: `fit` chooses."""
    batch_size: int | None = None
    """Triples per step. Default: `fit` chooses."""
    encoder: Literal["small", "resnet18"] | None = None
    """Network for pictures. Default: `fit` chooses."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to train. Default: a GPU if there is one."""
    seed: int = 0
    """Seed of the training. The triples have their own."""
    resume: bool = False
    """Continue a stopped run."""

    def __call__(self) -> None:
        views_of(self.cameras)  # an error before hours of work
        name = f"fetchpush-{self.cameras.replace(',', '-')}-{self.size}"
        data, test = self.data or Path(f"{name}.h5"), self.test or Path(f"{name}-test.h5")
        for path, num, seed in ((data, self.num, 0), (test, self.num_test, 1)):
            if not path.exists():
                collect(path, num, cameras=self.cameras, size=self.size, seed=seed, workers=self.workers)
        with palpate.Transitions.open(data) as triples:
            print(triples)
            model = palpate.fit(
                triples,
                out=self.out,
                body=self.body,
                encoder=self.encoder,
                steps=self.steps,
                batch_size=self.batch_size,
                device=self.device,
                seed=self.seed,
                resume=self.resume,
            )
        scores = measure(model, data, test, view=views_of(self.cameras)[0], picture=self.out / "fetchpush.png")
        (self.out / "fetchpush.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
        print("\n".join(f"{name:<52} {value:.4g}" for name, value in scores.items()))
        print(f"Look at  {self.out / 'fetchpush.png'}")


def collect(path: Path, num: int, *, cameras: str, size: int, seed: int, workers: int) -> None:
    """Collect triples into a file, or continue a stopped collection."""
    if ID not in gymnasium.registry:
        gymnasium.register(ID, PlanarFetchPush, max_episode_steps=EPISODE)
    palpate.collect(
        ID,
        num,
        seed=seed,
        out=path,
        workers=workers,
        resume=Path(f"{path}.parts").exists(),
        agent_position="info:agent",  # the triple needs the displacement achieved
        approach=approach,
        approach_share=0.3,
        cameras=cameras,  # options of the environment
        size=size,
    ).close()


def measure(model: palpate.Representation, data: Path, test: Path, *, view: View, picture: Path) -> dict[str, float]:
    """Errors in millimetres and per cent of the workspace's side, after one translation that fits the gripper.

    The translation is fitted to training triples. The block moves along, so its error includes a constant offset, the
    bias. The gripper is measured in all observations.
    """
    with palpate.Labelled.open(data) as known, palpate.Labelled.open(test) as unseen:
        few = known.subset(slice(0, min(2_000, len(known))))
        assert few.truth.visible is not None
        rows = few.truth.visible.nonzero()[:, 0]  # as `evaluate` does
        model = model.align({"observation": few.transitions.rows(rows).o, "agent": few.truth.agent[rows]})
        all_scores = palpate.evaluate(model, unseen, reference=few)
        o, truth = unseen.transitions.rows(slice(None)).o, unseen.truth
    found = model.encode(o)
    assert truth.visible is not None
    assert truth.contact is not None
    seen = truth.visible
    gripper = (found.agent - truth.agent).norm(dim=1)
    block = (found.object - truth.object)[seen]
    metres = {
        "gripper error, median": gripper.median(),
        "gripper error, mean": gripper.mean(),
        "block error where visible, median": block.norm(dim=1).median(),
        "block error where visible, mean": block.norm(dim=1).mean(),
        "block error where visible, bias": block.mean(0).norm(),
        "constant predictor: gripper error, mean": all_scores.constant["agent_error"],
        "constant predictor: block error, mean": all_scores.constant["object_error"],
    }
    others = {
        "contact accuracy": all_scores.contact_accuracy,
        "constant predictor: contact accuracy": all_scores.constant.get("contact_accuracy"),
        "confidence, AUROC of visible against hidden": all_scores.confidence_auroc,
        "contact share": float(truth.contact.double().mean()),
        "hidden share": float((~seen).double().mean()),
        "test triples": len(o),
    }
    draw(model, o, truth, view).savefig(picture, dpi=110)
    return (
        {f"{name} (mm)": 1000 * float(x) for name, x in metres.items()}
        | {f"{name} (% of the side)": 100 * float(x) / SIDE for name, x in metres.items()}
        | {name: x for name, x in others.items() if x is not None}
    )


def draw(model: palpate.Representation, o: torch.Tensor, truth: palpate.Truth, view: View) -> Any:
    """Estimates and true positions on eight pictures of the first camera."""
    some = torch.arange(0, len(o), -(-len(o) // 8))
    true = palpate.Truth(truth.agent[some], truth.object[some])
    found, line = model.encode(o[some]), model.border(o[some])
    return overlay(o[some], found, true, project=lambda points: view.project(points, o.shape[-1]), border=line)


if __name__ == "__main__":
    parse(FetchPush, "python examples/fetchpush.py", sys.argv[1:])()
