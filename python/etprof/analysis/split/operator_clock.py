"""Puts the operators of an ETDump on the operator clock that ran beside it.

XNNPACK reports whole microseconds laid end to end. The clock has ns with true starts, in the same
process and of the same inferences (docs/kernel_evidence.md), so each event gets its own reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etprof.etdump.reader import ETDump
    from etprof.run.kernel_trace import KernelTrace, TracedOperator

_MOST_OUTSIDE_NS: Final = 1000
"""A reading may be off that of ExecuTorch by the time between the two; a step of XNNPACK's."""


def put_on_clock(dump: ETDump, trace: KernelTrace) -> ETDump | str:
    """Returns `dump` with the clock's start and end of every operator inside a delegate.

    Where clock and ETDump do not tell of the same operators, says why, and no event is changed.
    """
    profile = dump.profile
    names = np.array([*dump.names, ""])
    executes = np.flatnonzero(names[profile.name_id] == "Method::execute")
    calls = np.flatnonzero(names[profile.name_id] == "DELEGATE_CALL")
    operators = [each for each in trace.operators if each.delegate is not None]
    flat = np.flatnonzero(profile.delegate_debug_id_str_id >= 0)
    count = len(trace.executions)
    if not trace.all_operators_named or not all(each.aligned for each in trace.executions):
        return "executions ran different operators, or some without a name"
    if executes.size != count or flat.size != count * len(operators) or not operators:
        return "it has other executions or operators than the ETDump"
    rows = flat.reshape(count, len(operators))
    told = names[profile.delegate_debug_id_str_id[rows]] == [each.name for each in operators]
    own = np.searchsorted(executes, rows) == np.arange(count)[:, None]
    if not (told & own).all() or calls.size == 0 or rows.max() > calls[-1]:
        return "its operators are not those of the ETDump"
    start = _readings(operators) + profile.start_time[executes].astype(np.int64)[:, None]
    end = start + np.array([each.duration_ns for each in operators], np.int64).T
    around = calls[np.searchsorted(calls, rows)]
    begins, ends = (
        each.astype(np.int64)[around] for each in (profile.start_time, profile.end_time)
    )
    for number in {each.delegate for each in operators}:
        inside = [i for i, each in enumerate(operators) if each.delegate == number]
        # The clock begins an inference some ns before or after ExecuTorch's own reading.
        early = begins[:, inside[:1]] - start[:, inside[:1]]
        late = end[:, inside[-1:]] - ends[:, inside[-1:]]
        shift = np.where(early > 0, early, -np.maximum(late, 0))
        start[:, inside] += shift
        end[:, inside] += shift
    if (start < begins - _MOST_OUTSIDE_NS).any() or (end > ends + _MOST_OUTSIDE_NS).any():
        return "its operators take longer than the calls of the ETDump that hold them"
    stamps = profile.start_time.copy(), profile.end_time.copy()
    for stamp, times in zip(stamps, (start, end), strict=True):
        stamp[rows] = np.clip(times, begins, ends)
    changed = replace(profile, start_time=stamps[0], end_time=stamps[1])
    return replace(dump, profile=changed)


def _readings(operators: list[TracedOperator]) -> NDArray[np.int64]:
    """Starts from the start of each execution, shape (executions, operators)."""
    return np.array([each.start_ns for each in operators], np.int64).T
