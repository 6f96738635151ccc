"""A task in the soccer world: kick the ball into the right goal (paper, Sec. 5.3)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium
import numpy as np

from palpate.envs.options import configured
from palpate.envs.shells import displacement, happened
from palpate.envs.soccer import Scene, Soccer, SoccerConfig
from palpate.envs.soccer.cameras import demand_shown
from palpate.envs.soccer.config import AGENT_RANGE, FENCE_RANGE, GAP, GOAL_DEPTH, GOAL_MOUTH, RIGHT_GOAL
from palpate.envs.soccer.window import Window

MAX_STEPS = 20  # of an episode, the paper's; Gymnasium's TimeLimit truncates there
GOAL = (RIGHT_GOAL[0] + GOAL_DEPTH / 2, RIGHT_GOAL[1])  # barycentre: between goal line and net, between the posts
CENTRE = (0.5, 0.5)
WHOLE_RANGE = round(AGENT_RANGE[1] - AGENT_RANGE[0], 6)


@dataclass(frozen=True, kw_only=True)
class GoalConfig:
    """What the paper leaves open; lengths are shares of the unit square's side."""

    # state: [agent, ball]; scene: and the ball's orientation, all that `draw` needs. Neither draws anything.
    observation: Literal["picture", "state", "scene"] = "picture"
    ball: Literal["centre", "random"] = "centre"  # where it starts; the paper's sentence says both
    max_step: float = 0.3  # largest displacement along an axis
    # Half of Soccer's: a ball hit at full speed bounces around the field wherever it was aimed, unless to 0.003.
    agent_speed: float = 0.3
    end_on_goal: bool = True  # whether a goal terminates the episode: the paper only says how long one is at most
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
class SoccerGoalEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One game. Observations are pictures [h, w, 3] in third person, the true state [agent, ball], or the scene, which
    has the ball's orientation too; an action is the agent's wanted displacement, and a step lasts until the ball rests.

    The reward is the negative distance between ball and goal, barycentre to barycentre, after the step; so it is never
    positive, and an episode's return says how soon the ball came how near. `info` holds what `SoccerEnv`'s does, and
    `goal`, whether the ball lies in the right goal. `reset(options={"agent": ..., "object": ...})` places one or both.
    `width` and `height` are those of `render`, the observation's size when left out.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(
        self, render_mode: str | None = None, width: int | None = None, height: int | None = None, **options: Any
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; allowed are None, 'rgb_array' and 'human'")
        self.render_mode = render_mode
        self.config = configured(GoalConfig, options)
        self.world = Soccer(SoccerConfig(view="third", size=self.config.size, agent_speed=self.config.agent_speed))
        self._window = Window(self.world.config) if render_mode == "human" else None
        size, reach = self.config.size, np.float32(self.config.max_step)
        self._shown = demand_shown(*(size if side is None else side for side in (width, height)))
        self.observation_space = (
            gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
            if self.config.observation == "picture"
            else gymnasium.spaces.Box(*_bounds(self.config.observation), dtype=np.float32)
        )
        self.action_space = gymnasium.spaces.Box(-reach, reach, (2,), np.float32)
        self.scene: Scene | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.scene = self._start(options or {})
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.scene is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        before, most = self.scene, np.float32(self.config.max_step)
        outcome = self.world.step(before, np.clip(displacement(action), -most, most))
        self.scene = Scene(outcome.agent[None], outcome.object[None], outcome.orientation[None])
        info = self._info() | happened(before, outcome)
        terminated = self.config.end_on_goal and info["goal"]
        return self._observation(), -math.dist(outcome.object, GOAL), terminated, False, info

    def render(self) -> np.ndarray | None:
        """What the camera beside the field sees, whatever the observation; with "human", a window shows it."""
        if self.render_mode != "rgb_array" or self.scene is None:
            return None
        return self.world.render(self.scene, "third", *self._shown)[0]

    def close(self) -> None:
        self.world.close()
        if self._window is not None:
            self._window.close()

    def _start(self, options: dict[str, Any]) -> Scene:
        unknown = options.keys() - {"agent", "object"}
        if unknown:
            raise ValueError(
                f"options of reset are {sorted(options)}; allowed are 'agent' and 'object', two numbers each"
            )
        scene = self.world.reset(self.np_random)
        ball = CENTRE if self.config.ball == "centre" else scene.object[0]
        position = _place(options.get("object", ball), "object", FENCE_RANGE)
        while True:
            place = options.get("agent", self.np_random.uniform(*AGENT_RANGE, 2))
            agent = _place(place, "agent", AGENT_RANGE)
            if math.dist(agent, position) > self.world.config.reach + GAP:
                return Scene(agent[None], position[None], scene.orientation)
            if "agent" in options:
                raise ValueError(
                    f"agent is {place} and the ball at {position.tolist()}; allowed are places more than "
                    f"{self.world.config.reach + GAP:g} apart"
                )

    def _observation(self) -> np.ndarray:
        assert self.scene is not None
        if self._window is not None:
            self._window.show(self.scene)
        if self.config.observation == "picture":
            return self.world.observe(self.scene)[0]
        return np.concatenate([x[0] for x in (self.scene if self.config.observation == "scene" else self.scene[:2])])

    def _info(self) -> dict[str, Any]:
        assert self.scene is not None
        states = {name: value[0].copy() for name, value in self.scene._asdict().items()}
        return states | {"goal": scored(self.scene.object[0])}


def _place(place: Any, name: str, allowed: tuple[float, float]) -> np.ndarray:
    low, high = allowed
    found = np.asarray(place, dtype=np.float32)
    if found.shape != (2,) or not ((found >= np.float32(low)) & (found <= np.float32(high))).all():
        raise ValueError(f"{name} is {place}; allowed are two numbers from {low} to {high}")
    return found


def _bounds(observation: str) -> tuple[np.ndarray, np.ndarray]:
    """Of a state or a scene; rounding in float32 is inside."""
    turned = ((-1.0, 1.0),) * 4 if observation == "scene" else ()
    low, high = np.array((AGENT_RANGE, AGENT_RANGE, FENCE_RANGE, FENCE_RANGE, *turned), np.float32).T
    return np.nextafter(low, np.float32(-2)), np.nextafter(high, np.float32(2))
