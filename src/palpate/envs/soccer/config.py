"""The soccer world's settings; light to import."""

from dataclasses import dataclass
from typing import Literal

from palpate.envs.options import demand_share, demand_size

SCALE = 10.0  # metres on a side of the unit square
AGENT_RANGE = (0.05, 0.95)  # of the agent's centre, both axes
FENCE_RANGE = (0.17, 0.83)  # of the ball's centre, both axes
FENCE_CORNER = 0.2  # radius of the ball's centre line around the fence's corners
FENCE_SIDES = 24  # planes: one for each side of the square, the rest round the corners
GOAL_MOUTH = 0.2  # length of the goal line between the posts
GOAL_DEPTH = 0.06
LEFT_GOAL = (0.22, 0.5)  # middle of the goal line; the net lies to the left
RIGHT_GOAL = (0.78, 0.5)  # the net lies to the right
MOVED_EPSILON = 0.01  # a ball that came to rest nearer than this did not move
LEAST_SEEN = 0.06  # distance at which a ball is still seen by the cameras on the agent
GAP = 1e-3  # between the bodies, at least, before and after every step
TIME_LIMIT = 8.0  # simulated seconds for the ball to come to rest after the agent has stopped

VERSION = 2  # of the world: raised when a seed gives other triples or other pictures

VIEWS = ("third", "first")
FIRST_PERSON = ("east", "north", "west", "south")  # cameras on the agent, in the order of the views
CAMERAS = ("third", "above", *FIRST_PERSON)
ABOVE_RANGE = (-0.08, 1.08)  # what a square picture from above shows, both axes

BOUNDS = {  # of settings, with their unit
    "stride": (0.02, 1, " of the field"),
    "agent_radius": (0.02, 0.06, " of the field"),
    "ball_radius": (0.02, 0.06, " of the field"),
    "agent_speed": (0.1, 1, " field per second"),
    "ball_mass": (0.05, 50, " kilograms"),
    "sliding_friction": (0.1, 1, ""),
    "rolling_friction": (0.1, 1, ""),
    "restitution": (0, 0.9, ""),
}


@dataclass(frozen=True, kw_only=True)
class SoccerConfig:
    """The world's constants; lengths are shares of the unit square's side."""

    view: Literal["third", "first"] = "third"  # one camera beside the field, or four on the agent
    size: int = 100  # pixels on a side of each picture
    contact_share: float | None = 0.3  # wanted share of touched triples; None: whatever random motion gives
    stride: float = 0.3  # farthest that the agent of a random triple goes along an axis; 1: anywhere
    shadows: bool = False  # in the pictures; drawn in software, one takes forty times as long
    agent_radius: float = 0.05
    ball_radius: float = 0.045
    agent_speed: float = 0.6  # per second
    ball_mass: float = 0.43  # kilograms
    sliding_friction: float = 0.6  # of the ball on the grass
    rolling_friction: float = 0.3  # a rolling ball slows by about 0.8 of this, in units of gravity
    restitution: float = 0.6  # of the ball against the agent and the fence

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"view is {self.view!r}; allowed is {' or '.join(map(repr, VIEWS))}")
        demand_size(self.size, 2048)
        demand_share(self.contact_share)
        for name, (low, high, unit) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value!r}; allowed is {low:g} to {high:g}{unit}")
        # An agent at the border must still get behind a ball at the fence.
        room = FENCE_RANGE[0] - AGENT_RANGE[0]
        if self.reach + 2 * GAP > room:
            raise ValueError(
                f"agent_radius is {self.agent_radius} and ball_radius {self.ball_radius}; allowed are at most "
                f"{room - 2 * GAP:g} together, or the agent cannot get behind a ball at the fence"
            )
        if self.view == "first" and self.reach < LEAST_SEEN:
            raise ValueError(
                f"agent_radius is {self.agent_radius} and ball_radius {self.ball_radius}; allowed in first person are "
                f"at least {LEAST_SEEN} together, or a ball at the agent's feet is below all four cameras"
            )

    @property
    def reach(self) -> float:
        """Distance of the centres at which agent and ball touch."""
        return self.agent_radius + self.ball_radius
