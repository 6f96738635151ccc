"""The agent: its representation moves as the agent does (paper, Sec. 4.1). Legend: b batch, n ambient dimension."""

from torch import Tensor


def equivariance(z_int: Tensor, a: Tensor, z_int_next: Tensor) -> Tensor:
    """L_int = |z_int' - (z_int + a)|^2 (Eq. 3), `[b]`. Zero for the true state plus any constant."""
    return (z_int_next - z_int - a).square().sum(-1)
