"""A task in the soccer world: kick the ball into the right goal (paper, Sec. 5.3)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium
import numpy as np

from palpate.envs.options import configured
from palpate.envs.shells import SoccerEnv, displacement
from palpate.envs.soccer import Scene
from palpate.envs.soccer.config import AGENT_RANGE, FENCE_RANGE, GAP, GOAL_DEPTH, GOAL_MOUTH, REACH, RIGHT_GOAL

MAX_STEPS = 20  # of an episode, the paper's; Gymnasium's TimeLimit truncates there
GOAL = (RIGHT_GOAL[0] + GOAL_DEPTH / 2, RIGHT_GOAL[1])  # centre: between goal line and net, between the posts
CENTRE = (0.5, 0.5)
# Half of Soccer's: a ball hit at full speed bounces around the field wherever it was aimed, unless to 0.002.
AGENT_SPEED = 0.3
WHOLE_RANGE = round(AGENT_RANGE[1] - AGENT_RANGE[0], 6)


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


def scored(ball: np.ndarray) -> bool:
    """Whether the ball [2] lies in the right goal: its centre behind the line and between the posts."""
    return bool(ball[0] >= RIGHT_GOAL[0] and abs(ball[1] - RIGHT_GOAL[1]) <= GOAL_MOUTH / 2)


@final
class SoccerGoalEnv(SoccerEnv):
    """One game. Observations are pictures [h, w, 3] in third person, the true state [agent, ball], or the scene, which
    has the ball's orientation too. An action is the requested displacement, and a step lasts until the ball rests.

    The reward is the negative distance between ball and goal, centre to centre, after the step. `info` holds
    what `SoccerEnv`'s does, and `goal`: the ball lies in the right goal. `width` and `height` are those of `render`, by
    default the observation's size.
    """

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        self.config = configured(GoalConfig, options)
        super().__init__(render_mode, width, height, size=self.config.size, agent_speed=AGENT_SPEED)
        most = np.float32(self.config.max_step)
        self.action_space = gymnasium.spaces.Box(-most, most, (2,), np.float32)
        if self.config.observation != "picture":
            self.observation_space = gymnasium.spaces.Box(*_bounds(self.config.observation), dtype=np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        most = np.float32(self.config.max_step)
        observation, _, _, _, info = super().step(np.clip(displacement(action), -most, most))
        reward = -math.dist(info["object"], GOAL)
        return observation, reward, self.config.end_on_goal and info["goal"], False, info

    def _start(self) -> Scene:
        scene = self.world.reset(self.np_random)
        ball = np.array([CENTRE], np.float32) if self.config.ball == "centre" else scene.object
        while True:
            agent = self.np_random.uniform(*AGENT_RANGE, 2).astype(np.float32)
            if math.dist(agent, ball[0]) > REACH + GAP:
                return Scene(agent[None], ball, scene.orientation)

    def _observation(self) -> np.ndarray:
        if self.config.observation == "picture":
            return super()._observation()
        return np.concatenate([x[0] for x in (self.scene if self.config.observation == "scene" else self.scene[:2])])

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"goal": scored(self.scene.object[0])}


def _bounds(observation: str) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a state or a scene, widened by the rounding of float32."""
    turned = ((-1.0, 1.0),) * 4 if observation == "scene" else ()
    low, high = np.array((AGENT_RANGE, AGENT_RANGE, FENCE_RANGE, FENCE_RANGE, *turned), np.float32).T
    return np.nextafter(low, np.float32(-2)), np.nextafter(high, np.float32(2))
