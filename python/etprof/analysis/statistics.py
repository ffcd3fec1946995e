"""Describes raw samples; a block (one process launch) is the unit of replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A two-sided interval and the least probability with which it covers the truth."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class SampleSummary:
    """Raw samples in figures, all in the samples' own unit."""

    count: int
    median: float
    mean: float
    standard_deviation: float
    minimum: float
    maximum: float
    p90: float
    p99: float


@dataclass(frozen=True)
class BlockedMedian:
    """The median over blocks of each block's median."""

    median: float
    interval: Interval | None
    """None with fewer than six blocks: no interval of 95 % exists."""
    block_medians: tuple[float, ...]


def summarise(samples: Sequence[float] | NDArray[np.generic]) -> SampleSummary:
    """Describes `samples`, which must not be empty."""
    values = np.asarray(samples, dtype=np.float64)
    p90, p99 = np.percentile(values, [90, 99])
    return SampleSummary(
        count=values.size,
        median=float(np.median(values)),
        mean=float(values.mean()),
        standard_deviation=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        minimum=float(values.min()),
        maximum=float(values.max()),
        p90=float(p90),
        p99=float(p99),
    )


def median_interval(values: Sequence[float]) -> Interval | None:
    """Returns the exact interval of the median between two order statistics.

    With n independent values the interval from the k-th smallest to the k-th largest covers the
    median with probability 1 - 2 P(B < k), B binomial(n, 1/2), whatever the distribution
    (Conover, Practical Nonparametric Statistics, section 3.2). The narrowest interval with at
    least 95 % is returned, or None when even the whole range has less (n < 6).
    """
    ordered = sorted(values)
    count = len(ordered)
    masses = _binomial_half(count)
    best: Interval | None = None
    for rank in range(1, count // 2 + 1):
        confidence = 1 - 2 * sum(masses[:rank])
        if confidence < CONFIDENCE:
            break
        best = Interval(ordered[rank - 1], ordered[count - rank], confidence)
    return best


def _binomial_half(count: int) -> list[float]:
    """Probabilities of 0 … count heads in `count` fair tosses."""
    masses = [0.5**count]
    for heads in range(1, count + 1):
        masses.append(masses[-1] * (count - heads + 1) / heads)
    return masses


def summarise_blocks(blocks: Sequence[Sequence[float]]) -> BlockedMedian:
    """Reduces each block to its median, then takes the median with its interval over blocks."""
    medians = tuple(float(np.median(block)) for block in blocks)
    return BlockedMedian(float(np.median(medians)), median_interval(medians), medians)
