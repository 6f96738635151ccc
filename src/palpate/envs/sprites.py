"""Sprites: an agent and an object on a plane, sampled, swept and drawn in batches on any device (paper, Sec. 5.1).

States live in the unit square, x to the right and y up. In contacts the agent is a disc; the object is a rectangle (the
diamond is a square on its corner). It moves if and only if the agent's swept disc meets it, and then lands uniformly at
random. Nothing here synchronises with the host, so sampling and drawing may be captured in a CUDA graph.

Legend: b batch, k candidates, h and w picture height and width.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from palpate.envs.drawing import paint, paint_figure
from palpate.envs.options import require_share, require_size

VERSION = 1  # of the world: raised when a seed gives other triples or other pictures

AGENT_COLOUR = (235, 60, 50)
OBJECT_COLOUR = (70, 205, 90)
CHECKER_COLOURS = ((12, 22, 92), (36, 84, 212))
CHECKER_SIDE = 0.25  # of the picture
MAST_COLOUR, LARGEST_MAST = (120, 120, 130), 0.2
MOVED_EPSILON = 0.01  # a touched object lands at least this far away: one pixel of 100
OBJECT_RANGE = (0.2, 0.8)
AGENT_RADIUS = 0.045
AGENT_RANGE = (AGENT_RADIUS, 1 - AGENT_RADIUS)
HALF_SIDES = {"diamond": (0.085 / math.sqrt(2),) * 2, "rectangle": (0.165, 0.015)}


class Scene(NamedTuple):
    """True states."""

    agent: Tensor  # [b, 2]
    object: Tensor  # [b, 2]
    angle: Tensor  # [b] of the object's long axis, radians; constant for the diamond


class Triple(NamedTuple):
    """One transition of true states."""

    agent: Tensor  # [b, 2]
    object: Tensor  # [b, 2]
    angle: Tensor  # [b]
    agent_next: Tensor  # [b, 2]
    object_next: Tensor  # [b, 2]
    angle_next: Tensor  # [b]
    displacement: Tensor  # [b, 2] the action
    contact: Tensor  # [b] bool: the object was touched and moved
    visible: Tensor  # [b] bool: the mast does not hide the object's centre in o


@dataclass(frozen=True, kw_only=True)
class SpritesConfig:
    size: int = 100  # pixels on a side
    body: Literal["diamond", "rectangle"] = "diamond"
    background: bool = False  # a checker nine times the picture that moves with the agent
    mast: float = 0.0  # half width of a mast on the agent, up to the picture's edge, that hides what is behind it
    contact_share: float | None = 0.5  # requested contact share; None: the share that random motion gives

    def __post_init__(self) -> None:
        require_size(self.size, 1024)
        if self.body not in HALF_SIDES:
            raise ValueError(f"body is {self.body!r}; allowed are {' and '.join(map(repr, HALF_SIDES))}")
        require_share(self.contact_share)
        if not 0 <= self.mast <= LARGEST_MAST:
            raise ValueError(f"mast is {self.mast!r}; allowed is 0 to {LARGEST_MAST}")

    @property
    def half_sides(self) -> tuple[float, float]:
        return HALF_SIDES[self.body]

    @property
    def turns(self) -> bool:
        """Whether the object has an orientation that changes."""
        return self.body == "rectangle"


class Sprites:
    """The batched world: `sample` true triples, `render` scenes; both take their randomness from a generator."""

    n = 2

    def __init__(
        self,
        config: SpritesConfig | None = None,
        device: torch.device | str = "cpu",
        radius: float = AGENT_RADIUS,  # of the agent's disc
    ) -> None:
        self.config = config or SpritesConfig()
        self.radius, self.range = radius, (radius, 1 - radius)
        self.recipe: dict[str, Any] = {}  # the id and the options that made it, if known
        self.device = torch.device(device)
        self.observation_shape = (3, self.config.size, self.config.size)
        self._half = torch.tensor(self.config.half_sides, device=self.device)
        self._corners = self._half * torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], device=self.device)
        self._pixels = torch.arange(self.config.size, device=self.device)
        self._candidates = self._count_candidates()
        self._compiled = False

    def settings(self) -> dict[str, Any]:
        """The settings that determine the triples of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    def compile(self) -> None:
        """Fuse the hundreds of small kernels of sampling and drawing."""
        if self._compiled:
            return
        self._compiled = True
        self._arrange = torch.compile(self._arrange)  # type: ignore[method-assign]
        self.render = torch.compile(self.render)  # type: ignore[method-assign]

    # States

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        """Random triples: bodies apart in o and in o', a share of contacts as configured."""
        shape = (count, self._candidates, 7)
        return self._arrange(
            torch.rand(shape, generator=generator, device=self.device),
            torch.rand(count, generator=generator, device=self.device),
            self.landing_numbers(count, generator),
        )

    def _arrange(self, numbers: Tensor, coin: Tensor, landing: Tensor) -> Triple:
        """Triples from uniform numbers: the best of k candidates each.

        This is rejection sampling without a loop. In one triple of 1e9 no candidate is of the wanted class, and the
        triple is of the other class.
        """
        scene = Scene(self.roam(numbers[..., 0:2]), *self.place(numbers[..., 2:5]))
        target = self.roam(numbers[..., 5:7])
        touched = self.touches(scene, target - scene.agent)  # [b, k]
        score = self.apart(scene).int()
        if self.config.contact_share is not None:
            score = score + score * (touched == (coin < self.config.contact_share)[:, None])
        best = score.argmax(dim=1, keepdim=True)  # [b, 1]
        at = best[..., None].expand(-1, -1, 2)
        agent, position, agent_next = (x.gather(1, at)[:, 0] for x in (scene.agent, scene.object, target))
        scene = Scene(agent, position, scene.angle.gather(1, best)[:, 0])
        return self.land(scene, agent_next, touched.gather(1, best)[:, 0], landing)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        """Random scenes with agent and object apart."""
        triple = self.sample(count, generator)
        return Scene(triple.agent, triple.object, triple.angle)

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Random displacements `[b, count, 2]` of the agents, to anywhere they can go."""
        numbers = torch.rand(len(scene.agent), count, 2, generator=generator, device=self.device)
        return self.roam(numbers) - scene.agent[:, None]

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> Triple:
        """Move the agents by `displacement`, stopped at the border axis by axis; touched objects land at random."""
        agent_next = (scene.agent + displacement).clamp(*self.range)
        contact = self.touches(scene, agent_next - scene.agent)
        return self.land(scene, agent_next, contact, self.landing_numbers(len(agent_next), generator))

    def _count_candidates(self) -> int:
        """Candidates per triple, so that one triple of 1e9 has none of the wanted class."""
        if self.config.contact_share is None:
            return 24  # only bodies that overlap at the start are rejected
        generator = torch.Generator(self.device).manual_seed(0)
        numbers = torch.rand(1 << 15, 7, generator=generator, device=self.device)
        scene = Scene(self.roam(numbers[:, 0:2]), *self.place(numbers[:, 2:5]))
        target = self.roam(numbers[:, 5:7])
        touched, apart = self.touches(scene, target - scene.agent), self.apart(scene)
        rarest = min(float((touched & apart).float().mean()), float((~touched & apart).float().mean()))
        return math.ceil(math.log(1e-9) / math.log1p(-rarest))

    def roam(self, numbers: Tensor) -> Tensor:
        """Positions of the agent from uniform numbers [..., 2]."""
        low, high = self.range
        return low + (high - low) * numbers

    def place(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [..., 2] and angles [...] of the object from uniform numbers [..., 3]."""
        low, high = OBJECT_RANGE
        position = low + (high - low) * numbers[..., :2]
        if self.config.turns:
            return position, math.pi * numbers[..., 2]
        return position, torch.full_like(numbers[..., 2], math.pi / 4)

    def landing_numbers(self, count: int, generator: torch.Generator) -> Tensor:
        tries = 64  # a position is taken with probability < 0.3, so all are with < 1e-30
        return torch.rand(count, tries, 3, generator=generator, device=self.device)

    def land(self, scene: Scene, agent_next: Tensor, contact: Tensor, numbers: Tensor) -> Triple:
        """Put touched objects at random free positions; the others stay."""
        position, angle = self.place(numbers)
        free = self.apart(Scene(agent_next[:, None].expand_as(position), position, angle))
        free &= (position - scene.object[:, None]).norm(dim=-1) > MOVED_EPSILON
        first = free.int().argmax(dim=1, keepdim=True)
        landed = position.gather(1, first[..., None].expand(-1, -1, 2))[:, 0]
        turned = angle.gather(1, first)[:, 0]
        return Triple(
            *scene,
            agent_next,
            torch.where(contact[:, None], landed, scene.object),
            torch.where(contact, turned, scene.angle),
            agent_next - scene.agent,
            contact,
            self.visible(scene),
        )

    def _in_body_frame(self, points: Tensor, angle: Tensor) -> Tensor:
        cos, sin = angle.cos(), angle.sin()
        x, y = points.unbind(-1)
        return torch.stack((cos * x + sin * y, cos * y - sin * x), -1)

    def apart(self, scene: Scene) -> Tensor:
        """Disc and rectangle do not overlap."""
        offset = self._in_body_frame(scene.agent - scene.object, scene.angle)
        return self._box_distance(offset) > self.radius

    def _box_distance(self, offset: Tensor) -> Tensor:
        return (offset.abs() - self._half).clamp(min=0).norm(dim=-1)

    def touches(self, scene: Scene, displacement: Tensor) -> Tensor:
        """Whether the agent's disc touches the object on its path, `[b]` bool.

        The path crosses the rectangle, or an end of the path or a corner comes within the agent's radius: the distance
        of two disjoint convex sets is attained at a vertex of one of them.
        """
        start = self._in_body_frame(scene.agent - scene.object, scene.angle)
        move = self._in_body_frame(displacement, scene.angle)
        nearest = torch.minimum(self._box_distance(start), self._box_distance(start + move))
        length2 = move.square().sum(-1).clamp(min=1e-20)
        for corner in self._corners:
            t = (((corner - start) * move).sum(-1) / length2).clamp(0, 1)
            nearest = torch.minimum(nearest, (start + t[..., None] * move - corner).norm(dim=-1))
        # Slabs: the parameters at which the line enters and leaves each pair of sides.
        inverse = 1 / torch.where(move.abs() < 1e-12, 1e-12, move)
        one, two = (-self._half - start) * inverse, (self._half - start) * inverse
        enter = torch.minimum(one, two).amax(-1).clamp(min=0)
        leave = torch.maximum(one, two).amin(-1).clamp(max=1)
        return (nearest <= self.radius) | (enter <= leave)

    def visible(self, scene: Scene) -> Tensor:
        """Whether the mast leaves the object's centre in view, `[b]` bool."""
        across, up = (scene.object - scene.agent).unbind(-1)
        return (across.abs() > self.config.mast) | (up < 0)

    # Pictures

    def render(self, scene: Scene) -> Tensor:
        """Draw scenes anti-aliased at their exact positions: `[b, 3, h, w]` uint8."""
        if self.config.background:
            canvas = self._checker(scene.agent)
        else:
            canvas = torch.zeros(len(scene.agent), 3, self.config.size**2, dtype=torch.uint8, device=self.device)
        paint_figure(canvas, scene.agent, self.radius, AGENT_COLOUR)
        self.paint_object(canvas, scene.object, scene.angle)
        canvas = canvas.view(-1, *self.observation_shape)
        return self._behind_mast(canvas, scene.agent) if self.config.mast else canvas

    def paint_object(self, canvas: Tensor, centre: Tensor, angle: Tensor) -> None:
        """Paint the object into pictures [b, 3, h*w]."""
        reach = math.hypot(*self.config.half_sides)
        paint(canvas, centre, reach, OBJECT_COLOUR, lambda at: self._box_coverage(at, angle))

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        """The pictures before and after, `[b, 3, h, w]` uint8 each."""
        before = Scene(triple.agent, triple.object, triple.angle)
        after = Scene(triple.agent_next, triple.object_next, triple.angle_next)
        o, o_next = self.render(Scene(*map(torch.cat, zip(before, after, strict=True)))).chunk(2)
        return o, o_next

    def _behind_mast(self, canvas: Tensor, agent: Tensor) -> Tensor:
        """The pictures with the mast in front, anti-aliased."""
        size = self.config.size
        across = (self._pixels + 0.5) - agent[:, :1] * size  # [b, w]
        up = agent[:, 1:] * size - (size - 0.5 - self._pixels)  # [b, h], below 0 above the agent
        alpha = (self.config.mast * size - across.abs() + 0.5).clamp(0, 1)[:, None] * (0.5 - up).clamp(0, 1)[:, :, None]
        colour = torch.tensor(MAST_COLOUR, device=self.device).view(1, 3, 1, 1)
        under = canvas.float()
        return (under + alpha[:, None] * (colour - under) + 0.5).to(torch.uint8)

    def _checker(self, agent: Tensor) -> Tensor:
        """The part of the checker in view, box-filtered; a product of two one-dimensional waves, so cheap."""
        size = self.config.size
        corner = 2 * agent  # of the view, in picture sides, in a background of 3 x 3
        waves = []
        for start, pixel in ((corner[:, :1], self._pixels), (corner[:, 1:], self._pixels.flip(0))):
            along = (start + (pixel + 0.5) / size) / CHECKER_SIDE  # [b, size], in squares
            to_edge = 0.5 - ((along % 2) - 1).abs()  # +-0.5 inside a square, 0 on its edge
            waves.append((to_edge * 2 * CHECKER_SIDE * size).clamp(-1, 1))
        light = 0.5 + 0.5 * waves[0][:, None, :] * waves[1][:, :, None]  # [b, h, w]
        dark, bright = CHECKER_COLOURS
        channels = [low + (high - low) * light for low, high in zip(dark, bright, strict=True)]
        return torch.stack([(channel + 0.5).to(torch.uint8) for channel in channels], 1).flatten(2)

    def _box_coverage(self, at: tuple[Tensor, Tensor], angle: Tensor) -> Tensor:
        """Box filter of the rectangle in its own frame: correct even where it is thinner than a pixel."""
        cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
        x, y = at
        alpha: Tensor | float = 1.0
        for offset, half in zip((cos * x + sin * y, cos * y - sin * x), self.config.half_sides, strict=True):
            scaled, edge = offset * self.config.size, half * self.config.size
            alpha = alpha * ((edge - scaled + 0.5).clamp(0, 1) - (-edge - scaled + 0.5).clamp(0, 1))
        assert isinstance(alpha, Tensor)
        return alpha
