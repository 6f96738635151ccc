"""A gripper that moves and turns in space near a ball, as vectors of 192 numbers; a world to stream.

The gripper is a ball around its reference point. An action is its move along its own axes: displacement and rotation
vector. It moves and turns at once. A ball that it touches rolls to another place.
Legend: b triples, t points of a path.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions

NUMBERS, HIDDEN = 192, 384  # 16 and 32 for each number of the state, as in turning.py
REACH, TURN, MOST_TURN = 0.5, 0.7, 2.5  # longest displacement; of turns: standard deviation along an axis, largest
TOUCH = 0.15  # sum of both radii
POINTS = 24  # of a path, for contacts


class Scene(NamedTuple):
    agent: Tensor  # [b, 3] in the unit cube
    rotation: Tensor  # [b, 3, 3]
    object: Tensor  # [b, 3]


class Triple(NamedTuple):
    agent: Tensor
    rotation: Tensor
    object: Tensor
    agent_next: Tensor
    rotation_next: Tensor
    object_next: Tensor
    displacement: Tensor  # [b, 6]
    contact: Tensor  # [b] bool


class Gripper:
    """Half of the balls lie near the gripper, and half of the moves lead to the ball, so that many touch it.

    Observations are the less linear in the state, the larger `bend` is.
    """

    n, device, observation_shape = 6, torch.device("cpu"), (NUMBERS,)

    def __init__(self, bend: float = 4.0) -> None:
        draw = torch.Generator().manual_seed(0)
        self.inner = torch.randn(12, HIDDEN, generator=draw) * bend * (4 / 12) ** 0.5
        self.outer = torch.randn(HIDDEN, NUMBERS, generator=draw) / HIDDEN**0.5

    def sample(self, count: int, generator: torch.Generator) -> Triple:
        scene = self.reset(count, generator)
        return self.step(scene, self.moves(scene, 1, generator)[:, 0], generator)

    def reset(self, count: int, generator: torch.Generator) -> Scene:
        """Scenes with gripper and ball apart; all rotations are equally likely."""
        agent = torch.rand(count, 3, generator=generator)
        columns, triangle = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator))
        columns = columns * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
        rotation = columns * torch.linalg.det(columns).sign()[:, None, None]
        near = torch.rand(count, 1, generator=generator) < 0.5
        apart = torch.rand(count, 3, generator=generator) - agent
        away = _directions(count, generator)
        apart = torch.where(near, away * (TOUCH + 0.45 * torch.rand(count, 1, generator=generator)), apart)
        length = apart.norm(dim=1, keepdim=True)
        return Scene(agent, rotation, agent + apart * (1.02 * TOUCH / length).clamp(min=1))

    def moves(self, scene: Scene, count: int, generator: torch.Generator) -> Tensor:
        """Random actions `[b, count, 6]`."""
        shape = (len(scene.agent), count, 3)
        aimed = torch.rand(*shape[:2], 1, generator=generator) < 0.5
        near = scene.object[:, None] + 0.1 * torch.randn(shape, generator=generator)
        target = torch.where(aimed, near, torch.rand(shape, generator=generator)).clamp(0, 1)
        way = _at_most(target - scene.agent[:, None], REACH)
        turn = _at_most(TURN * torch.randn(shape, generator=generator), MOST_TURN)
        return torch.cat((way @ scene.rotation, turn), -1)

    def step(self, scene: Scene, displacement: Tensor, generator: torch.Generator) -> Triple:
        agent, rotation, thing = scene
        way, turn = displacement.split(3, -1)
        points = agent[:, None] + screw(way, turn) @ rotation.mT  # [b, t, 3]
        contact = (points - thing[:, None]).norm(dim=-1).amin(1) < TOUCH
        push = _directions(len(agent), generator) * (0.15 + 0.35 * torch.rand(len(agent), 1, generator=generator))
        after = torch.where(contact[:, None], thing + push, thing)
        turned = rotation @ torch.linalg.matrix_exp(_skew(turn))
        return Triple(agent, rotation, thing, points[:, -1], turned, after, displacement, contact)

    def render(self, scene: Scene) -> Tensor:
        """A smooth mixture of both positions and of the first two axes, `[b, 192]`."""
        axes = scene.rotation[..., :2].flatten(1) / 4
        state = torch.cat((scene.agent - 0.5, axes, scene.object - 0.5), 1)
        return torch.tanh(torch.tanh(state @ self.inner) @ self.outer)

    def render_pair(self, triple: Triple) -> tuple[Tensor, Tensor]:
        after = Scene(triple.agent_next, triple.rotation_next, triple.object_next)
        return self.render(Scene(triple.agent, triple.rotation, triple.object)), self.render(after)

    def labelled(self, count: int, seed: int = 0) -> Labelled:
        triple = self.sample(count, torch.Generator().manual_seed(seed))
        o, o_next = self.render_pair(triple)
        rows = Transitions(observation=o, action=triple.displacement, next_observation=o_next)
        return Labelled(rows, Truth(triple.agent, triple.object, contact=triple.contact, rotation=triple.rotation))


def screw(way: Tensor, turn: Tensor) -> Tensor:
    """Points `[b, t, 3]` of motions at a constant rate that end at `way` [b, 3] after a turn [b, 3].

    With K the matrix of the turn, a constant velocity v leads to V v after a share s of the time, where V is s times
    the mean of exp(r K) over r from 0 to s.
    """
    share = torch.linspace(0, 1, POINTS + 1)[:, None, None]
    angle, k = turn.norm(dim=-1).clamp(min=1e-4)[:, None, None, None], _skew(turn)[:, None]
    even, odd = (1 - (share * angle).cos()) / angle**2, (share * angle - (share * angle).sin()) / angle**3
    reached = share * torch.eye(3) + even * k + odd * k @ k  # [b, t, 3, 3]
    velocity = torch.linalg.solve(reached[:, -1], way)
    return (reached @ velocity[:, None, :, None])[..., 0]


def _skew(w: Tensor) -> Tensor:
    """The matrices [b, 3, 3] that multiply by vectors [b, 3] as a cross product does."""
    x, y, z = w.unbind(-1)
    nought = torch.zeros_like(x)
    return torch.stack((nought, -z, y, z, nought, -x, -y, x, nought), -1).unflatten(-1, (3, 3))


def _at_most(vector: Tensor, length: float) -> Tensor:
    return vector * (length / vector.norm(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(max=1)


def _directions(count: int, generator: torch.Generator) -> Tensor:
    vector = torch.randn(count, 3, generator=generator)
    return vector / vector.norm(dim=1, keepdim=True).clamp(min=math.ulp(1.0))
