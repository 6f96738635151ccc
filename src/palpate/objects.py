"""From a network's output to objects: positions in the common frame, poses, and the bodies around them.

Legend: b batch, k objects, n ambient dimension, p numbers of a pose, d directions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from palpate.bodies.base import Body, clearance
from palpate.geometry import Path, around, border
from palpate.groups.base import Group
from palpate.refine import Correction

BORDER_POINTS, BORDER_DIRECTIONS = 120, 720
FIRST_READOUT = 0.1  # standard deviation of new weights
FIRST_HIDDEN, NEVER = -4.0, -1e4  # log-odds of being hidden: at the start of training, and without such an output
BodyCall = Callable[[Body, Tensor, Tensor], Tensor]  # body, its positions [b, n] and poses [b, p]


class Objects(NamedTuple):
    """k objects in each of b observations."""

    position: Tensor  # [b, k, n]
    pose: Tensor  # [b, k, p]
    hidden: Tensor  # [b, k] log-odds that the object is hidden

    def repeated(self, count: int) -> "Objects":
        """Each row repeated `count` times."""
        return Objects(*(x.repeat_interleave(count, 0) for x in self))


class ObjectHead(nn.Module):
    """Reads objects from phi_ext's output [b, k * (n + pose_width + 1)]; the last number is for `hidden`.

    With cameras on the agent (`carried`), the output is relative to the agent. Without `hides`, there is no output for
    `hidden`. A `correction` applies after training.
    """

    def __init__(
        self,
        group: Group,
        bodies: Sequence[Body],
        *,
        carried: bool = False,
        hides: bool = False,
        correction: Correction | None = None,
    ) -> None:
        super().__init__()
        self.group, self.carried, self.hides = group, carried, hides
        self.bodies = nn.ModuleList(bodies)
        self.correction = correction
        self.placed = nn.Buffer(torch.zeros(len(bodies), dtype=torch.bool))  # contacts explained the changes once
        # Until an object may be hidden, it counts as visible, and `hidden` is not trained.
        self.may_hide = nn.Buffer(torch.zeros(len(bodies), dtype=torch.bool))
        self.offset = nn.Buffer(torch.zeros(len(bodies), group.n))  # of the positions, if a search has moved them
        self.width = len(bodies) * self._each

    @property
    def _each(self) -> int:
        return self.group.n + self[0].pose_width + self.hides

    def __len__(self) -> int:
        return len(self.bodies)

    def __getitem__(self, index: int) -> Body:
        body = self.bodies[index]
        assert isinstance(body, Body)
        return body

    def forward(self, raw: Tensor, z_int: Tensor) -> Objects:
        position = self.uncorrected(raw, z_int)
        raw = raw.unflatten(-1, (len(self), self._each))
        rest = raw[..., self.group.n : self._each - self.hides]
        if self.correction is not None and not self.training:
            position = self.correction(position)
        pose = torch.stack([self[i].pose(rest[:, i]) for i in range(len(self))], 1)
        hidden = torch.where(self.may_hide & self.hides, raw[..., -1] + FIRST_HIDDEN, NEVER)
        return Objects(position, pose, hidden)

    def uncorrected(self, raw: Tensor, z_int: Tensor) -> Tensor:
        """Positions `[b, k, n]` without the correction."""
        seen = raw.unflatten(-1, (len(self), self._each))[..., : self.group.n]
        return self.offset + (self.group.place(z_int[:, None], seen) if self.carried else seen)

    def clearance(self, objects: Objects, path: Path) -> Tensor:
        """Clearance of each path from each object, `[b, k]`."""
        return self._each_body(lambda body, z, pose: clearance(body, z, pose, path), objects)

    def covariances(self, objects: Objects, z_int: Tensor) -> Tensor | None:
        """Ellipsoids `[b, k, n, n]` around objects that agents at z_int touch, or None for points."""
        axes, found = self.group.axes(z_int), []
        for i in range(len(self)):
            covariance = self[i].covariance(objects.pose[:, i])
            if covariance is None:
                return None
            found.append(_turned(self[i], _turned(self[i], covariance, axes).mT, axes))
        return torch.stack(found, 1)

    def sizes(self, objects: Objects) -> Tensor:
        """Mean radii `[b, k]`."""
        return self._each_body(lambda body, z, pose: body.size(pose), objects)

    def turned2(self, objects: Objects, later: Objects) -> Tensor:
        """Squared distance that turning moves the tips, `[b, k]`."""
        return torch.stack([self[i].turned2(objects.pose[:, i], later.pose[:, i]) for i in range(len(self))], 1)

    def orientations(self, objects: Objects) -> Tensor | None:
        """Angles `[b, k]` modulo pi, or None for bodies that do not turn."""
        return _stacked([self[i].orientation(objects.pose[:, i]) for i in range(len(self))])

    def borders(self, objects: Objects, z_int: Tensor) -> Tensor | None:
        """Boundaries as closed lines of points `[b, k, points, 2]` around the objects' positions.

        None for points, and outside the plane.
        """
        if self.group.n != 2 or self.covariances(objects, z_int) is None:
            return None
        u, axes = around(BORDER_DIRECTIONS, objects.position), self.group.axes(z_int)

        def line(body: Body, z: Tensor, pose: Tensor) -> Tensor:
            return body.placed(border(body.support(u, pose).expand(z.shape[0], -1), BORDER_POINTS), axes)

        return self._each_body(line, objects)

    def _each_body(self, call: BodyCall, objects: Objects) -> Tensor:
        found = [call(self[i], objects.position[:, i], objects.pose[:, i]) for i in range(len(self))]
        return torch.stack(found, 1)

    @torch.no_grad()
    def relocate(self, index: int, offset: Tensor, radius: Tensor) -> None:
        """Move one object's positions by an offset [n], and resize its body."""
        self.offset[index] += offset
        self[index].resize(radius)

    @torch.no_grad()
    def restart(self, index: int, fresh: Body, readout: nn.Linear, generator: torch.Generator) -> slice:
        """Give one object a fresh body, and fresh rows of the network's read-out. Returns these rows."""
        rows = slice(index * self._each, (index + 1) * self._each)
        weight = torch.randn(readout.weight[rows].shape, generator=generator)
        readout.weight[rows] = FIRST_READOUT * weight.to(readout.weight)
        readout.bias[rows] = 0
        self[index].load_state_dict(fresh.state_dict())
        self.offset[index], self.placed[index], self.may_hide[index] = 0, False, False
        return rows

    def measure(self, unit: Tensor) -> None:
        for i in range(len(self)):
            self[i].measure(unit)

    @property
    def learned(self) -> list[nn.Parameter]:
        return [p for i in range(len(self)) for p in self[i].learned]

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [group for i in range(len(self)) for group in self[i].parameter_groups()]

    def vitals(self, unit: Tensor) -> dict[str, float]:
        """The bodies' scalars; several objects are numbered."""
        if len(self) == 1:
            return self[0].vitals(unit)
        return {f"{name}_{i}": x for i in range(len(self)) for name, x in self[i].vitals(unit).items()}


def _turned(body: Body, vectors: Tensor, axes: Tensor) -> Tensor:
    """Vectors [..., d, n] between points of a shape, along the common axes."""
    return body.placed(vectors, axes) - body.placed(torch.zeros_like(vectors), axes)


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.stack(known, 1) if len(known) == len(parts) else None
