"""The clock of an ETDump's stamps: said by a flag, or known by what stands in the files, or not.

ExecuTorch stamps events with its platform's ticks: ns on Android, Linux and Apple's systems, often
cycles on microcontrollers. Nothing in the file says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from etprof.backends.registry import backend_of_labels
from etprof.base.errors import UsageError
from etprof.base.units import format_count
from etprof.etdump.plausibility import Role, examine_events

if TYPE_CHECKING:
    from etprof.etdump.reader import ETDump, LongETDump

NS_PER_TICK: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6}
CYCLES: Final = "cycles"
TIME_SCALES: Final = (*NS_PER_TICK, CYCLES)
_NS_PER_S: Final = 1e9
_LEAST_OPERATORS: Final = 5
"""Durations that are whole steps of a delegate by chance are fewer."""
_LEAST_SHARE: Final = 0.5
_MOST_SHARE: Final = 1.02
"""Of a log's time, what its executions take in the ETDump: the log's brackets are around them."""


class Clock(NamedTuple):
    """What a tick is, and how that is known."""

    ns_per_tick: float
    text: str


def find_clock(
    dump: ETDump | LongETDump, scale: str | None, hz: float | None, executed_ns: int | None
) -> Clock:
    """Returns the clock of `dump`; `executed_ns` is what a log says of the same executions.

    Raises UsageError where neither flag nor files tell, or flags contradict each other.
    """
    if hz is not None and scale not in {None, CYCLES}:
        raise UsageError(f"--clock-hz is of a clock in cycles, and --time-scale says {scale}")
    if hz is not None:
        return Clock(_NS_PER_S / hz, f"cycles of {format_count(hz)} a second, as --clock-hz says")
    if scale == CYCLES:
        raise UsageError("--time-scale cycles: give --clock-hz too: cycles of what are no times")
    if scale is not None:
        return Clock(NS_PER_TICK[scale], f"{scale}, as --time-scale says")
    clock = _by_log(dump, executed_ns) or _by_backend(dump)
    if clock is None:
        raise UsageError(
            "nothing says what clock the ETDump's stamps are of; give --time-scale ns for a phone "
            "or a computer, or --time-scale cycles --clock-hz HZ for a microcontroller"
        )
    return clock


def _by_log(dump: ETDump | LongETDump, executed_ns: int | None) -> Clock | None:
    """The log's ms are of the executions that the ETDump has, if no other unit comes as near."""
    if not executed_ns:
        return None
    ticks = 0
    for piece in dump.pieces():
        events = examine_events(piece)
        if events.times is not None:
            ticks += int(events.times.duration[events.roles == Role.EXECUTE].sum())
    for name, unit in NS_PER_TICK.items():
        if _LEAST_SHARE <= ticks * unit / executed_ns <= _MOST_SHARE:
            return Clock(unit, f"{name}: its executions take what the log says that they took")
    return None


def _by_backend(dump: ETDump | LongETDump) -> Clock | None:
    """A delegate whose times are whole steps in ns shows them only where a tick is a ns."""
    piece = next(iter(dump.pieces()))
    labels = piece.profile.delegate_debug_id_str_id
    rows = np.flatnonzero(labels >= 0)
    backend = backend_of_labels({piece.names[i] for i in np.unique(labels[rows]).tolist()})
    step_ns = int(backend.clock_step_ns)
    duration = (piece.profile.end_time - piece.profile.start_time)[rows].astype(np.int64)
    duration = duration[duration > 0]
    if step_ns <= 1 or duration.size < _LEAST_OPERATORS or (duration % step_ns).any():
        return None
    return Clock(1.0, f"ns: {backend.title}'s times are whole steps of {step_ns} of its ticks")
