"""Describes raw samples; a block (one process launch) is the unit of replication."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import LEAST_VALUES, Interval, median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WHISKER: Final = 1.5
_TRIM: Final = 0.1
"""Cut from each end."""
_MAD_TO_DEVIATION: Final = 1.4826
LEAST_TO_TELL: Final = 20
"""Launches below which a strong dependence between them would mostly stay unseen."""
LEAST_FOR_STATES: Final = 60
"""Launches below which a run may well have seen one of two states alone.

A state that holds 3 of 10 launches, kept from one launch to the next with r = .81 (.9 between the
launches of two sides in turns): none of n is in it with .7 (1 - .3 (1 - r))^(n - 1), one alone with
about .7 (n - 2) (.3 (1 - r)) (.7 (1 - r)) (1 - .3 (1 - r))^(n - 3). Together 26.5 % of 20, 9.4 % of 40,
3.3 % of 60. A rarer state moves the median less, a commoner one is seen sooner.
"""
_NORMAL_95: Final = 1.645
"""One-sided quantile of the normal distribution."""
_LEAST_IN_A_STATE: Final = 0.2
_LASTING: Final = 0.1
"""Chance of stretches so few, below which a rare state is one."""
_GAP: Final = 40.0
"""A gap between two states is more than 40/n of their spread: 1 to 2 of 100 samples of one normal or
lognormal state have that by chance, for n from 8 to 40 (counted out in 3 000 samples each)."""


@dataclass(frozen=True)
class SampleSummary:
    """Raw samples in figures, all in the samples' own unit."""

    count: int
    median: float
    mean: float
    standard_deviation: float
    variation: float | None
    """Standard deviation ÷ mean; None where the mean is 0."""
    minimum: float
    maximum: float
    p10: float
    p25: float
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
    """None with fewer than six blocks, and where they depend on one another."""
    block_medians: tuple[float, ...]
    doubt: str = ""
    """Why the interval is missing, or surely covers less than 95 %."""
    assumes: str = ""
    """What it rests on that so few launches cannot show."""


def summarise(samples: Sequence[float] | NDArray[np.generic]) -> SampleSummary:
    """Describes `samples`, which must not be empty.

    Args:
        samples: In one unit, which the summary has too; shape (n,), in the order of time.
    """
    values = np.asarray(samples, dtype=np.float64)
    quantiles = np.percentile(values, [10, 25, 75, 90, 95, 99])
    p10, p25, p75, p90, p95, p99 = (float(value) for value in quantiles)
    reach = _WHISKER * (p75 - p25)
    mean, deviation = float(values.mean()), float(values.std(ddof=min(1, values.size - 1)))
    return SampleSummary(
        count=values.size,
        median=float(np.median(values)),
        mean=mean,
        standard_deviation=deviation,
        variation=deviation / mean if mean else None,
        minimum=float(values.min()),
        maximum=float(values.max()),
        p10=p10,
        p25=p25,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        trimmed_mean=trimmed_mean(values),
        outliers=int(np.sum((values < p25 - reach) | (values > p75 + reach))),
    )


def summarise_blocks(blocks: Sequence[Sequence[float]]) -> BlockedMedian:
    """Reduces each block to its median, then takes the median with its interval over blocks.

    The interval holds for independent launches. It is wider by what launches that follow each other
    have in common (as the effective number of samples: Zieba 2010, "Effective number of
    observations and unbiased estimators of variance for autocorrelated data"), and missing where
    they surely depend on one another. Blocks are given in the order of their launches.
    """
    medians = tuple(float(np.median(block)) for block in blocks)
    middle, interval = float(np.median(medians)), median_interval(medians)
    if interval is None:
        return BlockedMedian(middle, None, medians, f"fewer than {LEAST_VALUES} launches")
    alike, limit = _serial_correlation(np.asarray(medians))
    if alike > limit:
        return BlockedMedian(middle, None, medians, "launches depend on those before them")
    wider = math.sqrt((1 + alike) / (1 - alike)) if alike > 0 else 1.0
    low, high = (middle + (end - middle) * wider for end in (interval.low, interval.high))
    doubt, assumes = "", ""
    if (states := two_states(medians)) or (states := _lasting_states(medians)):
        doubt = (
            f"launch times fall into two groups, {states[0]} of {len(medians)} in the faster one"
        )
    elif len(medians) < LEAST_TO_TELL:
        assumes = f"assuming independent launches (--blocks {LEAST_TO_TELL} or more checks that)"
        if alike > 0:
            assumes = (
                "widened because neighbouring launches are alike "
                f"(--blocks {LEAST_TO_TELL} or more checks whether they depend on each other)"
            )
    elif len(medians) < LEAST_FOR_STATES:
        assumes = (
            "assuming that the machine was in one state, such as one clock speed (--blocks "
            f"{LEAST_FOR_STATES} or more checks that)"
        )
    known = Interval(low, high, interval.confidence)
    return BlockedMedian(middle, known, medians, doubt, assumes)


def _serial_correlation(values: NDArray[np.float64]) -> tuple[float, float]:
    """Correlation of neighbours' ranks, and what 5 % of independent series exceed.

    Corrected for its bias of -1/n (Bartels 1982, "The rank version of von Neumann's ratio test").

    Args:
        values: In the order of time, shape (n,).
    """
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    ranks -= ranks.mean()
    correlation = float((ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum()) + 1 / values.size
    return (0.0 if np.ptp(values) == 0 else correlation), _NORMAL_95 / math.sqrt(values.size)


def two_states(values: Sequence[float]) -> tuple[int, float, float] | None:
    """Finds two states that launches fall into: how many are in the lower, and both medians.

    Each holds a fifth of the values, and the gap between them is wide beside their spread. None
    where there is one state, or fewer than eight values.
    """
    minimum_size = max(2, math.ceil(_LEAST_IN_A_STATE * len(values)))
    return _split(np.sort(np.asarray(values, float)), minimum_size)


def _lasting_states(values: Sequence[float]) -> tuple[int, float, float] | None:
    """Finds two states of which the rarer has two launches at least, in few stretches of time.

    Fewer stretches than 10 % of random orders have (Wald and Wolfowitz 1940, "On a test whether two
    samples are from the same population"): single disturbed launches are no state.
    """
    states = _split(np.sort(np.asarray(values, float)), 2)
    if states is None:
        return None
    is_slower = np.asarray(values) > states[1] + (states[2] - states[1]) / 2
    stretches = 1 + int(np.sum(is_slower[1:] != is_slower[:-1]))
    return states if _chance_of_stretches(states[0], len(values), stretches) <= _LASTING else None


def _chance_of_stretches(size: int, count: int, maximum_stretches: int) -> float:
    """Chance of so few stretches in a random order of `size` of one kind among `count`."""
    complement_size, ways = count - size, 0
    for stretches in range(2, maximum_stretches + 1):
        half, is_odd = divmod(stretches, 2)
        one, two = math.comb(size - 1, half - 1), math.comb(complement_size - 1, half - 1)
        if is_odd:
            ways += one * math.comb(complement_size - 1, half) + math.comb(size - 1, half) * two
        else:
            ways += 2 * one * two
    return ways / math.comb(count, size)


def _split(ordered: NDArray[np.float64], minimum_size: int) -> tuple[int, float, float] | None:
    """Splits sorted values at their widest gap, at least `minimum_size` on each side, where it is wide enough.

    Args:
        ordered: Ascending, shape (n,).
        minimum_size: Values on each side.

    Returns:
        How many are below the gap, and its two ends; None where there is none.
    """
    count = ordered.size
    if count < 4 * 2 or ordered[0] == ordered[-1]:
        return None
    gaps = np.diff(ordered)[minimum_size - 1 : count - minimum_size]
    size = int(np.argmax(gaps)) + minimum_size
    lower, upper = ordered[:size], ordered[size:]
    squares = math.fsum(float(((state - state.mean()) ** 2).sum()) for state in (lower, upper))
    if gaps.max() <= _GAP / count * math.sqrt(squares / (count - 2)):
        return None
    return size, float(np.median(lower)), float(np.median(upper))


def trimmed_mean(samples: Sequence[float] | NDArray[np.float64]) -> float:
    """Mean of the middle 80 %, as ExecuTorch's apps have it; cuts none of too few.

    Args:
        samples: Shape (n,).

    Returns:
        In the samples' unit.
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    drop = int(values.size * _TRIM)
    return float(values[drop : values.size - drop].mean())


def robust_spread(deviations: NDArray[np.float64]) -> float:
    """Standard deviation after the median of deviations, in which outliers count little.

    Args:
        deviations: Not below zero, shape (n,).
    """
    return float(np.median(np.abs(deviations))) * _MAD_TO_DEVIATION


def noise_of_series(values: NDArray[np.float64]) -> float:
    """Spread of one value around its level, from differences of neighbours: no drift inflates it.

    Args:
        values: In the order of time, shape (n,).

    Returns:
        A standard deviation, in the values' unit.
    """
    return robust_spread(np.diff(values)) / math.sqrt(2)
