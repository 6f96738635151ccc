"""Which triples are in contact: the distances d_W(w, w') split in two (paper, Sec. 4.2; Otsu 1979).

The work of a training step stays on the device and has fixed shapes, so that a CUDA graph can capture it.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

WINDOW = 4096  # stored distances, from which the threshold is computed
FLOOR = 0.001  # quantile of unrelated scenes' distances below which all distances count as equal
SMALLEST = 1e-5  # o = o' gives d_W = 0
SEPARABLE = 0.5  # least emptiness of the valley between two separate classes
FEWEST, FEWEST_OF_A_CLASS = 256, 20  # distances needed to judge the classes; of the rarer class in `recall`
PLACES = 32  # intervals between the classes' means, to search the threshold in
TELLING = 0.5  # least Youden's index at which geometry and distances agree
FEWEST_EXPLAINED = 0.25  # least share of predicted contacts, relative to changes; also of other paths to no changes
STEEP = 1e4  # largest slope of the log-odds of a contact
SMALLEST_SHARE = 0.005  # of a class; fewer distances are outliers


def otsu(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """The threshold of exact one-dimensional 2-means over `values` [N]: midway between the two classes' borders.

    Only entries with `valid` [N] count. If all values are equal, the threshold is that value, and no value exceeds it.
    """
    if valid is None:
        valid = torch.ones_like(values, dtype=torch.bool)
    largest = torch.where(valid, values, -torch.inf).amax()
    if len(values) == 1:
        return largest
    ordered, order = torch.where(valid, values, largest).double().sort()
    weight = valid[order].double()
    count = weight.cumsum(0)
    total = (ordered * weight).cumsum(0)
    below, above = count[:-1], count[-1] - count[:-1]
    gap = total[:-1] / below.clamp(min=1) - (total[-1] - total[:-1]) / above.clamp(min=1)
    # Between-class variance of a cut after each position; equal values cannot be cut.
    between = torch.where(ordered[1:] > ordered[:-1], below * above * gap.square(), 0.0)
    best, cut = between.max(dim=0, keepdim=True)
    threshold = (ordered.gather(0, cut) + ordered.gather(0, cut + 1)) / 2  # plain indexing would wait for the host
    return torch.where(best > 0, threshold, ordered[-1])[0].to(values.dtype)


class Split(nn.Module):
    """Stores the distances of many batches and decides which triples are in contact.

    The threshold is Otsu's over the last `window` distances, so a batch may have no contacts, or only contacts.
    `window` = 0 uses each batch alone, as the paper does.

    On the logarithm, distances without contact spread over orders of magnitude. If contacts are rare, 2-means would cut
    that wide class in two. So distances below the `floor` quantile of unrelated scenes' distances count as equal. Once
    the classes are separate, the threshold moves from Otsu's to the emptiest place between them.
    """

    def __init__(self, *, on: str = "log", window: int = WINDOW, floor: float = FLOOR) -> None:
        super().__init__()
        self.on, self.window, self.floor = on, window, floor
        kept = window or 1024  # the separation is judged over several batches
        self.distances = nn.Buffer(torch.full((kept,), torch.nan))
        self.unrelated = nn.Buffer(torch.full((kept,), torch.nan))
        self.touching = nn.Buffer(torch.full((kept,), torch.nan))  # 1 if geometry predicts a contact, else 0
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.long))
        self.smallest = nn.Buffer(torch.tensor(SMALLEST))  # distances below it count as equal to it
        self.threshold = nn.Buffer(torch.zeros(()))  # on the scale of `scaled`
        self.share = nn.Buffer(torch.tensor(0.5))  # contact share
        self.valley = nn.Buffer(torch.zeros(()))  # see `separation`
        self.slope = nn.Buffer(torch.full((), STEEP))  # of the log-odds of a contact
        self.above = nn.Buffer(torch.zeros(2))  # the `agreement` with geometry
        self.predicted = nn.Buffer(torch.zeros(()))  # share of paths that geometry predicts to touch
        self.explained = nn.Buffer(torch.tensor(False))  # whether geometry explains the distances of trained triples

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all distances."""
        self.load_state_dict(Split(on=self.on, window=self.window, floor=self.floor).state_dict())

    @torch.no_grad()
    def update(self, distances: Tensor, unrelated: Tensor, touching: Tensor | None = None) -> None:
        """Store d_W of a batch and of unrelated pairs, `[b]` each, and update the threshold.

        `touching` [b] bool: whether geometry predicts a contact; None if it cannot.
        """
        kept = len(self.distances)
        slots = (self.seen + torch.arange(len(distances), device=distances.device)[-kept:]) % kept
        self.distances.index_copy_(0, slots, distances[-kept:])
        self.unrelated.index_copy_(0, slots, unrelated[-kept:])
        if touching is not None:
            self.touching.index_copy_(0, slots, touching[-kept:].to(self.touching.dtype))
        self.seen.add_(len(distances))
        if self.window:
            distances, unrelated = self.distances, self.unrelated
            touching = None if touching is None else self.touching
        known = ~distances.isnan()
        if self.floor > 0:
            rank = (self.floor * known.sum()).long()
            ordered = unrelated.sort().values  # NaN, the empty slots, come last
            self.smallest.copy_(ordered.gather(0, rank[None])[0].clamp(min=SMALLEST))
        self._judge(self.scaled(distances.nan_to_num(1.0)), known, touching)
        if touching is not None:
            self.explained.copy_(self.youden >= TELLING)
        if not self.window:
            self.valley.copy_(self._stored_valley())

    def _stored_valley(self) -> Tensor:
        """The valley of all stored distances."""
        scaled, known = self.scaled(self.distances.nan_to_num(1.0)), ~self.distances.isnan()
        cut = otsu(scaled, known)
        return _between(scaled, (scaled > cut) & known, (scaled <= cut) & known, cut)[0]

    def _judge(self, scaled: Tensor, known: Tensor, touching: Tensor | None = None) -> None:
        cut = otsu(scaled, known)
        valley, emptiest = _between(scaled, (scaled > cut) & known, (scaled <= cut) & known, cut)
        self.valley.copy_(valley)
        # With a floor the class without contact is one point, and Otsu's threshold lies among the contacts.
        cut = torch.where(valley >= SEPARABLE, emptiest, cut) if self.floor > 0 else cut
        self.threshold.copy_(cut)
        contact, other = (scaled > self.threshold) & known, (scaled <= self.threshold) & known
        self.share.copy_(contact.sum() / known.sum())
        self.slope.copy_(_slope(scaled, contact, other))
        if touching is not None:
            above, predicted = agreement(scaled, touching, self.threshold)
            self.above.copy_(above)
            self.predicted.copy_(predicted)

    @torch.no_grad()
    def recall(self, distances: Tensor, touching: Tensor | None = None) -> None:
        """Take the threshold from distances [N] of held-out triples, if they have two classes too.

        Training brings pairs without contact closer together than new ones. A threshold just above them gives false
        positives among new triples. If the new triples do not separate, only the low separation is stored. They also
        show how well distances agree with geometry. Trained triples agree too well, because both fit their
        mistakes. Few held-out triples are weak evidence, so each share is estimated by the rule of succession; it is
        1/2 without any.
        `touching` [N] bool: whether geometry predicts a contact for them; None if it cannot.
        """
        expected = None if touching is None else touching.to(self.touching.dtype)
        self._retake(distances, expected)
        if self.window and expected is not None:
            above, counts = _counted(self.scaled(distances), expected, self.threshold)
            self.above.copy_((above + 1) / (counts + 2))

    def _retake(self, distances: Tensor, expected: Tensor | None) -> None:
        count, kept = len(distances), len(self.distances)
        if not self.window or min(count, kept) < FEWEST or self.separation() < SEPARABLE:
            return
        before = deepcopy(self.state_dict())
        spaced = torch.arange(min(count, kept), device=distances.device) * count // min(count, kept)
        self.distances.fill_(torch.nan)[: len(spaced)] = distances[spaced]
        if expected is not None:
            self.touching.fill_(torch.nan)[: len(spaced)] = expected[spaced]
        self._judge(self.scaled(distances), torch.ones_like(distances, dtype=torch.bool), expected)
        rarer = min(float(self.share), 1 - float(self.share)) * count
        valley = torch.minimum(self.valley, before["valley"])
        if rarer < FEWEST_OF_A_CLASS or valley < SEPARABLE:
            self.load_state_dict(before)
        if rarer >= FEWEST_OF_A_CLASS:
            self.valley.copy_(valley)

    def scaled(self, distances: Tensor) -> Tensor:
        """Distances on the axis of the split."""
        return distances if self.on == "d" else torch.maximum(distances, self.smallest).log()

    def forward(self, distances: Tensor) -> Tensor:
        """Contacts, `[b]` bool."""
        return self.scaled(distances) > self.threshold

    def has_valley(self) -> Tensor:
        """Whether a valley separates the classes, however small they are; not for single batches. Device work only."""
        return (self.valley >= SEPARABLE) & (self.window > 0)

    def has_two_classes(self) -> Tensor:
        """Whether a valley separates two classes, each larger than a few outliers; device work only."""
        return (self.valley >= SEPARABLE) & (torch.minimum(self.share, 1 - self.share) >= SMALLEST_SHARE)

    def separation(self) -> float:
        """Emptiness of the valley between the two classes: 1 is empty, 0 or less is no valley.

        A few outliers beside one class, or too few stored distances, count as no valley.
        """
        kept = int((~self.distances.isnan()).sum())
        rarer = min(float(self.share), 1 - float(self.share)) * kept
        return float(self.valley) if kept >= FEWEST and rarer >= max(2, SMALLEST_SHARE * kept) else 0.0

    def probability(self, distances: Tensor) -> Tensor:
        """P(contact) for distances d_W `[b]` and a contact share of 1/2; device work only.

        It is 1/2 at the threshold, with the slope of two equally wide normal classes that have the means and the spread
        of the stored distances. If geometry explains the trained triples, its agreement with new ones bounds the
        probability: if these disagree, it is their distances that are uncertain, and not geometry.
        """
        p = torch.sigmoid((self.scaled(distances) - self.threshold) * self.slope)
        touch, other = self.above.unbind()
        least, most = (1 - touch) / (2 - touch - other).clamp(min=1e-6), touch / (touch + other).clamp(min=1e-6)
        return torch.where(self.explained, p.clamp(least, most), p)

    @property
    def youden(self) -> Tensor:
        """Youden's index: the share of distances above the threshold among paths that geometry predicts to touch, minus
        that share among the others. 1 is full agreement, 0 none."""
        return self.above[0] - self.above[1]

    def agrees(self) -> Tensor:
        """Whether geometry explains the changes; device work only.

        Youden's index is high, and geometry predicts neither far fewer contacts than there are changes nor nearly all
        paths to be contacts. The index alone may be high by chance if only a few paths differ from the rest. Appearing
        and vanishing objects change the scene too, so contacts may be fewer than changes.
        """
        enough = (self.predicted >= FEWEST_EXPLAINED * self.share) & (
            1 - self.predicted >= FEWEST_EXPLAINED * (1 - self.share)
        )
        return enough & (self.youden >= TELLING)


def agreement(scaled: Tensor, touching: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Shares `[2]` of the distances above a cut: of paths that geometry predicts to touch, and of the others.

    0 if either are too few to judge. And the share of paths that geometry predicts to touch.
    """
    above, counts = _counted(scaled, touching, cut)
    shares = above / counts.clamp(min=1)
    return torch.where(counts.amin() >= FEWEST_OF_A_CLASS, shares, 0.0), counts[0] / counts.sum().clamp(min=1)


def _counted(scaled: Tensor, touching: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Of paths that geometry predicts to touch, and of the others: how many are above a cut, and all, `[2]` each."""
    sides = torch.stack([touching == side for side in (1, 0)])  # NaN, the unknown ones, are in neither
    return (sides & (scaled > cut)).sum(1), sides.sum(1)


def _slope(scaled: Tensor, contact: Tensor, other: Tensor) -> Tensor:
    """Slope of the log-odds between two equally wide normal classes."""
    low, high = ((scaled * side).sum() / side.sum().clamp(min=1) for side in (other, contact))
    apart = torch.where(contact, scaled - high, torch.where(other, scaled - low, 0.0))
    spread2 = apart.square().sum() / (contact | other).sum().clamp(min=1)
    return torch.where(contact.any() & other.any(), (high - low) / spread2.clamp(min=1e-6), STEEP).clamp(max=STEEP)


def _between(scaled: Tensor, contact: Tensor, other: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Emptiness of the valley at the cut, and the emptiest place between the two classes' means.

    The emptiness is 1 minus the density around the cut over the density of the sparser class around its mean. A single
    class of any shape is denser at its cut than on at least one side, so its emptiness is 0 or less.
    """
    low, high = ((scaled * side).sum() / side.sum().clamp(min=1) for side in (other, contact))
    known = contact | other

    def near(at: Tensor, width: float) -> Tensor:
        return (((scaled - at[:, None]).abs() <= (high - low) * width) & known).sum(1)

    below, at_cut, above = near(torch.stack((low, cut, high)), 1 / 8).unbind()
    places = low + (high - low) * torch.arange(1, PLACES, device=scaled.device) / PLACES
    crowd = near(places, 2 / PLACES)
    # The first stretch of emptiest places, because contacts may be sparse further up; its middle, because new triples
    # separate less sharply.
    empty, index = crowd == crowd.amin(), torch.arange(len(places), device=scaled.device)
    first = empty.long().argmax()
    end = (empty | (index < first)).long().cumprod(0).sum()
    emptiest = places.gather(0, ((first + end - 1) // 2)[None])[0]
    valley = 1 - at_cut / torch.minimum(below, above).clamp(min=1)
    return torch.where(contact.any() & other.any(), valley, 0.0), emptiest
