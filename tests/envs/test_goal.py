"""The game: rewards and ends by hand; observations without pictures draw nothing."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from palpate.envs.goal import GOAL, MAX_STEPS, DrivingGoalEnv, GoalConfig, SoccerGoalEnv, scored
from palpate.envs.soccer import Scene, renderer
from palpate.envs.soccer.config import AGENT_RANGE, REACH, RIGHT_GOAL

ID = "palpate/SoccerGoal-v0"


def make(**options: Any) -> SoccerGoalEnv:
    return SoccerGoalEnv(**{"observation": "state"} | options)


def place(env: Any, agent: tuple[float, float], ball: tuple[float, float] = (0.5, 0.5)) -> None:
    _, info = env.reset(seed=0)
    orientation = info["orientation"][None]
    env.unwrapped.scene = Scene(np.array([agent], np.float32), np.array([ball], np.float32), orientation)


@pytest.mark.parametrize("observation", ["state", "scene"])
def test_passes_gymnasiums_checker_with_true_states(observation: str) -> None:
    env = gymnasium.make(ID, observation=observation).unwrapped
    check_env(env, skip_render_check=True)


def test_it_is_registered_with_its_time_limit() -> None:
    env: Any = gymnasium.make(ID, observation="state")
    assert isinstance(env.unwrapped, SoccerGoalEnv)
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(MAX_STEPS)]
    assert MAX_STEPS == 20
    assert ends == [(False, False)] * 19 + [(False, True)]  # a truncation, no termination


def test_the_reward_by_hand() -> None:
    """An agent that does not reach the ball: it lies at (0.5, 0.5), the goal's middle at (0.81, 0.5)."""
    env = make()
    place(env, (0.1, 0.1))
    _, reward, *_, info = env.step(np.zeros(2, np.float32))
    assert pytest.approx((0.81, 0.5)) == GOAL
    assert reward == pytest.approx(-0.31)
    assert not info["goal"]
    place(env, (0.1, 0.1), (0.41, 0.8))
    assert env.step(np.zeros(2, np.float32))[1] == pytest.approx(-0.5)  # 0.4 to the left of it and 0.3 above


def test_a_straight_kick_scores() -> None:
    env = make(end_on_goal=False)
    place(env, (0.38, 0.5))
    for _ in range(2):
        o, reward, terminated, _, info = env.step(np.array([0.3, 0.0], np.float32))
    assert info["goal"]
    assert scored(o[2:])
    assert not terminated
    assert reward == pytest.approx(-math.dist(o[2:], GOAL))
    assert reward > -0.06


def test_a_goal_may_end_the_episode() -> None:
    env: Any = gymnasium.make(ID, observation="state")
    place(env, (0.38, 0.5))
    ends = []
    while not (ends and ends[-1] != (False, False)):
        *_, terminated, truncated, info = env.step(np.array([0.3, 0.0], np.float32))
        ends.append((terminated, truncated))
    assert ends[-1] == (True, False)
    assert info["goal"]


@pytest.mark.parametrize(
    ("ball", "inside"),
    [
        (GOAL, True),
        ((RIGHT_GOAL[0], 0.5), True),  # on the line
        ((RIGHT_GOAL[0] - 1e-3, 0.5), False),
        ((0.8, 0.599), True),
        ((0.8, 0.601), False),
        ((0.8, 0.399), False),
        ((0.2, 0.5), False),  # the left goal
    ],
)
def test_what_a_goal_is(ball: tuple[float, float], inside: bool) -> None:
    assert scored(np.array(ball)) == inside


def test_starts() -> None:
    """The ball in the centre, the agent anywhere but on it; with `ball="random"` both anywhere."""
    env = make()
    starts = np.stack([env.reset(seed=seed)[0] for seed in range(100)])
    assert (starts[:, 2:] == 0.5).all()
    agent = starts[:, :2]
    assert np.linalg.norm(agent - 0.5, axis=1).min() > REACH
    assert agent.min() < AGENT_RANGE[0] + 0.03
    assert agent.max() > AGENT_RANGE[1] - 0.03
    assert np.allclose(agent.mean(0), 0.5, atol=0.1)
    balls = np.stack([make(ball="random").reset(seed=seed)[0][2:] for seed in range(10)])
    assert (balls.std(0) > 0.1).all()


def test_moves_are_bounded_and_reported() -> None:
    env = make()
    place(env, (0.2, 0.9))
    o, *_, info = env.step(np.array([-0.9, 0.01], np.float32))  # beyond max_step and beyond the field
    assert o[:2] == pytest.approx([AGENT_RANGE[0], 0.91])
    assert info["displacement"] == pytest.approx([AGENT_RANGE[0] - 0.2, 0.01])
    o, *_, info = env.step(np.array([0.9, 0.0], np.float32))
    assert info["displacement"] == pytest.approx([0.3, 0.0])
    assert env.action_space.high.tolist() == pytest.approx([0.3, 0.3])


def test_states_stay_in_their_space() -> None:
    env = make(max_step=0.9)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(100):
        o, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(o)


def test_true_states_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = 0
    draw = renderer.draw

    def counted(*arguments: Any) -> np.ndarray:
        nonlocal drawn
        drawn += 1
        return draw(*arguments)

    monkeypatch.setattr(renderer, "draw", counted)
    for observation, pictures in (("state", 0), ("scene", 0), ("picture", 2)):
        env = make(observation=observation, size=32)
        env.reset(seed=0)
        env.step(np.zeros(2, np.float32))
        assert drawn == pictures
        env.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"observation": "film"}, "observation is 'film'; allowed are 'picture', 'state' and 'scene'"),
        ({"ball": "left"}, "ball is 'left'; allowed are 'centre' and 'random'"),
        ({"max_step": 0.0}, "max_step is 0.0; allowed is more than 0, at most 0.9"),
        ({"max_step": 1.0}, "max_step is 1.0; allowed is more than 0, at most 0.9"),
    ],
)
def test_wrong_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        GoalConfig(**options)


def test_an_agent_that_turns_plays_along_its_own_axes() -> None:
    """Its front faces up, so it scores by driving to its right; a differential drive turns first."""
    for options, actions in (
        ({}, [[0.0, -0.3, 0.0]] * 2),
        ({"sideways": False}, [[0.0, -math.pi / 2], [0.3, 0.0], [0.3, 0.0]]),
    ):
        env = DrivingGoalEnv(observation="state", **options)
        env.reset(seed=0)
        env.scene = env.scene._replace(
            agent=np.array([[0.38, 0.5]], np.float32), heading=np.array([math.pi / 2], np.float32)
        )
        for action in actions:
            o, reward, terminated, _, info = env.step(np.array(action, np.float32))
            assert env.observation_space.contains(o)
        assert info["goal"]
        assert terminated
        assert reward == pytest.approx(-math.dist(o[-2:], GOAL))
        assert o[2:4] == pytest.approx([math.cos(info["heading"]), math.sin(info["heading"])], abs=1e-6)
        low = env.action_space.low
        assert low.tolist() == pytest.approx([*[-0.3] * (len(low) - 1), -math.pi / 2])


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")  # turns are in radians
def test_a_driving_game_has_the_true_state_in_its_space() -> None:
    for observation, count in (("state", 6), ("scene", 10)):
        env = gymnasium.make("palpate/SoccerDrivingGoal-v0", observation=observation).unwrapped
        assert env.observation_space.shape == (count,)
        check_env(env, skip_render_check=True)
    with pytest.raises(ValueError, match="motion is 'curve'; allowed is 'arc' or 'straight'"):
        DrivingGoalEnv(motion="curve")
