"""Says of each event of an ETDump what it is, how long it took, and whether it can be so.

An execution is one `Method::execute`. Events stand in the file in order of their end: what an
execution did comes before it. Its direct contents are `DELEGATE_CALL` and `OPERATOR_CALL`; inside
those stand the delegate's operators and the `native_call_*` kernels.

The runtime reads one clock in one thread, so what follows holds to the tick: an event ends after
it starts, lies inside what holds it, and begins after the one before it ended. Only delegates
report times of their own making: some in whole microseconds, rounded down and laid end to end
from the call's start, so they may be off by such a step; others in a unit that nobody knows. Of
the latter nothing is judged: the call that holds them is one whole.

Clocks of 32 bits begin again at 0, several times in a long file. ExecuTorch's Inspector takes an
end before its start for that, where both fit in 32 bits; so does this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from etprof.etdump.reader import ETDump

CONTAINERS: Final = ("Method::execute", "DELEGATE_CALL", "OPERATOR_CALL")
LOAD_EVENTS: Final = ("Program::load_method", "Method::init")
KERNEL_PREFIX: Final = "native_call_"

_NARROW: Final = 2**32
_DELEGATE_STEP: Final = 1000
"""One microsecond, the coarsest unit of known delegates, in ns, that of ExecuTorch's own clock."""


class Role(IntEnum):
    """What an event is."""

    OTHER = 0
    EXECUTE = 1
    DELEGATE_CALL = 2
    OPERATOR_CALL = 3
    DELEGATED = 4
    """An operator inside a delegate."""
    KERNEL = 5
    """An operator outside delegates."""
    LOAD = 6
    """Load-time work, which is part of no execution."""
    FOREIGN = 7
    """Inside a delegate that nothing is known of: in a unit of its own."""


_ROLE_OF_NAME: Final = dict(
    zip(CONTAINERS, (Role.EXECUTE, Role.DELEGATE_CALL, Role.OPERATOR_CALL), strict=True)
) | dict.fromkeys(LOAD_EVENTS, Role.LOAD)


@dataclass(frozen=True, eq=False)
class EventTimes:
    """When events were, in ticks of the file, ns for ExecuTorch; impossible ones without meaning."""

    start: NDArray[np.uint64]
    """As it stands in the file."""
    end: NDArray[np.uint64]
    duration: NDArray[np.int64]
    """With wraps of a 32-bit clock undone."""
    beyond: NDArray[np.float64]
    """What each container has beyond what it holds, shape (containers,)."""


@dataclass(frozen=True, eq=False)
class Events:
    """Every profile event of a file, in file order; what cannot be is marked."""

    roles: NDArray[np.int8]
    """A Role each."""
    execution: NDArray[np.int32]
    """Number of the execution over the whole file; -1 for events of none."""
    impossible: NDArray[np.bool_]
    execution_possible: NDArray[np.bool_]
    """Of each execution, whether all of its events can be so, shape (executions,)."""
    containers: NDArray[np.intp]
    """Rows of executions and calls, shape (containers,)."""
    times: EventTimes | None
    """None where nobody may see them, for they are no performance."""

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Events that may be shown: possible, in ns, and of an execution that can be so."""
        known = np.append(self.execution_possible, np.True_)  # the last is for row -1
        usable: NDArray[np.bool_] = known[self.execution] & ~self.impossible
        usable &= self.roles != Role.FOREIGN
        return usable


@dataclass(frozen=True, eq=False)
class _Nesting:
    """What holds what."""

    roles: NDArray[np.int8]
    execution: NDArray[np.int32]
    containers: NDArray[np.intp]
    parent: NDArray[np.int32]
    """Position in `containers`; -1 for what nothing holds."""


@dataclass(frozen=True, eq=False)
class _Times:
    """Start and end of every event on one clock without wraps, as far as that can be had."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    impossible: NDArray[np.bool_]
    is_other_clock: NDArray[np.bool_]
    """Events of delegates with a clock of their own: only their durations mean anything here."""
    is_narrow: bool
    """Whether the clock has 32 bits; times then count from the start of the execution."""


def examine_events(
    dump: ETDump, units: Mapping[int, float | None] | None = None, *, is_timed: bool = True
) -> Events:
    """Classifies and checks all profile events of `dump`; linear in their number.

    `units` are the ns per tick of delegates that do not report in ns, by the instruction that
    calls them; None for a unit that is not known. Where nothing is timed, the stamps are checked
    all the same: they tell a damaged file.
    """
    units = units or {}
    nesting = _find_nesting(dump, [call for call, unit in units.items() if unit is None])
    times = _undo_wraps(dump, nesting)
    duration = times.end - times.start
    for call in (call for call, unit in units.items() if unit is not None):
        inside = (dump.profile.instruction_id == call) & (nesting.roles == Role.DELEGATED)
        duration[inside] = duration[inside] * units[call]
        times.is_other_clock[inside] = True
    impossible = times.impossible | (duration < 0)
    beyond = np.zeros(0)
    if nesting.containers.size:
        _check_inside(times, nesting, impossible)
        beyond = _check_sums(duration, nesting, impossible)
    _check_order(times, nesting, impossible)
    impossible &= nesting.roles != Role.FOREIGN
    possible = np.ones(np.count_nonzero(nesting.roles == Role.EXECUTE), np.bool_)
    damaged = nesting.execution[impossible]
    possible[damaged[damaged >= 0]] = False
    stamps = dump.profile.start_time, dump.profile.end_time
    return Events(
        nesting.roles, nesting.execution, impossible, possible, nesting.containers,
        EventTimes(*stamps, duration, beyond) if is_timed else None,
    )  # fmt: skip


def ticks_from(start: int, end: int) -> int:
    """Ticks between two time stamps of usable events, a wrap of a 32-bit clock undone."""
    return end - start if end >= start else (end - start) % _NARROW


def describe_position(dump: ETDump, row: int) -> str:
    """Says where profile event `row` stands in its file, for messages."""
    block = int(dump.profile.block_index[row])
    within = int(dump.profile.event_index[row]) - int(dump.blocks.event_begin[block])
    return f"event {within} of event block {block}"


def _find_nesting(dump: ETDump, opaque: Collection[int]) -> _Nesting:
    """An operator is in the next container of its execution, all else in its `Method::execute`."""
    roles = _find_roles(dump, opaque)
    execution = _number_executions(roles, dump.profile.block_index)
    is_container = (roles >= Role.EXECUTE) & (roles <= Role.OPERATOR_CALL)
    containers = np.flatnonzero(is_container)
    executes = np.flatnonzero(roles[containers] == Role.EXECUTE).astype(np.int32)
    is_operator = (roles == Role.DELEGATED) | (roles == Role.KERNEL)
    around = np.append(executes, np.int32(-1))[execution]
    parent = np.where(is_operator, np.cumsum(is_container, dtype=np.int32), around)
    parent[(execution < 0) | (roles == Role.EXECUTE) | (roles == Role.FOREIGN)] = -1
    return _Nesting(roles, execution, containers, parent)


def _find_roles(dump: ETDump, opaque: Collection[int]) -> NDArray[np.int8]:
    by_name = np.full(len(dump.names) + 1, Role.OTHER, dtype=np.int8)
    for index, name in enumerate(dump.names):
        is_kernel = name.startswith(KERNEL_PREFIX)
        by_name[index] = Role.KERNEL if is_kernel else _ROLE_OF_NAME.get(name, Role.OTHER)
    profile = dump.profile
    delegated = (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    roles = np.where(delegated, np.int8(Role.DELEGATED), by_name[profile.name_id])
    if opaque:
        foreign = np.isin(profile.instruction_id, list(opaque))
        roles[foreign & delegated] = Role.FOREIGN
    return roles


def _number_executions(
    roles: NDArray[np.int8], block_index: NDArray[np.uint32]
) -> NDArray[np.int32]:
    """Gives each event the number of its execution, -1 for events of none.

    Events of an execution precede its `Method::execute` in the same event block.
    """
    is_execute = roles == Role.EXECUTE
    number: NDArray[np.int32] = np.cumsum(is_execute, dtype=np.int32) - is_execute
    execute_block = np.append(block_index[is_execute].astype(np.int64), -1)
    belongs = execute_block[np.minimum(number, execute_block.size - 1)] == block_index
    belongs &= roles != Role.LOAD
    number[~belongs] = -1
    return number


def _undo_wraps(dump: ETDump, nesting: _Nesting) -> _Times:
    """Puts the events of an execution on one clock where that of the file has 32 bits."""
    start = dump.profile.start_time.view(np.int64)
    end = dump.profile.end_time.view(np.int64)
    # No clock reaches 2**63 ns, which are 292 years.
    impossible = (start | end) < 0
    wrapped = (end < start) & (start < _NARROW) & ~impossible & (nesting.roles != Role.FOREIGN)
    is_narrow = bool(wrapped.any()) and 2 * np.count_nonzero(end < _NARROW) > end.size
    if not is_narrow:
        if impossible.any():  # their differences could overflow
            start, end = np.where(impossible, 0, start), np.where(impossible, 0, end)
        return _Times(start, end, impossible, np.zeros_like(impossible), is_narrow=False)
    impossible |= (start >= _NARROW) | (end >= _NARROW)
    origin = np.append(start[nesting.roles == Role.EXECUTE], 0)[nesting.execution]
    began = (start - origin) % _NARROW
    ended = began + (end - start) % _NARROW
    return _Times(began, ended, impossible, np.zeros_like(impossible), is_narrow=True)


def _check_inside(times: _Times, nesting: _Nesting, impossible: NDArray[np.bool_]) -> None:
    """Marks what is not inside its container, where that can be so itself.

    When most of the delegates' operators are outside, they have another clock, and only their
    sums can be judged.
    """
    rows, parent = nesting.containers, nesting.parent
    delegated = nesting.roles == Role.DELEGATED
    outside = times.start < times.start[rows][parent]
    outside |= times.end - delegated * _DELEGATE_STEP > times.end[rows][parent]
    outside &= (parent >= 0) & ~impossible & ~times.is_other_clock
    outside &= ~impossible[rows][parent]
    if not outside.any():
        return
    if 2 * np.count_nonzero(outside & delegated) > np.count_nonzero(delegated):
        outside &= ~delegated
    impossible |= outside


def _check_sums(
    duration: NDArray[np.int64], nesting: _Nesting, impossible: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Marks containers that hold more time than they have; returns what each has beyond that."""
    counted = (nesting.parent >= 0) & (nesting.roles != Role.OTHER) & ~impossible
    held = np.bincount(
        nesting.parent[counted], duration[counted], minlength=nesting.containers.size
    )
    beyond = duration[nesting.containers].astype(np.float64) - held
    impossible[nesting.containers[beyond < -_DELEGATE_STEP]] = True
    return beyond


def _check_order(times: _Times, nesting: _Nesting, impossible: NDArray[np.bool_]) -> None:
    """Marks neighbours that overlap: calls in an execution, kernels in a call, executions."""
    roles, parent = nesting.roles, nesting.parent
    calls = (roles == Role.DELEGATE_CALL) | (roles == Role.OPERATOR_CALL)
    for rows in (np.flatnonzero(calls), np.flatnonzero(roles == Role.KERNEL)):
        before, after = _neighbours(rows, impossible)
        overlap = (times.start[after] < times.end[before]) & (parent[before] == parent[after])
        _mark_both(before, after, overlap, impossible)
    if times.is_narrow:  # any order of two executions can come of a wrap between them
        return
    outermost = np.flatnonzero((roles == Role.EXECUTE) | (roles == Role.LOAD))
    before, after = _neighbours(outermost, impossible)
    overlap = times.start[after] < times.end[before]
    # `Method::init` stands before the `Program::load_method` that holds it.
    holds = (times.start[after] <= times.start[before]) & (times.end[after] >= times.end[before])
    holds &= (roles[before] == Role.LOAD) & (roles[after] == Role.LOAD)
    _mark_both(before, after, overlap & ~holds, impossible)


def _neighbours(
    rows: NDArray[np.intp], impossible: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs each of `rows` with the next; what is impossible by itself tells nothing of others."""
    rows = rows[~impossible[rows]]
    return rows[:-1], rows[1:]


def _mark_both(
    before: NDArray[np.intp],
    after: NDArray[np.intp],
    chosen: NDArray[np.bool_],
    impossible: NDArray[np.bool_],
) -> None:
    """Marks both of two neighbours, for either may be the wrong one."""
    impossible[before[chosen]] = True
    impossible[after[chosen]] = True
