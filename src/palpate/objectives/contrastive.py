"""The contrastive representation w, which separates scenes (paper, Sec. 4.2).

Legend: b batch, k objects, m dimension of W.
"""

import math

import torch
from torch import Tensor

REACH = 2.5  # standard deviations of the agents' positions; a uniform distribution reaches 1.73


def squared_distance(w: Tensor, w_other: Tensor) -> Tensor:
    """d_W, the squared Euclidean distance in float32 (under bf16 triples without contact would all collapse to 0)."""
    return (w.float() - w_other.float()).square().sum(-1)


def beyond_reach(position: Tensor, agents: Tensor) -> Tensor:
    """How far positions [b, k, n] lie beyond the agents' positions [b, 1, n], squared, `[b, k]`: 0 within `REACH`
    standard deviations of them along each axis.

    An addition to the paper, for InfoNCE on positions: scattered far away, they would differ most from each other. An
    object that the agent can touch is not there.
    """
    middle, spread = agents.mean(0), agents.std(0).clamp(min=1e-6)
    return ((position - middle).abs() / spread - REACH).clamp(min=0).square().sum(-1)


def infonce(w: Tensor, w_next: Tensor, agents: Tensor, *, temperature: float | Tensor, floor: float = 0.0) -> Tensor:
    """L_cont = d_W(w, w') / tau + log E_o'' exp(-d_W(w', w'') / tau - agents) (Eq. 5), `[b]`, for w [b, k, m].

    `agents` [b, b] are the squared distances between the agents of o' and o'', divided by their temperature. They
    weight o'' by how close its agent is to that of o', so w gains nothing from encoding the agent's position. Otherwise
    it would gain, because the agent's positions before and after a move depend on each other. The expectation is over
    all other o' of the batch.

    A departure from the paper: with `floor` f > 0 both exp(-d_W / tau) become exp(-d_W / tau) + f. In a contact, o does
    not determine where the object is in o'. So the ideal similarity is a peak over a constant; a peak alone distorts W,
    because it pulls pairs in contact together too. Over k objects the similarity is the product.
    """
    b = len(w)
    if b < 2:
        raise ValueError("InfoNCE compares the samples of a batch with each other; a batch of 1 has no other sample")

    def log_similarity(distance2: Tensor) -> Tensor:  # [..., k] -> [...]
        log_floor = distance2.new_full((), math.log(floor) if floor > 0 else -math.inf)
        return torch.logaddexp(-distance2 / temperature, log_floor).sum(-1)

    others = log_similarity(squared_distance(w_next[:, None], w_next[None])) - agents  # [b, b]
    itself = torch.eye(b, dtype=torch.bool, device=w.device)
    repulsion = torch.logsumexp(others.masked_fill(itself, -torch.inf), dim=1) - math.log(b - 1)
    return repulsion - log_similarity(squared_distance(w, w_next))
