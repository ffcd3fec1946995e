"""What can this machine tell apart? Learned from the same thing measured against itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.effect import (
    DEFAULT_MARGIN,
    Effect,
    effect_of_log_ratios,
    estimate_effect,
    hodges_lehmann_interval,
)
from etprof.statistics.two_samples import POWER, Spread, difference_of_groups, pooled_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DRAWS: Final = 1000
_LARGEST_EFFECT: Final = 1.0
_TAIL: Final = 0.025
LEAST_PAIRS: Final = 6
"""Of a comparison: fewer have no interval."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class BetweenRuns:
    """How much separate runs of the same thing differ."""

    runs: int
    spread: Estimate
    """Standard deviation of a run's log value: about its relative spread."""
    smallest_effect: Estimate
    """Least true speedup, minus one, that 80 % of comparisons of one run per side find with it."""


@dataclass(frozen=True)
class Calibration:
    """Noise of a machine, and what follows for comparisons with `pairs` blocks."""

    measured_pairs: int
    pairs: int
    noise: Estimate
    """Standard deviation of the blocks' log ratios: about the relative noise of one of them."""
    smallest_effect: Estimate | None
    """Least true speedup, minus one, that 80 % of comparisons find; None above 100 %."""
    comparisons: int
    """Comparisons of `pairs` blocks that were measured, no block in two of them."""
    false_alarms: int
    """Those of them that called the thing faster or slower than itself."""
    most_false_alarms: float
    """Upper bound of their rate, 95 %: the share that would still give so few."""
    overall: Effect
    """All blocks of the first run together: should be no difference."""
    between_runs: BetweenRuns | None = None
    """None where one run was measured: nothing is known of another."""


def calibrate(
    runs: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    pairs: int = 10,
    margin: float = DEFAULT_MARGIN,
) -> Calibration:
    """Learns from A/A data: of each run two series of block medians of the same experiment.

    Raises ValueError when a run has fewer blocks than one comparison.
    """
    effects = [estimate_effect(baseline, candidate, margin=margin) for baseline, candidate in runs]
    fewest = min(effect.pairs for effect in effects)
    if fewest < pairs:
        msg = f"{fewest} pairs were measured; a comparison has {pairs}"
        raise ValueError(msg)
    logs = [np.asarray(effect.log_ratios) for effect in effects]
    centred = np.concatenate([log - np.median(log) for log in logs])
    noise = _spread(centred, freedom=centred.size - len(runs))
    comparisons = [
        log[i : i + pairs] for log in logs for i in range(0, log.size - pairs + 1, pairs)
    ]
    verdicts = [
        effect_of_log_ratios(comparison, margin=margin).verdict for comparison in comparisons
    ]
    alarms = sum(verdict in {"faster", "slower"} for verdict in verdicts)
    return Calibration(
        measured_pairs=centred.size,
        pairs=pairs,
        noise=noise,
        smallest_effect=_smallest_effect(centred, noise, pairs, margin),
        comparisons=len(comparisons),
        false_alarms=alarms,
        most_false_alarms=_upper_bound(alarms, len(comparisons)),
        overall=effects[0],
        between_runs=_between_runs(runs) if len(runs) > 1 else None,
    )


def _spread(values: NDArray[np.float64], freedom: int) -> Estimate:
    """Standard deviation with the interval of chi-square, whose freedom heavy tails lessen.

    A sample variance varies by (kurtosis - (n - 3)/(n - 1))/n of its square (Bonett 2006,
    "Approximate confidence interval for standard deviation of nonnormal distributions").

    Args:
        values: Log ratios, shape (n,).
        freedom: Degrees of freedom of independent normal values.
    """
    from scipy.special import chdtri

    squares = float((values**2).sum())
    deviation = math.sqrt(squares / max(1, freedom))
    if deviation == 0:
        return Estimate(0.0, 0.0, 0.0)
    count = values.size
    kurtosis = count * float((values**4).sum()) / squares**2
    varies = max(kurtosis - (count - 3) / max(1, count - 1), 0.0) / count
    effective_freedom = min(float(freedom), 2 / varies) if varies else float(freedom)
    low, high = (
        deviation * math.sqrt(effective_freedom / float(chdtri(effective_freedom, p)))
        for p in (_TAIL, 1 - _TAIL)
    )
    return Estimate(deviation, low, high)


def _smallest_effect(
    noise: NDArray[np.float64], spread: Estimate, pairs: int, margin: float
) -> Estimate | None:
    """Draws comparisons from the noise, of either sign, and takes what 80 % of them need.

    A comparison finds an effect when that lifts the lower end of its interval above zero, and the
    upper end out of the margin.

    Args:
        noise: Log ratios of pairs of equal sides, shape (pairs measured,).
        spread: Their standard deviation.
        pairs: How many pairs a comparison has.
        margin: Speedups closer to 1 than this count as none.
    """
    random = np.random.default_rng(0)
    signs = random.integers(0, 2, size=(_DRAWS, pairs)) * 2 - 1
    draws = noise[random.integers(0, noise.size, size=(_DRAWS, pairs))] * signs
    intervals = [hodges_lehmann_interval(draw) for draw in draws]
    ends = np.array(
        [(interval.low, interval.high) for interval in intervals if interval is not None]
    )
    if not ends.size:
        return None

    def needed(factor: float) -> float:
        shifts = np.maximum(-ends[:, 0], math.log1p(margin) / max(factor, 1e-9) - ends[:, 1])
        return math.expm1(min(factor * float(np.quantile(shifts, POWER)), 700.0))

    ratios = [end / spread.value if spread.value else 1.0 for end in (spread.low, spread.high)]
    value, low, high = needed(1.0), needed(ratios[0]), needed(ratios[1])
    return Estimate(value, low, high) if value <= _LARGEST_EFFECT else None


def _between_runs(runs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> BetweenRuns:
    """The spread of the runs' own values, each the median over all its blocks."""
    values = np.log([float(np.median([*baseline, *candidate])) for baseline, candidate in runs])
    spread = pooled_spread([values.tolist()])
    run_spread = _spread(values - values.mean(), freedom=values.size - 1)
    ends = []
    for deviation in (run_spread.value, run_spread.low, run_spread.high):
        prior = Spread(deviation, spread.freedom)
        comparison = difference_of_groups([0.0], [0.0], prior=prior, confidence=0.99)
        ends.append(math.expm1(min(comparison.smallest, 700.0)) if comparison else math.inf)
    return BetweenRuns(len(runs), run_spread, Estimate(*ends))


def _upper_bound(hits: int, of: int) -> float:
    """One-sided upper bound of a share, 95 % (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    return 1.0 if hits >= of else float(betaincinv(hits + 1, of - hits, 0.95))
