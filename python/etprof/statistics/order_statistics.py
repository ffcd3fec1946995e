"""The interval of a median; used while measuring and while reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
LEAST_VALUES = 6
"""Of fewer even the whole range covers their median in less than 95 % of cases."""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval and the least probability with which it covers the truth."""

    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the median, between order statistics; None below six values.

    With n independent values the interval from the k-th smallest to the k-th largest covers the
    median with probability 1 - 2 P(B < k), B binomial(n, 1/2), whatever the distribution
    (Conover, Practical Nonparametric Statistics, section 3.2). Those steps are coarse: 96.9 % of
    six values, 99.2 % of eight. So it lies between the last step of at least 95 % and the next, as
    Hettmansperger and Sheather 1986, "Confidence intervals based on interpolated order statistics".
    """
    ordered = sorted(values)
    count = len(ordered)
    if count < LEAST_VALUES:
        return None
    masses = _binomial_half(count)
    rank, inner = 0, 1 - 2 * masses[0]
    while inner >= CONFIDENCE:
        rank += 1
        outer, inner = inner, inner - 2 * masses[rank]
    inside = (outer - CONFIDENCE) / (outer - inner)
    weight = (count - rank) * inside / (rank + (count - 2 * rank) * inside)
    low = (1 - weight) * ordered[rank - 1] + weight * ordered[rank]
    high = (1 - weight) * ordered[count - rank] + weight * ordered[count - rank - 1]
    return Interval(low, high, CONFIDENCE)


def _binomial_half(count: int) -> list[float]:
    """Probabilities of 0 … count heads in `count` fair tosses."""
    masses = [0.5**count]
    for heads in range(1, count + 1):
        masses.append(masses[-1] * (count - heads + 1) / heads)
    return masses
