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

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from etprof.etdump.reader import EXECUTE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from etprof.etdump.reader import ETDump

CONTAINERS: Final = (EXECUTE, "DELEGATE_CALL", "OPERATOR_CALL")
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
    """When events were, in ns; impossible ones without meaning."""

    start: NDArray[np.uint64]
    """As it stands in the file, or in ns where the file's clock has other ticks."""
    end: NDArray[np.uint64]
    duration: NDArray[np.int64]
    """With wraps of a 32-bit clock undone."""
    beyond: NDArray[np.float64]
    """What each container has beyond what it holds, shape (containers,)."""


class Clocks(NamedTuple):
    """What only a whole file tells of its clocks, and its pieces are examined with."""

    is_narrow: bool = False
    """Whether the clock has 32 bits; times then count from the start of the execution."""
    are_delegates_apart: bool = False
    """Whether most of the delegates' operators are outside their calls: they have another clock, and
    only their sums can be judged."""


class ClockSigns(NamedTuple):
    """Counts of events by which the clocks of a file are known; those of its pieces add up."""

    events: int = 0
    narrow: int = 0
    """Whose end fits in 32 bits."""
    wrapped: int = 0
    """Which end before they start, as where such a clock begins again."""
    delegated: int = 0
    outside: int = 0
    """Of these, outside their call."""

    def plus(self, piece_signs: ClockSigns) -> ClockSigns:
        """Adds up those of two pieces."""
        return ClockSigns(*map(sum, zip(self, piece_signs, strict=True)))

    @property
    def clocks(self) -> Clocks:
        """What they say."""
        is_narrow = self.wrapped > 0 and 2 * self.narrow > self.events
        return Clocks(is_narrow, 2 * self.outside > self.delegated)


class Outermost(NamedTuple):
    """An execution or load event, as far as the next one is judged by it."""

    row: int
    start: int
    end: int
    is_load: bool


@dataclass(frozen=True, eq=False)
class Events:
    """Every profile event of a file or a piece of it, in file order; what cannot be is marked."""

    roles: NDArray[np.int8]
    """A Role each."""
    execution: NDArray[np.int32]
    """Number of the execution, of a piece from its first; -1 for events of none."""
    impossible: NDArray[np.bool_]
    execution_possible: NDArray[np.bool_]
    """Of each execution, whether all of its events can be so, shape (executions,)."""
    containers: NDArray[np.intp]
    """Rows of executions and calls, shape (containers,)."""
    times: EventTimes | None
    """None where nobody may see them, for they are no performance."""
    signs: ClockSigns
    last: Outermost | None
    """The last outermost event that can be so by itself; None where there is none."""
    is_last_before_wrong: bool
    """Whether that of the piece before overlaps with the first here, so that it cannot be so."""

    def usable(self, possible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Events that may be shown: possible, in ns, and of an execution that is `possible`.

        Args:
            possible: Whether all of an execution can be so, bool, shape (executions,).

        Returns:
            One value an event, bool, shape (events,).
        """
        is_possible = np.append(possible, np.True_)  # the last is for row -1
        usable: NDArray[np.bool_] = is_possible[self.execution] & ~self.impossible
        usable &= self.roles != Role.FOREIGN
        return usable


@dataclass(eq=False)
class Damage:
    """What of a file cannot be so, added up piece by piece."""

    events: int = 0
    first: str = ""
    """Where the first event stands; empty without one."""
    loads: set[int] = field(default_factory=set)
    """Names of load events."""
    _possible: list[NDArray[np.bool_]] = field(default_factory=list)
    _last: _LastEvent | None = None

    @property
    def before(self) -> Outermost | None:
        """What the next piece is examined with."""
        return self._last.event if self._last else None

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Of each execution, whether all of its events can be so.

        Returns:
            One value an execution, bool, shape (executions,).
        """
        return np.concatenate([*self._possible, np.empty(0, np.bool_)])

    def add(self, dump: ETDump, events: Events) -> None:
        """Counts what is wrong in the next piece, and the last event of the piece before with it."""
        last = self._last
        if events.is_last_before_wrong and last is not None:
            self.events += not last.is_impossible
            self.first = self.first or last.position
            if last.event.is_load:
                self.loads.add(last.name_id)
            else:
                self._possible[last.piece][last.execution] = False
            last.is_impossible = True
        rows = np.flatnonzero(events.impossible)
        self.events += rows.size
        if rows.size and not self.first:
            self.first = describe_position(dump, int(rows[0]))
        loads = dump.profile.name_id[events.impossible & (events.roles == Role.LOAD)]
        self.loads.update(loads.tolist())
        self._possible.append(events.execution_possible)
        if events.last is not None and events.last.row >= 0:
            row = events.last.row
            self._last = _LastEvent(
                events.last,
                len(self._possible) - 1,
                int(events.execution[row]),
                int(dump.profile.name_id[row]),
                describe_position(dump, row),
                bool(events.impossible[row]),
            )


@dataclass
class _LastEvent:
    """The last outermost event of the pieces so far, which the next may contradict."""

    event: Outermost
    piece: int
    execution: int
    """Of that piece."""
    name_id: int
    position: str
    is_impossible: bool
    """Whether it is counted already."""


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


def examine_events(
    dump: ETDump,
    units: Mapping[int, float | None] | None = None,
    *,
    is_timed: bool = True,
    clocks: Clocks | None = None,
    before: Outermost | None = None,
) -> Events:
    """Classifies and checks all profile events of `dump`; linear in their number.

    `units` are the ns per tick of delegates that do not report in ns, by the instruction that
    calls them; None for a unit that is not known. Where nothing is timed, the stamps are checked
    all the same: they tell a damaged file. A piece of a file is examined with the `clocks` of the
    whole, and with the `last` outermost event of the piece `before` it.
    """
    assumed = clocks or Clocks()
    events = _examine(dump, units or {}, assumed, before, is_timed=is_timed)
    while clocks is None and events.signs.clocks != assumed:
        assumed = events.signs.clocks
        events = _examine(dump, units or {}, assumed, before, is_timed=is_timed)
    return events


def _examine(
    dump: ETDump,
    units: Mapping[int, float | None],
    clocks: Clocks,
    before: Outermost | None,
    *,
    is_timed: bool,
) -> Events:
    nesting = _find_nesting(dump, [call for call, unit in units.items() if unit is None])
    ticks, wrapped, narrow = _undo_wraps(dump, nesting, clocks)
    times = _in_ns(ticks, dump.ns_per_tick)
    duration = times.end - times.start
    for call in (call for call, unit in units.items() if unit is not None):
        inside = (dump.profile.instruction_id == call) & (nesting.roles == Role.DELEGATED)
        duration[inside] = (ticks.end - ticks.start)[inside] * units[call]
        times.is_other_clock[inside] = True
    impossible = times.impossible | (duration < 0)
    beyond, outside = np.zeros(0), 0
    if nesting.containers.size:
        outside = _check_inside(times, nesting, impossible, clocks)
        beyond = _check_sums(duration, nesting, impossible)
    delegated = int(np.count_nonzero(nesting.roles == Role.DELEGATED))
    last, is_wrong = _check_order(times, nesting, impossible, before, clocks)
    impossible &= nesting.roles != Role.FOREIGN
    possible = np.ones(np.count_nonzero(nesting.roles == Role.EXECUTE), np.bool_)
    damaged = nesting.execution[impossible]
    possible[damaged[damaged >= 0]] = False
    stamps = dump.profile.start_time, dump.profile.end_time
    if times is not ticks:
        stamps = times.start.astype(np.uint64), times.end.astype(np.uint64)
    return Events(
        nesting.roles, nesting.execution, impossible, possible, nesting.containers,
        EventTimes(*stamps, duration, beyond) if is_timed else None,
        ClockSigns(duration.size, narrow, wrapped, delegated, outside), last, is_wrong,
    )  # fmt: skip


def ticks_from(start: int, end: int) -> int:
    """Ticks between two time stamps of usable events, a wrap of a 32-bit clock undone."""
    return end - start if end >= start else (end - start) % _NARROW


def describe_position(dump: ETDump, row: int) -> str:
    """Says where profile event `row` stands in its file, for messages."""
    block = int(dump.profile.block_index[row])
    within = int(dump.profile.event_index[row]) - int(dump.blocks.event_begin[block])
    return f"event {within} of event block {dump.first_block + block}"


def _find_nesting(dump: ETDump, opaque: Collection[int]) -> _Nesting:
    """An operator is in the next container of its execution, all else in its `Method::execute`."""
    roles = find_roles(dump, opaque)
    execution = _number_executions(roles, dump.profile.block_index)
    is_container = (roles >= Role.EXECUTE) & (roles <= Role.OPERATOR_CALL)
    containers = np.flatnonzero(is_container)
    executes = np.flatnonzero(roles[containers] == Role.EXECUTE).astype(np.int32)
    is_operator = (roles == Role.DELEGATED) | (roles == Role.KERNEL)
    around = np.append(executes, np.int32(-1))[execution]
    parent = np.where(is_operator, np.cumsum(is_container, dtype=np.int32), around)
    parent[(execution < 0) | (roles == Role.EXECUTE) | (roles == Role.FOREIGN)] = -1
    return _Nesting(roles, execution, containers, parent)


def find_roles(dump: ETDump, opaque: Collection[int]) -> NDArray[np.int8]:
    """Says what each event is: an execution, a call, a kernel, a delegate's own.

    Args:
        dump: One piece of an ETDump.
        opaque: Instructions whose delegates are one row each.

    Returns:
        Values of Role, int8, shape (events,).
    """
    profile = dump.profile
    by_name = np.full(len(dump.names) + 1, Role.OTHER, dtype=np.int8)
    is_used = np.zeros(by_name.size, dtype=bool)  # a piece has few of all the file's names
    is_used[profile.name_id] = True
    for index in np.flatnonzero(is_used[:-1]).tolist():
        name = dump.names[index]
        is_kernel = name.startswith(KERNEL_PREFIX)
        by_name[index] = Role.KERNEL if is_kernel else _ROLE_OF_NAME.get(name, Role.OTHER)
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

    Args:
        roles: Values of Role, shape (events,).
        block_index: Each event's block, shape (events,).

    Returns:
        Numbers of executions, int32, shape (events,).
    """
    is_execute = roles == Role.EXECUTE
    number: NDArray[np.int32] = np.cumsum(is_execute, dtype=np.int32) - is_execute
    execute_block = np.append(block_index[is_execute].astype(np.int64), -1)
    belongs = execute_block[np.minimum(number, execute_block.size - 1)] == block_index
    belongs &= roles != Role.LOAD
    number[~belongs] = -1
    return number


def _undo_wraps(dump: ETDump, nesting: _Nesting, clocks: Clocks) -> tuple[_Times, int, int]:
    """Puts the events of an execution on one clock where that of the file has 32 bits.

    Also returns how many events may be wrapped, and how many ends fit in 32 bits.
    """
    start = dump.profile.start_time.view(np.int64)
    end = dump.profile.end_time.view(np.int64)
    # No clock reaches 2**63 ns, which are 292 years.
    impossible = (start | end) < 0
    wrapped = (end < start) & (start < _NARROW) & ~impossible & (nesting.roles != Role.FOREIGN)
    signs = int(np.count_nonzero(wrapped)), int(np.count_nonzero(end < _NARROW))
    if not clocks.is_narrow:
        if impossible.any():  # their differences could overflow
            start, end = np.where(impossible, 0, start), np.where(impossible, 0, end)
        return _Times(start, end, impossible, np.zeros_like(impossible)), *signs
    impossible |= (start >= _NARROW) | (end >= _NARROW)
    origin = np.append(start[nesting.roles == Role.EXECUTE], 0)[nesting.execution]
    began = (start - origin) % _NARROW
    ended = began + (end - start) % _NARROW
    return _Times(began, ended, impossible, np.zeros_like(impossible)), *signs


def _in_ns(times: _Times, ns_per_tick: float) -> _Times:
    """Makes ns of ticks.

    What was inside its container, or after its neighbour, still is: rounding keeps the order.
    """
    if ns_per_tick == 1.0:
        return times
    start, end = (
        np.rint(ticks * ns_per_tick).astype(np.int64) for ticks in (times.start, times.end)
    )
    return replace(times, start=start, end=end)


def _check_inside(
    times: _Times, nesting: _Nesting, impossible: NDArray[np.bool_], clocks: Clocks
) -> int:
    """Marks what is not inside its container, where that can be so itself.

    Returns how many of the delegates' operators are outside.

    Args:
        times: Start and end of each event in ns, shape (events,).
        nesting: Which container holds each event.
        impossible: Whether an event cannot be so, bool, shape (events,); changed in place.
        clocks: What the file says of its clocks.
    """
    rows, parent = nesting.containers, nesting.parent
    delegated = nesting.roles == Role.DELEGATED
    outside = times.start < times.start[rows][parent]
    outside |= times.end - delegated * _DELEGATE_STEP > times.end[rows][parent]
    outside &= (parent >= 0) & ~impossible & ~times.is_other_clock
    outside &= ~impossible[rows][parent]
    count = int(np.count_nonzero(outside & delegated))
    if clocks.are_delegates_apart:
        outside &= ~delegated
    impossible |= outside
    return count


def _check_sums(
    duration: NDArray[np.int64], nesting: _Nesting, impossible: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Marks containers that hold more time than they have; returns what each has beyond that.

    Args:
        duration: Each event's in ns, shape (events,).
        nesting: Which container holds each event.
        impossible: Whether an event cannot be so, bool, shape (events,); changed in place.

    Returns:
        In ns, float64, shape (containers,); below zero where more is held.
    """
    counted = (nesting.parent >= 0) & (nesting.roles != Role.OTHER) & ~impossible
    held = np.bincount(
        nesting.parent[counted], duration[counted], minlength=nesting.containers.size
    )
    beyond = duration[nesting.containers].astype(np.float64) - held
    impossible[nesting.containers[beyond < -_DELEGATE_STEP]] = True
    return beyond


def _check_order(
    times: _Times,
    nesting: _Nesting,
    impossible: NDArray[np.bool_],
    before: Outermost | None,
    clocks: Clocks,
) -> tuple[Outermost | None, bool]:
    """Marks neighbours that overlap, both, for either may be the wrong one.

    Those are calls in an execution, kernels in a call, and executions. Returns the last of these,
    and whether `before`, that of the piece before, overlaps with the first.

    Args:
        times: Start and end of each event in ns, shape (events,).
        nesting: Which container holds each event.
        impossible: Whether an event cannot be so, bool, shape (events,); changed in place.
        before: The last outermost event of the piece before.
        clocks: What the file says of its clocks.
    """
    roles, parent = nesting.roles, nesting.parent
    calls = (roles == Role.DELEGATE_CALL) | (roles == Role.OPERATOR_CALL)
    for rows in (np.flatnonzero(calls), np.flatnonzero(roles == Role.KERNEL)):
        sound = rows[~impossible[rows]]  # what is impossible by itself tells nothing of others
        earlier, later = sound[:-1], sound[1:]
        overlap = (times.start[later] < times.end[earlier]) & (parent[earlier] == parent[later])
        impossible[earlier[overlap]] = True
        impossible[later[overlap]] = True
    if clocks.is_narrow:  # any order of two executions can come of a wrap between them
        return None, False
    rows = np.flatnonzero((roles == Role.EXECUTE) | (roles == Role.LOAD))
    rows = rows[~impossible[rows]]
    start, end, is_load = times.start[rows], times.end[rows], roles[rows] == Role.LOAD
    if before is not None:
        rows, is_load = np.append(-1, rows), np.append(before.is_load, is_load)
        start, end = np.append(before.start, start), np.append(before.end, end)
    # `Method::init` stands before the `Program::load_method` that holds it.
    holds = (start[1:] <= start[:-1]) & (end[1:] >= end[:-1]) & is_load[1:] & is_load[:-1]
    overlap = (start[1:] < end[:-1]) & ~holds
    wrong = np.append(rows[:-1][overlap], rows[1:][overlap])
    impossible[wrong[wrong >= 0]] = True
    last = None
    if rows.size and rows[-1] >= 0:
        last = Outermost(int(rows[-1]), int(start[-1]), int(end[-1]), bool(is_load[-1]))
    return last, bool((wrong < 0).any())
