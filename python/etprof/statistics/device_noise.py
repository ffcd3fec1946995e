"""How do the runs of a device's series depart from their levels: as normal noise, or further?

A spread of calm runs says nothing of runs that stand out now and then: a device has states, is
disturbed, or its noise has heavy tails. Two things tell it, both of all series and metrics of the
device, in units of each series' spread, and of runs that were called worse too:

1. the share of earlier runs that stood out as far, and
2. for sizes that were not seen yet, Student's t: each series is weighed under several degrees of
   freedom by its likelihood, over all scales (Lange, Little and Taylor 1989, "Robust statistical
   modeling using the t distribution"). How common each is among the series of the device is fitted to
   all of them (empirical Bayes); normal noise is taken for granted until they say otherwise.

A run departs from the middle of the eight around it, so that a level that lasts is no departure.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etprof.statistics.dependence import estimate_dependence
from etprof.statistics.runs import LEAST_DEVIATION
from etprof.statistics.summary import robust_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REACH: Final = 4
"""Runs on each side whose median a run is held against."""
_LEAST_RUNS: Final = 5
"""Of a series whose own scale and tails are looked at."""
_SERIES_RUNS: Final = 40
"""The newest runs of a series say what its tails are."""
_SHARED_RUNS: Final = 6
"""Runs that the common spread of a metric counts as, beside those of one series."""
_TAILS: Final = np.array([1.0, 1.5, 2.0, 3.0, 5.0, np.inf])
"""Degrees of freedom that the noise may have; the last is normal."""
_SCALES: Final = np.exp(np.linspace(np.log(0.25), np.log(30.0), 40))
"""In units of a series' robust spread."""
_LOWER_QUARTILE: Final = 0.3186
"""Of the absolute values of a normal distribution, in its deviation."""
_CHANCE_SERIES: Final = 1.0
"""Series that may look as if their tails were heavy by chance."""
_ROUNDS: Final = 100
"""Of the fit of how common each is."""
_AS_FAR: Final = 0.75
"""Of a change: a run that was so far out may as well have been the change."""
_STANDS_OUT: Final = 6.0
"""Spreads from its level at which a run is a stray: by normal noise, one run in 10^9."""
_LEAST_STRAYS: Final = 2
"""Strays that are in the nature of the device; a single one may be anything, and excuses nothing."""
_YOUNG: Final = 8
"""Runs of a series below which a device has not shown how often its runs stand out."""
_KNOWN_RUNS: Final = 200
"""Runs of many short series that show it too."""
_PRESUMED_RUNS: Final = 1000
"""Of which one is presumed to stand out on such a device: a check of more than fifty comparisons waits
for a second run, and one of a few series does not."""


@dataclass(frozen=True)
class _Departures:
    """How far the runs of a device's series departed from the runs around them."""

    units: NDArray[np.float64]
    """In units of each series' spread, above 0 where worse, shape (runs,)."""
    logs: NDArray[np.float64]
    """In log units, above 0 where worse, shape (runs,)."""
    metrics: NDArray[np.str_]
    """The metric of each, shape (runs,)."""
    runs: NDArray[np.int64]
    """Which run each is of: the metrics of one run share a number, shape (runs,)."""


class DeviceNoise:
    """What the earlier runs of one device's series say of their noise.

    Args:
        metrics: By metric and a key of the series, alike in every metric, its log values, oldest
            first.
        higher_is_better: The metrics that fall where a run is worse.
    """

    def __init__(
        self,
        metrics: Mapping[str, Mapping[Any, Sequence[float]]],
        higher_is_better: Collection[str] = (),
    ) -> None:
        self._higher_is_better = higher_is_better
        self._metrics = {
            metric: {key: logs for key, logs in series.items() if len(set(logs)) > 1}
            for metric, series in metrics.items()
        }

    @cached_property
    def dependence(self) -> float:
        """Lag-1 autocorrelation that the series share."""
        return estimate_dependence(self._all_series)

    def share_as_far(self, metric: str, logs: Sequence[float], change: float) -> float:
        """Share of the runs that departed about as far for the worse, by the rule of succession.

        The larger of two: of all metrics in units of their spread, and of this one in log units.

        0 where the device has shown no strays; with few runs, some are presumed.

        Args:
            metric: What changed.
            logs: The series' own log values, without those that depart with the candidate.
            change: Of the candidate from its level, for the worse, in log units.
        """
        if not (self._is_young or self._has_strays):
            return 0.0
        limit, pooled = _AS_FAR * abs(change), self._departures
        of_metric = pooled.logs[pooled.metrics == metric]
        strays = pooled.units >= limit / self._scale(metric, logs), of_metric >= limit
        presumed = _PRESUMED_RUNS if self._is_young else 1
        return max(
            float((np.sum(is_stray) + 1) / (is_stray.size + presumed)) for is_stray in strays
        )

    def tail(self, logs: Sequence[float], change: float, error: float, p_value: float) -> float:
        """Chance of a departure so far to either side, over all tails that the noise may have.

        Args:
            logs: The series' own log values, without those that depart with the candidate.
            change: Of the candidate from its level, in log units.
            error: Its standard error if the noise is normal.
            p_value: Its chance then.
        """
        from scipy.special import stdtr

        if not self._has_tails:
            return p_value
        common = self._common_tails
        if len(logs) < _LEAST_RUNS:
            chances = 2 * stdtr(_TAILS[:-1], -abs(change) / error)
            return float(common[:-1] @ chances + common[-1] * p_value)
        likelihoods, scales = _likelihoods([_departures(logs)])
        weights = common[:, None] * np.exp(likelihoods[0] - likelihoods[0].max())
        weights /= weights.sum()
        chances = 2 * stdtr(_TAILS[:-1, None], -abs(change) / scales[0])
        return float(np.sum(weights[:-1] * chances) + weights[-1].sum() * p_value)

    @cached_property
    def _has_strays(self) -> bool:
        """Whether runs stood out for the worse."""
        return self._count_strays(self._departures.units) >= _LEAST_STRAYS

    @cached_property
    def _has_tails(self) -> bool:
        """Whether runs stood out to either side; a step of the level looks like tails otherwise."""
        return self._count_strays(np.abs(self._departures.units)) >= _LEAST_STRAYS

    def _count_strays(self, units: NDArray[np.float64]) -> int:
        """How many runs stand out; `units` are their departures in units of spread, shape (runs,)."""
        return int(np.unique(self._departures.runs[units >= _STANDS_OUT]).size)

    @cached_property
    def _is_young(self) -> bool:
        runs = (sum(map(len, series.values())) for series in self._metrics.values())
        is_short = max(map(len, self._all_series), default=0) < _YOUNG
        return is_short and max(runs, default=0) < _KNOWN_RUNS

    @cached_property
    def _all_series(self) -> list[Sequence[float]]:
        return [logs for series in self._metrics.values() for logs in series.values()]

    @cached_property
    def _departures(self) -> _Departures:
        """Of all runs but the first and last of each series, which may be of other levels."""
        numbers: dict[tuple[Hashable, int], int] = {}
        units, logs = list[float](), list[float]()
        metrics, runs = list[str](), list[int]()
        for metric, series in self._metrics.items():
            side = -1 if metric in self._higher_is_better else 1
            for key, values in series.items():
                departures = side * _departures_from_either(values)[1:-1]
                units += (departures / self._scale(metric, values)).tolist()
                logs += departures.tolist()
                metrics += [metric] * departures.size
                inner = range(1, len(values) - 1)
                runs += [numbers.setdefault((key, i), len(numbers)) for i in inner]
        return _Departures(
            np.array(units), np.array(logs), np.array(metrics, str), np.array(runs, np.int64)
        )

    def _scale(self, metric: str, logs: Sequence[float]) -> float:
        """Spread of one series' calm runs, moderated by that of its metric."""
        shared = self._shared_scales.get(metric, LEAST_DEVIATION)
        if len(logs) < _LEAST_RUNS:
            return shared
        own_spread, count = _calm_spread(_departures(logs)), len(logs)
        squares = (count * own_spread**2 + _SHARED_RUNS * shared**2) / (count + _SHARED_RUNS)
        return float(np.sqrt(squares))

    @cached_property
    def _shared_scales(self) -> dict[str, float]:
        """Spread of the calm runs of all series of a metric together."""
        scales = {}
        for metric, series in self._metrics.items():
            departures = [_departures(logs) for logs in series.values()]
            if departures:
                scales[metric] = _calm_spread(np.concatenate(departures))
        return scales

    @cached_property
    def _common_tails(self) -> NDArray[np.float64]:
        """How common each of the tails is among the series, shape (tails,)."""
        departures = [_departures(logs) for logs in self._all_series if len(logs) >= _LEAST_RUNS]
        is_normal = np.where(np.isinf(_TAILS), 1.0, 0.0)
        if not departures:
            return is_normal
        logs = np.logaddexp.reduce(_likelihoods(departures)[0], axis=2)
        likely = np.exp(logs - logs.max(axis=1, keepdims=True))
        common = np.full(_TAILS.size, 1 / _TAILS.size)
        for _ in range(_ROUNDS):
            shares = likely * common
            series = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) * (1 - is_normal)
            heavy = series * max(1 - _CHANCE_SERIES / max(float(series.sum()), 1e-9), 0.0)
            common = (heavy + (len(departures) - heavy.sum()) * is_normal) / len(departures)
        return common


def _calm_spread(departures: NDArray[np.float64]) -> float:
    """Standard deviation after the lower quartile, which states and strays of half the runs spare.

    Args:
        departures: In log units, shape (runs,).
    """
    return max(float(np.quantile(np.abs(departures), 0.25)) / _LOWER_QUARTILE, LEAST_DEVIATION)


def _departures(logs: Sequence[float]) -> NDArray[np.float64]:
    """Distance of each run from the median of the runs around it, shape (runs,)."""
    before, after = _runs_beside(np.asarray(logs, float))
    departures: NDArray[np.float64] = logs - _medians(np.concatenate([before, after], axis=1))
    return departures


def _departures_from_either(logs: Sequence[float]) -> NDArray[np.float64]:
    """Distance of each run from the median of those before or after it, whichever is nearer.

    A run at the edge of a level departs from neither.

    Args:
        logs: Two runs or more, oldest first.

    Returns:
        In log units, shape (runs,).
    """
    sides = [logs - _medians(runs) for runs in _runs_beside(np.asarray(logs, float))]
    return np.where(np.abs(sides[0]) < np.abs(sides[1]), sides[0], sides[1])


def _runs_beside(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The runs before and after each run, infinite where there are none, each of shape (runs, 4)."""
    padded = np.pad(values, _REACH, constant_values=np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _REACH + 1)
    return windows[:, :_REACH], windows[:, _REACH + 1 :]


def _medians(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of each row's finite values, infinite where there are none; shape (rows,)."""
    ordered = np.sort(runs, axis=1)
    counts, rows = np.sum(np.isfinite(ordered), axis=1), np.arange(len(ordered))
    medians: NDArray[np.float64] = (
        ordered[rows, np.maximum(counts - 1, 0) // 2] + ordered[rows, counts // 2]
    ) / 2
    return medians


def _likelihoods(
    departures: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log likelihood of each series' departures under each tail and scale.

    Args:
        departures: In log units, one array of shape (runs,) for each series.

    Returns:
        Natural logs, shape (series, tails, scales), and the scales in log units, shape
        (series, scales).
    """
    from scipy.special import gammaln

    newest = [values[-_SERIES_RUNS:] for values in departures]
    counts = np.array([values.size for values in newest])[:, None, None]
    scales = np.array([max(robust_spread(values), LEAST_DEVIATION) for values in newest])
    scales = scales[:, None] * _SCALES
    # A run that a shorter series lacks has no departure, which adds nothing to either sum.
    values = np.zeros((len(newest), _SERIES_RUNS))
    for row, of_series in zip(values, newest, strict=True):
        row[: of_series.size] = of_series
    squares = (values[:, None, :] / scales[:, :, None]) ** 2
    tails = _TAILS[:-1, None]
    constants = gammaln((tails + 1) / 2) - gammaln(tails / 2) - np.log(tails * np.pi) / 2
    heavy = [-(tail + 1) / 2 * np.sum(np.log1p(squares / tail), axis=2) for tail in _TAILS[:-1]]
    by_tail = np.stack(heavy, axis=1) + counts * constants
    normal = -squares.sum(axis=2)[:, None] / 2 - counts * np.log(2 * np.pi) / 2
    return np.concatenate([by_tail, normal], axis=1) - counts * np.log(scales)[:, None], scales
