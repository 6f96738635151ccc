"""The agent's representation moves as the agent does (paper, Sec. 4.1). Legend: b batch."""

from torch import Tensor

from palpate.groups import Group


def equivariance(group: Group, z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """L_int = |z_int' - a z_int|^2 (Eq. 3), `[b]`; for translations a z_int = z_int + a.

    Zero for the true state moved by any one element of the group.
    """
    return group.distance2(z_int_next, group.act(z_int, a))
