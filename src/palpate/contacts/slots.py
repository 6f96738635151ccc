"""Which slots of a model hold an object: something that moves if the agent touches it, and only then.

Several slots begin alike. Some come to hold nothing, a blend of objects, or an object that another slot holds. These
start anew, a few times. The other slots explain the changes of their objects, so the missing object remains.
Legend: b batch, k slots.
"""

import math
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from palpate.contacts.split import TELLING

KEEPS = 0.97  # share of the counts that is kept from step to step
FEWEST = 2.0  # counted contacts that a slot needs
CLEARLY_WORSE, WORST = 0.6, 0.2  # a slot is spare below this share of the best index, or below this index
TOGETHER = 0.4  # Jaccard index of the movements of two slots above which they hold the same object
SURER = 0.15  # difference of two slots' indices above which one is surer
# Slots of a trained model: candidates for the radius and for the length of a motion, and their quantiles; fewest paths
# to judge from; share of the other paths above which a slot moves by itself.
CANDIDATES, NEAR, MOVING = 30, (0.02, 0.6), (0.2, 0.98)
FEWEST_PATHS, RESTLESS = 100, 0.25
RENEW_AT = (0.16, 0.24, 0.32, 0.4, 0.48, 0.56, 0.64, 0.72)  # shares of the run at which spare slots start anew


Holds = Literal["object", "duplicate", "mover", "nothing", "unknown"]


class Slot(NamedTuple):
    """What a slot holds, and how often it moved."""

    # "duplicate": what a better slot holds; "mover": something that moves without being touched;
    # "unknown": there are too few paths to judge from
    holds: Holds
    touched: float  # share of the paths near the slot in which it moved
    otherwise: float  # of the other paths
    together: float  # largest Jaccard index of its movements and those of a better slot

    @property
    def youden(self) -> float:
        """Youden's index of its movements: how often if touched, minus how often otherwise."""
        return self.touched - self.otherwise


def judge_slots(distance: Tensor, length: Tensor, far: Tensor, visible: Tensor) -> tuple[list[Slot], Tensor]:
    """What each slot of a trained model holds, and in which triples it moved, `[N, k]` bool.

    From triples [N, k]: the `distance` of the path, the `length` of the slot's motion, whether this is more than its
    body's radius (`far`), and whether the object is `visible`.
    """
    slots, moved = [], torch.zeros_like(visible)
    for i in range(visible.shape[1]):
        rows = visible[:, i]
        border, step, touched, otherwise = _best(distance[rows, i], length[rows, i])
        moved[:, i] = rows & (length[:, i] > step)
        holds: Holds = "object"
        if int(rows.sum()) < FEWEST_PATHS:
            holds = "unknown"
        elif touched - otherwise < TELLING:
            alone = far[rows, i][distance[rows, i] >= border]
            holds = "mover" if len(alone) and float(alone.double().mean()) > RESTLESS else "nothing"
        slots.append(Slot(holds, touched, otherwise, 0.0))
    together = overlap(moved.double().T @ moved.double())
    for i, slot in enumerate(slots):
        better = [together[i, j] for j, x in enumerate(slots) if (x.youden, -j) > (slot.youden, -i)]
        twin = float(max(better, default=0.0))
        duplicate = slot.holds == "object" and twin > TOGETHER
        slots[i] = slot._replace(holds="duplicate" if duplicate else slot.holds, together=twin)
    return slots, moved


def _best(distance: Tensor, length: Tensor) -> tuple[float, float, float, float]:
    """The radius and the length of a motion for which Youden's index is largest, and the shares of motions of at least
    this length among nearer paths and among the others. The body's own radius is too large after a short run."""
    if len(distance) < FEWEST_PATHS:
        return math.inf, math.inf, 0.0, 0.0
    borders = distance.quantile(torch.linspace(*NEAR, CANDIDATES).to(distance))
    steps = length.quantile(torch.linspace(*MOVING, CANDIDATES).to(length))
    near = (distance < borders[:, None]).to(distance)  # [r, N]
    moved = (length > steps[:, None]).to(distance).T  # [N, t]
    touched, otherwise = (side @ moved / side.sum(1, keepdim=True).clamp(min=1) for side in (near, 1 - near))
    best = int((touched - otherwise).argmax())
    found = borders[best // CANDIDATES], steps[best % CANDIDATES], touched.flatten()[best], otherwise.flatten()[best]
    return tuple(map(float, found))  # type: ignore[return-value]


def overlap(moves: Tensor) -> Tensor:
    """Jaccard index `[k, k]` of the movements of two slots, from the numbers [k, k] of triples in which both moved."""
    alone = moves.diagonal()
    return moves / (alone[:, None] + alone - moves).clamp(min=1)


@final
class Slots(nn.Module):
    """Running counts of contacts that geometry predicts, and of movements. A single slot always holds the object."""

    def __init__(self, count: int) -> None:
        super().__init__()
        # Touched; touched and moved; not touched; not touched but moved.
        self.counts = nn.Buffer(torch.zeros(4, count))
        self.moves = nn.Buffer(torch.zeros(count, count))  # triples in which both slots moved
        self.rounds = nn.Buffer(torch.zeros((), dtype=torch.long))  # in which spare slots started anew

    def __len__(self) -> int:
        return self.counts.shape[1]

    @torch.no_grad()
    def observe(self, touching: Tensor, moved: Tensor) -> None:
        """Count a batch, [b, k] bool each; device work only."""
        sides = torch.stack((touching, touching & moved, ~touching, ~touching & moved)).sum(1)
        both = moved.to(self.moves.dtype)
        self.counts.mul_(KEEPS).add_(sides)
        self.moves.mul_(KEEPS).add_(both.T @ both)

    @property
    def youden(self) -> Tensor:
        """Youden's index `[k]`: how often a slot moves if it is touched, minus how often otherwise."""
        touched, moved, other, moved_alone = self.counts.unbind()
        index = moved / touched.clamp(min=1) - moved_alone / other.clamp(min=1)
        return torch.where(touched < FEWEST, 0.0, index)

    @property
    def valid(self) -> Tensor:
        """Whether a slot surely holds an object, `[k]` bool."""
        return (self.youden >= TELLING) | (len(self) == 1)

    @property
    def together(self) -> Tensor:
        """Jaccard index `[k, k]` of the movements of two slots."""
        return overlap(self.moves)

    @property
    def surer(self) -> Tensor:
        """Whether slot j is clearly surer to hold an object than slot i, `[k, k]` bool at [i, j]."""
        youden = self.youden
        return youden > youden[:, None] + SURER

    @property
    def spare(self) -> Tensor:
        """Slots `[k]` bool that are clearly worse than the best one, or hold what a better one holds."""
        youden, index = self.youden, torch.arange(len(self), device=self.counts.device)
        worse = youden < (CLEARLY_WORSE * youden.amax()).clamp(min=WORST)
        better = (youden > youden[:, None]) | ((youden == youden[:, None]) & (index < index[:, None]))
        return (worse & (youden < youden.amax())) | ((self.together > TOGETHER) & better).any(1)

    @torch.no_grad()
    def renew(self, share: float) -> list[int]:
        """Indices of the spare slots if they are due to start anew at this `share` of the run, else none. Resets their
        counts."""
        due = sum(share >= at for at in RENEW_AT)
        if len(self) == 1 or due <= self.rounds:
            return []
        self.rounds.fill_(due)
        spare = self.spare
        self.counts.masked_fill_(spare, 0.0)
        self.moves.masked_fill_(spare[:, None] | spare, 0.0)
        return spare.nonzero()[:, 0].tolist()
