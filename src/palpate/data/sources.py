"""Where batches come from: a set that lives on the training device, or one read from disk with bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from palpate.data.transitions import Batch, Transitions

CPU_BUDGET = 4 * 1024**3  # bytes of a set that is kept in main memory
GROUP_BYTES = 256 * 1000**2
RUN_BYTES = 1024**2  # read in one go: several chunks of the file, and still hundreds of places in a group

SORTED_ROWS = 100_000
CANDIDATES = 16  # of which one is drawn where sorting all rows would cost more than the step
UNKNOWN, UNTOUCHED, TOUCHED = -1, 0, 1

Judge = Callable[[Batch], Tensor]  # triples [b] that are surely contacts
Doubts = Callable[[Tensor, Tensor], Tensor]  # of observations [b, ...] and moves [b, k, n] how doubtful each is [b, k]
BatchT_co = TypeVar("BatchT_co", covariant=True)


class Source(ABC, Generic[BatchT_co]):
    """What the training loop draws from."""

    observation_shape: tuple[int, ...]
    n: int
    capturable = True  # `draw` and `learn` are device work without host synchronisation, fit for a CUDA graph
    way: object = None  # how batches are drawn; `draw` is other device work when it changes

    @abstractmethod
    def draw(self, generator: torch.Generator) -> BatchT_co:
        """The next batch, on the training device."""

    def last(self, generator: torch.Generator) -> BatchT_co:
        """A batch for the model's last fit, of triples that say as much as any."""
        return self.draw(generator)

    def learn(self, contacts: Tensor) -> None:
        """Which triples of the last batch, `[b]`, are taken for contacts by now."""

    def ask(self, judge: Judge, doubts: Doubts) -> None:
        """Whom to ask, before a batch is chosen, which triples are surely contacts, and which moves are doubtful."""

    def adapt(self, share: float) -> None:
        """Every few steps: draw otherwise from now on if what was learned asks for it; may wait for the device.

        `share` of the run is over.
        """

    def seek(self, step: int) -> None:
        """Continue as if `step` batches had been drawn, beside the generator's state and `memory`."""

    def memory(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, to be written into when the run is resumed."""
        return {}

    def vitals(self) -> dict[str, float]:
        """What a person watching the run wants to know of the data; may wait for the device."""
        return {}

    def close(self) -> None:
        """Let go of threads and files."""


@final
class Resident(Source[Batch]):
    """The whole set on the device, uint8 as uint8; every batch is a fresh draw from all of it.

    Contacts are what tells where the object is. Where they are rarer than `least_contacts` they are drawn more often,
    as soon as the model can tell them, until they are that share of a batch.
    """

    def __init__(
        self,
        transitions: Transitions,
        batch_size: int,
        device: torch.device | str,
        *,
        least_contacts: float = 0.0,
    ) -> None:
        self.observation_shape = transitions.observation_shape
        self.n = transitions.n
        self._batch_size = batch_size
        self._least_contacts = least_contacts
        count = len(transitions)
        self._verdicts = torch.full((count,), UNKNOWN, dtype=torch.int8, device=device)
        self._drawn = torch.zeros(batch_size, dtype=torch.long, device=device)
        self._set = Batch(
            *(torch.empty((count, *x.shape[1:]), dtype=x.dtype, device=device) for x in transitions.rows([0]))
        )
        for block in transitions.blocks():
            for whole, part in zip(self._set, transitions.rows(block), strict=True):
                whole[block] = part

    def draw(self, generator: torch.Generator) -> Batch:
        self._drawn.copy_(self.choose(generator))
        return self.take(self._drawn)

    def choose(self, generator: torch.Generator) -> Tensor:
        """Row numbers of a batch, [b], without repetition: a row must not meet itself among its contrasts.

        In a set so large that sorting it would cost more than the step, repetitions are too rare to matter.
        """
        count, b, device = len(self._verdicts), self._batch_size, self._verdicts.device
        if b <= count <= SORTED_ROWS:
            rows, verdicts = None, self._verdicts
        else:
            rows = torch.randint(count, (CANDIDATES * b,), generator=generator, device=device)
            verdicts = self._verdicts[rows]
        keys = torch.rand(len(verdicts), generator=generator, device=device)
        if self._least_contacts > 0:
            # The b largest of u^(1/weight) are a draw by weight without repetition (Efraimidis and Spirakis 2006).
            share, least = (verdicts == TOUCHED).float().mean(), self._least_contacts
            weight = (least * (1 - share) / (share * (1 - least))).clamp(min=1)
            keys = torch.where(verdicts == TOUCHED, keys ** (1 / weight), keys)
        best = keys.topk(b, sorted=False).indices
        return best if rows is None else rows[best]

    def take(self, rows: Tensor) -> Batch:
        return Batch(*(x.index_select(0, rows) for x in self._set))

    def learn(self, contacts: Tensor) -> None:
        self._verdicts.index_copy_(0, self._drawn, contacts.to(torch.int8))

    def memory(self) -> dict[str, Tensor]:
        return {"verdicts": self._verdicts}

    def vitals(self) -> dict[str, float]:
        touched, known = int((self._verdicts == TOUCHED).sum()), int((self._verdicts != UNKNOWN).sum())
        return {"contact_share": touched / known} if touched else {}


@final
class OnDisk(Source[Batch]):
    """Epochs over a set too large for memory; each visits every row once.

    Runs of neighbouring rows are put in random order, then shuffled row by row within groups of `group_bytes`. Two
    groups are in memory: the one in use and the next, which a thread reads. The order follows from the seed and the
    step alone, so that resuming needs no state; the generator given to `draw` is not used.
    """

    capturable = False

    def __init__(
        self,
        transitions: Transitions,
        batch_size: int,
        device: torch.device | str,
        seed: int,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self.observation_shape = transitions.observation_shape
        self.n = transitions.n
        self._transitions = transitions
        self._batch_size = batch_size
        self._device = torch.device(device)
        self._seed = seed
        row_bytes = transitions.nbytes // len(transitions)
        self._group_rows = min(max(1, group_bytes // row_bytes), len(transitions))
        # A group of few runs would be little more random than the file.
        self._run_rows = max(1, min(RUN_BYTES // row_bytes, self._group_rows // 16))
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="palpate-reader")
        self.seek(0)

    def seek(self, step: int) -> None:
        self._epoch, at = divmod(step * self._batch_size, len(self._transitions))
        self._number, self._at = divmod(at, self._group_rows)
        self._group: Batch | None = None
        self._next: Future[Batch] | None = None

    def draw(self, generator: torch.Generator) -> Batch:
        parts, missing = [], self._batch_size
        while missing:
            group = self._current_group()
            part = Batch(*(x[self._at : self._at + missing] for x in group))
            parts.append(part)
            missing -= len(part.a)
            self._at += len(part.a)
        return Batch(*(self._to_device(torch.cat(x)) for x in zip(*parts, strict=True)))

    def close(self) -> None:
        """End the reading thread."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def _current_group(self) -> Batch:
        """The group that holds the next row."""
        if self._group is not None and self._at == len(self._group.a):
            self._group, self._at = None, 0
        if self._group is None:
            if self._next is None:
                self._next = self._read_ahead()
            self._group = self._next.result()
            self._next = self._read_ahead()
        return self._group

    def _read_ahead(self) -> Future[Batch]:
        """Start reading the group after the last one started."""
        reading = self._reader.submit(self._transitions.rows, self._group_order(self._epoch, self._number))
        self._number += 1
        if self._number * self._group_rows >= len(self._transitions):
            self._epoch, self._number = self._epoch + 1, 0
        return reading

    def _group_order(self, epoch: int, number: int) -> np.ndarray:
        count = len(self._transitions)
        whole = count // self._run_rows
        rng = np.random.default_rng((self._seed, epoch, 0))
        order = np.append(rng.permutation(whole), whole)  # a shorter run stays last, ...
        start = rng.integers(count)  # ... so begin elsewhere each time, or the same rows would
        at = np.arange(number * self._group_rows, min((number + 1) * self._group_rows, count))
        rows = (order[at // self._run_rows] * self._run_rows + at % self._run_rows + start) % count
        np.random.default_rng((self._seed, epoch, number + 1)).shuffle(rows)
        return rows

    def _to_device(self, x: Tensor) -> Tensor:
        if self._device.type != "cuda":
            return x.to(self._device)
        return x.pin_memory().to(self._device, non_blocking=True)


def source(
    transitions: Transitions,
    batch_size: int,
    device: torch.device | str,
    seed: int,
    memory_budget: int | None = None,
    *,
    least_contacts: float = 0.0,
) -> Resident | OnDisk:
    """Keep the set on the device if its observations fit into `memory_budget` bytes, else read it as it is needed.

    The default budget is half of a GPU's free memory, the rest being the model's; 4 GiB elsewhere.
    """
    device = torch.device(device)
    if memory_budget is None:
        memory_budget = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else CPU_BUDGET
    if transitions.nbytes <= memory_budget:
        return Resident(transitions, batch_size, device, least_contacts=least_contacts)
    return OnDisk(transitions, batch_size, device, seed)
