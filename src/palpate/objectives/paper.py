"""The object's losses as the paper prints them (Sec. 4.2 and 4.3). Legend: b batch, n ambient dimension.

Leading dimensions broadcast, so [b, k, n] serves k objects.
"""

from torch import Tensor

from palpate.geometry import Path, gaussian_kl, gaussian_nll


def stay(z_ext: Tensor, z_ext_next: Tensor) -> Tensor:
    """L_- = |z_ext - z_ext'|^2 for a triple without contact (Eq. 4, left), `[b]`."""
    return (z_ext - z_ext_next).square().sum(-1)


def touch(z_ext: Tensor, path: Path) -> Tensor:
    """L_+ = squared distance of z_ext to the path, for a contact (Eq. 4, right), `[b]`."""
    return path.distance2(z_ext)


def gaussian_stay(mean: Tensor, root: Tensor, mean_next: Tensor, root_next: Tensor) -> Tensor:
    """L_- of a body with a volume: the KL divergence, averaged over both directions (Sec. 4.3), `[b]`."""
    forward = gaussian_kl(mean, root, mean_next, root_next)
    return (forward + gaussian_kl(mean_next, root_next, mean, root)) / 2


def gaussian_touch(mean: Tensor, root: Tensor, path: Path, t: Tensor) -> Tensor:
    """L_+ of a body with a volume: -log N of the path's point at a uniformly drawn `t` (Sec. 4.3), `[b]`."""
    return gaussian_nll(path.at(t), mean, root)
