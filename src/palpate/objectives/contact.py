"""The object's losses that depart from the paper: contacts and rest as likelihoods.

Legend: b batch, n ambient dimension; leading dimensions broadcast, so [b, k] serves k objects.
"""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LEAST_CHANCE = 1e-6  # of a change, and of none
SHARE_RANGE = (0.02, 0.98)  # of changes: rarer labels weigh as if they were as common as that
# Share of wrong labels that a fit of the boundary assumes; with a sharp boundary one would outweigh the rest.
SHARP_DOUBT = 0.005
HIDING_COST = 0.03  # of an object that is hidden in both observations
LEAST_WIDTH, ADDED_WIDTH = 1e-6, 0.1  # least squared width of the neighbourhood; share of it that is added


class Hidden(NamedTuple):
    """Log-odds [b] that the object is hidden, in o and in o', and of a change if it is hidden in both."""

    before: Tensor
    after: Tensor
    change: Tensor

    def seen(self) -> Tensor:
        """log P(visible in both), `[b]`."""
        return logsigmoid(-self.before) + logsigmoid(-self.after)

    def cost(self) -> Tensor:
        """Cost of hiding, `[b]`: a visible object at rest could as well be hidden."""
        return HIDING_COST * (self.before.sigmoid() + self.after.sigmoid()) / 2

    def otherwise(self, changed: Tensor) -> Tensor:
        """log P(changed, and not visible in both), `[b]`."""
        gone, gone_after, seen, seen_after = map(logsigmoid, (self.before, self.after, -self.before, -self.after))
        both = gone + gone_after + torch.where(changed, logsigmoid(self.change), logsigmoid(-self.change))
        appears = torch.logaddexp(gone + seen_after, seen + gone_after)
        return torch.where(changed, torch.logaddexp(appears, both), both)


class Wrong(NamedTuple):
    """Shares of wrong labels: of the changes that lack the label, and of the other triples that have it."""

    missed: Tensor
    false: Tensor

    @classmethod
    def evenly(cls, share: float, like: Tensor) -> Self:
        """The same share of both."""
        return cls(torch.full_like(like, share), torch.full_like(like, share))


def change_logs(contact: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Tensor]:
    """log P(changed) and log P(unchanged) `[b]`, for log-odds [b] of a contact.

    A visible object changes the scene in a contact. An object that appears or vanishes changes it in any case, and one
    that is hidden in both observations with a probability of its own. So the body need not grow to where the agent
    hides the object, and the unknown position of a hidden object explains nothing.
    """
    if hidden is None:
        return logsigmoid(contact), logsigmoid(-contact)
    always, seen = torch.ones_like(contact, dtype=torch.bool), hidden.seen()
    changed = torch.logaddexp(seen + logsigmoid(contact), hidden.otherwise(always))
    return changed, torch.logaddexp(seen + logsigmoid(-contact), hidden.otherwise(~always))


def change_nll(contact: Tensor, label: Tensor, hidden: Hidden | None = None, wrong: Wrong | None = None) -> Tensor:
    """-log P(label) `[b]`, for log-odds [b] of a contact and labels [b] bool: whether the scene has changed.

    A departure from the paper, whose L_+ only uses paths with contact. A path without contact shows where the body is
    not; both together determine the body's centre and radius. If some labels may be `wrong`, one that geometry excludes
    hardly moves the body.
    """
    changed, unchanged = change_logs(contact, hidden)
    right = torch.where(label, changed, unchanged)
    if wrong is None:
        return -right
    lost, mistaken = torch.where(label, wrong.missed, wrong.false), torch.where(label, wrong.false, wrong.missed)
    return -torch.logaddexp(right + torch.log1p(-lost), torch.where(label, unchanged, changed) + mistaken.log())


def balanced_nll(
    before: Tensor,
    after: Tensor,
    hidden: Hidden | None,
    changed: Tensor,
    share: Tensor,
    wrong: Wrong | None = None,
    *,
    sure: Tensor | bool = True,
) -> Tensor:
    """-log P(label) `[b]`, and the cost of hiding, from the log-odds of contact that o and o' give for the same path.

    `changed` [b] is the label, 0 to 1: whether the object has changed. Both labels weigh the same, whatever the `share`
    of changes; otherwise rare contacts would let the body shrink to where contacts are certain. An object without
    contact stays, so the path constrains o' as much as o.

    The weights also multiply the odds of the label where positions are `sure`, so the boundary of the body stays where
    contacts begin. While they are not, rare contacts would let the body shrink here, too.
    """
    share = share.clamp(*SHARE_RANGE)
    always, never = torch.ones_like(changed, dtype=torch.bool), torch.zeros_like(changed, dtype=torch.bool)
    factor = torch.where(torch.as_tensor(sure, device=share.device), (1 - share) / share, 1.0)  # of the odds

    def labels(contact: Tensor) -> tuple[Tensor, Tensor]:
        """-log P of both labels, a change and none."""
        change, none = change_nll(contact, always, hidden, wrong), change_nll(contact, never, hidden, wrong)
        # In this form a factor of 1 changes no bit.
        rarer, more_common = torch.log1p((-none).exp() * (1 / factor - 1)), torch.log1p((-change).exp() * (factor - 1))
        return change + rarer, none + more_common

    (touched, passed), (_, passed_after) = labels(before), labels(after)
    cost = 0.0 if hidden is None else hidden.cost()
    return changed * touched * 0.5 / share + (1 - changed) * (passed + passed_after) * 0.25 / (1 - share) + cost


def responsibility(odds: Tensor, surer: Tensor) -> Tensor:
    """P(object changed | some object changed) `[b, k]`, from the log-odds [b, k] of each if it were alone.

    The objects change independently, and at least one of them does. A single object is responsible for every change.
    `surer` [k, k] bool: where object j is surer than i, at [i, j], i is not responsible for what j explains.
    """
    none = logsigmoid(-odds).sum(-1, keepdim=True)
    # log P(some), and its limit if all are improbable.
    some = torch.where(
        none < -LEAST_CHANCE, torch.log(-torch.expm1(none.clamp(max=-LEAST_CHANCE))), odds.logsumexp(-1, keepdim=True)
    )
    left = logsigmoid(-odds) @ surer.to(odds.dtype).T  # log P(no surer object explains the change)
    return (logsigmoid(odds) - some).clamp(max=0).add(left).exp()


def rest_nll(remained: Tensor, scale: Tensor, n: int) -> Tensor:
    """L_- as a likelihood, `[b]`: -log of a Student-t density of z_ext' - z_ext with one degree of freedom, up to a
    constant, from the squared distance and a scale.

    A departure from the paper. Heavy tails: in a missed contact the object moves far, and a squared distance would
    outweigh all other triples. A learned scale: the weight of a distance, (1 + n) / 2 scale^2, grows as observations of
    one place agree better.
    """
    return (1 + n) / 2 * torch.log1p(remained / scale.square()) + n * scale.log()


def rest_log_density(remained: Tensor, scale: Tensor, n: int) -> Tensor:
    """The log-density of which `rest_nll` leaves out the constant, `[b]`."""
    constant = math.lgamma((1 + n) / 2) - math.lgamma(1 / 2) - n / 2 * math.log(math.pi)
    return constant - rest_nll(remained, scale, n)


def levelled(remained: Tensor, scale: Tensor | float) -> Tensor:
    """A squared distance that levels off at `scale`^2: d^2 scale^2 / (scale^2 + d^2)."""
    return remained / (1 + remained / scale**2)


def spread_nearby(z_ext: Tensor, z_ext_next: Tensor, reach: float) -> Tensor:
    """Mean squared distance, along each axis, to the other objects of a batch of two or more: `[b, n]`.

    Near objects count most, by exp(-d^2 / 2 s^2), where s is `reach` standard deviations of all. A share of s^2 is
    added, because objects in only a few places have neighbours at distance 0.
    """
    everything = torch.cat((z_ext, z_ext_next))  # [2b, n]
    apart = ((z_ext + z_ext_next)[:, None] / 2 - everything).square()  # [b, 2b, n]
    own = torch.eye(len(z_ext), dtype=torch.bool, device=z_ext.device).repeat(1, 2)
    width = (reach**2 * everything.detach().var(0).mean()).clamp(min=LEAST_WIDTH)
    weights = torch.softmax((apart.detach().sum(-1) / (-2 * width)).masked_fill(own, -torch.inf), 1)
    return (weights[..., None] * apart).sum(1) + ADDED_WIDTH * width


def unshrinkable(z_ext: Tensor, z_ext_next: Tensor, spread: Tensor) -> Tensor:
    """L_- divided by the `spread` [b, n] nearby: the same value, but its gradient does not shrink the frame, `[b]`.

    A departure from the paper: z_ext and z_ext' of one place differ a little. L_- would reduce that difference by
    shrinking the frame, most where the difference is largest, and so distort the frame.
    """
    return ((z_ext - z_ext_next).square() * spread.detach() / spread).sum(-1)
