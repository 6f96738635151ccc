"""A network that learns to follow moves, for comparing what the actions of a log might be."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from palpate.doctor.probe import PROBE_BATCH, STEPS, Trial
from palpate.networks import Branch, make_encoder

LEARNING_RATE = 3e-3

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # outputs [b, w] for o and for o', and the numbers of their rows


class Apart(nn.Module):
    """Networks side by side, so that what one learns does not depend on the others."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], -1)


def followed(trial: Trial, widths: Sequence[int], loss: Loss) -> nn.Module:
    """A network for several readings, with outputs of these widths, trained on the kept rows until the trial's deadline
    at most. For numbers each reading has a network of its own; for pictures that would take too long."""
    torch.manual_seed(0)
    branch: nn.Module
    if trial.picture:
        branch = Branch(make_encoder(trial.model.config), sum(widths))
    else:
        branch = Apart([Branch(type(trial).vector_encoder(trial.kept.o.shape[1]), width) for width in widths])
    optimizer = torch.optim.AdamW(branch.parameters(), lr=LEARNING_RATE)
    generator, steps = torch.Generator().manual_seed(0), STEPS[trial.picture]
    size = min(PROBE_BATCH, len(trial.kept.a))
    for step in range(steps):
        if time.thread_time() > trial.deadline:
            trial.followed = False
            break
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        rows = torch.randint(len(trial.kept.a), (size,), generator=generator)
        value = loss(*_both(trial, branch, trial.kept.o[rows], trial.kept.o_next[rows]), rows)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return branch.eval()


@torch.no_grad()
def held_outputs(trial: Trial, branch: nn.Module) -> tuple[Tensor, Tensor]:
    """The network's outputs for o and o' of the held rows."""
    blocks = zip(trial.held.o.split(256), trial.held.o_next.split(256), strict=True)
    pairs = [_both(trial, branch, o, o_next) for o, o_next in blocks]
    before, after = (torch.cat(side) for side in zip(*pairs, strict=True))
    return before, after


def _both(trial: Trial, branch: nn.Module, o: Tensor, o_next: Tensor) -> tuple[Tensor, Tensor]:
    before, after = branch(trial.model.inputs(torch.cat((o, o_next)))).chunk(2)
    return before, after
