"""Whether vectors are scans, such as those of a laser scanner, and whether the agent carries the scanner.

Legend: N observations, r numbers of each.
"""

import torch
from torch import Tensor

FEWEST, MOST = 16, 2048  # numbers of a scan; of more, correlations are not computed
ALIKE, MORE_ALIKE = 0.4, 0.2  # least median correlation of neighbours, and how far it exceeds that of all pairs
DENSE = 0.35  # least median of a scan's changes over their mean
AROUND = 0.5  # least correlation of the first and the last ray of a full circle, relative to neighbours
TURNED = 0.95  # largest change of scans turned with the agent, relative to that of scans as they are
LEAST = 1e-6  # spread of a number that varies


def is_scan(o: Tensor) -> bool:
    """Whether neighbouring numbers of observations [N, r] are alike, and more so than others.

    The first and the last number are not compared: the rays need not cover the full circle.
    """
    if not FEWEST <= o.shape[1] <= MOST:
        return False
    correlation = _correlation(o)
    neighbours = correlation.diagonal(1).median()
    others = correlation[torch.ones_like(correlation).triu(1) > 0].median()
    return bool(neighbours >= ALIKE and neighbours - others >= MORE_ALIKE)


def _correlation(o: Tensor) -> Tensor:
    o = o.double()
    x = (o - o.mean(0)) / o.std(0).clamp(min=LEAST)
    return x.mT @ x / len(x)


def is_carried(o: Tensor, o_next: Tensor) -> bool:
    """Whether moves change whole scans [N, r], not single rays."""
    return changing_rays(o, o_next) >= DENSE


def changing_rays(o: Tensor, o_next: Tensor) -> float:
    """The median change of a scan's numbers, relative to their mean change; scans [N, r].

    If the scanner is fixed beside the agent, most rays hardly change, and the median is far below the mean. If the
    agent carries the scanner, nearly all rays change.
    """
    change = (o_next.double() - o.double()).abs()
    return float(change.median(1).values.mean() / change.mean().clamp(min=1e-30))


def turned_back(x: Tensor, rays: Tensor) -> Tensor:
    """Scans [N, r] of a full circle, each turned by a whole number of rays [N]."""
    count = x.shape[1]
    places = (torch.arange(count, device=x.device) - rays[:, None]) % count
    return x.gather(1, places.long())


def direction_of_turns(o: Tensor, turn: Tensor, o_next: Tensor) -> float:
    """Whether turns [N] of the agent turn its scans [N, r]: 1 if rays are numbered counter-clockwise, -1 if clockwise.

    0 if scans do not turn with the agent, or if the rays do not cover the full circle evenly.
    """
    if not is_scan(o):
        return 0.0
    correlation = _correlation(o)
    if correlation[0, -1] < AROUND * correlation.diagonal(1).median():
        return 0.0
    o, o_next = o.double(), o_next.double()
    rays = torch.round(turn.double() * o.shape[1] / (2 * torch.pi))
    left = {sign: float((turned_back(o, -sign * rays) - o_next).abs().mean()) for sign in (0.0, 1.0, -1.0)}
    best = min(left, key=lambda sign: left[sign])
    return best if left[best] < TURNED * left[0.0] else 0.0
