"""Lidar: a robot with a laser scanner in a room, and a thing that it can touch, sampled and scanned in batches on any
device.

The room has five walls. The robot keeps to a square in its west, and pillars stand around that square. So they never
stop it, and never hide the thing. Robot and thing are discs; a touched thing lands at random. In `Lidar` the first ray
points east (+x), whatever the robot does, and an action is its displacement. In `LidarTurning` the first ray points
ahead, and an action is (forward, sideways, turn) along the robot's own axes. Nothing here synchronises with the host.

Legend: b batch, k candidates, r rays.
"""

import math
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from palpate.envs.drawing import paint_disc
from palpate.envs.driving import POINTS, Motion, along, random_moves, stopped, turned
from palpate.envs.options import require_share
from palpate.envs.sprites import AGENT_COLOUR, OBJECT_COLOUR

VERSION = 1  # of the world: raised when a seed gives other triples or other scans
ROBOT_RADIUS, THING_RADIUS = 0.05, 0.06
REACH = ROBOT_RADIUS + THING_RADIUS  # distance at which the robot touches the thing
ROBOT_RANGE, THING_RANGE = (0.15, 0.85), (0.2, 0.8)
# Of each wall: the normal that points out, and its distance from the origin along it. Robot and thing stay in the unit
# square, and the room is longer: in a square room scans hardly show which way a robot that turns faces.
WALLS = ((-1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 1.0, 1.0), (0.8944, -0.4472, 1.2522), (-0.7071, 0.7071, 0.6))
PILLARS = ((0.05, 0.3, 0.04), (0.95, 0.55, 0.04), (0.45, 0.95, 0.045), (0.7, 0.05, 0.035))  # x, y, radius
FEWEST_RAYS, MOST_RAYS = 20, 360
MOST_NOISE = 0.1
PILLAR_COLOUR, NOSE_COLOUR = (120, 120, 130), (250, 240, 120)
FARTHEST = 2.5  # measured range
TRIES = 64  # places for the thing, of which the first free one is taken; fewer than a third are not free
MOVED_EPSILON = 0.01  # a touched thing lands at least this far away


class Scene(NamedTuple):
    """True states."""

    agent: Tensor  # [b, 2]
    heading: Tensor  # [b] radians; 0 if the robot does not turn
    object: Tensor  # [b, 2]
    noise: Tensor  # [b, r] of the scan


class Triple(NamedTuple):
    """One transition of true states."""

    agent: Tensor  # [b, 2]
    heading: Tensor  # [b]
    object: Tensor  # [b, 2]
    noise: Tensor  # [b, r]
    agent_next: Tensor  # [b, 2]
    heading_next: Tensor  # [b]
    object_next: Tensor  # [b, 2]
    noise_next: Tensor  # [b, r]
    displacement: Tensor  # [b, n] the action
    contact: Tensor  # [b] bool: the thing was touched and moved


@dataclass(frozen=True, kw_only=True)
class LidarConfig:
    rays: int = 48  # of a scan, over the full circle
    noise: float = 0.0  # standard deviation of each range, in sides of the room
    contact_share: float | None = 0.5  # requested share of triples with contact; None: as random motion gives

    def __post_init__(self) -> None:
        if not isinstance(self.rays, Integral) or not FEWEST_RAYS <= int(self.rays) <= MOST_RAYS:
            raise ValueError(f"rays is {self.rays!r}; allowed is {FEWEST_RAYS} to {MOST_RAYS}")
        if not 0 <= self.noise <= MOST_NOISE:
            raise ValueError(f"noise is {self.noise!r}; allowed is 0 to {MOST_NOISE}")
        require_share(self.contact_share)


class Lidar:
    """The batched world of a robot that does not turn; all randomness comes from a generator."""

    n = 2
    group = "translations"  # of the actions
    motion: Motion = "straight"

    def __init__(self, config: LidarConfig | None = None, device: torch.device | str = "cpu") -> None:
        self.config = config or LidarConfig()
        self.recipe: dict[str, Any] = {}  # the id and the options that made it, if known
        self.device = torch.device(device)
        self.observation_shape = (self.config.rays,)
        self._angles = 2 * math.pi * torch.arange(self.config.rays, device=self.device) / self.config.rays
        self._walls = torch.tensor(WALLS, device=self.device)  # [w, 3]
        self._pillars = torch.tensor(PILLARS, device=self.device)  # [p, 3]
        self._candidates = self._count_candidates()

    def settings(self) -> dict[str, Any]:
        """The settings that determine the triples of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    def compile(self) -> None:
        """Nothing to fuse: a path is swept chord by chord."""

    # States

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        """Random triples: discs apart in o and in o', a share of contacts as configured."""
        agent, heading, thing = self._places((count, self._candidates), generator)
        move = self._moves(agent, heading, generator)
        touched, apart = self._touches(agent, heading, thing, move), _apart(agent, thing)
        score = apart.int()
        if self.config.contact_share is not None:
            wanted = self._random(generator, count) < self.config.contact_share
            score = score + score * (touched == wanted[:, None])
        best = score.argmax(1)
        rows = torch.arange(count, device=self.device)
        scene = Scene(agent[rows, best], heading[rows, best], thing[rows, best], self._noise(count, generator))
        return self._land(scene, move[rows, best], touched[rows, best], generator)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        """Random scenes in which robot and thing are apart."""
        agent, heading, thing = self._places((count, self._candidates), generator)
        best, rows = _apart(agent, thing).int().argmax(1), torch.arange(count, device=self.device)
        return Scene(agent[rows, best], heading[rows, best], thing[rows, best], self._noise(count, generator))

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Random actions `[b, count, n]` that keep the robot in its range; the border cuts the end of a few arcs."""
        agent, heading = scene.agent[:, None].expand(-1, count, -1), scene.heading[:, None].expand(-1, count)
        return self._moves(agent, heading, generator)[..., : self.n]

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> Triple:
        """Move the robots by actions [b, n] as far as the border lets them; touched things land at random."""
        move = self._possible(scene, displacement)
        return self._land(scene, move, self._touches(scene.agent, scene.heading, scene.object, move), generator)

    def _possible(self, scene: Scene, displacement: Tensor) -> Tensor:
        """Actions `[b, 3]` that the border allows, axis by axis."""
        move = (scene.agent + displacement).clamp(*ROBOT_RANGE) - scene.agent
        return torch.cat((move, torch.zeros_like(move[:, :1])), 1)

    def _random(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=self.device)

    def _noise(self, count: int, generator: torch.Generator) -> Tensor:
        shape = (count, self.config.rays)
        if not self.config.noise:
            return torch.zeros(shape, device=self.device)
        return self.config.noise * torch.randn(shape, generator=generator, device=self.device)

    def _places(self, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Random positions [..., 2] of the robot, its headings [...], and positions [..., 2] of the thing."""
        numbers = self._random(generator, *shape, 4)
        heading = torch.zeros(shape, device=self.device)
        return _spread(numbers[..., :2], ROBOT_RANGE), heading, _spread(numbers[..., 2:], THING_RANGE)

    def _moves(self, agent: Tensor, heading: Tensor, generator: torch.Generator) -> Tensor:
        """A random action `[..., 3]` for each robot."""
        target = _spread(self._random(generator, *agent.shape), ROBOT_RANGE)
        return torch.cat((target - agent, torch.zeros_like(heading)[..., None]), -1)

    def _count_candidates(self) -> int:
        """Candidates per triple, so that one triple of 1e9 has none of the wanted class."""
        if self.config.contact_share is None:
            return 24  # only discs that overlap at the start are rejected
        generator = torch.Generator(self.device).manual_seed(0)
        agent, heading, thing = self._places((1 << 15,), generator)
        touched = self._touches(agent, heading, thing, self._moves(agent, heading, generator))
        apart = _apart(agent, thing)
        rarest = min(float((touched & apart).float().mean()), float((~touched & apart).float().mean()))
        return math.ceil(math.log(1e-9) / math.log1p(-rarest))

    def _touches(self, agent: Tensor, heading: Tensor, thing: Tensor, move: Tensor) -> Tensor:
        """Whether the robot's disc touches the thing on its path, `[...]` bool."""
        points = along(agent, heading, move, 1 if self.motion == "straight" else POINTS, self.motion)
        chord, offset = points.diff(dim=-2), thing[..., None, :] - points[..., :-1, :]
        t = ((offset * chord).sum(-1) / chord.square().sum(-1).clamp(min=1e-20)).clamp(0, 1)  # of the nearest point
        return ((offset - t[..., None] * chord).norm(dim=-1) <= REACH).any(-1)

    def _land(self, scene: Scene, move: Tensor, contact: Tensor, generator: torch.Generator) -> Triple:
        """Put touched things at random free positions; the others stay."""
        agent_next = (scene.agent + turned(move[..., :2], scene.heading)).clamp(*ROBOT_RANGE)
        heading_next = torch.remainder(scene.heading + move[..., 2] + math.pi, 2 * math.pi) - math.pi
        places = _spread(self._random(generator, len(move), TRIES, 2), THING_RANGE)
        free = _apart(agent_next[:, None], places)
        free &= (places - scene.object[:, None]).norm(dim=-1) > MOVED_EPSILON
        landed = places[torch.arange(len(move), device=self.device), free.int().argmax(1)]
        thing_next = torch.where(contact[:, None], landed, scene.object)
        noise_next = self._noise(len(move), generator)
        displacement = self._achieved(scene, agent_next, move)
        return Triple(*scene, agent_next, heading_next, thing_next, noise_next, displacement, contact)

    def _achieved(self, scene: Scene, agent_next: Tensor, move: Tensor) -> Tensor:
        """The action `[b, n]` of a triple."""
        return agent_next - scene.agent

    # Scans

    def render(self, scene: Scene) -> Tensor:
        """Scans: the distance from the robot's centre to the nearest surface along each ray, `[b, r]`, in sides of the
        room. Rays run counter-clockwise."""
        angle = scene.heading[:, None] + self._angles
        ray = torch.stack((angle.cos(), angle.sin()), -1)  # [b, r, 2]
        ranges = torch.full(ray.shape[:2], FARTHEST, device=self.device)
        for wall in self._walls.unbind(0):
            ranges = torch.minimum(ranges, _to_wall(scene.agent, wall, ray))
        for x, y, radius in self._pillars.unbind(0):
            ranges = torch.minimum(ranges, _to_disc(torch.stack((x, y)) - scene.agent, radius, ray))
        ranges = torch.minimum(ranges, _to_disc(scene.object - scene.agent, THING_RADIUS, ray))
        return (ranges + scene.noise).clamp(0, FARTHEST)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        """The scans before and after, `[b, r]` each."""
        after = Scene(triple.agent_next, triple.heading_next, triple.object_next, triple.noise_next)
        return self.render(Scene(triple.agent, triple.heading, triple.object, triple.noise)), self.render(after)

    def above(self, scene: Scene, size: int = 256) -> Tensor:
        """The rooms from above, for the eye: `[b, 3, size, size]` uint8."""
        canvas = torch.zeros(len(scene.agent), 3, size**2, dtype=torch.uint8, device=self.device)
        for x, y, radius in PILLARS:
            centre = torch.tensor([[x, y]], device=self.device).expand(len(scene.agent), -1)
            paint_disc(canvas, centre, radius, PILLAR_COLOUR)
        paint_disc(canvas, scene.object, THING_RADIUS, OBJECT_COLOUR)
        paint_disc(canvas, scene.agent, ROBOT_RADIUS, AGENT_COLOUR)
        ahead = torch.stack((scene.heading.cos(), scene.heading.sin()), 1)
        paint_disc(canvas, scene.agent + ROBOT_RADIUS / 2 * ahead, ROBOT_RADIUS / 3, NOSE_COLOUR)
        return canvas.view(-1, 3, size, size)


class LidarTurning(Lidar):
    """The batched world of a robot that turns, and its scanner with it. It drives along arcs."""

    n = 3
    group = "se2"
    motion = "arc"

    def _places(self, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        agent, _, thing = super()._places(shape, generator)
        return agent, 2 * math.pi * self._random(generator, *shape) - math.pi, thing

    def _moves(self, agent: Tensor, heading: Tensor, generator: torch.Generator) -> Tensor:
        target = _spread(self._random(generator, *agent.shape), ROBOT_RANGE)
        numbers = self._random(generator, *agent.shape)
        return random_moves(agent, heading, target, numbers, ROBOT_RANGE, self.motion)

    def _possible(self, scene: Scene, displacement: Tensor) -> Tensor:
        """The part of actions [b, 3] until the border stops the robot on its path."""
        return stopped(scene.agent, scene.heading, displacement, ROBOT_RANGE, self.motion)

    def _achieved(self, scene: Scene, agent_next: Tensor, move: Tensor) -> Tensor:
        return move


def _spread(numbers: Tensor, between: tuple[float, float]) -> Tensor:
    """Positions from uniform numbers."""
    low, high = between
    return low + (high - low) * numbers


def _apart(agent: Tensor, thing: Tensor) -> Tensor:
    """Whether robot and thing do not overlap, `[...]` bool."""
    return (agent - thing).norm(dim=-1) > REACH


def _to_wall(start: Tensor, wall: Tensor, ray: Tensor) -> Tensor:
    """Distances `[b, r]` from starts [b, 2] to a wall [3] along unit vectors [b, r, 2]; infinite if they lead away."""
    ahead = ray @ wall[:2]
    return torch.where(ahead > 1e-9, (wall[2] - start @ wall[:2])[:, None] / ahead.clamp(min=1e-9), torch.inf)


def _to_disc(offset: Tensor, radius: Tensor | float, ray: Tensor) -> Tensor:
    """Distances `[b, r]` along unit vectors [b, r, 2] to a disc at `offset` [b, 2]; infinite where a ray misses it."""
    ahead = (offset[:, None] * ray).sum(-1)
    inner = ahead.square() - offset.square().sum(-1, keepdim=True) + radius**2
    return torch.where((inner >= 0) & (ahead > 0), ahead - inner.clamp(min=0).sqrt(), torch.inf)
