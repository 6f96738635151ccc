"""Batches that a world generates on the training device, fresh at every step."""

from typing import Any, Protocol, final

import torch
from torch import Tensor

from palpate.data.sources import Doubts, Judge, Source
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

    # What an agent needs that chooses its moves.

    def reset(self, count: int, generator: torch.Generator) -> Any:
        """Random scenes."""

    def render(self, scene: Any, /) -> Tensor:
        """Their observations."""

    def moves(self, scene: Any, count: int, generator: torch.Generator) -> Tensor:
        """Random displacements [b, count, n] that are possible there."""

    def step(self, scene: Any, displacement: Tensor, generator: torch.Generator) -> Any:
        """True states of the triples that these displacements [b, n] lead to."""


POOL = 4  # batches drawn to choose one from
JUDGED = 50  # batches that show how rare contacts are
SLACK = 1.5  # times as common they must be before batches are taken as they come again
MOVES, PROBE_FROM = 32, 0.3  # moves to choose from; the share of the run after which positions are worth asking about
LAST_MOVES, LAST_PROBING = 128, 0.9  # for the last fit, if any are chosen: moves to choose from; the share of a batch


@final
class Stream(Source[Batch]):
    """Endless fresh triples of a world.

    Contacts tell where the object is, and the others that it stays where it is. Where either are rarer than
    `least_contacts`, as far as the model can tell, several batches are drawn and one is chosen: up to half of it the
    rare ones.

    Most moves pass far from the object's border or right through it, and what they do says little that is new. In a
    share of the batch, `probing`, the agent takes of some random moves the one whose outcome is most in doubt, by what
    it sees beforehand; the choice follows from that alone, so each outcome stays as likely as the world makes it.
    """

    def __init__(self, world: World, batch_size: int, *, least_contacts: float = 0.0, probing: float = 0.0) -> None:
        self.observation_shape = world.observation_shape
        self.n = world.n
        self._world = world
        self._batch_size = batch_size
        self._least_contacts = least_contacts
        self._most_probed = min(round(probing * batch_size), batch_size - 1)
        self._probed = torch.zeros((), dtype=torch.long)  # triples of a batch, on the host
        self._pool = torch.ones((), dtype=torch.long)  # on the host
        self._seen = torch.zeros(3, device=world.device)  # contacts, triples, batches
        self._share = torch.zeros(())  # of contacts, on the host
        self._judge: Judge | None = None
        self._doubts: Doubts | None = None

    @property
    def pool(self) -> int:
        """Batches drawn to choose one from."""
        return int(self._pool)

    @property
    def way(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self._pool), int(self._probed)

    def draw(self, generator: torch.Generator) -> Batch:
        return self._drawn(int(self._probed), MOVES, generator)

    def last(self, generator: torch.Generator) -> Batch:
        probed = int(self._probed)
        return self._drawn(max(probed, int(LAST_PROBING * self._batch_size)) if probed else 0, LAST_MOVES, generator)

    def _drawn(self, probed: int, moves: int, generator: torch.Generator) -> Batch:
        as_they_come = self._chosen(self._batch_size - probed, generator)
        if not probed:
            return as_they_come
        return Batch(*map(torch.cat, zip(self._doubtful(probed, moves, generator), as_they_come, strict=True)))

    def _chosen(self, count: int, generator: torch.Generator) -> Batch:
        if self.pool == 1 or self._judge is None:
            return self._fresh(count, generator)
        drawn = Batch(*map(torch.cat, zip(*(self._fresh(count, generator) for _ in range(self.pool)), strict=True)))
        contacts = self._judge(drawn)
        self._note(contacts)
        rare = torch.where(contacts.float().mean() > 0.5, ~contacts, contacts)
        order = torch.rand(len(rare), generator=generator, device=rare.device)
        # First the rare, but no more than half a batch of them, then the others.
        order += torch.where(rare, torch.where(rare.cumsum(0) <= count // 2, 1.0, -1.0), 0.0)
        return Batch(*(x.index_select(0, order.topk(count).indices) for x in drawn))

    def _fresh(self, count: int, generator: torch.Generator) -> Batch:
        return self._seen_by(self._world.sample(count, generator))

    def _doubtful(self, count: int, moves: int, generator: torch.Generator) -> Batch:
        assert self._doubts is not None
        scene = self._world.reset(count, generator)
        possible = self._world.moves(scene, moves, generator)  # [b, k, n]
        best = self._doubts(self._world.render(scene), possible).argmax(1)
        taken = possible.gather(1, best[:, None, None].expand(-1, 1, self.n))[:, 0]
        return self._seen_by(self._world.step(scene, taken, generator))

    def _seen_by(self, states: Any) -> Batch:
        o, o_next = self._world.render_pair(states)
        return Batch(o, states.displacement, o_next)

    def ask(self, judge: Judge, doubts: Doubts) -> None:
        self._judge, self._doubts = judge, doubts

    def learn(self, contacts: Tensor) -> None:
        if self.pool == 1:
            self._note(contacts[int(self._probed) :])  # of moves that were chosen it says nothing how common they are

    def _note(self, contacts: Tensor) -> None:
        """A batch without any sure contact says nothing: the model may not tell them apart yet."""
        known = contacts.any()
        self._seen += torch.stack((contacts.sum(), known * len(contacts), known))

    def adapt(self, share: float) -> None:
        contacts, triples, batches = self._seen.tolist()
        if batches >= JUDGED:
            self._share.fill_(contacts / triples)
            rarest, rare = min(contacts, triples - contacts) / triples, self._least_contacts
            self._pool.fill_(POOL if rarest < (rare if self.pool == 1 else SLACK * rare) else 1)
            self._seen.zero_()
        if share >= PROBE_FROM and self._share > 0:
            self._probed.fill_(self._most_probed)

    def memory(self) -> dict[str, Tensor]:
        return {"pool": self._pool, "probed": self._probed, "seen": self._seen, "share": self._share}

    def vitals(self) -> dict[str, float]:
        chosen = {"contact_share": float(self._share), "pool": float(self.pool)} if self.pool > 1 else {}
        probed = int(self._probed)
        return chosen | ({"probing": probed / self._batch_size} if probed else {})
