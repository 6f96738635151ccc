"""SpritesMany: an agent and several discs on a plane, sampled, swept and drawn in batches on any device.

As in Sprites, states live in the unit square, and a disc that the agent's swept disc meets lands uniformly at random.
Discs keep apart from each other and from the agent. Nothing here synchronises with the host.

Legend: b batch, k objects, c candidates.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from palpate.envs.drawing import paint_disc, paint_figure
from palpate.envs.options import require_share, require_size
from palpate.envs.sprites import AGENT_COLOUR, AGENT_RADIUS, AGENT_RANGE

VERSION = 1  # of the world: raised when a seed gives other triples or other pictures
MOST = 6
RADIUS = 0.06  # of a disc
REACH = AGENT_RADIUS + RADIUS  # distance at which the agent touches a disc
OBJECT_RANGE = (0.15, 0.85)
COLOURS = ((70, 205, 90), (70, 130, 240), (240, 200, 60), (200, 90, 220), (240, 240, 240), (90, 220, 220))
STRAY_COLOUR = (130, 130, 140)
DRIFT = 0.05  # standard deviation of a slow distractor's step, along each axis
TRIES = 64  # places for a disc, of which the first free one is taken: all are taken with a probability below 1e-8
MOVES = 64  # candidates for the move of a triple


class Scene(NamedTuple):
    """True states."""

    agent: Tensor  # [b, 2]
    object: Tensor  # [b, k, 2]
    stray: Tensor  # [b, 2] the distractor


class Triple(NamedTuple):
    """One transition of true states."""

    agent: Tensor  # [b, 2]
    object: Tensor  # [b, k, 2]
    stray: Tensor  # [b, 2]
    agent_next: Tensor  # [b, 2]
    object_next: Tensor  # [b, k, 2]
    stray_next: Tensor  # [b, 2]
    displacement: Tensor  # [b, 2] the action
    contact: Tensor  # [b, k] bool: the object was touched and moved


@dataclass(frozen=True, kw_only=True)
class ManyConfig:
    size: int = 100  # pixels on a side
    objects: int = 3
    alike: bool = False  # all of one colour
    distractor: Literal["none", "slow", "random"] = "none"  # a grey disc that moves by itself
    contact_share: float | None = 0.5  # requested share of triples with any contact; None: as random motion gives

    def __post_init__(self) -> None:
        require_size(self.size, 1024)
        require_share(self.contact_share)
        if type(self.objects) is not int or not 1 <= self.objects <= MOST:
            raise ValueError(f"objects is {self.objects!r}; allowed is 1 to {MOST}")
        if self.distractor not in ("none", "slow", "random"):
            raise ValueError(f"distractor is {self.distractor!r}; allowed are 'none', 'slow' and 'random'")


class SpritesMany:
    """The batched world; all randomness comes from a generator."""

    n = 2

    def __init__(self, config: ManyConfig | None = None, device: torch.device | str = "cpu") -> None:
        self.config = config or ManyConfig()
        self.recipe: dict[str, Any] = {}  # the id and the options that made it, if known
        self.device = torch.device(device)
        self.observation_shape = (3, self.config.size, self.config.size)

    def settings(self) -> dict[str, Any]:
        """The settings that determine the triples of a seed."""
        return asdict(self.config) | {"world_version": VERSION}

    def compile(self) -> None:
        """Nothing to fuse: sampling is a loop over the objects."""

    # States

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        """Random triples, with a share of contacts as configured."""
        scene = self.reset(count, generator)
        moves = self.moves(scene, MOVES, generator)  # [b, c, 2]
        wanted = self._random(generator, count) < (self.config.contact_share or 0.0)
        if self.config.contact_share is None:
            move = moves[:, 0]
        else:
            touches = self.touches(scene, moves).any(2)  # [b, c]
            best = (touches == wanted[:, None]).int().argmax(1)
            move = moves.gather(1, best[:, None, None].expand(-1, 1, 2))[:, 0]
        return self.step(scene, move, generator)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        """Random scenes in which nothing overlaps."""
        agent = self._roam(self._random(generator, count, 2))
        placed: list[Tensor] = []
        for _ in range(self.config.objects):
            placed.append(self._put(agent, placed, generator))
        return Scene(agent, torch.stack(placed, 1), self._roam(self._random(generator, count, 2)))

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Random displacements `[b, count, 2]` of the agents, to anywhere they can go."""
        return self._roam(self._random(generator, len(scene.agent), count, 2)) - scene.agent[:, None]

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> Triple:
        """Move the agents by `displacement`, stopped at the border axis by axis; touched objects land at random."""
        agent = (scene.agent + displacement).clamp(*AGENT_RANGE)
        contact = self.touches(scene, (agent - scene.agent)[:, None])[:, 0]  # [b, k]
        now = list(scene.object.unbind(1))
        for i in range(self.config.objects):
            landed = self._put(agent, [*now[:i], *now[i + 1 :]], generator)
            now[i] = torch.where(contact[:, i, None], landed, now[i])
        stray = self._stray(scene.stray, generator)
        return Triple(*scene, agent, torch.stack(now, 1), stray, agent - scene.agent, contact)

    def touches(self, scene: Scene, displacement: Tensor) -> Tensor:
        """Whether the agent's disc touches each object on its path, `[b, c, k]` bool, for moves [b, c, 2]."""
        offset = (scene.object - scene.agent[:, None])[:, None]  # [b, 1, k, 2]
        move = displacement[:, :, None]  # [b, c, 1, 2]
        t = ((offset * move).sum(-1) / move.square().sum(-1).clamp(min=1e-20)).clamp(0, 1)  # of the nearest point
        return (offset - t[..., None] * move).norm(dim=-1) <= REACH

    def _random(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=self.device)

    def _roam(self, numbers: Tensor) -> Tensor:
        """Positions of the agent, or of the distractor, from uniform numbers [..., 2]."""
        low, high = AGENT_RANGE
        return low + (high - low) * numbers

    def _put(self, agent: Tensor, others: list[Tensor], generator: torch.Generator) -> Tensor:
        """A random place `[b, 2]` for a disc, apart from the agent and from other discs [b, 2]."""
        low, high = OBJECT_RANGE
        places = low + (high - low) * self._random(generator, len(agent), TRIES, 2)
        free = (places - agent[:, None]).norm(dim=-1) > REACH
        for other in others:
            free &= (places - other[:, None]).norm(dim=-1) > 2 * RADIUS
        first = free.int().argmax(1)
        return places.gather(1, first[:, None, None].expand(-1, 1, 2))[:, 0]

    def _stray(self, stray: Tensor, generator: torch.Generator) -> Tensor:
        """Where the distractor goes."""
        if self.config.distractor == "random":
            return self._roam(self._random(generator, *stray.shape))
        drift = torch.randn(stray.shape, generator=generator, device=self.device)
        return (stray + DRIFT * drift).clamp(*AGENT_RANGE)

    # Pictures

    def render(self, scene: Scene) -> Tensor:
        """Draw scenes: `[b, 3, h, w]` uint8."""
        canvas = torch.zeros(len(scene.agent), 3, self.config.size**2, dtype=torch.uint8, device=self.device)
        if self.config.distractor != "none":
            paint_disc(canvas, scene.stray, RADIUS, STRAY_COLOUR)
        paint_figure(canvas, scene.agent, AGENT_RADIUS, AGENT_COLOUR)
        for i, centre in enumerate(scene.object.unbind(1)):
            paint_disc(canvas, centre, RADIUS, COLOURS[0 if self.config.alike else i])
        return canvas.view(-1, *self.observation_shape)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        """The pictures before and after, `[b, 3, h, w]` uint8 each."""
        before = Scene(triple.agent, triple.object, triple.stray)
        after = Scene(triple.agent_next, triple.object_next, triple.stray_next)
        o, o_next = self.render(Scene(*map(torch.cat, zip(before, after, strict=True)))).chunk(2)
        return o, o_next
