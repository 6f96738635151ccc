"""SpritesTurning: a robot with a front and an object on a plane, sampled, swept and drawn in batches on any device.

As in Sprites, states live in the unit square, and the object lands at random when the robot's swept disc meets it. An
action is the robot's move along its own axes: (forward, sideways, turn), sideways and turns to its left. Some moves
turn the robot in place. Nothing here synchronises with the host.

Legend: b batch, k candidates.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from palpate.envs.drawing import NOSE, ROBOT, paint_figure
from palpate.envs.driving import POINTS, Motion, along, random_moves, stopped, turned
from palpate.envs.options import require_share, require_size
from palpate.envs.sprites import AGENT_COLOUR, Sprites, SpritesConfig
from palpate.envs.sprites import Scene as Plain

VERSION = 2  # of the world: raised when a seed gives other triples or other pictures
ROBOT_RADIUS = 0.09  # so large that small pictures show where it faces
ROBOT_RANGE = (ROBOT_RADIUS, 1 - ROBOT_RADIUS)
NOSE_COLOUR = (250, 240, 120)


class Scene(NamedTuple):
    """True states."""

    agent: Tensor  # [b, 2]
    heading: Tensor  # [b] radians
    object: Tensor  # [b, 2]


class Triple(NamedTuple):
    """One transition of true states."""

    agent: Tensor  # [b, 2]
    heading: Tensor  # [b]
    object: Tensor  # [b, 2]
    agent_next: Tensor  # [b, 2]
    heading_next: Tensor  # [b]
    object_next: Tensor  # [b, 2]
    displacement: Tensor  # [b, 3] the action
    contact: Tensor  # [b] bool: the object was touched and moved


@dataclass(frozen=True, kw_only=True)
class TurningConfig:
    size: int = 100  # pixels on a side
    motion: Motion = "arc"
    contact_share: float | None = 0.5  # requested contact share; None: the share that random motion gives

    def __post_init__(self) -> None:
        require_size(self.size, 1024)
        require_share(self.contact_share)
        if self.motion not in ("arc", "straight"):
            raise ValueError(f"motion is {self.motion!r}; allowed are 'arc' and 'straight'")


class SpritesTurning:
    """The batched world; all randomness comes from a generator."""

    n = 3
    group = "se2"  # of the actions

    def __init__(self, config: TurningConfig | None = None, device: torch.device | str = "cpu") -> None:
        self.config = config or TurningConfig()
        self.recipe: dict[str, Any] = {}  # the id and the options that made it, if known
        self.device = torch.device(device)
        self.observation_shape = (3, self.config.size, self.config.size)
        self._still = Sprites(
            SpritesConfig(size=self.config.size), device, ROBOT_RADIUS
        )  # the same plane, for one straight move
        self._candidates = self._count_candidates()

    def settings(self) -> dict[str, Any]:
        """The settings that determine the triples of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    def compile(self) -> None:
        """Nothing to fuse: a path is swept chord by chord."""

    # States

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        """Random triples: bodies apart in o and in o', a share of contacts as configured."""
        scene = self._scenes((count, self._candidates), generator)
        move = self._moves(scene, generator)
        touched, apart = self._touches(scene, move), self._apart(scene)
        score = apart.int()
        if self.config.contact_share is not None:
            wanted = torch.rand(count, generator=generator, device=self.device) < self.config.contact_share
            score = score + score * (touched == wanted[:, None])
        best = score.argmax(1, keepdim=True)  # [b, 1]
        scene = Scene(*(_chosen(x, best) for x in scene))
        return self._land(scene, _chosen(move, best), _chosen(touched, best), generator)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        """Random scenes with agent and object apart."""
        scene = self._scenes((count, self._candidates), generator)
        best = self._apart(scene).int().argmax(1, keepdim=True)
        return Scene(*(_chosen(x, best) for x in scene))

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Random actions `[b, count, 3]` that keep the robot inside the border."""
        return self._moves(Scene(*(_repeated(x, count) for x in scene)), generator)

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> Triple:
        """Move the robots by actions [b, 3] as far as the border lets them; touched objects land at random."""
        move = stopped(scene.agent, scene.heading, displacement, ROBOT_RANGE, self.config.motion)
        return self._land(scene, move, self._touches(scene, move), generator)

    def _scenes(self, shape: tuple[int, ...], generator: torch.Generator) -> Scene:
        numbers = torch.rand(*shape, 6, generator=generator, device=self.device)
        position, _ = self._still.place(numbers[..., 3:])
        return Scene(self._still.roam(numbers[..., :2]), 2 * math.pi * numbers[..., 2] - math.pi, position)

    def _moves(self, scene: Scene, generator: torch.Generator) -> Tensor:
        """A random action `[..., 3]` for each scene."""
        numbers = torch.rand(*scene.heading.shape, 4, generator=generator, device=self.device)
        target = self._still.roam(numbers[..., :2])
        return random_moves(scene.agent, scene.heading, target, numbers[..., 2:], ROBOT_RANGE, self.config.motion)

    def _count_candidates(self) -> int:
        """Candidates per triple, so that one triple of 1e9 has none of the wanted class."""
        if self.config.contact_share is None:
            return 24  # only bodies that overlap at the start are rejected
        generator = torch.Generator(self.device).manual_seed(0)
        scene = self._scenes((1 << 15,), generator)
        touched, apart = self._touches(scene, self._moves(scene, generator)), self._apart(scene)
        rarest = min(float((touched & apart).float().mean()), float((~touched & apart).float().mean()))
        return math.ceil(math.log(1e-9) / math.log1p(-rarest))

    def _touches(self, scene: Scene, move: Tensor) -> Tensor:
        """Whether the robot's disc touches the object on its path, `[...]` bool."""
        count = 1 if self.config.motion == "straight" else POINTS
        points = along(scene.agent, scene.heading, move, count, self.config.motion)
        still = torch.full_like(scene.heading, math.pi / 4)[..., None].expand(points.shape[:-1])
        starts = Plain(points[..., :-1, :], scene.object[..., None, :], still[..., :-1])
        return self._still.touches(starts, points.diff(dim=-2)).any(-1)

    def _apart(self, scene: Scene) -> Tensor:
        return self._still.apart(Plain(scene.agent, scene.object, torch.full_like(scene.heading, math.pi / 4)))

    def _land(self, scene: Scene, move: Tensor, contact: Tensor, generator: torch.Generator) -> Triple:
        """Put touched objects at random free positions; the others stay."""
        agent_next = (scene.agent + turned(move[..., :2], scene.heading)).clamp(*ROBOT_RANGE)
        heading_next = torch.remainder(scene.heading + move[..., 2] + math.pi, 2 * math.pi) - math.pi
        numbers = self._still.landing_numbers(len(agent_next), generator)
        plain = Plain(scene.agent, scene.object, torch.full_like(scene.heading, math.pi / 4))
        landed = self._still.land(plain, agent_next, contact, numbers)
        return Triple(*scene, agent_next, heading_next, landed.object_next, move, contact)

    # Pictures

    def render(self, scene: Scene) -> Tensor:
        """Draw scenes anti-aliased at their exact positions: `[b, 3, h, w]` uint8."""
        canvas = torch.zeros(len(scene.agent), 3, self.config.size**2, dtype=torch.uint8, device=self.device)
        paint_figure(canvas, scene.agent, ROBOT_RADIUS, AGENT_COLOUR, ROBOT, scene.heading)
        paint_figure(canvas, scene.agent, ROBOT_RADIUS, NOSE_COLOUR, NOSE, scene.heading)
        self._still.paint_object(canvas, scene.object, torch.full_like(scene.heading, math.pi / 4))
        return canvas.view(-1, *self.observation_shape)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        """The pictures before and after, `[b, 3, h, w]` uint8 each."""
        before = Scene(triple.agent, triple.heading, triple.object)
        after = Scene(triple.agent_next, triple.heading_next, triple.object_next)
        o, o_next = self.render(Scene(*map(torch.cat, zip(before, after, strict=True)))).chunk(2)
        return o, o_next


def _chosen(x: Tensor, index: Tensor) -> Tensor:
    """The candidate [b, 1] of each row of x [b, k, ...]."""
    at = index.view(len(x), 1, *(1 for _ in x.shape[2:])).expand(-1, 1, *x.shape[2:])
    return x.gather(1, at)[:, 0]


def _repeated(x: Tensor, count: int) -> Tensor:
    """x [b, ...] as [b, count, ...]."""
    return x[:, None].expand(-1, count, *x.shape[1:])
