"""Moves recorded in sub-steps: one action, and the path from sub-step to sub-step, for every group."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from drawn import quick, randn, seeds
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

import palpate
from palpate.config import ObjectiveConfig
from palpate.data.transitions import Transitions
from palpate.doctor.frames import readings
from palpate.geometry import Segment
from palpate.groups import group_of_actions
from palpate.groups.base import Group
from palpate.groups.substeps import Substeps

M = 3
SCENES: dict[str, tuple[int, dict[str, Any]]] = {
    "displacements": (2, {}),
    "plane": (3, {"group": "se2"}),
    "plane of two numbers": (2, {"group": "se2"}),
    "plane straight": (2, {"group": "se2", "motion": "straight"}),
    "space": (6, {"group": "se3"}),
    "pivot": (1, {"group": "so2"}),
    "arm": (3, {"group": "arm"}),
}
every_scene = pytest.mark.parametrize(("count", "scene"), SCENES.values(), ids=SCENES)
UNTRAINED = pytest.mark.filterwarnings("ignore::UserWarning")  # findings of a run of a few steps


def groups(count: int, scene: dict[str, Any]) -> tuple[Group, Group]:
    """The group of single moves, and that of moves in sub-steps."""
    plain, parts = (group_of_actions(shape, ObjectiveConfig(**scene)) for shape in ((count,), (M, count)))
    assert isinstance(parts, Substeps)
    return plain, parts


def poses(group: Group, count: int = 5, seed: int = 0) -> Tensor:
    return group.posed(randn(count, group.n + group.turn_width, seed=seed))


@every_scene
@quick
@given(seed=seeds)
def test_a_sequence_acts_like_its_parts(count: int, scene: dict[str, Any], seed: int) -> None:
    plain, group = groups(count, scene)
    z, steps = poses(plain, seed=seed), 0.5 * randn(5, M, count, seed=seed + 1)
    reached = z
    for step in steps.unbind(1):
        reached = plain.act(reached, step)
    a = steps.flatten(1)
    assert a.shape[1] == group.action_width
    assert_close(group.act(z, a), reached)
    assert_close(group.act(z, group.complete(a)), reached)  # a complete action is a single one
    assert_close(group.complete(group.complete(a)), group.complete(a))
    assert_close(group.start(z, a, reached), z)
    assert_close(group.length2(a), plain.length2(plain.between(z, reached)))
    assert_close(group.act(z, group.compose(torch.stack((a, a.flip(0)), 1))), group.act(reached, a.flip(0)))
    assert_close(group.scaled_pose(reached, 3.0), group.act(group.scaled_pose(z, 3.0), group.scaled(a, 3.0)))
    twice = group.scaled(group.scaled(a, 2.0), 0.5)
    assert_close(group.act(z, twice), reached)


@every_scene
@quick
@given(seed=seeds)
def test_the_path_leads_from_part_to_part(count: int, scene: dict[str, Any], seed: int) -> None:
    plain, group = groups(count, scene)
    z, steps = poses(plain, seed=seed), 0.5 * randn(5, M, count, seed=seed + 1)
    path, reached, corners = group.path(z, steps.flatten(1)), z, []
    for step in steps.unbind(1):
        corners.append(plain.path(reached, step).corners)
        reached = plain.act(reached, step)
    assert not isinstance(path, Segment)
    assert len(corners) == M
    each = corners[0].shape[1] - 1
    assert path.corners.shape[1] == M * each + 1
    for i, part in enumerate(corners):
        assert_close(path.corners[:, i * each : (i + 1) * each + 1], part)
    assert_close(path.corners[:, -1], plain.position(reached))
    scaled = group.path(group.scaled_pose(z, 3.0), group.scaled(steps.flatten(1), 3.0))
    assert_close(scaled.corners, path.corners * (1 if group.bearings else 3))  # a pivot's circle keeps its radius
    single = group.path(z, group.complete(steps.flatten(1)))  # a complete action has one part
    assert_close(single.corners[:, -1], path.corners[:, -1])
    assert isinstance(single, Segment) or single.corners.shape[1] == each + 1


def triples(count: int = 60, n: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    o, o_next = rng.normal(size=(2, count, 7)).astype("float32")
    return {"observation": o, "action": rng.normal(size=(count, M, n)), "next_observation": o_next}


def test_triples_keep_their_sub_steps(tmp_path: Path) -> None:
    arrays = triples()
    data = Transitions(**arrays)
    assert (data.n, data.substeps, data.action_shape) == (2, M, (M, 2))
    assert "action [3, 2]" in repr(data)
    flat = arrays["action"].reshape(60, -1).astype("float32")
    np.testing.assert_array_equal(data.action, flat)
    np.testing.assert_array_equal(data.rows([5, 1]).a, flat[[5, 1]])
    assert data.subset([3, 4]).substeps == M
    data.save(tmp_path / "log.h5")
    with h5py.File(tmp_path / "log.h5") as file:
        assert file["action"].shape == (60, M, 2)
    with Transitions.open(tmp_path / "log.h5") as opened:
        assert opened.action_shape == (M, 2)
        np.testing.assert_array_equal(opened.action, flat)
        assert opened.shared_with(data) == 1.0
    plain = Transitions(**arrays | {"action": flat})
    assert plain.action_shape == (6,)
    assert plain.shared_with(data) == 0.0
    assert Transitions(**arrays | {"action": arrays["action"][:, :1]}).action_shape == (2,)  # one part is the whole


def test_episodes_and_matrices_have_sub_steps() -> None:
    rng = np.random.default_rng(0)
    o, action = rng.normal(size=(10, 7)), rng.normal(size=(9, M, 2))
    log = Transitions.from_episodes(observation=o, action=action, episode_end=[9])
    np.testing.assert_array_equal(log.action, action.reshape(9, -1).astype("float32"))
    motion = np.tile(np.eye(4), (9, M, 1, 1))
    motion[..., :3, 3] = rng.normal(size=(9, M, 3))
    log = Transitions.from_episodes(observation=o, action=motion, episode_end=[9])
    assert log.action_shape == (M, 6)
    np.testing.assert_allclose(log.action.view(9, M, 6)[..., :3], motion[..., :3, 3], rtol=1e-6)
    motion[4, 1, 0, 0] = 2.0
    with pytest.raises(ValueError, match="in row 4, which is no rigid motion"):
        Transitions.from_episodes(observation=o, action=motion, episode_end=[9])


def test_wrong_shapes_are_refused() -> None:
    arrays = triples()
    with pytest.raises(ValueError, match=r"with m sub-steps each \[N, m, n\]"):
        Transitions(**arrays | {"action": arrays["action"][..., None]})
    with pytest.raises(ValueError, match="which is empty"):
        Transitions(**arrays | {"action": arrays["action"][:, :0]})
    bad = arrays["action"].copy()
    bad[7, 2, 1] = np.nan
    with pytest.raises(ValueError, match="action has the value nan in row 7"):
        Transitions(**arrays | {"action": bad})
    many = Transitions(**arrays | {"action": np.ones((60, 65, 2))})
    with pytest.raises(ValueError, match="the number of sub-steps is 65; allowed is 1 to 64"):
        palpate.fit(many, steps=1, batch_size=16, progress=False)
    with pytest.raises(ValueError, match="the count of numbers in an action is 2; allowed is 6"):
        palpate.fit(Transitions(**arrays), group="se3", steps=1, batch_size=16, progress=False)


@UNTRAINED
def test_a_model_of_sub_steps_is_saved_and_reads_them(tmp_path: Path) -> None:
    arrays = triples(n=3)
    model = palpate.fit(
        Transitions(**arrays), group="se2", steps=3, batch_size=16, device="cpu", progress=False, out=tmp_path / "run"
    )
    o, a, o_next = (arrays[name][:9] for name in ("observation", "action", "next_observation"))
    a = a.astype("float32")
    once = model.would_touch(o, a)
    np.testing.assert_array_equal(model.would_touch(o, a.reshape(9, -1)), once)
    assert model.contact(o, a, o_next).shape == (9,)
    loaded = palpate.load(tmp_path / "run")
    assert loaded.config.action_shape == (M, 3)
    np.testing.assert_array_equal(loaded.would_touch(o, a), once)
    with pytest.raises(ValueError, match=r"action has shape \(9, 2, 3\); allowed is \(9, 9\)"):
        model.would_touch(o, a[:, :2])


def test_readings_change_each_sub_step() -> None:
    """The truth follows the right reading of its sub-steps, and no other."""
    _, group = groups(3, {"group": "se2"})
    z, a = poses(group, 200), 0.5 * randn(200, M * 3, seed=1)
    after, scene = group.act(z, a), ObjectiveConfig(group="se2")
    unit = group.length2(a).mean().sqrt()
    small, small_next = (group.scaled_pose(x, 1 / unit) for x in (z, after))
    parts = a.unflatten(1, (M, 3))
    degrees, mirrored = parts * torch.tensor([1, 1, 180 / torch.pi]), parts * torch.tensor([1, 1, -1.0])
    for name, recorded in (("own axes", parts), ("degrees", degrees), ("mirrored", mirrored)):
        found = readings(recorded.flatten(1), (M, 3), scene)
        left = {
            other: float(reading.left(small[:, : reading.width], small_next[:, : reading.width], recorded.flatten(1)))
            for other, reading in found.items()
        }
        assert left.pop(name) < 1e-10
        left.pop("lengths")
        assert min(left.values()) > 1e-3
