"""How much faster is a part of a program, told by a few launches of each side in turns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE, LEAST_VALUES, Interval
from etprof.statistics.two_samples import mean_interval, mean_p_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ALL_SETS: Final = 12
_ROUNDING: Final = 1e-9
_SURE: Final = 0.975


@dataclass(frozen=True)
class LaunchRatio:
    """A ratio of means, baseline ÷ candidate."""

    speed_up: float
    interval: Interval | None
    """95 % interval between launches; with the p None for a single pair of launches."""
    p_value: float | None
    """By Student's t: few pairs have no finer one, and a table of many rows needs it."""
    is_sure: bool = True
    """Whether 1 is outside the sets' interval of 97.5 % too (96.9 % of six pairs, which have one): of
    a table under a periodic disturbance, a row in 95 % ones errs oftener than in one table of twenty."""


def ratio_of_launches(baseline: Sequence[float], candidate: Sequence[float]) -> LaunchRatio:
    """Compares the means of two sides whose launches are pairs, near each other in time.

    Six pairs and more have the interval of the ratio's own sign-flip test, which holds whatever
    disturbs launches in turns, such as something periodic. Fewer have Student's t of each pair's
    share of the log ratio, b / mean(b) - c / mean(c), by the delta method (Cochran, Sampling
    Techniques, 6.4). Raises ValueError for unlike sides, or without time.
    """
    old, new = np.asarray(baseline, float), np.asarray(candidate, float)
    if old.size != new.size or not old.size or old.mean() <= 0 or new.mean() <= 0:
        msg = f"need pairs with time on both sides, got {old.size} and {new.size} launches"
        raise ValueError(msg)
    log = math.log(old.mean() / new.mean())
    logs = (log + old / old.mean() - new / new.mean()).tolist()
    if old.size >= LEAST_VALUES:
        interval, wide = flipped_intervals(old, new)
        is_sure = wide is not None and not wide.low <= 1 <= wide.high
    else:
        log_interval, is_sure = mean_interval(logs), True
        interval = log_interval and Interval(
            math.exp(log_interval.low), math.exp(log_interval.high), log_interval.confidence
        )
    return LaunchRatio(math.exp(log), interval, mean_p_value(logs), is_sure)


def flipped_intervals(
    baseline: NDArray[np.float64],
    candidate: NDArray[np.float64],
    confidences: Sequence[float] = (CONFIDENCE, _SURE),
) -> list[Interval | None]:
    """Intervals of the ratio of the means of two sides in pairs, in time; None below six pairs.

    And where an end would be infinite, since a side reads zero in too many pairs.

    Were `candidate` slower by the ratio r, both values of a pair could as well be the other side's.
    Changing them over in a set of pairs makes the ratio of the sums larger where r is above the
    set's own ratio: so the ratios that the test does not reject lie between the k-th smallest and
    the k-th largest ratio of all sets of pairs (Hartigan 1969, "Using subsample values as typical
    values", for means), or of 4095 drawn sets above twelve pairs.

    Args:
        baseline: The value in each pair, shape (pairs,), not below zero.
        candidate: In the same unit, shape (pairs,).
        confidences: For each one interval.

    Returns:
        Intervals of baseline over candidate, without unit.
    """
    if baseline.size < LEAST_VALUES:
        return [None for _ in confidences]
    sets = _sets(baseline.size)
    above, below = sets @ baseline, sets @ candidate
    is_defined = (above > 0) | (below > 0)
    with np.errstate(divide="ignore"):
        ratios = np.sort(above[is_defined] / below[is_defined])
    return [_cut(ratios, confidence) for confidence in confidences]


def _cut(ratios: NDArray[np.float64], confidence: float) -> Interval | None:
    """Interval of sorted ratios of sets; six pairs have 96.9 % at most.

    Args:
        ratios: Ascending, shape (sets,).
        confidence: Between 0 and 1.
    """
    rank = max(int((ratios.size + 1) * (1 - confidence) / 2 + _ROUNDING), 1)
    held = 1 - 2 * rank / (ratios.size + 1)
    if held < CONFIDENCE or not math.isfinite(ratios[-rank]):
        return None
    return Interval(float(ratios[rank - 1]), float(ratios[-rank]), held)


@cache
def _sets(count: int) -> NDArray[np.float64]:
    """A row for each set of pairs but the empty one: 1 for those in it.

    Args:
        count: Pairs.

    Returns:
        Zeros and ones, shape (sets, count).
    """
    if count <= _ALL_SETS:
        numbers = np.arange(1, 2**count)
        return (numbers[:, None] >> np.arange(count) & 1).astype(np.float64)
    drawn = np.random.default_rng(count).integers(0, 2, (2**_ALL_SETS - 1, count))
    return drawn[drawn.any(axis=1)].astype(np.float64)
