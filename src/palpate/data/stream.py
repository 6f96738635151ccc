"""Batches that a world generates on the training device, fresh at every step."""

from collections.abc import Callable
from typing import Any, Protocol, final

import torch
from torch import Tensor

from palpate.data.sources import Source
from palpate.data.transitions import Batch


class World(Protocol):
    """A batched world such as Sprites. Its states hold the truth; a `Stream` reads nothing of them but the action."""

    @property
    def device(self) -> torch.device: ...

    @property
    def observation_shape(self) -> tuple[int, ...]: ...

    @property
    def n(self) -> int: ...

    def sample(self, count: int, generator: torch.Generator) -> Any:
        """True states of random triples, with `displacement` [b, n]."""

    def render_pair(self, states: Any, /) -> tuple[Tensor, Tensor]:
        """The observations before and after, [b, c, h, w] uint8 each."""


POOL = 4  # batches drawn to choose one from
JUDGED = 50  # batches that show how rare contacts are
SLACK = 1.5  # times as common they must be before batches are taken as they come again


@final
class Stream(Source[Batch]):
    """Endless fresh triples of a world.

    Contacts tell where the object is, and the others that it stays where it is. Where either are rarer than
    `least_contacts`, as far as the model can tell, several batches are drawn and one is chosen: up to half of it the
    rare ones.
    """

    def __init__(self, world: World, batch_size: int, *, least_contacts: float = 0.0) -> None:
        self.observation_shape = world.observation_shape
        self.n = world.n
        self._world = world
        self._batch_size = batch_size
        self._least_contacts = least_contacts
        self._pool = torch.ones((), dtype=torch.long)  # on the host
        self._seen = torch.zeros(3, device=world.device)  # contacts, triples, batches
        self._share = torch.zeros(())  # of contacts, on the host
        self._judge: Callable[[Batch], Tensor] | None = None

    @property
    def pool(self) -> int:  # type: ignore[override]
        return int(self._pool)

    def draw(self, generator: torch.Generator) -> Batch:
        if self.pool == 1 or self._judge is None:
            return self._fresh(generator)
        drawn = Batch(*map(torch.cat, zip(*(self._fresh(generator) for _ in range(self.pool)), strict=True)))
        contacts = self._judge(drawn)
        self._note(contacts)
        rare = torch.where(contacts.float().mean() > 0.5, ~contacts, contacts)
        order = torch.rand(len(rare), generator=generator, device=rare.device)
        # First the rare, but no more than half a batch of them, then the others.
        order += torch.where(rare, torch.where(rare.cumsum(0) <= self._batch_size // 2, 1.0, -1.0), 0.0)
        return Batch(*(x.index_select(0, order.topk(self._batch_size).indices) for x in drawn))

    def _fresh(self, generator: torch.Generator) -> Batch:
        states = self._world.sample(self._batch_size, generator)
        o, o_next = self._world.render_pair(states)
        return Batch(o, states.displacement, o_next)

    def ask(self, judge: Callable[[Batch], Tensor]) -> None:
        self._judge = judge

    def learn(self, contacts: Tensor) -> None:
        if self.pool == 1:
            self._note(contacts)

    def _note(self, contacts: Tensor) -> None:
        """A batch without any sure contact says nothing: the model may not tell them apart yet."""
        known = contacts.any()
        self._seen += torch.stack((contacts.sum(), known * len(contacts), known))

    def adapt(self) -> None:
        contacts, triples, batches = self._seen.tolist()
        if batches < JUDGED:
            return
        self._share.fill_(contacts / triples)
        rarest, rare = min(contacts, triples - contacts) / triples, self._least_contacts
        self._pool.fill_(POOL if rarest < (rare if self.pool == 1 else SLACK * rare) else 1)
        self._seen.zero_()

    def memory(self) -> dict[str, Tensor]:
        return {"pool": self._pool, "seen": self._seen, "share": self._share}

    def vitals(self) -> dict[str, float]:
        return {"contact_share": float(self._share), "pool": float(self.pool)} if self.pool > 1 else {}
