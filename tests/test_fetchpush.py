"""The example FetchPush: its cameras and its scores; its world, if gymnasium-robotics is installed."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import palpate

EXAMPLE = Path(__file__).parent.parent / "examples" / "fetchpush.py"
SIZE = 64


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("fetchpush", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetchpush"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fetchpush"]


class TestCameras:
    @pytest.mark.parametrize("name", ["front", "side"])
    def test_look_at_the_middle_of_the_workspace(self, example: ModuleType, name: str) -> None:
        view = example.VIEWS[name]
        eye, axes = view.frame()
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(np.cross(axes[0], axes[1]), -axes[2], atol=1e-12)  # a right-handed camera
        np.testing.assert_allclose(eye + view.distance * axes[2], (*example.CENTRE, example.PLANE))
        np.testing.assert_allclose(view.project(example.CENTRE, SIZE), (SIZE / 2, SIZE / 2))

    def test_the_front_camera_by_hand(self, example: ModuleType) -> None:
        """It faces the robot: y points to the right, and x comes down the picture."""
        view = example.VIEWS["front"]
        focal = SIZE / 2 / np.tan(np.pi / 8)  # pixels
        tilt, away = np.radians(42), view.distance
        right = view.project((example.CENTRE[0], example.CENTRE[1] + 0.1), SIZE)
        np.testing.assert_allclose(right, (SIZE / 2 + focal * 0.1 / away, SIZE / 2))
        near = view.project((example.CENTRE[0] + 0.1, example.CENTRE[1]), SIZE)
        down = focal * 0.1 * np.sin(tilt) / (away - 0.1 * np.cos(tilt))
        np.testing.assert_allclose(near, (SIZE / 2, SIZE / 2 + down))

    def test_the_side_camera_is_the_front_one_turned(self, example: ModuleType) -> None:
        points = np.random.default_rng(0).uniform(-0.2, 0.2, (3, 7, 2))
        turned = np.stack((points[..., 1], -points[..., 0]), -1)
        front, side = (example.VIEWS[name] for name in ("front", "side"))
        np.testing.assert_allclose(
            front.project(example.CENTRE + points, SIZE), side.project(example.CENTRE + turned, SIZE)
        )

    @pytest.mark.parametrize("name", ["front", "side"])
    def test_the_workspace_is_inside_the_picture(self, example: ModuleType, name: str) -> None:
        corners = example.SIDE / 2 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
        pixels = example.VIEWS[name].project(example.CENTRE + corners, SIZE)
        assert ((pixels > 0) & (pixels < SIZE)).all()

    def test_unknown_ones_are_refused_before_anything_is_collected(self, example: ModuleType, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cameras is 'front,top'; allowed are one or several of front, side"):
            example.FetchPush(out=tmp_path / "run", cameras="front,top", data=tmp_path / "data.h5")()
        assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(ModuleNotFoundError, match=r"gymnasium_robotics.*; pip install 'palpate\[fetch\]'"):
        example.PlanarFetchPush()


def made_up(example: ModuleType, num: int, seed: int) -> palpate.Labelled:
    """Two views of a bright spot for the gripper and a dark one for the block, some of them hidden."""
    rng = np.random.default_rng(seed)
    agent, agent_next, block = example.CENTRE + rng.uniform(-0.1, 0.1, (3, num, 2))
    hidden = np.arange(num) % 5 == 0

    def pictures(gripper: np.ndarray) -> np.ndarray:
        views = np.full((num, 2, 16, 16, 3), 128, np.uint8)
        for v, view in enumerate(example.VIEWS.values()):
            for i in range(num):
                for point, light in ((block[i], 128 if hidden[i] else 0), (gripper[i], 255)):
                    x, y = view.project(point, 16).astype(int)
                    views[i, v, y, x] = light
        return views

    triples = palpate.Transitions(
        observation=pictures(agent), action=agent_next - agent, next_observation=pictures(agent_next)
    )
    states: dict[str, Any] = {"agent": agent, "object": block, "agent_next": agent_next, "object_next": block}
    contact = rng.random(num) < 0.4
    return palpate.Labelled(triples, palpate.Truth(**states, contact=contact, visible=~hidden))


@pytest.mark.filterwarnings("ignore::UserWarning")  # four steps do not suffice to learn
def test_the_scores(example: ModuleType, tmp_path: Path) -> None:
    """In both units; the block's are those of `evaluate`."""
    for name, num, seed in (("data.h5", 60, 0), ("test.h5", 40, 1)):
        made_up(example, num, seed).save(tmp_path / name)
    with palpate.Labelled.open(tmp_path / "data.h5") as data, palpate.Labelled.open(tmp_path / "test.h5") as test:
        model = palpate.fit(data.transitions, steps=4, batch_size=16, encoder="small", device="cpu", progress=False)
        wanted = palpate.evaluate(model, test, reference=data)
        known, unseen = (model.encode(x.transitions.rows(slice(None)).o).agent for x in (data, test))
        shift = (data.truth.agent - known)[data.truth.visible].mean(0)
        off = (unseen + shift - test.truth.agent).norm(dim=1)  # also where the block is hidden
    found = example.measure(
        model,
        tmp_path / "data.h5",
        tmp_path / "test.h5",
        view=example.VIEWS["front"],
        picture=tmp_path / "fetchpush.png",
    )
    assert found["gripper error, mean (mm)"] == pytest.approx(1000 * float(off.mean()), rel=1e-3)
    assert found["block error where visible, mean (mm)"] == pytest.approx(1000 * wanted.object_error, rel=1e-3)
    assert found["block error where visible, bias (mm)"] == pytest.approx(1000 * wanted.object_bias, rel=1e-3)
    for name in ("gripper error, median", "constant predictor: block error, mean"):
        assert found[f"{name} (% of the side)"] == pytest.approx(found[f"{name} (mm)"] / 3.3)
    assert found["contact accuracy"] == wanted.contact_accuracy
    assert found["confidence, AUROC of visible against hidden"] == wanted.confidence_auroc
    assert found["hidden share"] == pytest.approx(0.2)
    assert (tmp_path / "fetchpush.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def data(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[palpate.Labelled]:
    pytest.importorskip("gymnasium_robotics", reason="needs the extra palpate[fetch]")
    path = tmp_path_factory.mktemp("fetch") / "data.h5"
    example.collect(path, 40, cameras="front,side", size=SIZE, seed=0, workers=1)
    with palpate.Labelled.open(path) as data:
        yield data


@pytest.mark.slow
class TestWorld:
    def test_triples_obey_the_assumptions(self, data: palpate.Labelled, example: ModuleType) -> None:
        truth, triples = data.truth, data.transitions
        assert triples.observation_shape == (6, SIZE, SIZE)  # two views of three colours
        assert triples.attributes["cameras"] == "front,side"
        assert torch.allclose(truth.agent + triples.action, truth.agent_next, atol=1e-5)
        assert triples.action.abs().max() < example.STRIDE + 1e-3
        assert triples.action.norm(dim=1).median() > 0.05
        moved = (truth.object_next - truth.object).norm(dim=1)
        assert moved[~truth.contact].max() < example.MOVED
        assert 0.1 < truth.contact.float().mean() < 0.6
        middle = torch.tensor(example.CENTRE)
        assert (truth.agent - middle).abs().max() < example.SIDE / 2 + 1e-3
        assert (truth.object - middle).abs().max() < example.BLOCK_SIDE / 2 + 1e-3

    def test_the_block_is_where_the_cameras_show_it(self, data: palpate.Labelled, example: ModuleType) -> None:
        """Dark pixels lie around its projection, wherever one of the cameras sees all of it."""
        env = example.PlanarFetchPush("front,side", SIZE)
        try:
            for seed in range(3):
                pictures, info = env.reset(seed=seed)
                for view, picture in zip(env.views, pictures, strict=True):
                    if env.seen(view) == 1:
                        x, y = view.project(info["object"], SIZE).astype(int)
                        assert picture[y - 1 : y + 2, x - 1 : x + 2].max() < 100
        finally:
            env.close()

    def test_the_path_is_straight(self, data: palpate.Labelled, example: ModuleType) -> None:
        env = example.PlanarFetchPush("front", SIZE)
        path: list[np.ndarray] = []
        advance = env._advance
        try:
            _, before = env.reset(seed=0)
            env._advance = lambda: (advance(), path.append(env.data.site_xpos[env._grip].copy()))
            *_, after = env.step(np.array((0.06, -0.08), np.float32))
        finally:
            env.close()
        moved = after["agent"] - before["agent"]
        assert np.linalg.norm(moved) == pytest.approx(0.1, abs=2e-3)
        along = moved / np.linalg.norm(moved)
        aside = (np.array(path)[:, :2] - before["agent"]) @ np.array((-along[1], along[0]))
        assert np.abs(aside).max() < 1e-3
