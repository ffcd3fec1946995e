"""How far apart are two independent samples? Rank-based, for block values of two runs."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXACT_SIZE: Final = 20
"""Up to this many values on each side the rank-sum distribution is counted out."""
_NORMAL_QUANTILE: Final = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def shift_interval(
    baseline: NDArray[np.float64], candidate: NDArray[np.float64]
) -> Interval | None:
    """Interval of the shift of `candidate` against `baseline`; None with too few values.

    From the k-th smallest to the k-th largest difference of a pair, k after the rank-sum
    distribution (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3).
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


def t_quantile(degrees_of_freedom: float) -> float:
    """97.5 % quantile of Student's t."""
    # SciPy takes a fifth of a second to import, and only the history's gate asks.
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.975))
