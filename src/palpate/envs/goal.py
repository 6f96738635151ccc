"""A task in the soccer world: kick the ball into the right goal (paper, Sec. 5.3). Of several balls, one counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium
import numpy as np

from palpate.envs.driving import MOST_TURN
from palpate.envs.options import configured
from palpate.envs.shells import DrivingEnv, Simulated, SoccerEnv, displacement
from palpate.envs.soccer.config import (
    AGENT_RANGE,
    BALL_RADIUS,
    FENCE_RANGE,
    GAP,
    GOAL_DEPTH,
    GOAL_MOUTH,
    REACH,
    RIGHT_GOAL,
    require_balls,
)
from palpate.envs.soccer.world import objects

MAX_STEPS = 20  # of an episode, the paper's; Gymnasium's TimeLimit truncates there
GOAL = (RIGHT_GOAL[0] + GOAL_DEPTH / 2, RIGHT_GOAL[1])  # centre: between goal line and net, between the posts
CENTRE = (0.5, 0.5)
# Half of Soccer's: a ball hit at full speed bounces around the field wherever it was aimed, unless to 0.002.
AGENT_SPEED = 0.3
WHOLE_RANGE = round(AGENT_RANGE[1] - AGENT_RANGE[0], 6)


WHOLE = (-1.0, 1.0)  # of the numbers of a unit vector


@dataclass(frozen=True, kw_only=True)
class GoalConfig:
    # state: [agent, ball]; scene: the ball's orientation as well, so that it can be drawn. Neither draws anything.
    observation: Literal["picture", "state", "scene"] = "picture"
    ball: Literal["centre", "random"] = "centre"  # where it starts; the paper is ambiguous
    max_step: float = 0.3  # largest displacement along an axis
    end_on_goal: bool = True  # whether a goal terminates the episode; the paper gives the maximal length alone
    size: int = 100  # pixels on a side
    balls: int = 1
    counts: int = 0  # number of the ball that belongs in the goal; the others are anywhere

    def __post_init__(self) -> None:
        require_balls(self.balls)
        if type(self.counts) is not int or not 0 <= self.counts < self.balls:
            raise ValueError(f"counts is {self.counts!r}; allowed is 0 to {self.balls - 1}, the number of a ball")
        for name, allowed in (("observation", ("picture", "state", "scene")), ("ball", ("centre", "random"))):
            if getattr(self, name) not in allowed:
                words = f"{', '.join(map(repr, allowed[:-1]))} and {allowed[-1]!r}"
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed are {words}")
        if not 0 < self.max_step <= WHOLE_RANGE:
            raise ValueError(f"max_step is {self.max_step}; allowed is more than 0, at most {WHOLE_RANGE}")


@dataclass(frozen=True, kw_only=True)
class DrivingGoalConfig(GoalConfig):
    view: Literal["around", "ahead"] = "around"  # as in `DrivingConfig`
    sideways: bool = True
    motion: Literal["arc", "straight"] = "arc"


def scored(ball: np.ndarray) -> bool:
    """Whether the ball [2] lies in the right goal: its centre behind the line and between the posts."""
    return bool(ball[0] >= RIGHT_GOAL[0] and abs(ball[1] - RIGHT_GOAL[1]) <= GOAL_MOUTH / 2)


class _Game(Simulated):
    """A game in a soccer world. The reward is the negative distance between the ball that counts and the goal, centre
    to centre, after the step. `info` holds what the world's does, and `goal`: this ball lies in the right goal."""

    config: GoalConfig
    faces = 0  # numbers for the agent's heading in a true state

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        most = self._most
        observation, _, _, _, info = super().step(np.clip(displacement(action, len(most)), -most, most))
        reward = -math.dist(self._ball(), GOAL)
        return observation, reward, self.config.end_on_goal and info["goal"], False, info

    def _bound(self, most: Sequence[float]) -> None:
        """Bound the action, and the observation if it is no picture."""
        self._most = np.array(most, np.float32)
        self.action_space = gymnasium.spaces.Box(-self._most, self._most, dtype=np.float32)
        if self.config.observation != "picture":
            low, high = np.array(self._bounds(), np.float32).T
            # Widened by the rounding of float32.
            widened = np.nextafter(low, np.float32(-2)), np.nextafter(high, np.float32(2))
            self.observation_space = gymnasium.spaces.Box(*widened, dtype=np.float32)

    def _bounds(self) -> list[tuple[float, float]]:
        turned, balls = 4 if self.config.observation == "scene" else 0, self.config.balls
        return [*[AGENT_RANGE] * 2, *[WHOLE] * self.faces, *[FENCE_RANGE] * 2 * balls, *[WHOLE] * turned * balls]

    def _start(self) -> Any:
        scene = self._laid_out()
        while True:
            agent = self.np_random.uniform(*AGENT_RANGE, 2).astype(np.float32)
            if np.linalg.norm(agent - objects(scene)[0], axis=1).min() > REACH + GAP:
                return scene._replace(agent=agent[None])

    def _laid_out(self) -> Any:
        """A random scene with the ball that counts in its place."""
        while True:
            scene = self.world.reset(self.np_random)
            if self.config.ball == "random":
                return scene
            objects(scene)[0, self.config.counts] = CENTRE
            apart = np.linalg.norm(np.delete(objects(scene)[0], self.config.counts, 0) - CENTRE, axis=1)
            if (apart > 2 * BALL_RADIUS + GAP).all():
                return scene

    def _ball(self) -> np.ndarray:
        """Position [2] of the ball that counts."""
        ball: np.ndarray = objects(self.scene)[0, self.config.counts]
        return ball

    def _observation(self) -> np.ndarray:
        if self.config.observation == "picture":
            return super()._observation()
        parts = [*self._state(), *([self.scene.orientation[0].ravel()] if self.config.observation == "scene" else [])]
        return np.concatenate(parts)

    def _state(self) -> list[np.ndarray]:
        """The parts of a true state."""
        return [self.scene.agent[0], self.scene.object[0].ravel()]

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"goal": scored(self._ball())}


@final
class SoccerGoalEnv(_Game, SoccerEnv):
    """One game. Observations are pictures [h, w, 3] in third person, the true state [agent, balls], or the scene, which
    has the balls' orientations too. An action is the requested displacement, and a step lasts until they rest.

    Reward and `info` are those of `_Game`. `width` and `height` are those of `render`, by default the observation's
    size.
    """

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        self.config = configured(GoalConfig, options)
        how = {"size": self.config.size, "balls": self.config.balls}
        super().__init__(render_mode, width, height, agent_speed=AGENT_SPEED, **how)
        self._bound([self.config.max_step] * 2)


@final
class DrivingGoalEnv(_Game, DrivingEnv):
    """One game with an agent that turns, as `SoccerGoalEnv`. Observations are pictures of the cameras that the agent
    carries, the true state [agent, cosine and sine of its heading, balls], or the scene. An action is (forward,
    sideways, turn) along the agent's own axes, or (forward, turn) for a differential drive.
    """

    faces = 2

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        self.config = config = configured(DrivingGoalConfig, options)
        how = {"view": config.view, "sideways": config.sideways, "motion": config.motion, "balls": config.balls}
        super().__init__(render_mode, width, height, size=config.size, agent_speed=AGENT_SPEED, **how)
        self._bound([config.max_step] * (self.world.n - 1) + [MOST_TURN])

    def _state(self) -> list[np.ndarray]:
        heading = self.scene.heading[0]
        agent, ball = super()._state()
        return [agent, np.array([np.cos(heading), np.sin(heading)], np.float32), ball]
