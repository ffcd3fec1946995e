"""Says of each event of an ETDump what it is, how long it took, and whether it can be so.

An execution is one `Method::execute`. Events stand in the file in order of their end: what an
execution did comes before it. Its direct contents are `DELEGATE_CALL` and `OPERATOR_CALL`; inside
those stand the delegate's operators and the `native_call_*` kernels.

The runtime reads one clock in one thread, so what follows holds to the tick: an event ends after
it starts, lies inside what holds it, and begins after the one before it ended. Only delegates
report times of their own making. XNNPACK's are whole microseconds, rounded down and laid end to
end from its start (ExecuTorch's XNNProfiler), so they may be off by such a step.

Clocks of 32 bits begin again at 0, several times in a long file. ExecuTorch's Inspector takes an
end before its start for that, where both fit in 32 bits; so does this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etprof.etdump import ETDump

CONTAINERS: Final = ("Method::execute", "DELEGATE_CALL", "OPERATOR_CALL")
LOAD_EVENTS: Final = ("Program::load_method", "Method::init")
KERNEL_PREFIX: Final = "native_call_"

_NARROW: Final = 2**32
_DELEGATE_STEP: Final = 1000
"""One microsecond, XNNPACK's unit, in ns, the unit of ExecuTorch's own clock."""


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


_ROLE_OF_NAME: Final = dict(
    zip(CONTAINERS, (Role.EXECUTE, Role.DELEGATE_CALL, Role.OPERATOR_CALL), strict=True)
) | dict.fromkeys(LOAD_EVENTS, Role.LOAD)


@dataclass(frozen=True, eq=False)
class Events:
    """Every profile event of a file, in file order; what cannot be is marked."""

    roles: NDArray[np.int8]
    """A Role each."""
    execution: NDArray[np.int64]
    """Number of the execution over the whole file; -1 for events of none."""
    parent: NDArray[np.int64]
    """Row of the container that holds an operator or a call; -1 for other events."""
    duration: NDArray[np.int64]
    """In ticks, with wraps of a 32-bit clock undone; of impossible events without meaning."""
    impossible: NDArray[np.bool_]
    execution_possible: NDArray[np.bool_]
    """Of each execution, whether all of its events can be so, shape (executions,)."""

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Events that may be shown: possible, and of an execution without an impossible one."""
        known = np.append(self.execution_possible, True)
        usable: NDArray[np.bool_] = known[self.execution] & ~self.impossible
        return usable


@dataclass(frozen=True, eq=False)
class _Times:
    """Start and end of every event on one clock without wraps, as far as that can be had."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    impossible: NDArray[np.bool_]
    is_narrow: bool
    """Whether the clock has 32 bits; times then count from the start of the execution."""


def examine_events(dump: ETDump) -> Events:
    """Classifies and checks all profile events of `dump`; linear in their number."""
    roles = _find_roles(dump)
    execution = _number_executions(roles, dump.profile.block_index)
    parent = _find_parents(roles, execution)
    times = _undo_wraps(dump, roles, execution)
    duration = times.end - times.start
    impossible = times.impossible | (duration < 0)
    _check_nesting(times, roles, parent, impossible)
    _check_sums(duration, roles, parent, impossible)
    _check_order(times, roles, parent, impossible)
    possible = np.ones(np.count_nonzero(roles == Role.EXECUTE), np.bool_)
    damaged = execution[impossible]
    possible[damaged[damaged >= 0]] = False
    return Events(roles, execution, parent, duration, impossible, possible)


def describe_position(dump: ETDump, row: int) -> str:
    """Says where profile event `row` stands in its file, for messages."""
    block = int(dump.profile.block_index[row])
    within = int(dump.profile.event_index[row]) - int(dump.blocks.event_begin[block])
    return f"event {within} of event block {block}"


def _find_roles(dump: ETDump) -> NDArray[np.int8]:
    by_name = np.full(len(dump.names) + 1, Role.OTHER, dtype=np.int8)
    for index, name in enumerate(dump.names):
        is_kernel = name.startswith(KERNEL_PREFIX)
        by_name[index] = Role.KERNEL if is_kernel else _ROLE_OF_NAME.get(name, Role.OTHER)
    profile = dump.profile
    delegated = (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    return np.where(delegated, np.int8(Role.DELEGATED), by_name[profile.name_id])


def _number_executions(
    roles: NDArray[np.int8], block_index: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """Gives each event the number of its execution, -1 for events of none.

    Events of an execution precede its `Method::execute` in the same event block.
    """
    is_execute = roles == Role.EXECUTE
    number = np.cumsum(is_execute) - is_execute
    execute_block = np.append(block_index[is_execute].astype(np.int64), -1)
    belongs = execute_block[np.minimum(number, execute_block.size - 1)] == block_index
    belongs &= roles != Role.LOAD
    return np.where(belongs, number, -1).astype(np.int64)


def _find_parents(roles: NDArray[np.int8], execution: NDArray[np.int64]) -> NDArray[np.int64]:
    """An operator is in the next container of its execution, all else in its `Method::execute`."""
    is_container = (roles >= Role.EXECUTE) & (roles <= Role.OPERATOR_CALL)
    containers = np.append(np.flatnonzero(is_container), -1)
    following = containers[np.cumsum(is_container)]
    executes = np.append(np.flatnonzero(roles == Role.EXECUTE), -1)
    is_operator = (roles == Role.DELEGATED) | (roles == Role.KERNEL)
    parent = np.where(is_operator, following, executes[execution])
    parent[(execution < 0) | (roles == Role.EXECUTE)] = -1
    return parent


def _undo_wraps(dump: ETDump, roles: NDArray[np.int8], execution: NDArray[np.int64]) -> _Times:
    """Puts the events of an execution on one clock where that of the file has 32 bits."""
    start = dump.profile.start_time.view(np.int64)
    end = dump.profile.end_time.view(np.int64)
    # No clock reaches 2**63 ns, which are 292 years.
    impossible = (start | end) < 0
    wrapped = (end < start) & (start < _NARROW) & ~impossible
    is_narrow = bool(wrapped.any()) and 2 * np.count_nonzero(end < _NARROW) > end.size
    if not is_narrow:
        if impossible.any():  # their differences could overflow
            start, end = np.where(impossible, 0, start), np.where(impossible, 0, end)
        return _Times(start, end, impossible, is_narrow=False)
    impossible |= (start >= _NARROW) | (end >= _NARROW)
    origin = np.append(start[roles == Role.EXECUTE], 0)[execution]
    began = (start - origin) % _NARROW
    return _Times(began, began + (end - start) % _NARROW, impossible, is_narrow=True)


def _check_nesting(
    times: _Times,
    roles: NDArray[np.int8],
    parent: NDArray[np.int64],
    impossible: NDArray[np.bool_],
) -> None:
    """Marks what is not inside its container, where that can be so itself.

    When most of the delegates' operators are outside, they have another clock, and only their
    sums can be judged.
    """
    inner = np.flatnonzero(parent >= 0)
    inner = inner[~(impossible[inner] | impossible[parent[inner]])]
    around = parent[inner]
    delegated = roles[inner] == Role.DELEGATED
    late = np.where(delegated, _DELEGATE_STEP, 0)
    outside = (times.start[inner] < times.start[around]) | (
        times.end[inner] > times.end[around] + late
    )
    if 2 * np.count_nonzero(outside & delegated) > np.count_nonzero(delegated):
        outside &= ~delegated
    impossible[inner[outside]] = True


def _check_sums(
    duration: NDArray[np.int64],
    roles: NDArray[np.int8],
    parent: NDArray[np.int64],
    impossible: NDArray[np.bool_],
) -> None:
    """Marks containers whose operators take longer than they do."""
    is_operator = (roles == Role.DELEGATED) | (roles == Role.KERNEL)
    operators = np.flatnonzero(is_operator & (parent >= 0) & ~impossible)
    inside = np.bincount(parent[operators], duration[operators], minlength=roles.size)
    impossible |= inside > duration + np.float64(_DELEGATE_STEP)


def _check_order(
    times: _Times,
    roles: NDArray[np.int8],
    parent: NDArray[np.int64],
    impossible: NDArray[np.bool_],
) -> None:
    """Marks neighbours that overlap: calls in an execution, kernels in a call, executions."""
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
