"""A task in the soccer world: kick the ball into the right goal (paper, Sec. 5.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium
import numpy as np

from palpate.envs.driving import MOST_TURN
from palpate.envs.options import configured
from palpate.envs.shells import DrivingEnv, Simulated, SoccerEnv, displacement
from palpate.envs.soccer.config import AGENT_RANGE, FENCE_RANGE, GAP, GOAL_DEPTH, GOAL_MOUTH, REACH, RIGHT_GOAL

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

    def __post_init__(self) -> None:
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
    """A game in a soccer world. The reward is the negative distance between ball and goal, centre to centre, after the
    step. `info` holds what the world's does, and `goal`: the ball lies in the right goal."""

    config: GoalConfig
    faces = 0  # numbers for the agent's heading in a true state

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        most = self._most
        observation, _, _, _, info = super().step(np.clip(displacement(action, len(most)), -most, most))
        reward = -math.dist(info["object"], GOAL)
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
        turned = 4 if self.config.observation == "scene" else 0
        return [*[AGENT_RANGE] * 2, *[WHOLE] * self.faces, *[FENCE_RANGE] * 2, *[WHOLE] * turned]

    def _start(self) -> Any:
        scene = self.world.reset(self.np_random)
        ball = np.array([CENTRE], np.float32) if self.config.ball == "centre" else scene.object
        while True:
            agent = self.np_random.uniform(*AGENT_RANGE, 2).astype(np.float32)
            if math.dist(agent, ball[0]) > REACH + GAP:
                return scene._replace(agent=agent[None], object=ball)

    def _observation(self) -> np.ndarray:
        if self.config.observation == "picture":
            return super()._observation()
        parts = [*self._state(), *([self.scene.orientation[0]] if self.config.observation == "scene" else [])]
        return np.concatenate(parts)

    def _state(self) -> list[np.ndarray]:
        """The parts of a true state."""
        return [self.scene.agent[0], self.scene.object[0]]

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"goal": scored(self.scene.object[0])}


@final
class SoccerGoalEnv(_Game, SoccerEnv):
    """One game. Observations are pictures [h, w, 3] in third person, the true state [agent, ball], or the scene, which
    has the ball's orientation too. An action is the requested displacement, and a step lasts until the ball rests.

    Reward and `info` are those of `_Game`. `width` and `height` are those of `render`, by default the observation's
    size.
    """

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        self.config = configured(GoalConfig, options)
        super().__init__(render_mode, width, height, size=self.config.size, agent_speed=AGENT_SPEED)
        self._bound([self.config.max_step] * 2)


@final
class DrivingGoalEnv(_Game, DrivingEnv):
    """One game with an agent that turns, as `SoccerGoalEnv`. Observations are pictures of the cameras that the agent
    carries, the true state [agent, cosine and sine of its heading, ball], or the scene. An action is (forward,
    sideways, turn) along the agent's own axes, or (forward, turn) for a differential drive.
    """

    faces = 2

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        self.config = config = configured(DrivingGoalConfig, options)
        how = {"view": config.view, "sideways": config.sideways, "motion": config.motion}
        super().__init__(render_mode, width, height, size=config.size, agent_speed=AGENT_SPEED, **how)
        self._bound([config.max_step] * (self.world.n - 1) + [MOST_TURN])

    def _state(self) -> list[np.ndarray]:
        heading = self.scene.heading[0]
        agent, ball = super()._state()
        return [agent, np.array([np.cos(heading), np.sin(heading)], np.float32), ball]
