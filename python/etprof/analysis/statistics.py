"""Describes raw samples; a block (one process launch) is the unit of replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etprof.order_statistics import Interval, median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


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


def summarise_blocks(blocks: Sequence[Sequence[float]]) -> BlockedMedian:
    """Reduces each block to its median, then takes the median with its interval over blocks."""
    medians = tuple(float(np.median(block)) for block in blocks)
    return BlockedMedian(float(np.median(medians)), median_interval(medians), medians)


def trimmed_mean(samples: Sequence[float], cut: float) -> float:
    """Mean without the fraction `cut` of the samples at each end; cuts none if too few."""
    values = np.sort(np.asarray(samples, dtype=np.float64))
    drop = int(values.size * cut)
    return float(values[drop : values.size - drop].mean())
