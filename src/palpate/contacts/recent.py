"""The last triples of training, by which hiding is judged and a better place is searched.

Legend: N triples, k objects, n ambient dimension, c cells.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from palpate.contacts.explanation import cells_of
from palpate.geometry import Path
from palpate.groups.base import Group

WINDOW = 4096  # stored triples
FEWEST = 1024  # stored triples from which anything is decided


class Rows(NamedTuple):
    """Stored triples of one object."""

    path: Path
    position: Tensor  # [N, n]
    clearance: Tensor  # [N]
    cells: Tensor  # [2, N, c], of o and of o'
    changed: Tensor  # [N] bool

    def distance(self, offset: Tensor) -> Tensor:
        """Distances `[N]` between paths and positions that are moved by an offset [n]."""
        return self.path.distance2(self.position + offset).sqrt()


class Recent(nn.Module):
    """Actions, relative positions and changes; storing them is device work only."""

    def __init__(self, count: int, group: Group) -> None:
        super().__init__()
        self.group, n = group, group.n
        self.start = nn.Buffer(torch.zeros(WINDOW, group.pose_width))
        self.action = nn.Buffer(torch.zeros(WINDOW, group.scaled(torch.zeros(group.action_width), 1.0).shape[-1]))
        self.object = nn.Buffer(torch.zeros(WINDOW, count, n))
        self.clearance = nn.Buffer(torch.zeros(WINDOW, count))  # of the paths; NaN since an object was moved
        self.apart = nn.Buffer(torch.zeros(WINDOW, count, 2 * n))  # objects relative to the agent, in o and in o'
        self.changed = nn.Buffer(torch.zeros(WINDOW, count, dtype=torch.bool))
        self.next = nn.Buffer(torch.zeros((), dtype=torch.long))  # rows stored so far
        self.searches = nn.Buffer(torch.zeros((), dtype=torch.long))  # for a better place, so far
        self.since = nn.Buffer(torch.zeros(count, dtype=torch.long))  # rows stored before each object started anew

    @torch.no_grad()
    def store(
        self,
        start: Tensor,
        a: Tensor,
        position: Tensor,
        clearance: Tensor,
        apart: Tensor,
        apart_next: Tensor,
        changed: Tensor,
    ) -> None:
        """Store a batch: actions from the poses `start`, the objects' positions [b, k, n] in o, the clearance [b, k] of
        each path, and the objects' positions relative to the agent, in o and in o'."""
        count = min(len(changed), WINDOW)
        rows = (self.next + torch.arange(count, device=changed.device)) % WINDOW
        columns = (start, a, position, clearance, torch.cat((apart, apart_next), -1), changed)
        buffers = (self.start, self.action, self.object, self.clearance, self.apart, self.changed)
        for kept, column in zip(buffers, columns, strict=True):
            kept.index_copy_(0, rows, column[-count:].to(kept.dtype))
        self.next.add_(count)

    def shift(self, index: int, offset: Tensor) -> None:
        """Move the stored positions of one object by an offset [n]."""
        self.object[:, index] += offset
        self.clearance[:, index] = torch.nan
        self.apart[:, index] += offset.repeat(2)

    def restart(self, index: int) -> None:
        """Forget the stored positions of one object."""
        self.since[index] = self.next

    def rows(self, index: int) -> Rows | None:
        """The stored triples of an object; waits for the device. None while they are few, and while some are from
        before the object started anew."""
        stored, since = int(self.next), int(self.since[index])
        if stored < FEWEST or (since > 0 and stored - since < WINDOW):
            return None
        count = min(stored, WINDOW)
        path = self.group.path(self.start[:count], self.action[:count])
        apart = self.apart[:count, index].chunk(2, 1)
        position, clearance, changed = (x[:count, index] for x in (self.object, self.clearance, self.changed))
        return Rows(path, position, clearance, torch.stack([*map(cells_of, apart)]), changed)
