"""The agent's representation moves as the agent does (paper, Sec. 4.1). Legend: b batch."""

import torch
from torch import Tensor

from palpate.groups import Group


def equivariance(group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """L_int = |z_int' - a z_int|^2 (Eq. 3), `[b]`; for translations a z_int = z_int + a.

    Zero for the true state moved by any one element of the group.
    """
    return group.distance2(z_int_next, group.act(z_int, a))


def chain_equivariance(
    group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor, chain: Tensor, travelled: Tensor
) -> Tensor:
    """L_int between all triples of a chain, `[b]`: from the o of one to the o' of another; 0 without another.

    A departure from the paper. In one triple an object that stays, or hardly moves, may shift z_int unnoticed. Over a
    chain of triples it moves far. `travelled` [b, pose_width] are the poses before each action, from the chain's first.
    """
    leg = group.between(travelled[:, None], group.act(travelled, a)[None])  # [b, b, action_width]
    residual2 = group.distance2(z_int_next[None], group.act(z_int[:, None], leg))
    others = (chain[:, None] == chain[None]) & ~torch.eye(len(a), dtype=torch.bool, device=a.device)
    return torch.where(others, residual2, 0.0).sum(1) / others.sum(1).clamp(min=1)
