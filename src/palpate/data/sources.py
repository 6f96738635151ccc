"""Sources of triples: a set on the training device, or a set read from disk with bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from palpate.data.episodes import chains
from palpate.data.transitions import Batch, ChainedBatch, Transitions

CPU_BUDGET = 4 * 1024**3  # bytes of a set that is kept in main memory
GROUP_BYTES = 256 * 1000**2
RUN_BYTES = 1024**2  # of neighbouring rows read at once: several chunks of the file, and hundreds of runs in a group
LONGEST_CHAIN = 20  # triples
SORTED_ROWS = 100_000
CANDIDATES = 16  # per drawn row, in a set so large that sorting all rows would cost more than a step

BatchT_co = TypeVar("BatchT_co", covariant=True)


class Source(ABC, Generic[BatchT_co]):
    """Draws triples, and nothing else."""

    capturable = True  # `draw` is device work without host synchronisation, so a CUDA graph can capture it

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> BatchT_co:
        """Random triples on the training device."""

    def seek(self, rows: int) -> None:
        """Continue as if so many rows had been drawn; the generator's state is restored separately."""

    def close(self) -> None:
        """Release threads and files."""


@final
class Resident(Source[Batch | ChainedBatch]):
    """The whole set on the device, uint8 as uint8; every batch is a fresh draw from all of it."""

    def __init__(self, transitions: Transitions, device: torch.device | str) -> None:
        count = len(transitions)
        self._set: Batch | ChainedBatch = Batch(
            *(torch.empty((count, *x.shape[1:]), dtype=x.dtype, device=device) for x in transitions.rows([0]))
        )
        for block in transitions.blocks():
            for whole, part in zip(self._set, transitions.rows(block), strict=True):
                whole[block] = part

    def connect(self, episode: Tensor | None, travelled: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Find the chains of triples, if there are any, and draw a `ChainedBatch` from now on.

        `episode` [N] as in `chains`; `travelled` is `Group.travelled`. Long chains are cut, because the errors of their
        actions add up.
        """
        o, a, o_next = self._set[:3]
        chain = chains(o, o_next, episode)
        if int(chain[-1]) < len(chain):
            at = torch.arange(len(chain), device=chain.device) - torch.searchsorted(chain, chain)
            chain = (at % LONGEST_CHAIN == 0).cumsum(0)
            self._set = ChainedBatch(o, a, o_next, chain, travelled(a.double(), chain).to(a))

    def __len__(self) -> int:
        return len(self._set.a)

    @property
    def device(self) -> torch.device:
        return self._set.a.device

    def draw(self, count: int, generator: torch.Generator) -> Batch | ChainedBatch:
        return self.take(self.choose(count, generator))

    def choose(self, count: int, generator: torch.Generator, weights: Tensor | None = None) -> Tensor:
        """Row numbers [count] without repetition: a row must not be its own negative.

        Rows with larger `weights` [N] are more likely. In sets too large to sort, repetitions are rare enough.
        """
        rows = None
        if not count <= len(self) <= SORTED_ROWS:
            rows = torch.randint(len(self), (CANDIDATES * count,), generator=generator, device=self.device)
        keys = torch.rand(len(self) if rows is None else len(rows), generator=generator, device=self.device)
        if weights is not None:
            # The largest of u^(1/weight) are a draw by weight without repetition (Efraimidis and Spirakis 2006).
            keys = keys ** (1 / (weights if rows is None else weights[rows]))
        best = keys.topk(count, sorted=False).indices
        return best if rows is None else rows[best]

    def take(self, rows: Tensor) -> Batch | ChainedBatch:
        """The triples with these numbers."""
        return type(self._set)(*(x.index_select(0, rows) for x in self._set))


@final
class OnDisk(Source[Batch]):
    """Epochs over a set too large for memory; each visits every row once.

    Runs of neighbouring rows are put in random order, then shuffled row by row within groups of `group_bytes`. Two
    groups are in memory: the one in use and the next, which a thread reads. The order depends on the seed alone, so a
    resumed run needs only the number of rows; `draw` does not use its generator.
    """

    capturable = False

    def __init__(
        self, transitions: Transitions, device: torch.device | str, seed: int, group_bytes: int = GROUP_BYTES
    ) -> None:
        self._transitions = transitions
        self._device = torch.device(device)
        self._seed = seed
        row_bytes = transitions.nbytes // len(transitions)
        self._group_rows = min(max(1, group_bytes // row_bytes), len(transitions))
        # A group of only a few runs would be hardly shuffled.
        self._run_rows = max(1, min(RUN_BYTES // row_bytes, self._group_rows // 16))
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="palpate-reader")
        self.seek(0)

    def seek(self, rows: int) -> None:
        self._epoch, at = divmod(rows, len(self._transitions))
        self._number, self._at = divmod(at, self._group_rows)
        self._group: Batch | None = None
        self._next: Future[Batch] | None = None

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        parts, missing = [], count
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
        order = np.append(rng.permutation(whole), whole)  # the shorter run is last, ...
        start = rng.integers(count)  # ... so a random start keeps the same rows from always being last
        at = np.arange(number * self._group_rows, min((number + 1) * self._group_rows, count))
        rows = (order[at // self._run_rows] * self._run_rows + at % self._run_rows + start) % count
        np.random.default_rng((self._seed, epoch, number + 1)).shuffle(rows)
        return rows

    def _to_device(self, x: Tensor) -> Tensor:
        if self._device.type != "cuda":
            return x.to(self._device)
        return x.pin_memory().to(self._device, non_blocking=True)


def source(
    transitions: Transitions, device: torch.device | str, seed: int, memory_budget: int | None = None
) -> Resident | OnDisk:
    """Keep the set on the device if its observations fit into `memory_budget` bytes, else read it during training.

    The default budget is half of a GPU's free memory; the model needs the rest. On a CPU it is 4 GiB.
    """
    device = torch.device(device)
    if memory_budget is None:
        memory_budget = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else CPU_BUDGET
    if transitions.nbytes <= memory_budget:
        return Resident(transitions, device)
    return OnDisk(transitions, device, seed)
