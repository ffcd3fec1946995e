"""How much faster is the candidate, and can that be told from noise?

The unit is the block: one process launch of each side, next to each other in time and in an order
that was drawn by a fair coin. Each gives one log ratio of median latencies, baseline over candidate,
so positive is faster. Where the sides are alike, whatever else slows a launch down has either sign
with equal chance, independently in each block: so Wilcoxon's signed-rank test keeps its level under
drift, throttling and disturbances of any period, and its interval covers what it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Verdict = Literal["faster", "slower", "no difference", "inconclusive"]

DEFAULT_MARGIN: Final = 0.02
"""Speed-ups within ±2 % are called no difference: smaller ones are seldom worth an action."""


@dataclass(frozen=True)
class Effect:
    """The speed-up of a candidate over a baseline; ratios are baseline ÷ candidate."""

    pairs: int
    speed_up: float
    """exp of the Hodges-Lehmann estimate of the pairs' log ratios."""
    interval: Interval | None
    """Exact signed-rank interval of the speed-up; None below six pairs."""
    p_value: float
    """Two-sided signed-rank test of no effect, exact; at most .05 when the interval is beside 1."""
    margin: float
    verdict: Verdict
    log_ratios: tuple[float, ...]


def is_balanced(first: int, blocks: int) -> bool:
    """Whether one side came `first` in about half of the `blocks`: within 2 deviations of a coin.

    A twentieth of all orders are not; leaving those out raises the test's level by as much at most.
    """
    return (2 * first - blocks) ** 2 <= 4 * max(blocks, 1)


def estimate_effect(
    baseline: Sequence[float], candidate: Sequence[float], *, margin: float = DEFAULT_MARGIN
) -> Effect:
    """Compares block medians pair by pair; both sides in the same unit, all above zero.

    Raises ValueError when the sides differ in length or have no pair.
    """
    if len(baseline) != len(candidate) or not baseline:
        msg = f"need as many baseline as candidate blocks, got {len(baseline)} and {len(candidate)}"
        raise ValueError(msg)
    logs = np.log(np.asarray(baseline, float)) - np.log(np.asarray(candidate, float))
    return effect_of_log_ratios(logs, margin=margin)


def effect_of_log_ratios(logs: NDArray[np.float64], *, margin: float = DEFAULT_MARGIN) -> Effect:
    """Estimates the speed-up from the log ratios of the pairs, baseline over candidate."""
    interval = hodges_lehmann_interval(logs)
    speed_up = math.exp(hodges_lehmann(logs))
    p_value = signed_rank_p(logs)
    ratio = None
    if interval is not None:
        ratio = Interval(math.exp(interval.low), math.exp(interval.high), interval.confidence)
    return Effect(
        pairs=logs.size,
        speed_up=speed_up,
        interval=ratio,
        p_value=p_value,
        margin=margin,
        verdict=judge(ratio, margin),
        log_ratios=tuple(logs.tolist()),
    )


def judge(interval: Interval | None, margin: float) -> Verdict:
    """Says what the interval allows to say; the test that belongs to it says the same.

    Wholly within 1 ± margin is no difference, even when it excludes 1: too small to matter.
    """
    if interval is None:
        return "inconclusive"
    if interval.low >= 1 / (1 + margin) and interval.high <= 1 + margin:
        return "no difference"
    if interval.low > 1:
        return "faster"
    return "slower" if interval.high < 1 else "inconclusive"


def _walsh_averages(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """All means of two values, each with itself included, sorted."""
    rows, columns = np.triu_indices(values.size)
    averages: NDArray[np.float64] = np.sort((values[rows] + values[columns]) / 2)
    return averages


def hodges_lehmann(values: NDArray[np.float64]) -> float:
    """Median of the Walsh averages (Hodges and Lehmann 1963)."""
    return float(np.median(_walsh_averages(values)))


def hodges_lehmann_interval(values: NDArray[np.float64]) -> Interval | None:
    """Exact interval that belongs to Wilcoxon's signed-rank test.

    From the k-th smallest to the k-th largest Walsh average; its confidence is
    1 - 2 P(W < k) with W the signed-rank statistic (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, section 3.3). Percentile bootstrap over ten blocks covers too little.
    """
    averages = _walsh_averages(values)
    tail, best = 0.0, None
    for rank, mass in enumerate(_signed_rank_masses(values.size), start=1):
        tail += mass
        confidence = 1 - 2 * tail
        if confidence < CONFIDENCE or rank > averages.size // 2:
            break
        best = Interval(float(averages[rank - 1]), float(averages[-rank]), confidence)
    return best


@cache
def _signed_rank_masses(count: int) -> tuple[float, ...]:
    """Probabilities of the signed-rank statistic 0, 1, … for `count` values without ties."""
    masses = np.zeros(count * (count + 1) // 2 + 1)
    masses[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(masses)
        shifted[rank:] = masses[:-rank]
        masses = (masses + shifted) / 2
    return tuple(masses.tolist())


def signed_rank_p(values: NDArray[np.float64]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test of no effect, from the Walsh averages.

    The averages below zero count the ranks of the negative values (Tukey), so p is at most .05
    exactly when the interval of 95 % or more lies beside zero. Averages of zero count for neither.
    """
    averages, masses = _walsh_averages(values), _signed_rank_masses(values.size)
    less = min(int(np.sum(averages <= 0)), int(np.sum(averages >= 0)))
    return min(1.0, 2 * sum(masses[: less + 1]))
