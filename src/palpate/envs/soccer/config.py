"""The soccer world's settings and constants; light to import. Lengths are shares of the unit square's side."""

import math
from dataclasses import dataclass
from typing import Literal

from palpate.envs.options import require_share, require_size

SCALE = 10.0  # metres on a side of the unit square
AGENT_RADIUS, BALL_RADIUS = 0.05, 0.045
REACH = AGENT_RADIUS + BALL_RADIUS  # distance of the centres at which agent and ball touch
AGENT_RANGE = (0.05, 0.95)  # of the agent's centre, both axes
FENCE_RANGE = (0.17, 0.83)  # of the ball's centre, both axes; an agent at the border gets behind a ball at the fence
FENCE_CORNER = 0.2  # radius of the ball's centre line around the fence's corners
FENCE_SIDES = 24  # planes: one for each side of the square, the rest round the corners
GOAL_MOUTH = 0.2  # length of the goal line between the posts
GOAL_DEPTH = 0.06
LEFT_GOAL = (0.22, 0.5)  # middle of the goal line; the net lies to the left
RIGHT_GOAL = (0.78, 0.5)  # the net lies to the right
MOVED_EPSILON = 0.01  # a ball that came to rest nearer than this did not move
GAP = 1e-3  # between the bodies, at least, before and after every step
MOST_BALLS = 4

VERSION = 2  # of the world: raised when a seed gives other triples or other pictures

FIRST_PERSON = ("east", "north", "west", "south")  # cameras on the agent, in the order of the views
AROUND = ("front", "left", "back", "right")  # cameras that turn with the agent, in the order of the views
CAMERAS = ("third", "above", *FIRST_PERSON, *AROUND, "ahead")
FIGURE_FACES = -math.pi / 2  # heading of an agent that does not turn: it faces the camera beside the field
ABOVE_RANGE = (-0.08, 1.08)  # what a square picture from above shows, both axes


@dataclass(frozen=True, kw_only=True)
class SoccerConfig:
    view: Literal["third", "first"] = "third"  # one camera beside the field, or four on the agent
    size: int = 100  # pixels on a side of each picture
    contact_share: float | None = 0.3  # requested contact share; None: the share that random motion gives
    stride: float = 0.3  # longest move of a random triple along an axis; 1: anywhere
    agent_speed: float = 0.6  # per second
    shadows: bool = False  # in the pictures; software drawing is then forty times slower
    balls: int = 1  # each of its own colour

    def __post_init__(self) -> None:
        _require_name("view", self.view, ("third", "first"))
        _require_field(self)


@dataclass(frozen=True, kw_only=True)
class DrivingConfig:
    view: Literal["around", "ahead"] = "around"  # four cameras of 90 degrees that turn with the agent, or one of 120
    sideways: bool = True  # actions are (forward, sideways, turn); otherwise (forward, turn): a differential drive
    motion: Literal["arc", "straight"] = "arc"  # the agent drives and turns at once; straight: it drives, then turns
    size: int = 100  # pixels on a side of each picture
    contact_share: float | None = 0.3  # requested contact share; None: the share that random motion gives
    stride: float = 0.3  # longest move of a random triple along an axis of the field; 1: anywhere
    agent_speed: float = 0.6  # per second
    shadows: bool = False  # in the pictures; software drawing is then forty times slower
    balls: int = 1  # each of its own colour

    def __post_init__(self) -> None:
        _require_name("view", self.view, ("around", "ahead"))
        _require_name("motion", self.motion, ("arc", "straight"))
        _require_field(self)


def _require_name(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed is {' or '.join(map(repr, allowed))}")


def require_balls(balls: int) -> None:
    if type(balls) is not int or not 1 <= balls <= MOST_BALLS:
        raise ValueError(f"balls is {balls!r}; allowed is 1 to {MOST_BALLS}")


def _require_field(config: SoccerConfig | DrivingConfig) -> None:
    require_size(config.size, 2048)
    require_share(config.contact_share)
    require_balls(config.balls)
    for name, low in (("stride", 0.02), ("agent_speed", 0.1)):
        value = getattr(config, name)
        if not low <= value <= 1:
            raise ValueError(f"{name} is {value!r}; allowed is {low:g} to 1 of the field")
