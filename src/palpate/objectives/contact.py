"""The object: where it must be, given which triples touched it (paper, Sec. 4.2 and 4.3, and the contact likelihood).

Legend: b batch, n ambient dimension; leading dimensions broadcast, so [b, k, n] serves k objects.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from palpate.geometry import Segment, around, gaussian_kl, gaussian_nll, segment_distance2, segment_offset

DISTANCE_EPS = 1e-6  # keeps the gradient of the unsquared distance finite at 0
# In which a path that ends beside a body is looked at. At most a thousandth of its radius is lost; beside the straight
# side of a rod, or where a path runs along a body's end, a fortieth of their length.
DIRECTIONS = 128
LEAST_WIDTH, ADDED_WIDTH = 1e-6, 0.1  # of the neighbourhood by whose spread L_- is measured, squared; a share of it


def stay(z_ext: Tensor, z_ext_next: Tensor) -> Tensor:
    """L_- = |z_ext - z_ext'|^2 for an untouched triple (Eq. 4, left), `[b]`."""
    return (z_ext - z_ext_next).square().sum(-1)


def levelled(remained: Tensor, scale: Tensor | float) -> Tensor:
    """A squared distance that levels off at `scale`^2: d^2 scale^2 / (scale^2 + d^2).

    A departure from the paper: among the triples taken for untouched a few were touched, and their L_-, a whole journey
    of the object, would outweigh all the others. Within a fraction of `scale` nothing changes.
    """
    return remained / (1 + remained / scale**2)


def spread_nearby(z_ext: Tensor, z_ext_next: Tensor, reach: float) -> Tensor:
    """Mean squared distance, along each axis, of the other objects of a batch of two or more: `[b, n]`.

    Near ones count most, by exp(-d^2 / 2 s^2), where s is `reach` standard deviations of all. A little of s^2 is added:
    where objects come in a few places only, the others there are no measure.
    """
    everything = torch.cat((z_ext, z_ext_next))  # [2b, n]
    apart = ((z_ext + z_ext_next)[:, None] / 2 - everything).square()  # [b, 2b, n]
    own = torch.eye(len(z_ext), dtype=torch.bool, device=z_ext.device).repeat(1, 2)
    width = (reach**2 * everything.detach().var(0).mean()).clamp(min=LEAST_WIDTH)
    weights = torch.softmax((apart.detach().sum(-1) / (-2 * width)).masked_fill(own, -torch.inf), 1)
    return (weights[..., None] * apart).sum(1) + ADDED_WIDTH * width


def unshrinkable(z_ext: Tensor, z_ext_next: Tensor, spread: Tensor) -> Tensor:
    """L_- measured by the `spread` [b, n] around: the same number, whose gradient does not draw objects together.

    A departure from the paper: z_ext and z_ext' of one place differ a little, and L_- would make that difference
    smaller by making the frame smaller there, more so where the difference is larger. So it bends the frame.
    """
    return ((z_ext - z_ext_next).square() * spread.detach() / spread).sum(-1)


def touch(z_ext: Tensor, path: Segment) -> Tensor:
    """L_+ = squared distance of z_ext to the path, for a touched triple (Eq. 4, right), `[b]`."""
    return segment_distance2(z_ext, path)


def gaussian_stay(mean: Tensor, root: Tensor, mean_next: Tensor, root_next: Tensor) -> Tensor:
    """L_- of a body with a volume: the KL divergence, in both directions averaged (Sec. 4.3), `[b]`."""
    forward = gaussian_kl(mean, root, mean_next, root_next)
    return (forward + gaussian_kl(mean_next, root_next, mean, root)) / 2


def gaussian_touch(mean: Tensor, root: Tensor, path: Segment, t: Tensor) -> Tensor:
    """L_+ of a body with a volume: -log N of the path's point at a `t` drawn uniformly (Sec. 4.3), `[b]`."""
    return gaussian_nll(path.at(t), mean, root)


def contact_logit(distance2: Tensor, radius: Tensor | float, softness: Tensor | float) -> Tensor:
    """log-odds of a touch at squared distance d^2 from the path: (r - d) / t, `[b]`."""
    return (radius - torch.sqrt(distance2 + DISTANCE_EPS)) / softness


def outline(offset: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """log of a body's reach over its mean radius, in the directions of `offset` [..., 2]: `[...]`.

    A path that passes by and just misses a convex body is a tangent of it, so what counts is how far the body reaches
    toward the nearest point of the path, its support function h: log h = log r + sum over k >= 2 of c_k cos(k angle) +
    s_k sin(k angle), with `cosines` and `sines` [K - 1]. k = 1 would be a shift of the centre.
    """
    direction = offset / torch.sqrt(offset.square().sum(-1, keepdim=True) + DISTANCE_EPS)  # at the centre, none
    x, y = real, imaginary = direction.unbind(-1)  # a compiler has no complex numbers
    total = torch.zeros_like(x)
    for cosine, sine in zip(cosines, sines, strict=True):
        real, imaginary = real * x - imaginary * y, real * y + imaginary * x
        total = total + cosine * real + sine * imaginary
    return total


def clearance(centre: Tensor, path: Segment, reach: Callable[[Tensor], Tensor]) -> Tensor:
    """How far a path passes from a convex body, `[b]`; negative: how deep it reaches into it.

    `reach` says how far the body reaches from its centre in directions [..., k, 2] of length 1: `[b, k]` or `[k]`.
    A path misses the body where in some direction all of it lies beyond that reach: the largest such gap over all
    directions. One that passes by has it at its nearest point, which is taken exactly. One that ends beside the body
    may have it elsewhere, toward the flat of a side, and is looked at in a fixed set of directions.
    """
    offset = segment_offset(centre, path)
    distance = torch.sqrt(offset.square().sum(-1) + DISTANCE_EPS)
    passing = distance - reach((offset / distance[..., None])[..., None, :]).squeeze(-1)
    directions = around(DIRECTIONS, centre)
    start = path.start - centre

    def gaps(toward: Tensor) -> Tensor:
        first, last = ((end[..., None, :] * toward).sum(-1) for end in (start, start + path.move))
        return torch.minimum(first, last) - reach(toward)  # [b, k]

    # Chosen, then measured: the gradient of a maximum over many, compiled, may divide 0 by 0.
    widest = directions[gaps(directions).argmax(-1), None]  # [b, 1, 2]
    return torch.maximum(passing, gaps(widest).squeeze(-1))


def rimmed(direction: Tensor, axis: Tensor, radius: Tensor | float, log_ratio: Tensor, share: Tensor) -> Tensor:
    """How far an ellipse with a rim of equal width all around reaches in `direction` [..., 2], of length 1: `[...]`.

    What an agent that is a disc touches is the object grown by that disc, and an ellipse that has grown is none: a rod
    becomes a stadium. `axis` [..., 2], `radius` and `log_ratio` are those of `geometry.ellipse` and give the semi-axes
    of the whole. The rim is a `share` of the shorter one; with a and b, what it leaves of them, h = rim +
    sqrt(a^2 cos^2 + b^2 sin^2) of the angle to the long axis. No angle is computed, so that a disc (axis 0) is an
    ordinary point.
    """
    length = torch.sqrt(axis.square().sum(-1) + 1e-24)
    k = log_ratio * length / 2
    rim = share * radius * torch.exp(-k.abs())
    a, b = radius * torch.exp(k) - rim, radius * torch.exp(-k) - rim
    x, y = direction.unbind(-1)
    doubled = torch.stack((x.square() - y.square(), 2 * x * y), -1)
    # (a^2 - b^2) times the cosine of the doubled angle to the long axis; a - b = 2 radius sinh k.
    odd = (a + b) * (2 * radius * torch.sinh(k) / length) * (doubled * axis).sum(-1)
    inner2 = (a.square() + b.square() + odd) / 2
    return rim + torch.sqrt(inner2.clamp(min=0) + 1e-12)  # across a rod rounding may take all of it


def contact_nll(logit: Tensor, contact: Tensor, doubt: float = 0.0) -> Tensor:
    """-log P(contact), with P(touch) = sigmoid(logit), `[b]`.

    A departure from the paper, whose L_+ only uses paths that touched: a path that did not says that the body is not
    there, and the two together place the body's centre and give its radius.

    Where a share of the contacts, `doubt`, is taken for misses and the other way round, P = doubt +
    (1 - 2 doubt) P(touch): a path far away that is said to have touched no longer makes the body as large as that.
    """
    if doubt > 0:
        right = logsigmoid(torch.where(contact, logit, -logit)) + math.log(1 - 2 * doubt)
        return -torch.logaddexp(right, right.new_full((), math.log(doubt)))
    return binary_cross_entropy_with_logits(logit, contact.to(logit.dtype), reduction="none")


def balanced_nll(before: Tensor, after: Tensor, contact: Tensor, share: Tensor, doubt: float = 0.0) -> Tensor:
    """-log P(contact) of a batch, from the log-odds `[b]` that o gives and those that o' would have given.

    Both classes weigh the same, however rare one is: contacts are a `share` of all. Else the body would shrink where
    contacts are. An object that was not touched is where it was: the path tells as much of o' as of o.
    """
    balance = torch.where(contact, 0.5 / share, 0.5 / (1 - share))
    first, second = (contact_nll(logit, contact, doubt) for logit in (before, after))
    return (balance * torch.where(contact, first, (first + second) / 2)).mean()
