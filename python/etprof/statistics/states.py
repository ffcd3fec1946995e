"""Does a series go back and forth between two states?

A machine may be warm or cool, a process on a fast or a slow core, for one run or for many. Runs of
such a series are two groups, far apart beside the spread of each, and neither is a level that ended:
the series left both and came back to both. Each run is then judged by the state that it is nearest to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from etprof.statistics.runs import LEAST_DEVIATION

_LEAST_RUNS: Final = 8
"""Runs of a series in which states are looked for."""
_LEAST_OF_STATE: Final = 3
"""Runs of a state; two may be strays that are alike by chance."""
_LEAST_CHANGES: Final = 4
"""From one to the other and back, twice: a regression and its repair are two changes, and no states."""
_SHORT: Final = 2.0
"""Mean runs of a stay in the rarer state; what stays longer may be levels."""
_CERTAIN_CHANGES: Final = 8
"""Changes that make states of longer stays too."""
_APART: Final = 5.0
"""Spreads within either state that the two are apart at least."""
_NEWEST: Final = 100
"""The newest runs tell the states."""


@dataclass(frozen=True)
class TwoStates:
    """Two groups of runs of one series, by log values."""

    lower: tuple[int, ...]
    """Indices of the runs in the lower state, oldest first."""
    upper: tuple[int, ...]
    lower_level: float
    """Mean of the log values in the lower state."""
    upper_level: float
    squares: float
    """Sum of the squared deviations from the level of each run's state."""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the squares."""
        return float(len(self.lower) + len(self.upper) - 2)

    @property
    def change(self) -> float:
        """Upper ÷ lower state, minus one."""
        return math.expm1(self.upper_level - self.lower_level)

    def chance_of_stretch(self, stretch: Collection[int], *, upper: bool) -> float:
        """Chance that a run and the newest runs before it are all in one of the states.

        That of the first is the state's share of all earlier runs; that of each other is how often
        the state lasted for another run before (rules of succession).

        Args:
            stretch: Indices of the runs before that are in the state, one after the other.
            upper: Which state it is.
        """
        members = [i for i in (self.upper if upper else self.lower) if i not in stretch]
        other_runs = len(self.lower if upper else self.upper)
        stays = sum(after - before == 1 for before, after in itertools.pairwise(members))
        share = (len(members) + 1) / (len(members) + other_runs + 2)
        stay = (stays + 1) / (len(members) + 2)
        return float(share * max(share, stay) ** len(stretch))

    def is_upper(self, log_value: float) -> bool:
        """Whether a value is nearer to the upper state."""
        return 2 * log_value > self.lower_level + self.upper_level

    def without_states(self, logs: Sequence[float]) -> list[float]:
        """Returns log values as if all runs had been in the lower state."""
        step = self.upper_level - self.lower_level
        return [value - step * self.is_upper(value) for value in logs]


def find_states(logs: Sequence[float], skipped: Collection[int] = ()) -> TwoStates | None:
    """Returns the two states of a series; None where it has one, or too few runs tell.

    The largest gap between the sorted values divides them.

    Args:
        logs: Log values of the runs, oldest first.
        skipped: Indices of runs that count for neither state, as those that were called worse.
    """
    indices = [index for index in range(len(logs)) if index not in skipped][-_NEWEST:]
    if len(indices) < _LEAST_RUNS:
        return None
    values = np.asarray([logs[index] for index in indices], float)
    ordered = np.sort(values)
    inner = np.diff(ordered)[_LEAST_OF_STATE - 1 : values.size - _LEAST_OF_STATE]
    cut = _LEAST_OF_STATE - 1 + int(np.argmax(inner))
    is_upper = values > (ordered[cut] + ordered[cut + 1]) / 2
    groups = values[~is_upper], values[is_upper]
    if min(map(len, groups)) < _LEAST_OF_STATE:  # Many values are the same.
        return None
    low, high = (float(np.mean(group)) for group in groups)
    of_each = [float(np.sum((group - group.mean()) ** 2)) for group in groups]
    spread = max(
        LEAST_DEVIATION,
        *(
            math.sqrt(squares / (group.size - 1))
            for squares, group in zip(of_each, groups, strict=True)
        ),
    )
    changes = int(np.sum(is_upper[1:] != is_upper[:-1]))
    longest = changes / 2 * _SHORT
    is_alternating = changes >= _LEAST_CHANGES and min(map(len, groups)) <= longest
    if not (is_alternating or changes >= _CERTAIN_CHANGES) or high - low < _APART * spread:
        return None
    lower, upper = (
        tuple(index for index, flag in zip(indices, is_upper, strict=True) if flag == side)
        for side in (False, True)
    )
    return TwoStates(lower, upper, low, high, math.fsum(of_each))


def remove_states(logs: Sequence[float], skipped: Collection[int] = ()) -> Sequence[float]:
    """Returns log values without the step between their states, where they have two.

    Args:
        logs: Log values of the runs, oldest first.
        skipped: Indices of runs that do not tell of states.
    """
    states = find_states(logs, skipped)
    return logs if states is None else states.without_states(logs)
