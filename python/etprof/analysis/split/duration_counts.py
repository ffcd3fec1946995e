"""Counts how often each operator took how long, which is all that a median needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ALL_DIGITS: Final = 64
"""Binary digits of a duration: none is rounded."""


class DurationCounts(NamedTuple):
    """How often each operator took how long: what a median takes, however many calls there are."""

    operator: NDArray[np.int64]
    duration: NDArray[np.int64]
    """In ns, rounded down to so many binary digits as the tally keeps."""
    calls: NDArray[np.int64]

    @classmethod
    def of_calls(cls, operator: NDArray[np.int64], duration: NDArray[np.int64]) -> DurationCounts:
        """Counts equal durations of an operator; by operator, the shortest first.

        Args:
            operator: Number of each call's operator, shape (calls,).
            duration: How long each call took in ns, shape (calls,).
        """
        packed = pack_rows(operator, duration)
        if packed.dtype == object or not packed.size:
            order = np.argsort(packed)
            return cls(operator[order], duration[order], np.ones_like(operator))._add_up()
        # Numbers are sorted in a third of the time that their places take.
        packed.sort()
        starts = np.flatnonzero(begins_of_runs(packed))
        low = duration.min()
        of_operator, above = np.divmod(packed[starts], duration.max() - low + 1)
        calls = np.diff(starts, append=packed.size)
        return cls(of_operator + operator.min(), above + low, calls)

    @classmethod
    def merged(cls, counts: Sequence[DurationCounts]) -> DurationCounts:
        """Adds up what was counted apart."""
        operator, duration, calls = (
            np.concatenate(columns) for columns in zip(*counts, strict=True)
        )
        # Each part is in order, which this way of sorting makes use of.
        order = np.argsort(pack_rows(operator, duration), kind="stable")
        return cls(operator[order], duration[order], calls[order])._add_up()

    def rounded(self, digits: int) -> DurationCounts:
        """The same in so many binary digits; no longer duration becomes the shorter one."""
        if digits == ALL_DIGITS:
            return self
        return self._replace(
            duration=self.duration - self.duration % duration_step(self.duration, digits)
        )._add_up()

    def _add_up(self) -> DurationCounts:
        """Makes one of neighbours that are equal."""
        starts = np.flatnonzero(begins_of_runs(self.operator) | begins_of_runs(self.duration))
        calls = np.add.reduceat(self.calls, starts) if starts.size else self.calls
        return DurationCounts(self.operator[starts], self.duration[starts], calls)


def duration_step(duration: NDArray[np.int64], digits: int) -> NDArray[np.int64] | int:
    """The distance of two durations that differ when only so many binary digits are kept; ns.

    Args:
        duration: Durations in ns, shape (n,).
        digits: Binary digits that are kept.

    Returns:
        The distance of each in ns, shape (n,), or 1 where all digits are kept.
    """
    if digits == ALL_DIGITS:
        return 1
    _, needed = np.frexp(duration.astype(np.float64))
    step: NDArray[np.int64] = np.left_shift(1, np.maximum(needed.astype(np.int64) - digits, 0))
    return step


def pack_rows(*columns: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Makes one number of those of a row: equal ones of equal rows alone, in the same order.

    Where 64 bits do not hold them, which takes years of ns, they are Python's own integers.

    Args:
        columns: Integers, each of shape (rows,).

    Returns:
        One number a row, int64 or object, shape (rows,).
    """
    if not columns[0].size:
        return np.zeros(0, np.int64)
    lows = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    packed = np.zeros(columns[0].size, np.int64 if math.prod(sizes) < 2**63 else object)
    for column, low, size in zip(columns, lows, sizes, strict=True):
        packed = packed * size + (column.astype(np.int64) - low)
    return packed


def begins_of_runs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Says which of sorted values differ from the one before.

    Args:
        values: Sorted, shape (n,).

    Returns:
        True at the first of each run of equal values, shape (n,).
    """
    differs = np.ones(values.size, np.bool_)
    differs[1:] = values[1:] != values[:-1]
    return differs
