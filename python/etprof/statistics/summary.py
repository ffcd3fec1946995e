"""Describes raw samples; a block (one process launch) is the unit of replication."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import Interval, median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WHISKER: Final = 1.5
_TRIM: Final = 0.1
"""Cut from each end."""
_MAD_TO_DEVIATION: Final = 1.4826


@dataclass(frozen=True)
class SampleSummary:
    """Raw samples in figures, all in the samples' own unit."""

    count: int
    median: float
    mean: float
    standard_deviation: float
    minimum: float
    maximum: float
    p75: float
    p90: float
    p95: float
    p99: float
    trimmed_mean: float
    """Of the middle 80 %."""
    outliers: int
    """Samples more than 1.5 interquartile ranges outside the quartiles."""


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
    p25, p75, p90, p95, p99 = (float(p) for p in np.percentile(values, [25, 75, 90, 95, 99]))
    reach = _WHISKER * (p75 - p25)
    return SampleSummary(
        count=values.size,
        median=float(np.median(values)),
        mean=float(values.mean()),
        standard_deviation=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        minimum=float(values.min()),
        maximum=float(values.max()),
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        trimmed_mean=trimmed_mean(values),
        outliers=int(np.sum((values < p25 - reach) | (values > p75 + reach))),
    )


def summarise_blocks(blocks: Sequence[Sequence[float]]) -> BlockedMedian:
    """Reduces each block to its median, then takes the median with its interval over blocks."""
    medians = tuple(float(np.median(block)) for block in blocks)
    return BlockedMedian(float(np.median(medians)), median_interval(medians), medians)


def trimmed_mean(samples: Sequence[float] | NDArray[np.float64]) -> float:
    """Mean of the middle 80 %, as ExecuTorch's apps have it; cuts none of too few."""
    values = np.sort(np.asarray(samples, dtype=np.float64))
    drop = int(values.size * _TRIM)
    return float(values[drop : values.size - drop].mean())


def robust_spread(deviations: NDArray[np.float64]) -> float:
    """Standard deviation after the median of deviations, in which outliers count little."""
    return float(np.median(np.abs(deviations))) * _MAD_TO_DEVIATION


def noise_of_series(values: NDArray[np.float64]) -> float:
    """Spread of one value around its level, from differences of neighbours: no drift inflates it."""
    return robust_spread(np.diff(values)) / math.sqrt(2)
