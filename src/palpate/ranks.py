"""Several processes, the ranks, that train one model together, on one machine or on several.

Each rank runs the whole training step on the same batch. Only the networks are divided: each rank computes a part of
their rows, and all ranks gather the outputs. So losses, contacts and feeds see whole batches and know no ranks.

The gradient of a tensor that all ranks hold is whole on each of them. The gradient of a divided tensor carries a factor
N, the number of ranks. So the mean over ranks of a parameter's gradient is that of one process, in a network or not.
Legend: b rows, N ranks.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, final

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import (
    ClusterEnvironment,
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor, distributed

AGREE_EVERY = 10  # steps: a collective operation at each step would cost more than waiting for a few steps
PATIENCE = timedelta(hours=1)  # the other ranks wait while the first one evaluates
STARTED_BY_US = "PALPATE_RANKS"  # environment variable: the number of ranks that `palpate train` has started

T = TypeVar("T")


class Started(NamedTuple):
    """How this process was started as one of several."""

    place: int  # on this machine
    here: int  # ranks on this machine
    machines: int
    environment: type[ClusterEnvironment]

    @property
    def ranks(self) -> int:
        return self.here * self.machines


def started(variables: Mapping[str, str] = os.environ) -> Started | None:
    """By `palpate train --devices`, torchrun or srun; None for a process that is alone."""
    if STARTED_BY_US in variables:
        return Started(int(variables["LOCAL_RANK"]), int(variables[STARTED_BY_US]), 1, LightningEnvironment)
    if "TORCHELASTIC_RUN_ID" in variables:
        here = int(variables["LOCAL_WORLD_SIZE"])
        found = Started(
            int(variables["LOCAL_RANK"]), here, int(variables["WORLD_SIZE"]) // here, TorchElasticEnvironment
        )
    elif "SLURM_STEP_NUM_TASKS" in variables:  # unset in a batch script, whose commands are started once
        tasks, machines = int(variables["SLURM_STEP_NUM_TASKS"]), int(variables["SLURM_STEP_NUM_NODES"])
        here = int(variables.get("SLURM_NTASKS_PER_NODE", 0))
        if tasks > 1 and tasks != here * machines:
            raise ValueError(
                f"the number of Slurm tasks is {tasks}, that of machines {machines}; start the same number on each, "
                "and give it as srun --ntasks-per-node, without --ntasks"
            )
        found = Started(int(variables["SLURM_LOCALID"]), tasks // machines, machines, SLURMEnvironment)
    else:
        return None
    return found if found.ranks > 1 else None


@final
class Ranks:
    """All ranks, seen from one of them."""

    def __init__(self, index: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.index, self.count, self.device = index, count, device
        self.dividing = False  # whether the rows of networks are divided now

    def __deepcopy__(self, memo: Any) -> "Ranks":
        return self

    @property
    def first(self) -> bool:
        """Whether this rank evaluates, reports and writes files."""
        return self.index == 0

    # Rows of networks

    @contextmanager
    def divided(self) -> Iterator[None]:
        """Divide the rows of networks in this block, which all ranks must run on the same tensors."""
        self.dividing = self.count > 1
        try:
            yield
        finally:
            self.dividing = False

    def by_rows(self, network: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """The output of a network for inputs [b, ...]; each rank computes a part of the rows."""
        if not self.dividing or len(inputs[0]) < self.count:
            return network(*inputs)
        rows = len(inputs[0])
        own = (_Divide.apply(x, self) for x in inputs)
        gathered: Tensor = _Gather.apply(network(*own), rows, self)
        return gathered

    def part(self, rows: int, index: int | None = None) -> slice:
        """The rows of this rank, or of another one; ranks differ by one row at most."""
        index = self.index if index is None else index
        return slice(index * rows // self.count, (index + 1) * rows // self.count)

    def gathered(self, x: Tensor, rows: int) -> Tensor:
        """All `rows` in order, for the part x [b, ...] of each rank; without a gradient."""
        most = -(-rows // self.count)
        padded = torch.cat((x, x.new_zeros(most - len(x), *x.shape[1:]))) if len(x) < most else x.contiguous()
        every = x.new_empty(self.count * most, *x.shape[1:])
        distributed.all_gather_into_tensor(every, padded)
        if len(every) == rows:
            return every
        parts = (self.part(rows, index) for index in range(self.count))
        return torch.cat([each[: part.stop - part.start] for each, part in zip(every.split(most), parts, strict=True)])

    # What is equal on all ranks

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their means over the ranks."""
        if self.count == 1:
            return
        flat = torch.cat([x.flatten() for x in tensors])
        distributed.all_reduce(flat)
        flat /= self.count
        for x, mean in zip(tensors, flat.split([x.numel() for x in tensors]), strict=True):
            x.copy_(mean.view_as(x))

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors, on any device, by those of the first rank."""
        if self.count == 1:
            return
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for x in tensors:
            kinds.setdefault(x.dtype, []).append(x)
        for alike in kinds.values():
            flat = torch.cat([x.detach().flatten().to(self.device) for x in alike])
            distributed.broadcast(flat, 0)
            for x, value in zip(alike, flat.split([x.numel() for x in alike]), strict=True):
                x.copy_(value.view_as(x))

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first rank makes."""
        if self.count == 1:
            return make()
        made = [make() if self.first else None]
        distributed.broadcast_object_list(made, device=self.device)
        return made[0]  # type: ignore[return-value]

    def agree(self, step: int, wanted: bool) -> bool:
        """Whether any rank wants to stop, in every few steps; otherwise no."""
        if self.count == 1:
            return wanted
        if step % AGREE_EVERY:
            return False
        votes = torch.tensor(float(wanted), device=self.device)
        distributed.all_reduce(votes)
        return bool(votes)

    # What is refused

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse ranks with different facts, by name: their batches or decisions would differ."""
        if self.count == 1:
            return
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, dict(facts))
        for index, theirs in enumerate(found):
            for name, value in found[0].items():
                if theirs[name] != value:
                    raise ValueError(
                        f"ranks differ in the {name}: rank {index} has {theirs[name]!r}, rank 0 {value!r}; start all "
                        "with the same command, data and kind of hardware"
                    )

    @property
    def hardware(self) -> str:
        """GPUs of different kinds draw different random numbers."""
        return torch.cuda.get_device_name(self.device) if self.device and self.device.type == "cuda" else "cpu"


ALONE = Ranks()


@contextmanager
def joined(kind: str) -> Iterator[Ranks]:
    """The ranks that this process was started with, on devices of a kind, "cpu" or "cuda". One alone is `ALONE`."""
    found = started()
    if found is None:
        yield ALONE
        return
    if kind == "cuda":
        if found.here > (seen := torch.cuda.device_count()):
            slurm = "; leave out --gpus-per-task, with which it sees only its own, and give --gpus-per-node"
            raise ValueError(
                f"{found.here} ranks were started on this machine, and one of them sees {seen} of its GPUs; each needs "
                f"one of its own{slurm if found.environment is SLURMEnvironment else ''}"
            )
        torch.cuda.set_device(found.place)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else each rank reports that it is there
    fabric = Fabric(
        accelerator=kind,
        devices=found.here,
        num_nodes=found.machines,
        strategy=DDPStrategy(timeout=PATIENCE),
        plugins=[found.environment()],
    )
    fabric.launch()
    yield Ranks(fabric.global_rank, fabric.world_size, fabric.device)
    distributed.destroy_process_group()  # not after an error: other ranks may be waiting


class _Divide(torch.autograd.Function):
    """The rows of this rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks, ctx.rows = ranks, len(x)
        return x[ranks.part(len(x))]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.gathered(gradient, ctx.rows) / ctx.ranks.count, None


class _Gather(torch.autograd.Function):
    """Rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int, ranks: Ranks) -> Tensor:
        ctx.ranks, ctx.part = ranks, ranks.part(rows)
        return ranks.gathered(x, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.part] * ctx.ranks.count, None, None
