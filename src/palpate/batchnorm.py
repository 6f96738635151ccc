"""Batch norm over the rows of all ranks.

Legend: b rows, N ranks, c channels.
"""

from typing import Any

import torch
from torch import Tensor, distributed

from palpate.ranks import Ranks


class _Statistics(torch.autograd.Function):
    """The statistics [1, ...] of every rank, `[N, ...]`. Each rank uses them for its own rows, so gradients add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.gathered(x, ranks.count)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total, at = gradient.clone(memory_format=torch.contiguous_format), ctx.ranks.index
        distributed.all_reduce(total)
        return total[at : at + 1], None


class WholeBatchNorm(torch.nn.BatchNorm2d):
    """Batch norm with the statistics of the rows of all ranks.

    `nn.SyncBatchNorm` does the same on GPUs alone.
    """

    ranks: Ranks

    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.ranks.dividing):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float()
            variance, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
            count = torch.full_like(mean, x.numel() / len(mean))
            every: Tensor = _Statistics.apply(torch.stack((mean, variance, count))[None], self.ranks)
            means, variances, counts = every.unbind(1)  # [N, c]
            share, count = counts / counts.sum(0), counts.sum(0)
            mean = (share * means).sum(0)
            variance = (share * (variances + (means - mean).square())).sum(0)
            self._remember(mean, variance, count)
            scale = self.weight * (variance + self.eps).rsqrt()
            normal = (wide - mean[:, None, None]) * scale[:, None, None] + self.bias[:, None, None]
        return normal.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Update the running averages for evaluation."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * count / (count - 1), self.momentum)


def normalise_whole_batches(module: torch.nn.Module, ranks: Ranks) -> None:
    """Replace the batch norms of a module; parameters and buffers stay."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.BatchNorm2d):
            norm = WholeBatchNorm(child.num_features, child.eps, child.momentum, device="meta")
            norm.ranks = ranks
            norm._parameters, norm._buffers = child._parameters, child._buffers
            setattr(module, name, norm.train(child.training))
        else:
            normalise_whole_batches(child, ranks)
