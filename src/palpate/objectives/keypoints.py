"""Keypoints of the Transporter (Kulkarni et al. 2019): points of maps, Gaussians around them, transported features.

Points are (x, y) in the unit square, x to the right and y up. The last two axes of a map are its rows and columns,
which lie at the heights `rows` [h] and the abscissae `columns` [w].
Legend: b batch, k keypoints, c feature channels, h and w height and width of the maps.
"""

import math

import torch
from torch import Tensor


def soft_argmax(logits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The mean point `[b, k, 2]` under the softmax of each map [b, k, h, w]."""
    share = logits.flatten(2).softmax(-1).view_as(logits)
    x, y = (share.sum(-2) * columns).sum(-1), (share.sum(-1) * rows).sum(-1)
    return torch.stack((x, y), -1)


def heat(points: Tensor, rows: Tensor, columns: Tensor, std: Tensor) -> Tensor:
    """One map `[b, h, w]` in [0, 1] for all keypoints [b, k, 2]: 1 at each and falling as a Gaussian of `std` [2].

    Several keypoints give 1 - prod(1 - H_k), so the map stays a mask where they are close together.
    """
    x, y = points.unbind(-1)
    across = (-((columns - x[..., None]) / std[0]).square() / 2).exp()  # [b, k, w]
    upward = (-((rows - y[..., None]) / std[1]).square() / 2).exp()  # [b, k, h]
    # Not Tensor.prod: its gradient waits for the host, which a CUDA graph does not allow.
    beside: Tensor = math.prod((1 - upward[..., :, None] * across[..., None, :]).unbind(1))  # type: ignore[assignment]
    return 1 - beside


def transport(source: Tensor, target: Tensor, heat_source: Tensor, heat_target: Tensor) -> Tensor:
    """(1 - H)(1 - H') Phi + H' Phi': the source's features [b, c, h, w], erased at all keypoints and replaced by the
    target's features at the target's keypoints. Equal to the target if nothing else has changed.
    """
    here, there = heat_source[:, None], heat_target[:, None]
    return (1 - here) * (1 - there) * source + there * target
