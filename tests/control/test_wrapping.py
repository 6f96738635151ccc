"""`palpate.wrap`: shapes, bounds, one pass of the encoder for all environments, and other libraries' interfaces."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from dots import LENGTH, SIZE, Dots
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import palpate
import palpate.envs
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.control.vec import VecPositions
from palpate.control.wrapping import Positions, Reader, VectorPositions
from palpate.methods.store import build
from palpate.representation import Representation


def representation(method: str = "contact", **facts: Any) -> Representation:
    torch.manual_seed(0)
    config = ModelConfig(
        method=method,
        encoder="small",
        observation_shape=(3, SIZE, SIZE),
        n=2,
        objective=ObjectiveConfig(body="ball", refine=False, rest_floor=0.02),
    )
    return Representation(build(config), facts)


def counted(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every pass through the encoder."""
    rows: list[int] = []
    encode = model.encode

    def count(o: torch.Tensor) -> Any:
        rows.append(len(o))
        return encode(o)

    monkeypatch.setattr(model, "encode", count)
    return rows


@pytest.mark.parametrize(
    ("method", "width", "low", "high"),
    [
        ("contact", 4, -np.inf, np.inf),
        ("paper-gaussian", 4, -np.inf, np.inf),
        ("vae", 2 + 32, -np.inf, np.inf),
        ("transporter", 4, 0.0, 1.0),
        ("supervised", 4, -np.inf, np.inf),
    ],
)
def test_one_environment(method: str, width: int, low: float, high: float) -> None:
    model = representation(method)
    env = palpate.wrap(Dots(), model, device="cpu")
    assert isinstance(env, Positions)
    assert env.observation_space == gymnasium.spaces.Box(low, high, (width,), np.float32)
    o, _ = env.reset(seed=1)
    assert env.observation_space.contains(o)
    plain = Dots()
    encoding = model.encode(plain.reset(seed=1)[0][None])
    assert o == pytest.approx(np.concatenate((encoding.agent[0], encoding.object[0])), abs=1e-6)
    action = np.array([0.1, 0.0], np.float32)
    encoding = model.encode(plain.step(action)[0][None])
    assert env.step(action)[0] == pytest.approx(np.concatenate((encoding.agent[0], encoding.object[0])), abs=1e-6)


def test_keypoints_stay_in_their_space() -> None:
    """A picture of 21 pixels has maps of 6 cells of 4: the middle of the last one lies outside."""
    torch.manual_seed(0)
    config = ModelConfig(method="transporter", encoder="small", observation_shape=(3, 21, 21), n=2)
    model = Representation(build(config), {})
    with torch.no_grad():
        model.model.head.weight.mul_(1e4)  # type: ignore[union-attr,operator]
    read = Reader(model, device="cpu")
    seen = read(np.random.default_rng(0).integers(0, 255, (64, 21, 21, 3), np.uint8))
    assert {float(seen.min()), float(seen.max())} == {0.0, 1.0}
    assert all(read.space.contains(row) for row in seen)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_gymnasiums_checker_passes() -> None:
    check_env(palpate.wrap(Dots(), representation("transporter"), device="cpu"), skip_render_check=True)


def test_the_observations_are_in_the_aligned_frame() -> None:
    plain, moved = representation(), representation(origin=[3.0, -1.0], object_offset=[0.5, 0.25])
    seen = [palpate.wrap(Dots(), model, device="cpu").reset(seed=1)[0] for model in (plain, moved)]
    assert seen[1] - seen[0] == pytest.approx([3.0, -1.0, 3.5, -0.75], abs=1e-5)


def test_the_covariance_follows() -> None:
    model = representation("paper-gaussian")
    env = palpate.wrap(Dots(), model, covariance=True, device="cpu")
    assert env.observation_space.shape == (8,)
    o, _ = env.reset(seed=1)
    encoding = model.encode(Dots().reset(seed=1)[0][None])
    assert o[4:] == pytest.approx(encoding.covariance[0].ravel(), rel=1e-5)
    with pytest.raises(ValueError, match=r"this model \(vae\) gives none; leave it out"):
        palpate.wrap(Dots(), representation("vae"), covariance=True, device="cpu")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_gymnasium_vectors(mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass for all environments, including the last observations of episodes."""
    model = representation()
    plain, inner = (SyncVectorEnv([Dots] * 3, autoreset_mode=mode) for _ in range(2))
    env = palpate.wrap(inner, model, device="cpu")
    assert isinstance(env, VectorPositions)
    assert env.single_observation_space.shape == (4,)
    assert env.observation_space.shape == (3, 4)
    rows = counted(env._reader.model.model, monkeypatch)
    for each in (plain, env):
        each.action_space.seed(0)

    def expected(o: np.ndarray) -> Any:
        encoding = model.encode(o)
        return pytest.approx(np.concatenate((encoding.agent, encoding.object), 1), abs=1e-5)

    assert env.reset(seed=5)[0] == expected(plain.reset(seed=5)[0])
    sizes = [3]
    for _ in range(2 * LENGTH + 1):
        action = plain.action_space.sample()
        o, *_, info = plain.step(action)
        seen, *_, seen_info = env.step(action)
        assert seen == expected(o)
        assert env.observation_space.contains(seen)
        sizes.append(3 + len(info.get("final_obs", ())))
        if "final_obs" in info:
            assert np.stack([*seen_info["final_obs"]]) == expected(np.stack([*info["final_obs"]]))
    assert rows == sizes
    assert (max(sizes) == 6) == (mode is AutoresetMode.SAME_STEP)


def test_stable_baselines_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass for all environments, including the last observations of episodes."""
    model = representation()
    with_pictures, inner = DummyVecEnv([Dots] * 3), DummyVecEnv([Dots] * 3)
    env = palpate.wrap(inner, model, device="cpu")
    assert isinstance(env, VecPositions)
    rows = counted(env._reader.model.model, monkeypatch)

    def expected(o: Any) -> Any:
        encoding = model.encode(np.asarray(o))
        return pytest.approx(np.concatenate((encoding.agent, encoding.object), 1), abs=1e-5)

    for each in (with_pictures, env):
        each.seed(7)
    assert env.reset() == expected(with_pictures.reset())
    for t in range(1, 2 * LENGTH):
        action = np.full((3, 2), 0.05 * t, np.float32)
        o, reward, done, infos = with_pictures.step(action)
        seen, seen_reward, seen_done, seen_infos = env.step(action)
        assert seen == expected(o)
        assert (seen_reward == reward).all()
        assert done.tolist() == seen_done.tolist() == [t == LENGTH] * 3
        assert [info["goal"] for info in seen_infos] == [info["goal"] for info in infos]
        if t == LENGTH:
            assert all(info["TimeLimit.truncated"] for info in seen_infos)
            last = [info["terminal_observation"] for info in infos]
            assert np.stack([info["terminal_observation"] for info in seen_infos]) == expected(np.stack(last))
            assert not np.array_equal(last[0], o[0])
    assert rows == [3, 3, 3, 6, 3, 3]


def test_wrong_environments() -> None:
    model = representation()
    with pytest.raises(ValueError, match="env is a str; allowed are a Gymnasium environment"):
        palpate.wrap("palpate/SoccerGoal-v0", model)
    with pytest.raises(ValueError, match="model is a str; allowed is a representation, as palpate.load returns it"):
        palpate.wrap(Dots(), "runs/x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="observations are Discrete.*allowed are arrays"):
        palpate.wrap(gymnasium.make("FrozenLake-v1"), model, device="cpu")
    with pytest.raises(ValueError, match=r"this model reads batches of \(3, 20, 20\)"):
        palpate.wrap(gymnasium.make("palpate/SoccerGoal-v0", size=32), model, device="cpu")


def test_it_encodes_on_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device is 'cuda', but torch sees no GPU here"):
        palpate.wrap(Dots(), representation(), device="cuda")
    assert Reader(representation())._device.type == "cpu"
