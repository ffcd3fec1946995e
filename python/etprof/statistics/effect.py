"""How much faster is the candidate, and can that be told from noise?

Launches of one run, in turns:

The unit is the block: one process launch of each side, next to each other in time and in an order
that was drawn by a fair coin. Each gives one log ratio of median latencies, baseline over candidate,
so positive is faster. Where the sides are alike, whatever else slows a launch down has either sign
with equal chance, independently in each block: so Wilcoxon's signed-rank test keeps its level under
drift, throttling and disturbances of any period, and its interval covers what it says.

Separate runs: the launches of one share what the machine was like that hour, so the unit is the run.
Two runs alone cannot be told from the same thing twice; with the spread of runs, from repeated runs
or from the device's history, Student's t compares them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE, Interval
from etprof.statistics.two_samples import Spread, difference_of_groups, shift_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Verdict = Literal["faster", "slower", "no difference", "inconclusive"]

DEFAULT_MARGIN: Final = 0.02
"""Speedups within ±2 % are called no difference: smaller ones are seldom worth an action."""


_OF_RUNS: Final = 0.99
"""Confidence of the interval of separate runs: nothing randomised when each was measured."""
SESSION_DEVIATION: Final = 0.02
"""By which sessions are taken to differ, as the standard deviation of a log value: a shared machine
drifted by 4 % within an hour. Runs of one session do not tell it."""
_LARGEST_LOG: Final = 700.0
"""Of a ratio, so that its exp is a number."""


@dataclass(frozen=True)
class Effect:
    """The speedup of a candidate over a baseline; ratios are baseline ÷ candidate."""

    pairs: int
    """Blocks of launches in turns; 0 of separate runs."""
    speed_up: float
    """exp of the Hodges-Lehmann estimate of the pairs' log ratios; of separate runs the ratio of
    the two values, each the geometric mean of its runs' medians."""
    interval: Interval | None
    """Exact signed-rank interval of the speedup, None below six pairs; Student's of runs; of one
    run per side that between launches, which says nothing of another run."""
    p_value: float | None
    """Two-sided, of no effect, by the test that belongs to the interval; None of one run per side."""
    margin: float
    verdict: Verdict
    log_ratios: tuple[float, ...] = ()
    rests_on: str = ""
    """What a verdict on separate runs rests on, such as `one run per side`; empty for launches in
    turns."""

    @property
    def half_width(self) -> float | None:
        """Half of the interval: digits of `speed_up` below it say nothing."""
        return None if self.interval is None else (self.interval.high - self.interval.low) / 2


def effect_of_runs(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    prior: Spread | None = None,
    in_turns: bool = False,
    margin: float = DEFAULT_MARGIN,
) -> Effect:
    """Compares separate runs; raises ValueError for a side without runs.

    Args:
        baseline: The values of each run's launches, all above zero.
        candidate: In the same unit.
        prior: The spread of one run's log value, from the device's history. Without it and with
            one run per side, the verdict is "inconclusive".
        in_turns: Whether runs of both sides took turns, as `took_turns` says. Else each side is a
            session, and sessions differ by `SESSION_DEVIATION`.
        margin: Speedups closer to 1 than this count as none.
    """
    sides = [[np.log(np.asarray(run, float)) for run in runs] for runs in (baseline, candidate)]
    # Slow is more: the difference of "candidate minus baseline" is turned round.
    after, before = (
        [math.log(float(np.median(run))) for run in runs] for runs in (baseline, candidate)
    )
    difference = difference_of_groups(
        before,
        after,
        prior=prior,
        session=0.0 if in_turns else SESSION_DEVIATION,
        confidence=_OF_RUNS,
    )
    order = "" if in_turns else ", measured one after the other"
    counts = f"{len(baseline)} against {len(candidate)} runs{order}"
    is_alone = len(baseline) == len(candidate) == 1
    between = shift_interval(sides[1][0], sides[0][0]) if is_alone else None
    if difference is None:
        ratio = None if between is None else _ratio(between)
        change = after[0] - before[0]
        return Effect(0, _exp(change), ratio, None, margin, "inconclusive", (), "one run per side")
    interval = difference.interval
    if between is not None:
        low, high = min(interval.low, between.low), max(interval.high, between.high)
        interval = Interval(low, high, interval.confidence)
    history = f", {round(prior.freedom)} degrees of freedom from the history" if prior else ""
    return Effect(
        pairs=0,
        speed_up=_exp(difference.change),
        interval=_ratio(interval),
        p_value=difference.p_value,
        margin=margin,
        verdict=judge(_ratio(interval), margin),
        rests_on=f"{'one run per side' if is_alone else counts}{history}",
    )


def took_turns(baseline: Sequence[str], candidate: Sequence[str]) -> bool:
    """Whether no more than two runs of a side follow each other, and the sides changed twice.

    So a drift or a state of the machine meets both: A B A B and A B B A do, A A B B does not.

    Args:
        baseline: When each run began, as ISO 8601; empty where that is not known.
        candidate: The same of the other side's.
    """
    if not all((*baseline, *candidate)):
        return False
    moments = [*((moment, 0) for moment in baseline), *((moment, 1) for moment in candidate)]
    stretches = [len(list(runs)) for _, runs in groupby(side for _, side in sorted(moments))]
    return len(stretches) > 2 and max(stretches) <= 2


def _exp(log: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(log, _LARGEST_LOG)))


def _ratio(interval: Interval) -> Interval:
    return Interval(_exp(interval.low), _exp(interval.high), interval.confidence)


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
    """Estimates the speedup from the log ratios of the pairs, baseline over candidate.

    Args:
        logs: Natural logs, shape (pairs,).
        margin: Speedups closer to 1 than this count as none.
    """
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
    """All means of two values, each with itself included, sorted.

    Args:
        values: Shape (n,).

    Returns:
        Ascending, shape (n * (n + 1) / 2,).
    """
    rows, columns = np.triu_indices(values.size)
    averages: NDArray[np.float64] = np.sort((values[rows] + values[columns]) / 2)
    return averages


def hodges_lehmann(values: NDArray[np.float64]) -> float:
    """Median of the Walsh averages (Hodges and Lehmann 1963).

    Args:
        values: Shape (n,), not empty.
    """
    return float(np.median(_walsh_averages(values)))


def hodges_lehmann_interval(values: NDArray[np.float64]) -> Interval | None:
    """Exact interval that belongs to Wilcoxon's signed-rank test.

    From the k-th smallest to the k-th largest Walsh average; its confidence is
    1 - 2 P(W < k) with W the signed-rank statistic (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, section 3.3). Percentile bootstrap over ten blocks covers too little.

    Args:
        values: Shape (n,).

    Returns:
        In the values' unit; None where so few values have no interval of 95 %.
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

    Args:
        values: Shape (n,).
    """
    averages, masses = _walsh_averages(values), _signed_rank_masses(values.size)
    less = min(int(np.sum(averages <= 0)), int(np.sum(averages >= 0)))
    return min(1.0, 2 * math.fsum(masses[: less + 1]))
