"""Is a run worse than another? Only where the change and its interval exceed the threshold.

Two runs of the same thing differ by more than their own blocks tell: the machine was warmer, its
memory laid out otherwise, its neighbours busier. So the interval of candidate ÷ baseline covers

1. what the blocks of the two runs say: the rank-based interval of `two_samples`, and
2. what two runs of the same thing differ by: ± t·s·sqrt(1 + 1/K) around the change, s being the
   spread of one run and K the number of baseline runs (a prediction interval; see Kalibera and
   Jones, "Rigorous benchmarking in reasonable time", 2013, for why the upper level counts).

The spread is the device's noise floor where A/A data gives one (`noise`). Where not, a run is taken
to vary as much as single process launches do, at least by 1 %, which is cautious: a run's value is
the median of many launches. With three baseline runs or more, it is at least their own spread.
Load and first inference, of which a launch has one each, are not judged before runs were repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.history.metric_names import METRICS
from etprof.statistics.summary import robust_spread
from etprof.statistics.two_samples import shift_interval, t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etprof.history.noise import NoiseFloor
    from etprof.history.schema import Metric

Verdict = Literal["regression", "improvement", "unchanged", "inconclusive"]

DEFAULT_THRESHOLD: Final = 0.05
LEAST_SPREAD: Final = 0.01
"""Spread of a run that is assumed at least, where no A/A data says better."""
LEAST_FREEDOM: Final = 4
"""Degrees of freedom below which a spread is not known well enough to be used."""
_RUNS_WITH_SPREAD: Final = 3
_LARGEST_LOG: Final = 50.0
"""Of a ratio: e to the 50th is a nanosecond against 160 000 years."""


@dataclass(frozen=True)
class Judgement:
    """What may be said of a candidate against a baseline; 0.05 is 5 % more."""

    verdict: Verdict
    change: float | None
    """Candidate ÷ baseline, minus one; None where it means nothing."""
    low: float | None
    """The interval of the change, 95 %; None where there is none."""
    high: float | None
    threshold: float
    reason: str
    """Why the verdict is not another one, in words."""


def judge(
    baseline: Metric,
    candidate: Metric,
    threshold: float = DEFAULT_THRESHOLD,
    *,
    noise: NoiseFloor | None = None,
) -> Judgement:
    """Judges one run against one other."""
    return judge_against([baseline], candidate, threshold, noise=noise)


def judge_against(
    baselines: Sequence[Metric],
    candidate: Metric,
    threshold: float = DEFAULT_THRESHOLD,
    *,
    noise: NoiseFloor | None = None,
) -> Judgement:
    """Judges one run against one or several of the same series, all of the same metric."""
    everything = [*baselines, candidate]
    if any(value.value <= 0 or min(value.samples, default=1) <= 0 for value in everything):
        return _undecided(None, threshold, "a value is zero")
    middle = float(np.median([value.value for value in baselines]))
    change = candidate.value / middle - 1
    if _is_startup(candidate) and not _knows_runs(baselines, noise):
        return _undecided(
            change, threshold, "start-up times need A/A data: five runs of one thing on this device"
        )
    interval = _interval(baselines, candidate, math.log1p(change), noise)
    if interval is None:
        return _undecided(change, threshold, "too few blocks, and no A/A data of this device")
    if max(map(abs, interval)) > _LARGEST_LOG:
        return _undecided(None, threshold, "the values are too far apart to be of one thing")
    low, high = math.expm1(interval[0]), math.expm1(interval[1])
    verdict = _verdict(low, high, threshold, higher_is_better=candidate.higher_is_better)
    return Judgement(verdict, change, low, high, threshold, _reason(verdict, change, threshold))


def _is_startup(value: Metric) -> bool:
    return value.name in METRICS and METRICS[value.name].is_startup


def _knows_runs(baselines: Sequence[Metric], noise: NoiseFloor | None) -> bool:
    """Whether it is known how much repeated runs differ."""
    measured = noise is not None and noise.freedom >= LEAST_FREEDOM
    return measured or len(baselines) >= _RUNS_WITH_SPREAD


def _interval(
    baselines: Sequence[Metric],
    candidate: Metric,
    centre: float,
    noise: NoiseFloor | None,
) -> tuple[float, float] | None:
    """The interval of the log ratio: the wider of blocks and runs on either side."""
    sides = [np.log(value.samples) for value in (*baselines, candidate) if value.samples]
    spread, freedom = _spread_of_runs(sides, noise)
    if freedom < LEAST_FREEDOM:
        return None
    if len(baselines) >= _RUNS_WITH_SPREAD:
        spread = max(spread, float(np.std(np.log([b.value for b in baselines]), ddof=1)))
    reach = t_quantile(freedom) * spread * math.sqrt(1 + 1 / len(baselines))
    low, high = centre - reach, centre + reach
    if len(sides) == len(baselines) + 1:
        blocks = shift_interval(np.concatenate(sides[:-1]), sides[-1])
        if blocks is not None:
            low, high = min(low, blocks.low), max(high, blocks.high)
    return low, high


def _spread_of_runs(
    sides: Sequence[NDArray[np.float64]], noise: NoiseFloor | None
) -> tuple[float, int]:
    """Standard deviation of a run's log value, and how many degrees of freedom it rests on."""
    if noise is not None and noise.freedom >= LEAST_FREEDOM:
        return noise.of_run, noise.freedom
    freedom = sum(side.size - 1 for side in sides)
    if freedom < LEAST_FREEDOM:
        return 0.0, freedom
    return max(_block_spread(sides), LEAST_SPREAD, noise.of_run if noise else 0.0), freedom


def _block_spread(sides: Sequence[NDArray[np.float64]]) -> float:
    """Spread of single blocks around their run's median, in log units; outliers count little."""
    return robust_spread(np.concatenate([side - np.median(side) for side in sides]))


def _verdict(low: float, high: float, threshold: float, *, higher_is_better: bool) -> Verdict:
    if low > threshold:
        return "improvement" if higher_is_better else "regression"
    if high < -threshold:
        return "regression" if higher_is_better else "improvement"
    return "unchanged" if -threshold <= low and high <= threshold else "inconclusive"


def _undecided(change: float | None, threshold: float, reason: str) -> Judgement:
    return Judgement("inconclusive", change, None, None, threshold, reason)


def _reason(verdict: Verdict, change: float, threshold: float) -> str:
    limit = f"{threshold * 100:g} %"
    if verdict in ("regression", "improvement"):
        return f"the whole interval lies beyond {limit}"
    if verdict == "unchanged":
        return f"the whole interval lies within ±{limit}"
    if abs(change) > threshold:
        return f"the change exceeds {limit}, but its interval does not"
    return f"the interval reaches beyond {limit}"
