"""How far apart are two independent groups: by ranks for many launches, by Student's t for few runs.

Few runs or few operator launches have no rank interval of 95 %, so those are compared by the means
of their logs and Student's t, whose degrees of freedom are the groups' own. What is known of the
spread beforehand, as from the device's history, counts as degrees of freedom more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER: Final = 0.8
"""With which the smallest difference is found that a comparison "can see"."""
_EXACT_SIZE: Final = 20
"""Up to this many values on each side the rank-sum distribution is counted out."""
CERTAIN: Final = 1e6
"""Degrees of freedom of a spread that is not estimated."""
_NORMAL_QUANTILE: Final = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def shift_interval(
    baseline: NDArray[np.float64], candidate: NDArray[np.float64]
) -> Interval | None:
    """Interval of the shift of `candidate` against `baseline`; None with too few values.

    From the k-th smallest to the k-th largest difference of a pair, k after the rank-sum
    distribution (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3).

    Args:
        baseline: Shape (n,).
        candidate: In the same unit, shape (m,).
    """
    rank, confidence = _rank_of_interval(baseline.size, candidate.size)
    if rank < 1:
        return None
    differences = np.sort((candidate[:, None] - baseline[None, :]).ravel())
    return Interval(float(differences[rank - 1]), float(differences[-rank]), confidence)


@cache
def _rank_of_interval(first: int, second: int) -> tuple[int, float]:
    """The largest k whose interval still has the confidence wanted; 0 when none has."""
    if max(first, second) > _EXACT_SIZE:
        deviation = math.sqrt(first * second * (first + second + 1) / 12)
        return int(first * second / 2 - _NORMAL_QUANTILE * deviation), CONFIDENCE
    tail, best = 0.0, (0, 0.0)
    for rank, mass in enumerate(_rank_sum_masses(first, second), start=1):
        tail += mass
        if 1 - 2 * tail < CONFIDENCE:
            break
        best = (rank, 1 - 2 * tail)
    return best


@cache
def _rank_sum_masses(first: int, second: int) -> tuple[float, ...]:
    """Probabilities of Mann and Whitney's U = 0, 1, … without ties, by their recurrence."""
    if first == 0 or second == 0:
        return (1.0,)
    masses = np.zeros(first * second + 1)
    share = first / (first + second)
    masses[second:] += share * np.array(_rank_sum_masses(first - 1, second))
    masses[: first * (second - 1) + 1] += (1 - share) * np.array(
        _rank_sum_masses(first, second - 1)
    )
    return tuple(masses.tolist())


@dataclass(frozen=True)
class Spread:
    """How much values of one group differ, and how well that is known."""

    deviation: float
    """Standard deviation, in the values' own unit; of log values: about the relative spread."""
    freedom: float
    """Degrees of freedom that it rests on; K values around their own mean give K - 1."""


@dataclass(frozen=True)
class GroupDifference:
    """The candidate's mean minus the baseline's; of log values: the log of the ratio."""

    change: float
    interval: Interval
    p_value: float
    """Two-sided, of no difference; below 1 - confidence exactly when the interval is beside zero."""
    spread: Spread
    """Of one value, pooled over both groups and what was known before."""

    @property
    def smallest(self) -> float:
        """Least true difference that 80 % of such comparisons find."""
        freedom, reach = self.spread.freedom, (self.interval.high - self.interval.low) / 2
        power = t_quantile(freedom, 2 * POWER - 1) / t_quantile(freedom, self.interval.confidence)
        return reach * (1 + power)


def pooled_spread(groups: Sequence[Sequence[float]], prior: Spread | None = None) -> Spread:
    """Pools the spread of values around their own group's mean with a prior spread.

    Variances count by their degrees of freedom, so with a prior a series of few runs keeps
    near the device's usual spread (Smyth 2004, "Linear models and empirical Bayes methods", 3).
    """
    before = prior or Spread(0.0, 0.0)
    squares = before.freedom * before.deviation**2
    freedom = before.freedom
    for group in groups:
        values = np.asarray(group, float)
        if values.size > 1:
            squares += float(((values - values.mean()) ** 2).sum())
            freedom += values.size - 1
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else Spread(0.0, 0.0)


def difference_of_groups(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    prior: Spread | None = None,
    session: float = 0.0,
    confidence: float = CONFIDENCE,
) -> GroupDifference | None:
    """Compares the means of two groups of independent values, such as log latencies of runs.

    Student's t with the pooled spread and its degrees of freedom. None when nothing tells the
    spread: one value a side and no prior. Raises ValueError for an empty group.

    Args:
        baseline: In the unit of the difference.
        candidate: In the same unit.
        prior: What is known beforehand of the spread of one value.
        session: Standard deviation between sessions, where each group was measured in one of its
            own; values of a group share it, so that nothing in them tells it.
        confidence: Of the interval.
    """
    if not baseline or not candidate:
        msg = f"need values on both sides, got {len(baseline)} and {len(candidate)}"
        raise ValueError(msg)
    spread = pooled_spread((baseline, candidate), prior)
    if spread.freedom < 1:
        return None
    change = float(np.mean(candidate) - np.mean(baseline))
    variance = spread.deviation**2 * (1 / len(baseline) + 1 / len(candidate))
    freedom, whole = spread.freedom, variance + 2 * session**2
    if session:
        # Satterthwaite 1946: what is known of the session for certain adds no doubt of its own.
        freedom /= max((variance / whole) ** 2, freedom / CERTAIN)
    known = Spread(spread.deviation, freedom)
    return difference_with_error(change, math.sqrt(whole), known, confidence)


def difference_with_error(
    change: float, error: float, spread: Spread, confidence: float = CONFIDENCE
) -> GroupDifference:
    """Makes a difference of its value and its standard error, which rests on `spread`."""
    reach = t_quantile(spread.freedom, confidence) * error
    interval = Interval(change - reach, change + reach, confidence)
    return GroupDifference(change, interval, p_of_t(change, error, spread.freedom), spread)


def mean_interval(
    values: Sequence[float], *, prior: Spread | None = None, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of the mean of a few independent values, such as operator launches; by Student's t.

    Of log ratios of pairs it is the interval of the speedup's log. None when nothing tells the
    spread.
    """
    spread = pooled_spread((values,), prior)
    if not values or spread.freedom < 1:
        return None
    middle = float(np.mean(values))
    reach = t_quantile(spread.freedom, confidence) * spread.deviation / math.sqrt(len(values))
    return Interval(middle - reach, middle + reach, confidence)


def mean_p_value(values: Sequence[float], *, prior: Spread | None = None) -> float | None:
    """Two-sided p of a mean of zero, which agrees with `mean_interval`; None without spread."""
    spread = pooled_spread((values,), prior)
    if not values or spread.freedom < 1:
        return None
    error = spread.deviation / math.sqrt(len(values))
    return p_of_t(float(np.mean(values)), error, spread.freedom)


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusts the p of a whole table: those below .05 hold at most 5 % of false discoveries.

    Benjamini and Hochberg 1995, "Controlling the false discovery rate"; in the order given.
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values)[::-1]
    scaled = values[order] * values.size / np.arange(values.size, 0, -1)
    adjusted = np.empty(values.size)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled))
    return tuple(adjusted.tolist())


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusts the p of a family: below .05, the chance of any false one of all is 5 % at most.

    Holm 1979, "A simple sequentially rejective multiple test procedure"; in the order given.
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values)
    scaled = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty(values.size)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return tuple(adjusted.tolist())


@cache
def t_quantile(degrees_of_freedom: float, confidence: float = CONFIDENCE) -> float:
    """Quantile of Student's t that bounds a two-sided interval of `confidence`."""
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        is_beyond = _t_beyond(degrees_of_freedom, middle) < 1 - confidence
        low, high = (low, middle) if is_beyond else (middle, high)
    return math.tan(low) * math.sqrt(degrees_of_freedom)


def p_of_t(shift: float, error: float, freedom: float) -> float:
    """Chance of a shift so far to either side, of standard error `error`."""
    if error == 0:
        return float(shift == 0)
    return _t_beyond(freedom, math.atan(abs(shift) / error / math.sqrt(freedom)))


def _t_beyond(freedom: float, angle: float) -> float:
    """Probability that |t| exceeds tan(angle) sqrt(freedom), whose density goes as cos^(freedom-1).

    By Gauss and Legendre: within 1e-6 of SciPy's up to 20 000 degrees of freedom, whose import
    would take a fifth of a second and 27 MB of every report with an interval.
    """
    points, weights = _quadrature()
    half = (math.pi / 2 - angle) / 2
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    values = np.cos(angle + half * (points + 1)) ** (freedom - 1)
    return float(2 * scale / math.sqrt(math.pi) * half * (weights @ values))


@cache
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and weights of Gauss and Legendre on [-1, 1], each of shape (96,)."""
    return np.polynomial.legendre.leggauss(96)
