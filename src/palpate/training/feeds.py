"""Which triples a step is trained on: oversampling of rare contacts, and chosen moves.

A source only draws. A feed decides what to draw from the model's current outputs, as device work in the captured step.
Legend: b batch, c moves, n ambient dimension.
"""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from palpate.data.sources import Resident, Source
from palpate.data.stream import SteerableWorld, Stream, World
from palpate.data.transitions import Batch, ChainedBatch

UNKNOWN, CONTACT = -1, 1  # labels of triples; without contact it is 0
POOL = 4  # batches drawn to select one from
JUDGED = 50  # batches from which the contact share is measured
SLACK = 1.5  # times `least_contacts`: selection stops when the rare class is more common
CHOOSE_FROM = 0.3  # share of the run after which positions are accurate enough to choose moves
# Moves to choose from. With more of them the chosen one passes nearer to the boundary. A CPU would be slower, and small
# CNNs gain little.
MOVES = {"cuda": 128, "cpu": 32}
LAST_MOVES, LAST_SHARE = 128, 0.9  # for the refinement: moves to choose from; share of a batch

Contacts = Callable[[Batch], Tensor | None]  # reliable contacts [b]
Uncertainty = Callable[[Tensor, Tensor], Tensor | None]  # of moves [b, c, n] from observations, [b, c]


class Feed:
    """Batches for the loop, as a source draws them."""

    way: object = None  # how batches are drawn; when it changes, `draw` must be captured again

    def __init__(self, source: Source[Any], batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size

    @property
    def capturable(self) -> bool:
        return self.source.capturable

    def draw(self, generator: torch.Generator) -> Any:
        return self.source.draw(self.batch_size, generator)

    def last(self, generator: torch.Generator) -> Any:
        """A batch for the refinement, of the most informative triples."""
        return self.draw(generator)

    def connect(self, contacts: Contacts, uncertainty: Uncertainty) -> None:
        """Set the model's functions that a feed may call on triples and moves."""

    def record(self, contacts: Tensor, wanted: Tensor) -> None:
        """Receive the reliable contacts `[b]` of the last batch, and which triples to draw more often."""

    def adapt(self, share: float) -> None:
        """Change the way of drawing, every few steps, when `share` of the run is over; may wait for the device."""

    def renew(self) -> None:
        """Forget what was recorded: from now on it means something else."""

    def seek(self, step: int) -> None:
        """Continue as if `step` batches had been drawn; the generator's state and `memory` are restored separately."""
        self.source.seek(step * self.batch_size)

    def memory(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint stores, and that a resumed run overwrites."""
        return {}

    def vitals(self) -> dict[str, float]:
        """Readings of the data for the log; may wait for the device."""
        return {}

    def close(self) -> None:
        self.source.close()


@final
class Oversampled(Feed):
    """A data set in memory. Contacts rarer than `least_contacts` are oversampled up to that share."""

    source: Resident

    def __init__(self, source: Resident, batch_size: int, least_contacts: float) -> None:
        super().__init__(source, batch_size)
        self._least = least_contacts
        self._labels = torch.full((len(source),), UNKNOWN, dtype=torch.int8, device=source.device)
        self._drawn = torch.zeros(batch_size, dtype=torch.long, device=source.device)

    def draw(self, generator: torch.Generator) -> Batch | ChainedBatch:
        contacts = self._labels == CONTACT
        share, least = contacts.float().mean(), self._least
        weight = (least * (1 - share) / (share * (1 - least))).clamp(min=1)
        weights = torch.where(contacts, weight, 1.0)
        self._drawn.copy_(self.source.choose(self.batch_size, generator, weights))
        return self.source.take(self._drawn)

    def record(self, contacts: Tensor, wanted: Tensor) -> None:
        self._labels.index_copy_(0, self._drawn, wanted.to(torch.int8))

    def renew(self) -> None:
        self._labels.fill_(UNKNOWN)

    def memory(self) -> dict[str, Tensor]:
        return {"labels": self._labels}

    def vitals(self) -> dict[str, float]:
        contacts, known = int((self._labels == CONTACT).sum()), int((self._labels != UNKNOWN).sum())
        return {"contact_share": contacts / known} if contacts else {}


@final
class Selected(Feed):
    """Fresh triples of a streamed world, selected.

    If contacts, or triples without contact, are rarer than `least_contacts`, several batches are drawn. One batch is
    selected from them, with up to half of it from the rare class.

    Most random moves pass far from the object's boundary or right through it, and are hardly informative. In a share of
    the batch, `chosen_moves`, the move is the one of several random moves whose contact is least certain. The choice
    depends only on the observation before the move, so it does not bias the outcome.
    """

    source: Stream

    def __init__(
        self, world: World, batch_size: int, *, least_contacts: float = 0.0, chosen_moves: float = 0.0
    ) -> None:
        super().__init__(Stream(world), batch_size)
        self._least = least_contacts
        self._most_chosen = min(round(chosen_moves * batch_size), batch_size - 1)
        self._chosen = torch.zeros((), dtype=torch.long)  # triples of a batch whose move is chosen, on the host
        self._pool = torch.ones((), dtype=torch.long)  # on the host
        self._seen = torch.zeros(3, device=world.device)  # contacts, triples, batches
        self._share = torch.zeros(())  # of contacts, on the host
        self._contacts: Contacts | None = None
        self._uncertainty: Uncertainty | None = None

    @property
    def pool(self) -> int:
        """Batches drawn to select one from."""
        return int(self._pool)

    @property
    def way(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self._pool), int(self._chosen)

    def draw(self, generator: torch.Generator) -> Batch:
        return self._drawn(int(self._chosen), MOVES[self.source.world.device.type], generator)

    def last(self, generator: torch.Generator) -> Batch:
        chosen = int(self._chosen)
        return self._drawn(max(chosen, int(LAST_SHARE * self.batch_size)) if chosen else 0, LAST_MOVES, generator)

    def _drawn(self, chosen: int, moves: int, generator: torch.Generator) -> Batch:
        others = self._selected(self.batch_size - chosen, generator)
        if not chosen:
            return others
        return Batch(*map(torch.cat, zip(self._uncertain(chosen, moves, generator), others, strict=True)))

    def _selected(self, count: int, generator: torch.Generator) -> Batch:
        if self.pool == 1 or self._contacts is None:
            return self.source.draw(count, generator)
        parts = [self.source.draw(count, generator) for _ in range(self.pool)]
        drawn = Batch(*map(torch.cat, zip(*parts, strict=True)))
        contacts = self._contacts(drawn)
        assert contacts is not None  # a pool needs a model with contacts
        self._count(contacts)
        order = torch.rand(len(contacts), generator=generator, device=contacts.device)
        # First contacts, up to half a batch, then triples without contact, then the other contacts.
        order += torch.where(contacts, torch.where(contacts.cumsum(0) <= count // 2, 1.0, -1.0), 0.0)
        return Batch(*(x.index_select(0, order.topk(count).indices) for x in drawn))

    def _uncertain(self, count: int, moves: int, generator: torch.Generator) -> Batch:
        world = self.source.world
        assert isinstance(world, SteerableWorld)
        assert self._uncertainty is not None
        scene = world.reset(count, generator)
        possible = world.moves(scene, moves, generator)  # [b, c, n]
        uncertainty = self._uncertainty(world.render(scene), possible)
        assert uncertainty is not None
        at = uncertainty.argmax(1)[:, None, None].expand(-1, 1, possible.shape[-1])
        return self.source.triples(world.step(scene, possible.gather(1, at)[:, 0], generator))

    def connect(self, contacts: Contacts, uncertainty: Uncertainty) -> None:
        self._contacts, self._uncertainty = contacts, uncertainty

    def record(self, contacts: Tensor, wanted: Tensor) -> None:
        if self.pool == 1:
            self._count(contacts[int(self._chosen) :])  # chosen moves do not show how common contacts are

    def renew(self) -> None:
        self._pool.fill_(1)
        self._seen.zero_()

    def assume(self, contact_share: float) -> None:
        """Take the contact share as known, before any batch is judged."""
        self._share.fill_(contact_share)

    def _count(self, contacts: Tensor) -> None:
        """Count contacts. A batch without reliable contacts does not count: the classes may not be separate yet."""
        known = contacts.any()
        self._seen += torch.stack((contacts.sum(), known * len(contacts), known))

    def adapt(self, share: float) -> None:
        contacts, triples, batches = self._seen.tolist()
        if batches >= JUDGED:
            self._share.fill_(contacts / triples)
            rarest = min(contacts, triples - contacts) / triples
            self._pool.fill_(POOL if rarest < (self._least if self.pool == 1 else SLACK * self._least) else 1)
            self._seen.zero_()
        if share >= CHOOSE_FROM and self._share > 0:
            self._chosen.fill_(self._most_chosen)

    def memory(self) -> dict[str, Tensor]:
        return {"pool": self._pool, "chosen": self._chosen, "seen": self._seen, "share": self._share}

    def vitals(self) -> dict[str, float]:
        rare = {"contact_share": float(self._share), "pool": float(self.pool)} if self.pool > 1 else {}
        chosen = int(self._chosen)
        return rare | ({"chosen_moves": chosen / self.batch_size} if chosen else {})
