"""Where did a metric's level change over its history?

Runs are levels, with noise around them in which each run lies near the run before (a machine that is
warm stays warm). How near is not known, and few runs cannot tell a step from such a drift. So every
partition is weighed under every autocorrelation of a grid, by the exact likelihood of an AR(1)
process with its noise unknown, and no autocorrelation is estimated: an estimate from few runs is too
low, and a step itself raises it (Marriott and Pope 1954, "Bias in the estimation of
autocorrelations"). A step of many times the noise of neighbours is none under any of them.

The best partition into each number of levels is found by dynamic programming (Auger and Lawrence
1989, "Algorithms for the optimal identification of segment neighborhoods"). Each level costs half
the log of the independent runs that it is worth, as BIC has it, and each change what keeps false ones
below 5 % of series (`python benchmarks/coverage.py changes`). Single outliers are clipped first
(Hampel's filter), for one bad night is not a new level.

Each change comes with the places it may have had and a probability, from Bayes' rule over all places
between its neighbours (Smith, "A Bayesian approach to inference about a change-point in a sequence
of random variables", 1975).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.states import remove_states
from etprof.statistics.summary import noise_of_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEAST_RUNS: Final = 3
"""Runs that a level has at least."""
LEAST_CHANGE: Final = 0.02
"""Change points below 2 % are not reported."""
_DEPENDENCE: Final = np.array([0, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97])
"""Autocorrelations that the noise may have."""
_COST: Final = 6.5
"""Of a change, in log likelihood, for many runs, and how much less it is for n: 15/n."""
_LESS_OF_FEW: Final = 15.0
_MOST_CHANGES: Final = 10
MOST_OF_A_LEVEL: Final = 200
"""Longer series are looked through in windows of so many runs that overlap by half."""
_CLIP: Final = 3.0
_WINDOW: Final = 5
_UPPER: Final = 0.75
_UPPER_OF_DIFFERENCES: Final = 1.6268
"""Upper quartile of the absolute difference of two normal values, in their spread."""
_LEAST_NOISE: Final = 0.001
_LONG: Final = 8
"""Runs of a level in which strays are noise; of a shorter one a quarter may be."""
_MOST_STRAYS: Final = 0.25
_PROBABLE: Final = 0.95
_WHERE_A_LEVEL_IS: Final = (0.75, 1.5)
"""Of a step: a run that is so far out stands where the level behind the step does."""


@dataclass(frozen=True)
class ChangePoint:
    """A new level, by indices of the values."""

    start: int
    """Most probably its first value."""
    earliest: int
    """The first value is among `earliest` … `latest` with 95 %, given that there is a change."""
    latest: int
    probability: float
    """Of a change here, to one of none; what is reported has 95 % or more."""


def find_change_points(
    values: Sequence[float], *, minimum_change: float = LEAST_CHANGE
) -> list[ChangePoint]:
    """Returns the change points, oldest first.

    `values` are all above zero, in order of time. Levels are compared by their medians; those that
    differ by less than `minimum_change` are one. A level of fewer than three values is not known yet.
    """
    if len(values) < 2 * LEAST_RUNS or min(values) <= 0:
        return []
    logs = np.asarray(remove_states(np.log(np.asarray(values, float)).tolist()))
    levels, edges = Levels(_clip_outliers(logs)), [0, *_all_starts(logs, minimum_change), logs.size]
    change_points = (
        levels.locate_change(begin, end) for begin, end in zip(edges, edges[2:], strict=False)
    )
    return [change_point for change_point in change_points if change_point is not None]


def step_in_doubt(values: Sequence[float], *, minimum_change: float = LEAST_CHANGE) -> float | None:
    """The largest step, minus one, that would be a change if runs did not depend on one another.

    None where there is none. `values` are those of one level, as `find_change_points` has them;
    of more than MOST_OF_A_LEVEL the newest are looked at.
    """
    if len(values) < 2 * LEAST_RUNS or min(values) <= 0:
        return None
    logs = np.log(np.asarray(values[-MOST_OF_A_LEVEL:], float))
    starts = _starts(
        logs, Levels(_clip_outliers(logs), _DEPENDENCE[:1]), 1, math.log1p(minimum_change)
    )
    edges = [0, *starts, logs.size]
    levels = [float(np.median(logs[a:b])) for a, b in itertools.pairwise(edges)]
    return max(map(math.expm1, np.diff(levels).tolist()), key=abs, default=None)


def _all_starts(logs: NDArray[np.float64], minimum_change: float) -> list[int]:
    """Returns the starts of all levels but the first, in order, of a series of any length.

    What is near the edge of a window is in the middle of another. Two windows may see one change
    some runs apart: the earlier window's is taken, and is placed on the whole series later.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).
        minimum_change: Changes below this share are none.

    Returns:
        Indices into `logs`.
    """
    half = MOST_OF_A_LEVEL // 2
    begins = range(0, max(logs.size - half, 1), half)
    starts = list[int]()
    for begin in begins:
        window = logs[begin : begin + MOST_OF_A_LEVEL]
        first = begin + half // 2 - _WINDOW if begin else 0
        last = begin + half + half // 2 + _WINDOW if begin != begins[-1] else logs.size
        earlier_starts, levels = tuple(starts), Levels(_clip_outliers(window))
        for start in _starts(window, levels, len(begins), math.log1p(minimum_change)):
            index = begin + start
            if first <= index < last and all(
                abs(index - earlier) > _WINDOW for earlier in earlier_starts
            ):
                starts.append(index)
    return sorted(starts)


def _starts(
    logs: NDArray[np.float64], levels: Levels, windows: int, minimum_log_change: float
) -> list[int]:
    """Returns the starts of all levels but the first.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).
        levels: The same series without outliers.
        windows: Among how many windows this is one: each may be wrong.
        minimum_log_change: Log of the smallest change that is one.

    Returns:
        Indices into `logs`.
    """
    starts = levels.partition(_COST - _LESS_OF_FEW / logs.size + math.log(windows))
    starts = _drop_mixed(logs, _drop_small_changes(logs, starts, minimum_log_change))
    return _drop_small_changes(logs, _drop_recurring(logs, starts), minimum_log_change)


class Levels:
    """A series of log values, and what its levels cost under each autocorrelation.

    Arrays have a row for each autocorrelation. A level is by itself: the first value after a change
    owes nothing to the last before it.
    """

    def __init__(
        self, logs: NDArray[np.float64], dependence: NDArray[np.float64] = _DEPENDENCE
    ) -> None:
        """Keeps a series.

        Args:
            logs: Log of each run's value, in the order of time, shape (runs,).
            dependence: Autocorrelations of neighbours that may be, shape (kinds,).
        """
        self._logs = logs - logs.mean()
        self._rho = rho = dependence[:, None]
        news = np.zeros((rho.size, logs.size + 1))
        news[:, 2:] = self._logs[1:] - rho * self._logs[:-1]
        self._sums, self._squares = np.cumsum(news, axis=1), np.cumsum(news**2, axis=1)

    def cost(
        self, starts: NDArray[np.int_], ends: NDArray[np.int_] | int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Squares around the level of the values from `starts` to `ends`, in units of news.

        And half the log of how many independent values they are worth.

        Args:
            starts: First index of each stretch, shape (n,).
            ends: One past the last index, shape (n,) or one for all.

        Returns:
            Squares and half logs, each shape (kinds, n).
        """
        first_weight, fresh = 1 - self._rho**2, 1 - self._rho
        ends, first = np.broadcast_to(ends, starts.shape), self._logs[starts]
        information = first_weight + fresh**2 * (ends - starts - 1)
        total = first_weight * first + fresh * (self._sums[:, ends] - self._sums[:, starts + 1])
        squares = first_weight * first**2 + self._squares[:, ends] - self._squares[:, starts + 1]
        return squares - total**2 / information, np.log(information / first_weight) / 2

    def partition(self, cost: float) -> list[int]:
        """Returns the starts of all levels but the first, of the most likely partition.

        Each change costs `cost` in log likelihood; without a change that is worth it, none.
        """
        count, kinds = self._logs.size, self._rho.size
        maximum_changes = min(_MOST_CHANGES, count // LEAST_RUNS - 1)
        squares = np.full((maximum_changes + 1, kinds, count + 1), np.inf)
        worths = np.zeros_like(squares)
        before = np.zeros(squares.shape, int)
        for end in range(LEAST_RUNS, count + 1):
            starts = np.arange(LEAST_RUNS, end - LEAST_RUNS + 1)
            level_squares, worth = self.cost(np.insert(starts, 0, 0), end)
            squares[0, :, end], worths[0, :, end] = level_squares[:, 0], worth[:, 0]
            if starts.size:
                totals = squares[:-1, :, starts] + level_squares[:, 1:]
                best = np.argmin(totals, axis=2)[..., None]
                squares[1:, :, end] = np.take_along_axis(totals, best, 2)[..., 0]
                both = worths[:-1, :, starts] + worth[:, 1:]
                worths[1:, :, end] = np.take_along_axis(both, best, 2)[..., 0]
                before[1:, :, end] = starts[best[..., 0]]
        likely = self._likelihood(squares[..., -1], worths[..., -1], count)
        changes = int(
            np.argmax(_mean_of_logs(likely, axis=1) - cost * np.arange(maximum_changes + 1))
        )
        kind, boundaries, end = int(np.argmax(likely[changes])), [], count
        for number in range(changes, 0, -1):
            end = int(before[number, kind, end])
            boundaries.append(end)
        return boundaries[::-1]

    def locate_change(self, begin: int, end: int) -> ChangePoint | None:
        """Locates the change in a stretch by its posterior over all indices; None where it is improbable.

        And where it is most probably nearer to an end than a level is long.
        """
        cuts = np.arange(begin + 1, end)
        one, two = self.cost(np.full(cuts.shape, begin), cuts), self.cost(cuts, end)
        none = self.cost(np.array([begin]), end)
        count = end - begin
        evidence = _mean_of_logs(
            self._likelihood(one[0] + two[0], one[1] + two[1], count), axis=0
        ) - _mean_of_logs(self._likelihood(*none, count), axis=0)
        largest, best = float(evidence.max()), int(cuts[np.argmax(evidence)])
        weights = np.exp(evidence - largest)
        odds = math.log(float(weights.mean())) + largest
        probability = 1 / (1 + math.exp(-odds)) if odds > 0 else 0.0
        if probability < _PROBABLE or not begin + LEAST_RUNS <= best <= end - LEAST_RUNS:
            return None
        order = np.argsort(-weights)
        shares = np.cumsum(weights[order]) / weights.sum()
        among = cuts[order[: int(np.searchsorted(shares, _PROBABLE)) + 1]]
        return ChangePoint(best, int(among.min()), int(among.max()), probability)

    @staticmethod
    def _likelihood(
        squares: NDArray[np.float64], worths: NDArray[np.float64], count: int
    ) -> NDArray[np.float64]:
        """Log likelihood of `count` values, over all levels and noises that they may have.

        Args:
            squares: As `cost` has them, shape (..., kinds, n).
            worths: Likewise.
            count: Values in the stretch.

        Returns:
            Natural logs, of the arguments' shape.
        """
        return -worths - (count - 1) / 2 * np.log(squares + count * _LEAST_NOISE**2)


def _mean_of_logs(logs: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Log of the mean of the numbers whose logs are given.

    Args:
        logs: Natural logs, of any shape.
        axis: Over which the mean is taken.

    Returns:
        Natural logs, of that shape without `axis`.
    """
    largest = logs.max(axis=axis, keepdims=True)
    log_mean: NDArray[np.float64] = np.log(np.exp(logs - largest).mean(axis=axis))
    log_mean += np.squeeze(largest, axis)
    return log_mean


def _clip_outliers(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Brings values that stand out from their neighbours' median back to the edge.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).

    Returns:
        The same with outliers brought in, shape (runs,).
    """
    noise = noise_of_series(logs)
    if noise < _LEAST_NOISE:
        # More than half are equal to the run before, as rounded values are.
        noise = float(np.quantile(np.abs(np.diff(logs)), _UPPER)) / _UPPER_OF_DIFFERENCES
    reach = _CLIP * max(noise, _LEAST_NOISE)
    padded = np.pad(logs, _WINDOW // 2, mode="reflect")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, _WINDOW), axis=1)
    return np.clip(logs, medians - reach, medians + reach)


def _drop_small_changes(
    logs: NDArray[np.float64], starts: Sequence[int], minimum_log_change: float
) -> list[int]:
    """Joins neighbouring levels, the most alike first, until all differ by `minimum_log_change` or more.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).
        starts: Starts of all levels but the first.
        minimum_log_change: Log of the smallest change that is one.
    """
    remaining = list(starts)
    while remaining:
        edges = [0, *remaining, logs.size]
        levels = [np.median(logs[a:b]) for a, b in itertools.pairwise(edges)]
        steps = np.abs(np.diff(levels))
        smallest = int(np.argmin(steps))
        if steps[smallest] >= minimum_log_change:
            break
        del remaining[smallest]
    return remaining


def _drop_mixed(logs: NDArray[np.float64], starts: Sequence[int]) -> list[int]:
    """Drops changes beside a short level of which more than a quarter is on the other's side.

    Some bad nights near each other, with good ones between, are no level.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).
        starts: Starts of all levels but the first.
    """
    edges = [0, *starts, logs.size]
    levels = [logs[a:b] for a, b in itertools.pairwise(edges)]
    remaining = []
    for start, (before, after) in zip(starts, itertools.pairwise(levels), strict=True):
        sides = float(np.median(before)), float(np.median(after))
        is_other = [
            (level - np.mean(sides)) * (sides[1] - sides[0]) > 0 for level in (before, after)
        ]
        strays = float(is_other[0].mean()), 1 - float(is_other[1].mean())
        if all(
            share <= _MOST_STRAYS or level.size >= _LONG
            for share, level in zip(strays, (before, after), strict=True)
        ):
            remaining.append(start)
    return remaining


def _drop_recurring(logs: NDArray[np.float64], starts: Sequence[int]) -> list[int]:
    """Joins a level with its neighbour where other runs of the series stand where the level does.

    A series with two states is for some runs mostly in one of them by chance. If a share p of n runs
    is in that state, stretches with k of m runs there begin n times as often as the binomial says (an
    upper bound of their chance); p is known from the other runs, by the rule of succession. The
    shortest level comes first.

    Args:
        logs: Log of each run's value, in the order of time, shape (runs,).
        starts: Starts of all levels but the first.
    """
    remaining = list(starts)
    while remaining:
        edges = [0, *remaining, logs.size]
        levels = [logs[a:b] for a, b in itertools.pairwise(edges)]
        recurring = [
            (min(levels[index].size, levels[index + 1].size), start)
            for index, start in enumerate(remaining)
            if _chance_of_stretch(levels, index) > 1 - _PROBABLE
        ]
        if not recurring:
            break
        remaining.remove(min(recurring)[1])
    return remaining


def _chance_of_stretch(levels: Sequence[NDArray[np.float64]], index: int) -> float:
    """How many stretches with as many runs where a level is are expected in a series of two states.

    Args:
        levels: Log values of the series, by level, each of shape (runs,).
        index: Of the first of two neighbours; the shorter of them is the level.
    """
    pair = [index, index + 1]
    pair.sort(key=lambda number: levels[number].size)
    short, long = pair
    middle = float(np.median(levels[long]))
    step = float(np.median(levels[short])) - middle
    nearest, farthest = (abs(step) * share for share in _WHERE_A_LEVEL_IS)

    def is_there(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of some runs stand where the level does; both of shape (runs,)."""
        sides = np.sign(step) * (values - middle)
        within: NDArray[np.bool_] = (sides >= nearest) & (sides <= farthest)
        return within

    # A level that follows on this one and stands there too is its continuation, and no recurrence.
    beyond = 2 * short - long
    is_continued = 0 <= beyond < len(levels) and bool(
        is_there(np.array([np.median(levels[beyond])]))[0]
    )
    masks = [
        is_there(values)
        for number, values in enumerate(levels)
        if number != short and not (is_continued and number == beyond)
    ]
    count, inside = sum(mask.size for mask in masks), int(np.sum(is_there(levels[short])))
    share = (sum(int(np.sum(mask)) for mask in masks) + 1) / (count + 2)
    size = levels[short].size
    chance = math.fsum(
        math.comb(size, runs) * share**runs * (1 - share) ** (size - runs)
        for runs in range(inside, size + 1)
    )
    return count * chance
