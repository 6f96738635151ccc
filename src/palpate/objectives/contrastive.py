"""Telling scenes apart: the contrastive representation w (paper, Sec. 4.2).

Legend: b batch, n ambient dimension, m dimension of W.
"""

import math

import torch
from torch import Tensor


def squared_distance(w: Tensor, w_other: Tensor) -> Tensor:
    """d_W, the squared Euclidean distance in float32 (under bf16 the untouched triples would all collapse to 0)."""
    return (w.float() - w_other.float()).square().sum(-1)


def infonce(w: Tensor, w_next: Tensor, z_int_next: Tensor, *, temperature: float, floor: float = 0.0) -> Tensor:
    """L_cont = d_W(w, w') / tau + log E_o'' exp(-(d_W(w', w'') + |z_int' - z_int''|^2) / tau) (Eq. 5), `[b]`.

    The distance of the agents makes o'' count as far as its agent stands where that of o' does; so w gains nothing from
    telling where the agent is, which it otherwise would: around an object that was not touched, the agent's places
    before and after the move are not independent. The expectation runs over every other o' of the batch, never over o'
    itself.

    A departure from the paper: with `floor` f > 0 both exp(-d_W / tau) become exp(-d_W / tau) + f. Of the pairs some
    were touched, and then o says nothing of where the object is in o'; what is to be learned is a peak over a constant,
    and a peak alone bends W to bring the touched pairs closer too.
    """
    b = len(w)
    if b < 2:
        raise ValueError("InfoNCE compares the samples of a batch with each other; a batch of 1 has no other")

    def log_similarity(distance2: Tensor) -> Tensor:
        log_floor = distance2.new_full((), math.log(floor) if floor > 0 else -math.inf)
        return torch.logaddexp(-distance2 / temperature, log_floor)

    others = log_similarity(pairwise(w_next.float())) - pairwise(z_int_next.float()) / temperature  # [b, b]
    itself = torch.eye(b, dtype=torch.bool, device=w.device)
    repulsion = torch.logsumexp(others.masked_fill(itself, -torch.inf), dim=1) - math.log(b - 1)
    return repulsion - log_similarity(squared_distance(w, w_next))


def pairwise(x: Tensor) -> Tensor:
    """All squared distances between rows, [b, b]; by differences, since |x|^2 + |y|^2 - 2 x.y loses the small ones."""
    return (x[:, None] - x[None, :]).square().sum(-1)
