"""What every environment of ours promises."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from palpate.envs.registration import SPRITES, register, world
from palpate.envs.shells import SpritesEnv

STEPS = 300


@pytest.fixture(params=list(SPRITES))
def env_id(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    register()


def make(env_id: str, **options: object) -> gymnasium.Env[np.ndarray, np.ndarray]:
    env: gymnasium.Env[np.ndarray, np.ndarray] = gymnasium.make(env_id, size=32, **options)
    return env


def test_ids_are_registered_without_asking(env_id: str) -> None:
    """By the entry point that Gymnasium reads; twice is no harm."""
    assert env_id in gymnasium.registry
    register()
    assert isinstance(gymnasium.make(env_id).unwrapped, SpritesEnv)


def test_passes_gymnasiums_checker(env_id: str) -> None:
    check_env(make(env_id, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("other", [False, True])
def test_the_seed_fixes_every_byte(env_id: str, other: bool) -> None:
    def film(seed: int) -> bytes:
        env = make(env_id)
        env.action_space.seed(7)
        o, info = env.reset(seed=seed)
        seen = [o, *info.values()]
        for _ in range(20):
            o, *_, info = env.step(env.action_space.sample())
            seen += [o, *info.values()]
        return b"".join(np.asarray(x).tobytes() for x in seen)

    assert (film(3) == film(4 if other else 3)) != other


def test_resets_differ(env_id: str) -> None:
    env = make(env_id)
    first, _ = env.reset(seed=1)
    second, _ = env.reset()
    third, _ = env.reset(seed=1)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, third)


def test_steps_do_what_they_say(env_id: str) -> None:
    """Touched if and only if moved; the agent goes exactly as far as reported; everything stays in the square."""
    env = make(env_id)
    env.action_space.seed(0)
    o, info = env.reset(seed=0)
    contacts, stopped = 0, 0
    assert "contact" not in info
    for _ in range(STEPS):
        before = {name: np.array(info[name]) for name in ("agent", "object", "angle")}
        action = env.action_space.sample()
        o, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert env.observation_space.contains(o)
        moved = not np.array_equal(info["object"], before["object"]) or info["angle"] != before["angle"]
        assert info["contact"] is bool(moved)
        # The displacement is the difference of two float32 positions, so adding it again is good to their rounding.
        np.testing.assert_array_equal(info["agent"] - before["agent"], info["displacement"])
        assert (np.abs(info["displacement"]) <= np.abs(action) + 1e-6).all()
        assert (info["displacement"] * action >= -1e-6).all()
        for name in ("agent", "object"):
            assert ((info[name] >= 0) & (info[name] <= 1)).all()
        contacts += moved
        stopped += not np.allclose(info["displacement"], action, atol=1e-6)
    assert 20 < contacts < STEPS - 20
    assert 0 < stopped < STEPS


def test_the_observation_shows_the_state(env_id: str) -> None:
    """Same state, same picture; another agent, another picture."""
    env = make(env_id)
    o, _ = env.reset(seed=5)
    still, *_, info = env.step(np.zeros(2, np.float32))
    assert not info["contact"]
    assert np.array_equal(o, still)
    inward = 0.1 * np.sign(0.5 - info["agent"])
    moved, *_ = env.step(inward)
    assert not np.array_equal(o, moved)


def test_render_modes(env_id: str) -> None:
    shown = make(env_id, render_mode="rgb_array")
    o, _ = shown.reset(seed=0)
    assert np.array_equal(shown.render(), o)
    assert SpritesEnv().render() is None
    with pytest.raises(ValueError, match="render_mode is 'human'; allowed are None and 'rgb_array'"):
        SpritesEnv(render_mode="human")


@pytest.mark.parametrize("action", [[0.1], [0.1, 0.1, 0.1], [np.nan, 0.0], [0.0, np.inf]])
def test_wrong_actions(action: list[float]) -> None:
    env = SpritesEnv(size=32)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="allowed are two finite numbers"):
        env.step(np.array(action, np.float32))


def test_reset_comes_first() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        SpritesEnv(size=32).step(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("asked", "near"),
    [("palpate/Sprite-v0", "palpate/Sprites-v0"), ("palpate/SpritesAnisotropc-v0", "palpate/SpritesAnisotropic-v0")],
)
def test_unknown_id(asked: str, near: str) -> None:
    with pytest.raises(ValueError, match="the worlds that stream are") as error:
        world(asked)
    assert str(error.value).startswith(f"env is {asked!r};")
    assert str(error.value).endswith(f"did you mean {near!r}?")
    assert all(name in str(error.value) for name in SPRITES)


def test_unknown_id_without_a_neighbour() -> None:
    with pytest.raises(ValueError, match="the worlds that stream are") as error:
        world("#")
    assert "did you mean" not in str(error.value)


def test_unknown_option(env_id: str) -> None:
    with pytest.raises(ValueError, match="does not know this option: .*sice"):
        world(env_id, sice=32)


def test_shell_and_world_are_one(env_id: str) -> None:
    """The shell's settings are those of the batched world of the same id."""
    shell = gymnasium.make(env_id, size=40).unwrapped
    assert isinstance(shell, SpritesEnv)
    batched = world(env_id, size=40)
    assert shell.world.config == batched.config
    assert shell.observation_space.shape == (40, 40, 3)
    assert torch.Size(batched.observation_shape) == (3, 40, 40)
