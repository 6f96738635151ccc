"""A search for a better place of the object, if the agent hides it now and then.

A large body between the object and its hiding places explains hiding as contacts, and no gradient leads away from it.
So places nearby are compared directly: each must explain the contacts by paths, and all other changes by where the
object is relative to the agent.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from palpate.contacts.explanation import best_explanation, explanation
from palpate.contacts.recent import Recent

SEARCH_AT = (0.25, 0.35, 0.45, 0.55, 0.65)  # shares of the run at which a better place is searched
PLACES, REACH = 144, 1.5  # places to compare, about; how far they are from the present one along each axis, in radii
SMALLER = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3)  # radii to compare, relative to the present one
AT_ONCE = 48  # guesses that are compared at once
GAIN = 0.01  # least gain of log-likelihood per triple; a smaller one may be due to the body's shape


class Place(NamedTuple):
    offset: Tensor  # [n] from the present place
    radius: Tensor  # []


def due(recent: Recent, share: float) -> bool:
    """Whether a search is due at this `share` of the run."""
    before, now = int(recent.searches), sum(share >= at for at in SEARCH_AT)
    recent.searches.fill_(now)
    return now > before


def better_place(recent: Recent, index: int, radius: Tensor, *, resize: bool) -> Place | None:
    """The best place of object `index`, if it is clearly better than the present one; waits for the device."""
    rows = recent.rows(index)
    if rows is None or rows.clearance.isnan().any():
        return None
    radii = radius * torch.tensor(SMALLER if resize else (1.0,), device=radius.device)
    offsets = radius * places(rows.position.shape[1]).to(radius)  # [places, n], the present one first
    touching = torch.cat([rows.distance(x) < radii[:, None] for x in offsets])  # [places r, N]
    # The present body, whatever its shape: as a disc, a long one would seem too large.
    least = explanation(rows.clearance[None] < 0, rows.cells, rows.changed) + GAIN
    (hopeful,) = (best_explanation(touching, rows.changed) >= least).nonzero(as_tuple=True)
    if not len(hopeful):
        return None
    scores = torch.cat([explanation(touching[some], rows.cells, rows.changed) for some in hopeful.split(AT_ONCE)])
    if scores.amax() < least:
        return None
    best = int(hopeful[scores.argmax()])
    return Place(offsets[best // len(radii)], radii[best % len(radii)])


def places(n: int) -> Tensor:
    """Offsets to compare, `[places, n]` in radii: none, and a grid; beyond space, steps along the axes alone."""
    along = torch.linspace(-REACH, REACH, max(3, round(PLACES ** (1 / min(n, 3)))))
    if n <= 3:
        grid = torch.cartesian_prod(*[along] * n).reshape(-1, n)
    else:
        grid = (torch.eye(n)[:, None] * along[:, None]).flatten(0, 1)
    return torch.cat((torch.zeros(1, n), grid))
