"""The contract of all our environments."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from palpate.envs import goal
from palpate.envs.registration import DRIVING, LIDAR, MANY, SOCCER, SPRITES, TASKS, world
from palpate.envs.shells import DrivingEnv, LidarEnv, ManyEnv, SoccerEnv, SpritesEnv
from palpate.groups.se2 import SE2

STEPS = 120
SEEN = [*SPRITES, *SOCCER, *DRIVING]  # in pictures
WORLDS = [*SPRITES, *LIDAR, *SOCCER, *DRIVING]
FOUR_CAMERAS = ("palpate/SoccerFirstPerson-v0", *DRIVING)
TURNS = (*DRIVING, "palpate/SoccerDrivingGoal-v0")


class Case(NamedTuple):
    """An environment, with options that change what its states are."""

    env: str
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __str__(self) -> str:
        return "-".join([self.env.split("/")[1], *(f"{name}={value}" for name, value in self.options.items())])


SEVERAL = [Case(env, {"balls": 2}) for env in (*SOCCER, *DRIVING, *TASKS)]
SEVERAL += [Case("palpate/Soccer-v0", {"balls": 4}), Case("palpate/SpritesMany-v0", {"objects": 2})]


@pytest.fixture(params=[*map(Case, [*WORLDS, *TASKS]), *SEVERAL], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(params=SEEN)
def seen_id(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def shell(env_id: str) -> type[gymnasium.Env[np.ndarray, np.ndarray]]:
    shells = ((SPRITES, SpritesEnv), (MANY, ManyEnv), (LIDAR, LidarEnv), (SOCCER, SoccerEnv), (DRIVING, DrivingEnv))
    kinds = [kind for ids, kind in shells if env_id in ids]
    return kinds[0] if kinds else getattr(goal, TASKS[env_id])  # type: ignore[no-any-return]


def small(case: Case) -> dict[str, Any]:
    """Options that make small observations."""
    return case.options | ({"rays": 20, "noise": 0.01} if case.env in LIDAR else {"size": 32})


def make(case: Case, **options: object) -> gymnasium.Env[np.ndarray, np.ndarray]:
    env: gymnasium.Env[np.ndarray, np.ndarray] = gymnasium.make(case.env, **small(case) | options)
    return env


def not_equal(pairs: list[tuple[Any, Any]]) -> bool | list[bool]:
    """Whether some numbers of an object differ: of one, or of each of several, if these numbers have rows."""
    differ = [np.asarray(x) != np.asarray(y) for x, y in pairs]
    if max(x.ndim for x in differ) < 2:
        return any(x.any() for x in differ)
    return np.any([x.any(-1) for x in differ], 0).tolist()  # type: ignore[no-any-return]


def along_axes(env: str, before: dict[str, np.ndarray], info: dict[str, Any]) -> np.ndarray:
    """How the agent moved: its displacement, or along its own axes and its turn if it has a heading."""
    if env not in TURNS:
        moved: np.ndarray = info["agent"] - before["agent"]
        return moved
    group, states = SE2(), (before, info)
    z, z_next = (group.posed(torch.tensor(np.array([*s["agent"], s["heading"]], float))) for s in states)
    own: np.ndarray = group.between(z, z_next).numpy()
    return own


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # a turn is larger than a step
def test_passes_gymnasiums_checker(case: Case) -> None:
    env = make(case, render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


def test_a_step_before_the_first_reset_is_refused(case: Case) -> None:
    env = shell(case.env)(**small(case))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step(np.zeros(env.action_space.shape, np.float32))
    env.close()


def test_the_seed_fixes_every_byte(case: Case) -> None:
    def film(seed: int) -> bytes:
        env = make(case)
        env.action_space.seed(7)
        o, info = env.reset(seed=seed)
        seen = [o, *info.values()]
        for _ in range(20):
            o, *_, info = env.step(env.action_space.sample())
            seen += [o, *info.values()]
        env.close()
        return b"".join(np.asarray(x).tobytes() for x in seen)

    assert film(3) == film(3) != film(4)


def test_resets_differ(case: Case) -> None:
    env = make(case)
    first, _ = env.reset(seed=1)
    second, _ = env.reset()
    third, _ = env.reset(seed=1)
    env.close()
    assert not np.array_equal(first, second)
    assert np.array_equal(first, third)


def test_info_describes_the_step(case: Case) -> None:
    """Touched if and only if moved; the agent goes exactly as far as reported; everything stays in the square."""
    # Larger steps, more contacts.
    larger = {"max_step": 0.9} if case.env in TASKS else {"stride": 1.0} if case.env in (*SOCCER, *DRIVING) else {}
    env = make(case, **larger)
    env.action_space.seed(0)
    o, info = env.reset(seed=0)
    contacts, stopped = 0, 0
    assert "contact" not in info
    states = list(info)
    assert {"agent", "object"} < set(states)
    for _ in range(STEPS):
        before = {name: np.array(info[name]) for name in states}
        action = env.action_space.sample()
        o, reward, terminated, truncated, info = env.step(action)
        assert case.env in TASKS or (reward, terminated, truncated) == (0.0, False, False)
        assert env.observation_space.contains(o)
        objects = set(states) - {"agent", "heading", "stray", "goal"}
        moved = not_equal([(info[name], before[name]) for name in objects])
        assert info["contact"] == moved
        # The displacement is the difference of two float32 positions, so adding it again is good to their rounding.
        exact = 3e-6 if case.env in TURNS else 0
        np.testing.assert_allclose(along_axes(case.env, before, info), info["displacement"], rtol=0, atol=exact)
        if case.env not in TURNS:  # a part of an arc leads in another direction
            assert (np.abs(info["displacement"]) <= np.abs(action) + 1e-6).all()
            assert (info["displacement"] * action >= -1e-6).all()
        for name in ("agent", "object"):
            assert ((info[name] >= 0) & (info[name] <= 1)).all()
        contacts += bool(np.any(moved))
        stopped += not np.allclose(info["displacement"], action, atol=1e-6)
    env.close()
    assert 5 <= contacts < STEPS - 5
    assert 0 < stopped < STEPS


def test_the_observation_shows_the_state(case: Case) -> None:
    """Same state, same picture; another agent, another picture."""
    env = make(case, **{"noise": 0.0} if case.env in LIDAR else {})
    o, _ = env.reset(seed=5)
    still, *_, info = env.step(np.zeros(env.action_space.shape, np.float32))
    assert not np.any(info["contact"])
    rounding = 1 if case.env in TURNS else 0  # of the heading, in shades
    np.testing.assert_allclose(o.astype(float), still, rtol=0, atol=rounding)
    inward = np.zeros(env.action_space.shape, np.float32)
    inward[:2] = 0.1 * np.sign(0.5 - info["agent"])
    moved, *_ = env.step(inward)
    env.close()
    assert not np.array_equal(o, moved)


def test_changing_what_is_returned_does_not_change_the_world(case: Case) -> None:
    films = []
    for scribble in (False, True):
        env = make(case)
        o, info = env.reset(seed=2)
        for _ in range(2):
            if scribble:
                for value in (o, info["agent"], info["object"]):
                    value[...] = 0
            o, *_, info = env.step(np.full(env.action_space.shape, 0.01, np.float32))
        films.append((o, info["agent"], info["object"]))
        env.close()
    assert all(np.array_equal(x, y) for x, y in zip(*films, strict=True))


def test_render_modes(case: Case) -> None:
    shown = make(case, render_mode="rgb_array")
    o, _ = shown.reset(seed=0)
    picture = shown.render()
    if case.env in LIDAR:  # scans are drawn for the eye
        assert picture.shape[2] == 3
        assert picture.dtype == np.uint8
    else:
        assert np.array_equal(picture, np.concatenate(o, axis=1) if o.ndim == 4 else o)
    assert shell(case.env)().render() is None
    shown.close()
    with pytest.raises(ValueError, match="render_mode is 'film'; allowed are None"):
        shell(case.env)(render_mode="film")


def test_wrong_actions(case: Case) -> None:
    env = make(case).unwrapped
    env.reset(seed=0)
    (count,) = env.action_space.shape or (0,)
    for action in ([0.1], [0.1] * (count + 1), [np.nan] + [0.0] * (count - 1), [0.0] * (count - 1) + [np.inf]):
        with pytest.raises(ValueError, match=f"allowed are {count} finite numbers"):
            env.step(np.array(action, np.float32))
    env.close()


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("palpate/Sprite-v0", "palpate/Sprites-v0"),
        ("palpate/SoccerFirst-v0", "palpate/SoccerFirstPerson-v0"),
    ],
)
def test_unknown_id(asked: str, near: str) -> None:
    with pytest.raises(ValueError, match="the worlds here are") as error:
        world(asked)
    assert str(error.value).startswith(f"env is {asked!r};")
    assert str(error.value).endswith(f"did you mean {near!r}?")
    assert all(name in str(error.value) for name in WORLDS)


def test_unknown_id_without_a_neighbour() -> None:
    with pytest.raises(ValueError, match="the worlds here are") as error:
        world("#")
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize("env_id", [*FOUR_CAMERAS, *TASKS])
def test_pictures_of_any_size_for_the_eye(env_id: str) -> None:
    env = gymnasium.make(env_id, size=32, render_mode="rgb_array", width=320, height=240)
    o, _ = env.reset(seed=0)
    views = 4 if env_id in (*FOUR_CAMERAS, *TURNS) else 1
    assert o.shape[-3:] == (32, 32, 3)
    assert env.render().shape == (240, views * 320, 3)
    env.close()
    for width in (0, 320.5):
        with pytest.raises(ValueError, match=f"the picture is {width} x 32; allowed is 1 to 4096 pixels on a side"):
            gymnasium.make(env_id, size=32, width=width)


def test_the_stride_bounds_random_actions() -> None:
    for stride, most in ((0.1, 0.1), (1.0, 0.9)):
        assert SoccerEnv(stride=stride).action_space.high.tolist() == pytest.approx([most, most])


def test_unknown_option(seen_id: str) -> None:
    says = "there is no option 'sice'; this world has .*contact_share.*; did you mean 'size'"
    with pytest.raises(ValueError, match=says):
        world(seen_id, sice=32)
    with pytest.raises(ValueError, match=says):
        make(Case(seen_id), sice=32)
    flag = "background" if seen_id in SPRITES else "shadows"
    with pytest.raises(ValueError, match=f"{flag} is 'no'; allowed is True or False"):
        world(seen_id, **{flag: "no"})
    assert world(seen_id, size=np.int64(32)).observation_shape[1:] == (32, 32)
    with pytest.raises(ValueError, match=r"size is \(48, 64\); allowed is 16 to .* one number for both sides"):
        world(seen_id, size=(48, 64))


def test_shell_and_world_have_the_same_settings(seen_id: str) -> None:
    env: Any = gymnasium.make(seen_id, size=40).unwrapped
    behind = world(seen_id, size=40)
    assert isinstance(env, shell(seen_id))
    assert type(env.world) is type(behind)
    assert env.world.config == behind.config
    views = (4,) if seen_id in FOUR_CAMERAS else ()
    assert env.observation_space.shape == (*views, 40, 40, 3)
    assert tuple(behind.observation_shape) == (12 if views else 3, 40, 40)
    assert env.action_space.shape == (behind.n,)
