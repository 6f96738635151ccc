"""Interquartile means and their bootstrap intervals.

Legend: s seeds, r resamples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95


def interquartile_mean(values: Array) -> Array:
    """Mean of the middle half along the last axis [..., s]. A value at its edge has a fractional weight."""
    values = np.sort(values, axis=-1)
    edges = np.linspace(0, 1, values.shape[-1] + 1)
    weights = 2 * np.diff(np.clip(edges, 0.25, 0.75))  # they sum to 1
    kept = weights > 0  # an infinite value outside the middle half must not enter the sum
    result: Array = (values[..., kept] * weights[kept]).sum(-1)
    return result


def interval(values: Array) -> tuple[float, float]:
    """Confidence interval from resampled values [r]."""
    tail = (1 - CONFIDENCE) / 2
    # Without interpolation: it is undefined between a finite and an infinite value.
    low, high = np.quantile(values, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def resampled(count: int, seed: int = 0, resamples: int = RESAMPLES) -> NDArray[np.int64]:
    """Indices of seeds drawn with replacement, [r, s]."""
    return np.random.default_rng(seed).integers(count, size=(resamples, count))


def stratified_bootstrap(strata: Sequence[Array], seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Interval of the interquartile mean over all values, resampled within each stratum (a world's seeds)."""
    rng = np.random.default_rng(seed)
    draws = [stratum[rng.integers(len(stratum), size=(resamples, len(stratum)))] for stratum in strata]  # [r, s] each
    return interval(interquartile_mean(np.concatenate(draws, axis=-1)))
