"""The exact interval of a median; used while measuring and while reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A two-sided interval and the least probability with which it covers the truth."""

    low: float
    high: float
    confidence: float


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
