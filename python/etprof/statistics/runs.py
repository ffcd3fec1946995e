"""How much do runs of one series vary, where do they stand, and does one of them depart from that?

A run counts once here, whatever its launches say: launches of one run share the machine's state and
agree better with each other than two runs do. All values are log values, so differences are ratios.

How much runs vary is known badly from a few of one series. Where the device has other series, their
variances are a prior for each (empirical Bayes on log variances: Smyth, "Linear models and empirical
Bayes methods for assessing differential expression in microarray experiments", 2004, section 6).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from etprof.statistics.dependence import level_factors, line_factors
from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.summary import robust_spread
from etprof.statistics.two_samples import (
    CERTAIN,
    GroupDifference,
    Spread,
    difference_with_error,
    t_quantile,
)

LEAST_RUNS: Final = 3
"""Runs that a level has at least: one or two may be chance."""
LEAST_DEVIATION: Final = 0.003
"""No series is taken to vary less: clocks and page sizes round."""
LEAST_FREEDOM: Final = 3
"""Degrees of freedom below which a spread is assumed, not estimated."""
ASSUMED: Final = Spread(0.1, CERTAIN)
"""Of a run, where nothing is known: more than phones and shared machines were seen to have. It is a
bound, not an estimate, so it counts as known. Only changes of a third to a half stand out then."""
_LEAST_SERIES: Final = 3
"""Series that make a prior."""
_MOST_PRIOR_FREEDOM: Final = 6.0
"""A prior counts as seven runs at most: a series may be unlike the others of its device."""
_UNLIKE: Final = 0.1
"""Chance of a spread so far above the prior, below which the series keeps to its own."""
_UNALIKE: Final = 2.0
"""Standard errors by which series are taken to be less alike than they look: with one, checks of
three runs each, of which every sixth series is eight times as loud, are wrong in 10 of 100."""
_LEVEL_RUNS: Final = 10
"""The newest runs of a level say where it stands."""
_SPREAD_RUNS: Final = 40
"""The newest runs of a series say how much it varies."""
_BELONGING: Final = 0.999
"""Share of the runs which belong to a level that are not kept out of it."""
_STEP: Final = 5.0
"""Differences of neighbours beyond so many spreads are steps, which say nothing of the spread."""
_DIFFERENCES_WITH_STEPS: Final = 5
_DRIFT_RUNS: Final = 8
_LEAST_DRIFT_RUNS: Final = 6


def spread_of_neighbours(logs: Sequence[float]) -> Spread | None:
    """Spread of a series from the differences of neighbours, which levels and creeps hardly touch.

    Differences that stand out are steps and are left out. The degrees of freedom are those of the
    mean square successive difference (von Neumann and others, 1941): 2(n-1)²/(3n-4) for n values.
    None below three values.
    """
    if len(logs) < LEAST_RUNS:
        return None
    steps = np.diff(np.asarray(logs[-_SPREAD_RUNS:], float))
    if steps.size >= _DIFFERENCES_WITH_STEPS:
        steps = steps[np.abs(steps) <= _STEP * max(robust_spread(steps), LEAST_DEVIATION)]
    variance = float(np.mean(steps**2)) / 2
    freedom = 2 * steps.size**2 / (3 * steps.size - 1)
    return Spread(max(math.sqrt(variance), LEAST_DEVIATION), freedom)


def fit_prior(spreads: Collection[Spread]) -> Spread | None:
    """The spread that a device's series are taken to share; None below three series.

    Its degrees of freedom are those of Smyth's moments of the log variances (2004, section 6.2): the
    more alike the series, the more. How much more they differ than chance lets them is taken at its
    upper bound, for a few short series look alike by chance. Its deviation is the root of their mean variance, not of the
    mean log: where few runs are known, a loud series must not be judged as a quiet one.
    """
    if len(spreads) < _LEAST_SERIES:
        return None
    from scipy.special import polygamma, psi

    freedom = np.array([spread.freedom for spread in spreads])
    variances = np.array([spread.deviation**2 for spread in spreads])
    logs = np.log(variances) - psi(freedom / 2) + np.log(freedom / 2)
    expected, count = float(np.mean(polygamma(1, freedom / 2))), len(spreads)
    # The error of a variance, by the fourth cumulant of the logarithm of chi-squared.
    error = math.sqrt(np.mean(polygamma(3, freedom / 2)) / count + 2 * expected**2 / (count - 1))
    excess = float(np.var(logs, ddof=1)) - expected + _UNALIKE * error
    maximum_freedom = _MOST_PRIOR_FREEDOM
    # trigamma falls, so what lies above its value at the bound has fewer degrees of freedom.
    worth = (
        maximum_freedom
        if excess <= polygamma(1, maximum_freedom / 2)
        else 2 * _inverse_trigamma(excess)
    )
    return Spread(math.sqrt(float(np.average(variances, weights=freedom))), worth)


def _inverse_trigamma(value: float) -> float:
    """Solves trigamma(x) = value by Newton's method on its inverse (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, x))
        x += trigamma * (1 - trigamma / value) / float(polygamma(2, x))
    return x


def moderated(squares: float, freedom: float, prior: Spread | None) -> Spread:
    """A series' own squared deviations and the device's prior as one spread.

    Each counts with its degrees of freedom. A series that is far louder than the prior keeps to its
    own. `ASSUMED` where too little is known of both.
    """
    series_spread = Spread(math.sqrt(squares / freedom) if freedom else 0.0, freedom)
    if prior is None or _is_unlike(series_spread, prior):
        spread = series_spread
    else:
        total = freedom + prior.freedom
        spread = Spread(math.sqrt((squares + prior.freedom * prior.deviation**2) / total), total)
    if spread.freedom < LEAST_FREEDOM:
        return replace(ASSUMED, deviation=max(ASSUMED.deviation, spread.deviation))
    return replace(spread, deviation=max(spread.deviation, LEAST_DEVIATION))


def is_assumed(spread: Spread) -> bool:
    """Whether too little was known to estimate it."""
    return spread.freedom == ASSUMED.freedom


def _is_unlike(series_spread: Spread, prior: Spread) -> bool:
    """Whether a series varies more than the F-test lets it with this prior."""
    if series_spread.freedom < 1 or series_spread.deviation <= prior.deviation:
        return False
    from scipy.special import fdtrc

    ratio = (series_spread.deviation / prior.deviation) ** 2
    return float(fdtrc(series_spread.freedom, prior.freedom, ratio)) < _UNLIKE


def as_dependent(spread: Spread, dependence: float) -> Spread:
    """Returns the spread around a level of runs whose neighbours differ by a spread.

    The variance of AR(1) values is that of their differences, halved, over 1 - ρ.
    """
    return replace(spread, deviation=spread.deviation / math.sqrt(1 - dependence))


def departure(
    level: Sequence[float], log_value: float, spread: Spread, dependence: float = 0.0
) -> GroupDifference:
    """Holds one run against a level's mean: shift ± t·s·sqrt(1 + 1/K) for K runs in `level`.

    Runs that depend on the run before, by `dependence`, have another root (`level_factors`).

    A prediction interval: what the run's own noise and the level's leave open (Kalibera and Jones,
    "Rigorous benchmarking in reasonable time", 2013, on why runs are the unit that counts).
    """
    shift = log_value - math.fsum(level) / len(level)
    return difference_with_error(shift, error_of_departure(spread, len(level), dependence), spread)


def error_of_departure(spread: Spread, runs: int, dependence: float = 0.0) -> float:
    """Standard error of one run's distance from the mean of the `runs` before it."""
    if not dependence:
        return spread.deviation * math.sqrt(1 + 1 / runs)
    return spread.deviation * level_factors(dependence, runs).error


@dataclass(frozen=True)
class Departure:
    """Runs that a check called worse than their level, and that nobody accepted since."""

    members: tuple[int, ...]
    """Indices of these runs, oldest first."""
    middle: float
    """Mean of their values."""
    level: float
    """Where the level stood before."""
    tolerance: float
    """By how much a run may be worse than the level and be of it for certain, in log units."""
    returning: int = 0
    """How many runs in a row came near the level since, without being clearly back."""

    def is_near_level(self, value: float) -> bool:
        """Whether a value lies within the tolerance, and on the level's side of the middle."""
        distance = self.middle - self.level
        worse = math.copysign(1, distance) * (value - self.level)
        return worse < min(abs(distance) / 2, self.tolerance)

    def is_over(self, value: float, spread: Spread) -> bool:
        """Whether a run says that its series is back.

        Either it is better than the departed runs beyond chance, or it is the third in a row that
        lies near the level.
        """
        if not self.is_near_level(value):
            return False
        share = CONFIDENCE if is_assumed(spread) else _BELONGING
        reach = t_quantile(spread.freedom, share) * error_of_departure(spread, len(self.members))
        return abs(value - self.middle) > reach or self.returning + 1 >= LEAST_RUNS


@dataclass(frozen=True)
class Level:
    """Where a series stands, and how much its runs vary."""

    members: tuple[int, ...]
    """Indices of the runs of this level, oldest first."""
    spread: Spread
    """Of one run, from this level and those before, moderated by the device's prior."""
    departure: Departure | None = None
    """None unless newest runs were called worse."""
    outside: tuple[int, ...] = ()
    """Indices of the newest runs, one after the other, that were worse than the level."""
    better: tuple[int, ...] = ()
    """Indices of the newest runs, one after the other, that were better; three are the new level."""


@dataclass(frozen=True)
class RunMarks:
    """What else is known of a series' runs, by their indices."""

    accepted: Collection[int] = ()
    """They begin a level of their own, if they are worse."""
    alarmed: Collection[int] = ()
    """A check called them worse."""
    barred: Collection[int] = ()
    """They are never of the level, as those of the candidate's own commit."""
    dependence: float = 0.0
    """Lag-1 autocorrelation of the runs."""


def standing_level(
    logs: Sequence[float],
    *,
    worse: int,
    threshold: float,
    prior: Spread | None = None,
    marks: RunMarks = RunMarks(),
) -> Level:
    """Goes through a series in order of time and says which runs are of the level that stands.

    A run beyond `threshold` (log units) and beyond chance is kept out of it, and so is what a check
    called worse. Where it is better, three in a row are the new level. Where it is worse, it never
    becomes one unless it is accepted, or a lasting regression would be its own baseline. Before three
    runs are known there is no level: three worse ones in a row that no check called worse are the first.

    Args:
        logs: The series' log values, oldest first.
        worse: The sign of a change for the worse.
        threshold: The smallest change that matters.
        prior: What the other series of the device vary by.
        marks: What else is known of the runs.
    """
    if prior is not None:
        prior = as_dependent(prior, marks.dependence)
    walk = _LevelWalk(prior, worse, threshold, marks)
    for index, value in enumerate(logs):
        walk.visit(index, value)
    spread = moderated(*walk.variation(), prior)
    return Level(tuple(walk.members), spread, walk.departure, tuple(walk.outside), walk.better_runs)


class _LevelWalk:
    """The runs of the level so far, and how much those before varied."""

    def __init__(self, prior: Spread | None, worse: int, threshold: float, marks: RunMarks) -> None:
        self._dependence = marks.dependence
        self._prior, self._worse, self._threshold, self._marks = prior, worse, threshold, marks
        self.members: list[int] = []
        self.departure: Departure | None = None
        self._outside: list[tuple[int, float]] = []
        self._values: deque[float] = deque(maxlen=_SPREAD_RUNS)
        self._before = (0.0, 0.0)
        self._better: list[tuple[int, float]] = []
        self._accepted: float | None = None

    @property
    def outside(self) -> list[int]:
        """Indices of the newest runs that were worse than the level."""
        return [index for index, _ in self._outside]

    @property
    def better_runs(self) -> tuple[int, ...]:
        """Indices of the newest runs that were better than the level."""
        return tuple(index for index, _ in self._better)

    def visit(self, index: int, value: float) -> None:
        """Takes a run into the level, or keeps it out."""
        side, is_alarmed = self._side(value), index in self._marks.alarmed
        self._outside = [*self._outside, (index, value)] if side == self._worse else []
        if index in self._marks.accepted and (is_alarmed or side == self._worse):
            self._begin_level([(index, value)])
            self._accepted = value
        elif is_alarmed and self._values and not self._is_answered(value):
            self._better = []
            self._depart(index, value)
        elif self._was_level_chance():
            self._begin_level(self._outside)
        elif index in self._marks.barred or side == self._worse:
            return
        elif side == -self._worse:
            self._better.append((index, value))
            if len(self._better) == LEAST_RUNS:
                self._begin_level(self._better)
        elif self._is_back(value):
            self._take(index, value)

    def _was_level_chance(self) -> bool:
        """Whether three runs in a row, none called worse, contradict a level of one or two runs."""
        if len(self.members) >= LEAST_RUNS or len(self._outside) < LEAST_RUNS:
            return False
        return self.departure is None and not {*self.outside} & {*self._marks.barred}

    def _is_answered(self, value: float) -> bool:
        """Whether a run that was called worse is so no more.

        It was called so only since others were, and lies near the level itself; or it is no worse
        than what was accepted, as a rerun that came before the acceptance.
        """
        if self.departure is not None:
            return self.departure.is_near_level(value)
        if self._accepted is None:
            return False
        return self._worse * (value - self._accepted) <= self._threshold / 2

    def _is_back(self, value: float) -> bool:
        """Whether a run of the level may be taken for one, after others that were worse."""
        self._better = []
        departure = self.departure
        if departure is None:
            return True
        if departure.is_over(value, moderated(*self.variation(), self._prior)):
            self.departure = None
            return True
        returning = departure.returning + 1 if departure.is_near_level(value) else 0
        self.departure = replace(departure, returning=returning)
        return False

    def _depart(self, index: int, value: float) -> None:
        newest = self._newest()
        members = (*(self.departure.members if self.departure else ()), index)
        before = self.departure.middle * (len(members) - 1) if self.departure else 0.0
        level = math.fsum(newest) / len(newest)
        middle = (before + value) / len(members)
        self.departure = Departure(members, middle, level, self._threshold / 2)

    def _begin_level(self, runs: Sequence[tuple[int, float]]) -> None:
        self._before = self.variation()
        self._outside = []
        self.members.clear()
        self._values.clear()
        self._better, self.departure, self._accepted = [], None, None
        for index, value in runs:
            self._take(index, value)

    def _take(self, index: int, value: float) -> None:
        self.members.append(index)
        self._values.append(value)

    def _newest(self) -> list[float]:
        return list(self._values)[-_LEVEL_RUNS:]

    def variation(self) -> tuple[float, float]:
        """Sum of squared deviations from their level, and its degrees of freedom."""
        count = len(self._values)
        if count == 0:
            return self._before
        mean = math.fsum(self._values) / count
        level_squares = math.fsum((value - mean) ** 2 for value in self._values)
        level_freedom = float(count - 1)
        if self._dependence and count > 1:
            factors = level_factors(self._dependence, count)
            level_freedom = factors.freedom
            level_squares *= level_freedom / factors.squares
        # Of the levels before, as much as makes up for what this one does not tell yet.
        squares, freedom = self._before
        carried_freedom = min(freedom, _SPREAD_RUNS - count)
        return level_squares + (
            squares * carried_freedom / freedom if freedom else 0.0
        ), level_freedom + carried_freedom

    def _side(self, value: float) -> int:
        """0 where the value is of the level, else the sign of its departure."""
        newest = self._newest()
        if not newest:
            return 0
        shift = value - math.fsum(newest) / len(newest)
        if abs(shift) <= self._threshold:
            return 0
        spread = moderated(*self.variation(), self._prior)
        error = error_of_departure(spread, len(newest), self._dependence)
        reach = t_quantile(spread.freedom, _BELONGING) * error
        return 0 if abs(shift) <= reach else int(math.copysign(1, shift))


@dataclass(frozen=True)
class Drift:
    """A steady rise or fall over the newest runs of a series, in log units."""

    runs: int
    start: float
    """Where the line begins."""
    total: GroupDifference
    """From the first of these runs to the last, along the line."""
    is_steady: bool
    """Whether the line fits better than one step does."""


def find_drift(
    logs: Sequence[float], prior: Spread | None = None, dependence: float = 0.0
) -> Drift | None:
    """Fits a line to the newest eight values; None below six.

    Least squares and its t-test (Draper and Smith, Applied Regression Analysis, chapter 1), with
    the deviations from the line moderated by the device's prior. Runs that depend on the run before,
    by `dependence`, stray from their level in long waves, which are paid for (`line_factors`).
    """
    if len(logs) < _LEAST_DRIFT_RUNS:
        return None
    values = np.asarray(logs[-_DRIFT_RUNS:], float)
    offsets = np.arange(values.size) - (values.size - 1) / 2
    extent = float(np.sum(offsets**2))
    slope = float(np.sum(offsets * values)) / extent
    deviations = values - values.mean() - slope * offsets
    squares, freedom = float(np.sum(deviations**2)), values.size - 2.0
    length = values.size - 1
    error_of_one = length / math.sqrt(extent)
    if dependence:
        factors = line_factors(dependence, values.size)
        squares, freedom = squares * factors.freedom / factors.squares, factors.freedom
        error_of_one = factors.error
        prior = None if prior is None else as_dependent(prior, dependence)
    spread = moderated(squares, freedom, prior)
    error = error_of_one * spread.deviation
    total = difference_with_error(slope * length, error, spread)
    steps = (float(values[:cut].var() * cut + values[cut:].var() * (values.size - cut))
             for cut in range(1, values.size))  # fmt: skip
    is_steady = float(np.sum(deviations**2)) < min(steps)
    return Drift(values.size, float(values.mean()) - total.change / 2, total, is_steady)
