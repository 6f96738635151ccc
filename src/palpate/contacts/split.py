"""Which triples were touched: splitting the distances d_W(w, w') in two (paper, Sec. 4.2; Otsu 1979).

What a step needs stays on the device and has fixed shapes, so that it can be captured in a CUDA graph.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WINDOW = 4096  # distances that the threshold is computed from
FLOOR = 0.001  # quantile of unrelated scenes' distances below which all distances count as equal
SMALLEST = 1e-5  # o = o' gives d_W = 0
SEPARABLE = 0.5  # least emptiness of the valley between two classes that can be told apart
FEWEST, FEWEST_OF_A_CLASS = 256, 20  # distances on which classes can be judged, and of the rarer one when recalled
PLACES = 32  # between two classes, where the threshold may lie
SMALLEST_SHARE = 0.005  # fewer than this are outliers, not a class


def otsu(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """The threshold of exact one-dimensional 2-means over `values` [N]: midway between the two classes' borders.

    Only entries where `valid` [N] holds count. All values equal: the threshold is that value, and `values > threshold`
    is empty.
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
    # Between-class variance of a cut after each position; a cut inside a run of equal values is none.
    between = torch.where(ordered[1:] > ordered[:-1], below * above * gap.square(), 0.0)
    best, cut = between.max(dim=0, keepdim=True)
    threshold = (ordered.gather(0, cut) + ordered.gather(0, cut + 1)) / 2  # plain indexing would ask the host
    return torch.where(best > 0, threshold, ordered[-1])[0].to(values.dtype)


class Split(nn.Module):
    """Remembers the distances of many batches and says which triples were touched.

    The threshold is Otsu's over the last `window` distances, so a batch without contacts, or with nothing else, is
    split as well as any other. `window` = 0 takes the batch alone, as the paper does.

    On the logarithm a floor helps: the distances of untouched triples shrink over orders of magnitude, and when
    contacts are rare 2-means would rather cut that wide class in two. Two unrelated scenes tell how close different
    scenes ever come; distances below the `floor` quantile of those are all the same to us. Once the classes are apart
    the threshold then moves from Otsu's to the emptiest place between them.
    """

    distances: Tensor
    unrelated: Tensor
    seen: Tensor
    smallest: Tensor
    threshold: Tensor
    share: Tensor
    valley: Tensor

    def __init__(self, *, on: str = "log", window: int = WINDOW, floor: float = FLOOR) -> None:
        super().__init__()
        self.on, self.window, self.floor = on, window, floor
        kept = window or 1024  # a threshold of one batch is still worth looking at over several
        self.register_buffer("distances", torch.full((kept,), torch.nan))
        self.register_buffer("unrelated", torch.full((kept,), torch.nan))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("smallest", torch.tensor(SMALLEST))  # distances below it count as equal to it
        self.register_buffer("threshold", torch.zeros(()))  # on the scale of `scaled`
        self.register_buffer("share", torch.tensor(0.5))  # of touched triples
        self.register_buffer("valley", torch.zeros(()))  # see `separation`

    @torch.no_grad()
    def update(self, distances: Tensor, unrelated: Tensor) -> None:
        """Remember d_W(w, w') of a batch and d_W of unrelated pairs, `[b]` each, and move the threshold."""
        kept = len(self.distances)
        slots = (self.seen + torch.arange(len(distances), device=distances.device)[-kept:]) % kept
        self.distances.index_copy_(0, slots, distances[-kept:])
        self.unrelated.index_copy_(0, slots, unrelated[-kept:])
        self.seen += len(distances)
        if self.window:
            distances, unrelated = self.distances, self.unrelated
        known = ~distances.isnan()
        if self.floor > 0:
            rank = (self.floor * known.sum()).long()
            ordered = unrelated.sort().values  # NaN, the slots not filled yet, come last
            self.smallest.copy_(ordered.gather(0, rank[None])[0].clamp(min=SMALLEST))
        self._judge(self.scaled(distances.nan_to_num(1.0)), known)

    def _judge(self, scaled: Tensor, known: Tensor) -> None:
        cut = otsu(scaled, known)
        valley, emptiest = _between(scaled, (scaled > cut) & known, (scaled <= cut) & known, cut)
        self.valley.copy_(valley)
        # Above a floor the untouched are one point and Otsu's middle lies among the contacts.
        self.threshold.copy_(torch.where(valley >= SEPARABLE, emptiest, cut) if self.floor > 0 else cut)
        self.share.copy_(((scaled > self.threshold) & known).sum() / known.sum())

    @torch.no_grad()
    def recall(self, distances: Tensor) -> None:
        """Remember these distances [N] alone, of triples that were not trained on, if they show two classes as well.

        A network brings the untouched pairs that it has seen closer together than others: a threshold close above those
        would take some of the others for contacts. Where the others do not separate, that is remembered of them.
        """
        count, kept = len(distances), len(self.distances)
        if not self.window or min(count, kept) < FEWEST or self.separation() < SEPARABLE:
            return
        before = self._state()
        spaced = torch.arange(min(count, kept), device=distances.device) * count // min(count, kept)
        self.distances.fill_(torch.nan)[: len(spaced)] = distances[spaced]
        self._judge(self.scaled(distances), torch.ones_like(distances, dtype=torch.bool))
        rarer = min(float(self.share), 1 - float(self.share)) * count
        valley = torch.minimum(self.valley, before["valley"])
        if rarer < FEWEST_OF_A_CLASS or valley < SEPARABLE:
            self._restore(before)
        if rarer >= FEWEST_OF_A_CLASS:
            self.valley.copy_(valley)

    @contextmanager
    def recalling(self, distances: Tensor) -> Iterator[None]:
        """As if it remembered these distances [N] alone; see `recall`."""
        before = self._state()
        self.recall(distances)
        try:
            yield
        finally:
            self._restore(before)

    def _state(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.named_buffers()}

    def _restore(self, state: dict[str, Tensor]) -> None:
        for name, value in self.named_buffers():
            value.copy_(state[name])

    def scaled(self, distances: Tensor) -> Tensor:
        """Distances on the axis the split is made on."""
        return distances if self.on == "d" else torch.maximum(distances, self.smallest).log()

    def forward(self, distances: Tensor) -> Tensor:
        """Which triples were touched, `[b]` bool."""
        return self.scaled(distances) > self.threshold

    def reliable(self) -> Tensor:
        """Whether contacts can be acted on: a threshold of one batch, or between classes that are not apart yet, is
        not trusted so far; device work only."""
        return (self.valley >= SEPARABLE) & (self.window > 0)

    def apart(self) -> Tensor:
        """Whether there are two classes, neither of them a few outliers; device work only."""
        return (self.valley >= SEPARABLE) & (torch.minimum(self.share, 1 - self.share) >= SMALLEST_SHARE)

    def separation(self) -> float:
        """How empty the valley between the two classes remembered is: 1 empty, 0 or less no valley at all.

        Few outliers beside one class, and a memory too short to judge, count as no valley.
        """
        kept = int((~self.distances.isnan()).sum())
        rarer = min(float(self.share), 1 - float(self.share)) * kept
        return float(self.valley) if kept >= FEWEST and rarer >= max(2, SMALLEST_SHARE * kept) else 0.0

    def probability(self, distances: Tensor) -> Tensor:
        """P(touched) for distances d_W `[b]`: 1/2 at the threshold, and as steep as two equally wide normal classes
        with the means and the spread remembered would make it."""
        scaled = self._remembered()
        touched = scaled > self.threshold
        if touched.all() or not touched.any():
            return self(distances).to(distances.dtype)
        low, high = scaled[~touched].mean(), scaled[touched].mean()
        spread2 = (scaled - torch.where(touched, high, low)).square().mean().clamp(min=1e-6)
        return torch.sigmoid((self.scaled(distances) - self.threshold) * (high - low) / spread2)

    def _remembered(self) -> Tensor:
        return self.scaled(self.distances[~self.distances.isnan()])


def _between(scaled: Tensor, touched: Tensor, untouched: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """How empty the valley at the cut is, and where between the two classes' means it is emptiest.

    The first is one minus the density around the cut over that of the sparser class around its mean: a single class,
    whatever its shape, is denser at its cut than on at least one side, and scores 0 or less.
    """
    low, high = ((scaled * side).sum() / side.sum().clamp(min=1) for side in (untouched, touched))
    known = touched | untouched

    def near(at: Tensor, width: float) -> Tensor:
        return (((scaled - at[:, None]).abs() <= (high - low) * width) & known).sum(1)

    below, at_cut, above = near(torch.stack((low, cut, high)), 1 / 8).unbind()
    places = low + (high - low) * torch.arange(1, PLACES, device=scaled.device) / PLACES
    crowd = near(places, 2 / PLACES)
    # The first stretch of emptiest places, since contacts may thin out further up; of it the middle, since triples not
    # seen yet are less sharply told.
    empty, index = crowd == crowd.amin(), torch.arange(len(places), device=scaled.device)
    first = empty.long().argmax()
    end = (empty | (index < first)).long().cumprod(0).sum()
    emptiest = places.gather(0, ((first + end - 1) // 2)[None])[0]
    valley = 1 - at_cut / torch.minimum(below, above).clamp(min=1)
    return torch.where(touched.any() & untouched.any(), valley, 0.0), emptiest
