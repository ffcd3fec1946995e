"""Puts the operators of an ETDump on the operator clock that ran beside it.

XNNPACK reports whole microseconds laid end to end. The clock has ns with true starts, in the same
process and of the same inferences (docs/kernel_evidence.md), so each event gets its own reading.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from etprof.base.errors import InputFileError
from etprof.etdump.plausibility import CONTAINERS
from etprof.etdump.reader import EXECUTE, ETDump, LongETDump, changed_while_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from etprof.run.kernel_trace import KernelTrace, TracedOperator

_MOST_OUTSIDE_NS: Final = 1000
"""A reading may be off that of ExecuTorch by the time between the two; a step of XNNPACK's."""
_DIFFERENT_OPERATORS: Final = "it has other executions or operators than the ETDump"


class _DelegateClock(NamedTuple):
    """What the clock showed of the operators inside delegates."""

    names: tuple[str, ...]
    delegates: tuple[int | None, ...]
    """Of each operator, the number of its delegate."""
    start: NDArray[np.int64]
    """From the start of each execution, in ns, shape (executions, operators)."""
    duration: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _LongOnClock(LongETDump):
    """A long ETDump whose pieces are put on the clock when they are read."""

    clock: _DelegateClock

    def pieces(self) -> Iterator[ETDump]:
        """Yields the pieces of the file; raises InputFileError where one does not fit any more."""
        done = 0
        for piece in super().pieces():
            changed, done = _change_piece(piece, self.clock, done)
            if isinstance(changed, str):
                raise InputFileError(changed_while_read(self.name))
            yield changed


def put_on_clock(dump: ETDump | LongETDump, trace: KernelTrace) -> ETDump | LongETDump | str:
    """Returns `dump` with the clock's start and end of every operator inside a delegate.

    Where clock and ETDump do not tell of the same operators, says why, and no event is changed.
    """
    operators = [operator for operator in trace.operators if operator.delegate is not None]
    if problem := _clock_problem(trace, operators):
        return problem
    clock = _DelegateClock(
        tuple(operator.name for operator in operators),
        tuple(operator.delegate for operator in operators),
        np.array([operator.start_ns for operator in operators], np.int64).T,
        np.array([operator.duration_ns for operator in operators], np.int64).T,
    )
    done, changed = 0, dump
    for piece in dump.pieces():
        changed_piece, done = _change_piece(piece, clock, done)
        if isinstance(changed_piece, str):
            return changed_piece
        changed = changed_piece
    if done != len(trace.executions):
        return _DIFFERENT_OPERATORS
    if isinstance(dump, LongETDump):
        tick = dump.ns_per_tick
        return _LongOnClock(dump.path, dump.data, dump.state, clock, ns_per_tick=tick)
    return changed


def _clock_problem(trace: KernelTrace, operators: list[TracedOperator]) -> str | None:
    """What keeps a trace from being a clock of every operator in every execution."""
    if not trace.all_operators_named or not all(
        execution.aligned for execution in trace.executions
    ):
        return "executions ran different operators, or some without a name"
    if any(None in (*operator.start_ns, *operator.duration_ns) for operator in operators):
        return "operators lack a time in some executions"
    return None if operators and trace.executions else _DIFFERENT_OPERATORS


def _change_piece(dump: ETDump, clock: _DelegateClock, done: int) -> tuple[ETDump | str, int]:
    """Puts the executions after `done` on the clock; returns how many there are then, too."""
    profile, count = dump.profile, len(clock.names)
    number = {name: index for index, name in enumerate(dump.names)}
    executes = np.flatnonzero(profile.name_id == number.get(EXECUTE, -2))
    calls = np.flatnonzero(profile.name_id == number.get(CONTAINERS[1], -2))
    flat = np.flatnonzero(profile.delegate_debug_id_str_id >= 0)
    span = slice(done, done + executes.size)
    if flat.size != executes.size * count or span.stop > len(clock.start):
        return _DIFFERENT_OPERATORS, done
    rows = flat.reshape(executes.size, count)
    expected = [number.get(name, -2) for name in clock.names]
    matches = profile.delegate_debug_id_str_id[rows] == expected
    matches &= np.searchsorted(executes, rows) == np.arange(executes.size)[:, None]
    if not matches.all() or (rows.size and (calls.size == 0 or rows.max() > calls[-1])):
        return "its operators are not those of the ETDump", done
    start = clock.start[span] + profile.start_time[executes].astype(np.int64)[:, None]
    end = start + clock.duration[span]
    around = calls[np.searchsorted(calls, rows)]
    begins, ends = (
        column.astype(np.int64)[around] for column in (profile.start_time, profile.end_time)
    )
    for delegate in set(clock.delegates):
        inside = [
            i
            for i, operator_delegate in enumerate(clock.delegates)
            if operator_delegate == delegate
        ]
        # The clock begins an inference some ns before or after ExecuTorch's own reading.
        early = begins[:, inside[:1]] - start[:, inside[:1]]
        late = end[:, inside[-1:]] - ends[:, inside[-1:]]
        shift = np.where(early > 0, early, -np.maximum(late, 0))
        start[:, inside] += shift
        end[:, inside] += shift
    if (start < begins - _MOST_OUTSIDE_NS).any() or (end > ends + _MOST_OUTSIDE_NS).any():
        return "its operators take longer than the calls of the ETDump that hold them", done
    stamps = profile.start_time.copy(), profile.end_time.copy()
    for stamp, times in zip(stamps, (start, end), strict=True):
        stamp[rows] = np.clip(times, begins, ends)
    changed = replace(profile, start_time=stamps[0], end_time=stamps[1])
    return replace(dump, profile=changed), span.stop
