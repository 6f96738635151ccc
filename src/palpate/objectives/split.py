"""Which triples were touched: splitting the distances d_W(w, w') in two (paper, Sec. 4.2; Otsu 1979).

Everything stays on the device and has fixed shapes, so that a step can be captured in a CUDA graph.
"""

import torch
from torch import Tensor, nn

SMALLEST = 1e-5  # o = o' gives d_W = 0


def otsu(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """The threshold of exact one-dimensional 2-means over `values` [N]: midway between the two classes' borders.

    Only entries where `valid` [N] holds count. All values equal: the threshold is that value, and `values > threshold`
    is empty.
    """
    ordered, order = values.double().sort()
    weight = torch.ones_like(ordered) if valid is None else valid[order].double()
    count = weight.cumsum(0)
    total = (ordered * weight).cumsum(0)
    below, above = count[:-1], count[-1] - count[:-1]
    gap = total[:-1] / below.clamp(min=1) - (total[-1] - total[:-1]) / above.clamp(min=1)
    # Between-class variance of a cut after each position; a cut inside a run of equal values is none.
    between = torch.where(ordered[1:] > ordered[:-1], below * above * gap.square(), 0.0)
    cut = between.argmax()
    threshold = (ordered[cut] + ordered[cut + 1]) / 2
    return torch.where(between[cut] > 0, threshold, ordered[-1]).to(values.dtype)


class Split(nn.Module):
    """Keeps the distances of many batches and says which triples of this one were touched.

    The threshold is Otsu's over the last `window` distances, so a batch without contacts, or with nothing else, is
    split as well as any other. `window` = 0 takes the batch alone, as the paper does.

    On the logarithm a floor helps: the distances of untouched triples shrink over orders of magnitude, and when
    contacts are rare 2-means would rather cut that wide class in two. Two unrelated scenes tell how close different
    scenes ever come; distances below the `floor` quantile of those are all the same to us.
    """

    distances: Tensor
    unrelated: Tensor
    seen: Tensor

    def __init__(self, *, on: str, window: int, floor: float) -> None:
        super().__init__()
        self.on, self.window, self.floor = on, window, floor
        self.register_buffer("distances", torch.full((window,), torch.nan))
        self.register_buffer("unrelated", torch.full((window,), torch.nan))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, distances: Tensor, unrelated: Tensor) -> None:
        """Remember this batch's d_W(w, w') and d_W of unrelated pairs, `[b]` each."""
        if self.window:
            slots = (self.seen + torch.arange(len(distances), device=distances.device)) % self.window
            self.distances.index_copy_(0, slots, distances)
            self.unrelated.index_copy_(0, slots, unrelated)
            self.seen += len(distances)
        else:
            self.distances, self.unrelated = distances.clone(), unrelated.clone()

    def scale(self, distances: Tensor) -> Tensor:
        """The axis the split is made on."""
        if self.on == "d":
            return distances
        smallest = torch.full_like(self.seen, SMALLEST, dtype=distances.dtype)
        if self.floor > 0:
            ordered = self.unrelated.sort().values  # NaN, the slots not filled yet, come last
            rank = (self.floor * (~self.unrelated.isnan()).sum()).long()
            smallest = torch.maximum(smallest, ordered[rank])
        return torch.maximum(distances, smallest).log()

    def threshold(self) -> Tensor:
        """Otsu's threshold over what is remembered, on the split's axis."""
        known = ~self.distances.isnan()
        return otsu(self.scale(self.distances.nan_to_num(1.0)), known)

    def forward(self, distances: Tensor) -> Tensor:
        """Which triples were touched, `[b]` bool."""
        return self.scale(distances) > self.threshold()

    @torch.no_grad()
    def separation(self) -> Tensor:
        """How empty the valley between the two classes is: 1 empty, 0 or less no valley at all.

        One minus the density around the threshold over that of the sparser class around its median. A single class,
        whatever its shape, is denser at its threshold than on at least one side of it, and scores 0 or less.
        """
        known = ~self.distances.isnan()
        scaled = torch.where(known, self.scale(self.distances.nan_to_num(1.0)), torch.nan)
        threshold = self.threshold()
        low = torch.where(scaled <= threshold, scaled, torch.nan).nanmedian()
        high = torch.where(scaled > threshold, scaled, torch.nan).nanmedian()
        half_width = (high - low) / 8
        at = torch.stack((low, threshold, high))
        sparse_low, valley, sparse_high = ((scaled - at[:, None]).abs() <= half_width).sum(1).float()
        return 1 - valley / torch.minimum(sparse_low, sparse_high).clamp(min=1)

    def probability(self, distances: Tensor) -> Tensor:
        """P(touched) for distances d_W `[b]`: 1/2 at the threshold, as steep as the two classes are apart."""
        known = ~self.distances.isnan()
        scaled, threshold = self.scale(self.distances.nan_to_num(1.0)), self.threshold()
        above = known & (scaled > threshold)
        below = known & ~above
        means = [(scaled * side).sum() / side.sum().clamp(min=1) for side in (below, above)]
        spread2 = ((scaled - torch.where(above, means[1], means[0])).square() * known).sum() / known.sum().clamp(min=1)
        steepness = (means[1] - means[0]) / spread2.clamp(min=1e-6)
        return torch.sigmoid(steepness * (self.scale(distances) - threshold))
