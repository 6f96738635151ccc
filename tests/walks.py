"""Random paths past an object that an agent may hide, for tests of what is made of the last triples."""

import torch
from torch import Tensor

from palpate.contacts.recent import Recent
from palpate.geometry import Segment
from palpate.groups.translations import Translations

RADIUS = 0.1


def walked(count: int, n: int = 2, mast: float = 0.0, seed: int = 0) -> tuple[Segment, Tensor, Tensor]:
    """Random paths, objects and changes: contacts, and objects that vanish or appear above the agent."""
    start, end, thing = torch.rand(3, count, n, generator=torch.Generator().manual_seed(seed))
    path = Segment(start, end - start)

    def hidden(agent: Tensor) -> Tensor:
        apart = thing - agent
        return (apart[:, 0].abs() < mast) & (apart[:, -1] > 0) & (apart[:, -1] < 0.4)

    return path, thing, (path.distance2(thing) < RADIUS**2) | (hidden(start) != hidden(end))


def stored(path: Segment, place: Tensor, changed: Tensor, clearance: Tensor | None = None) -> Recent:
    """The clearance of a ball of the right size, if none is given."""
    recent = Recent(1, Translations(place.shape[1]))
    clearance = path.distance2(place).sqrt() - RADIUS if clearance is None else clearance
    end = path.start + path.move
    for rows in torch.arange(len(place)).split(256):
        at = place[rows]
        apart = [(at - x[rows])[:, None] for x in (path.start, end)]
        recent.store(path.start[rows], path.move[rows], at[:, None], clearance[rows, None], *apart, changed[rows, None])
    return recent
