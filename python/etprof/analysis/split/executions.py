"""Splits the time of each execution in an ETDump: operators, overheads, nothing twice.

Only the innermost events of an execution are operators; what a container has beyond its contents
is overhead. A split is of whole executions that can be so and are near the median: one wrong time
stamp, or one interruption of milliseconds, would otherwise be most of a mean of microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import OPAQUE, assign_backends, delegate_label
from etprof.base.errors import InputFileError
from etprof.base.units import count_of
from etprof.etdump.plausibility import (
    LOAD_EVENTS,
    Events,
    Role,
    describe_position,
    examine_events,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etprof.backends.backend import Backend
    from etprof.etdump.reader import ETDump

SUPPORTED_VERSION: Final = 0
"""ExecuTorch has written no other; the numbers of another could mean something else."""
STEADY_BLOCK: Final = "Execute"
FIRST_BLOCK: Final = "First"
WARMUP_BLOCK: Final = "Warmup"
PREFILL_BLOCK: Final = "Prefill"
"""A language model reads its prompt, often with another method: no inference of the others' kind."""
_FIRST, _WARMUP, _STEADY, _PREFILL = range(4)

MOST_IMPOSSIBLE: Final = 0.1
"""Share of executions with impossible events from which a file is refused.

Recordings of sound runners have none. A flipped bit spoils at most two neighbours, so a file of 20
outlives one; a file with more was damaged throughout, and nothing says that the rest is sound.
"""
LEAST_FOR_BAND: Final = 5
"""Executions without which nobody can say which one is unlike the others."""
_NEAR_SHARE: Final = 0.5
_NEAR_RANGES: Final = 3.0
"""An execution is near the median within half of it, or within three interquartile ranges, where
that is more: Tukey's far-out values, on a machine that never repeats itself to the nanosecond."""


class ImplausibleETDumpError(InputFileError):
    """An ETDump whose time stamps contradict each other too often, or in its sums."""


@dataclass(frozen=True)
class LeftOut:
    """Steady executions that are not in the split, and why."""

    recorded: int
    """All steady executions of the file."""
    impossible: int
    """Of these, executions with time stamps that cannot be so."""
    disturbed: int
    """Of these, possible executions far from the median."""

    @property
    def band_was_known(self) -> bool:
        """Whether there were executions enough to tell a disturbed one from the others."""
        return self.recorded - self.impossible >= LEAST_FOR_BAND


@dataclass(frozen=True)
class Executions:
    """Steady executions of one ETDump; all times in ticks of the file, ns for ExecuTorch."""

    execute_ns: NDArray[np.float64]
    """Duration of each `Method::execute`, shape (executions,)."""
    delegate_overhead_ns: NDArray[np.float64]
    """What the `DELEGATE_CALL`s have beyond their operators, shape (executions,)."""
    dispatch_ns: NDArray[np.float64]
    """What the `OPERATOR_CALL`s have beyond their kernels, shape (executions,)."""
    program_ns: NDArray[np.float64]
    """What `Method::execute` has beyond its calls, shape (executions,)."""
    execution_index: NDArray[np.int64]
    """Execution of each operator event, shape (operator events,)."""
    duration_ns: NDArray[np.float64]
    """Duration of each operator event, shape (operator events,)."""
    name_id: NDArray[np.int32]
    """Index into the ETDump's names: the delegate's label or the kernel's name."""
    delegate_int_id: NDArray[np.int32]
    """The delegate's integer id, for delegates that give no label; else -1."""
    instruction_id: NDArray[np.int32]
    """Instruction of the program that the event belongs to; -1 when not given."""
    is_delegated: NDArray[np.bool_]
    """Whether the event is inside a delegate, or a whole call of an opaque one."""
    delegates: Delegates
    unknown_name_ids: tuple[int, ...]
    """Names of events that are neither container nor operator; their time is overhead."""
    first_execute_ns: float | None
    """The first execution, when the file keeps it apart or it was taken off the front."""
    load_ns: dict[str, float]
    """Load-time events by name; no part of any execution."""
    left_out: LeftOut
    events: Events
    """Every event of the file, those left out included."""

    @property
    def count(self) -> int:
        """Number of executions that are split."""
        return self.execute_ns.size


@dataclass(frozen=True)
class Delegates:
    """Whose the delegate calls of an ETDump are, by instruction."""

    named: Mapping[int, str]
    """As the export's report calls them."""
    backends: Mapping[int, Backend]

    def backend(self, instruction: int) -> Backend:
        """Returns the backend of a call; opaque when nothing is known."""
        return self.backends.get(instruction, OPAQUE)

    @property
    def units(self) -> dict[int, float | None]:
        """The ns per tick of calls that do not report in ns; None for those that are one whole."""
        ticks = {i: each.ns_per_tick for i, each in self.backends.items()}
        return {i: unit for i, unit in ticks.items() if unit != 1.0}

    @property
    def opaque(self) -> tuple[int, ...]:
        """Instructions of the calls that are one whole."""
        return tuple(call for call, unit in self.units.items() if unit is None)

    def label(self, names: Sequence[str], instruction: int, label_id: int, number: int) -> str:
        """Names an operator of a delegate, or the whole call of an opaque one."""
        if self.backend(instruction).ns_per_tick is None:
            return self.named.get(instruction, "call of an unknown delegate")
        return delegate_label(names, label_id, number)


_LABELS_AT_ONCE: Final = 100_000
"""Labels repeat in every execution, so the first so many events hold all of most files."""


def find_delegates(dump: ETDump, named: Mapping[int, str] | None = None) -> Delegates:
    """Returns whose the delegate calls are: as `named` by instruction, else by their labels."""
    profile = dump.profile
    rows = np.flatnonzero(
        (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    )
    instructions, labels = profile.instruction_id[rows], profile.delegate_debug_id_str_id[rows]
    found: dict[int, set[str]] = {}
    while instructions.size:
        head = slice(_LABELS_AT_ONCE)
        for instruction, label in set(
            zip(instructions[head].tolist(), labels[head].tolist(), strict=True)
        ):
            known = found.setdefault(instruction, set())
            known |= {dump.names[label]} if label >= 0 else set()
        more = ~np.isin(instructions[_LABELS_AT_ONCE:], list(found))
        instructions = instructions[_LABELS_AT_ONCE:][more]
        labels = labels[_LABELS_AT_ONCE:][more]
    return Delegates(named or {}, assign_backends(found, named or {}))


def split_executions(dump: ETDump, delegates: Delegates | None = None) -> Executions:
    """Takes the steady executions of `dump` apart that can be so and are near the median.

    Files of etprof-runner keep first and warm-up executions in event blocks of their own. In
    files of other runners the first of several executions is taken as the first inference.
    Raises InputFileError when there is no execution, or for an unknown schema version, and
    ImplausibleETDumpError when more than `MOST_IMPOSSIBLE` of the executions cannot be so.
    """
    if dump.version != SUPPORTED_VERSION:
        msg = (
            f"the ETDump has schema version {dump.version}, and only {SUPPORTED_VERSION} is known; "
            "use the etprof that belongs to the runner's ExecuTorch"
        )
        raise InputFileError(msg)
    delegates = delegates or find_delegates(dump)
    events = examine_events(dump, delegates.units)
    phases = _phases(dump, events.roles)
    steady = phases == _STEADY
    if not steady.any():
        msg = (
            "the ETDump has no steady Method::execute event, so there is no inference to analyse; "
            "run the model with --etdump and at least one iteration, on a runner built with the "
            "event tracer"
        )
        raise InputFileError(msg)
    _refuse_damaged(dump, events, steady)
    possible = steady & events.execution_possible
    execute = events.duration[events.roles == Role.EXECUTE]
    kept = possible & _near_median(execute, possible)
    left_out = LeftOut(
        recorded=int(steady.sum()),
        impossible=int(np.count_nonzero(steady & ~possible)),
        disturbed=int(np.count_nonzero(possible & ~kept)),
    )
    return _collect(dump, events, phases, kept, (left_out, delegates))


def _refuse_damaged(dump: ETDump, events: Events, steady: NDArray[np.bool_]) -> None:
    """Raises for a file of which too much is impossible to believe the rest."""
    bad, count = ~events.execution_possible, events.execution_possible.size
    wrong = int(np.count_nonzero(bad))
    if wrong <= MOST_IMPOSSIBLE * count and not bad[steady].all():
        return
    rows = np.flatnonzero(events.impossible & (events.execution >= 0))
    msg = (
        f"{wrong} of {count_of(count, 'execution')} hold time stamps that cannot be so: "
        f"{rows.size} of {count_of(events.roles.size, 'event')} end before they start, reach out "
        f"of what holds them, or overlap; the first is {describe_position(dump, int(rows[0]))}; "
        "pull the file again, or run the model again"
    )
    raise ImplausibleETDumpError(msg)


def _near_median(duration: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Says of each execution whether it is near the median of those `chosen`."""
    if np.count_nonzero(chosen) < LEAST_FOR_BAND:
        return np.ones(chosen.size, np.bool_)
    low, middle, high = np.percentile(duration[chosen], [25, 50, 75])
    reach = max(_NEAR_SHARE * middle, _NEAR_RANGES * (high - low))
    near: NDArray[np.bool_] = np.abs(duration - middle) <= reach
    return near


def _phases(dump: ETDump, roles: NDArray[np.int8]) -> NDArray[np.int8]:
    """Says of each `Method::execute` whether it is first inference, warm-up or steady."""
    by_block = np.array([_phase(dump, int(i)) for i in dump.blocks.name_id], dtype=np.int8)
    phases: NDArray[np.int8] = by_block[dump.profile.block_index[roles == Role.EXECUTE]]
    if not (phases == _FIRST).any() and phases.size > 1:
        phases[0] = _FIRST
    return phases


def _phase(dump: ETDump, name_id: int) -> int:
    """Reads the phase from an event block's name."""
    name = dump.names[name_id] if name_id >= 0 else ""
    known = {FIRST_BLOCK: _FIRST, WARMUP_BLOCK: _WARMUP, PREFILL_BLOCK: _PREFILL}
    return known.get(name, _STEADY)


def _collect(
    dump: ETDump,
    events: Events,
    phases: NDArray[np.int8],
    kept: NDArray[np.bool_],
    known: tuple[LeftOut, Delegates],
) -> Executions:
    """Keeps the events of the executions that are kept, and renumbers those from 0."""
    left_out, delegates = known
    profile, roles, duration = dump.profile, events.roles, events.duration
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)[events.execution]
    inside = number >= 0
    whole = (roles == Role.DELEGATE_CALL) & np.isin(profile.instruction_id, delegates.opaque)
    delegated = (roles == Role.DELEGATED) | whole
    operator = inside & (delegated | (roles == Role.KERNEL))
    label = np.where(delegated, profile.delegate_debug_id_str_id, profile.name_id)
    execute_ns = duration[roles == Role.EXECUTE].astype(np.float64)
    possible = events.execution_possible
    first = execute_ns[(phases == _FIRST) & possible]
    delegate, dispatch, program = _overheads(events, number, whole, int(kept.sum()))
    return Executions(
        execute_ns=execute_ns[kept],
        delegate_overhead_ns=delegate,
        dispatch_ns=dispatch,
        program_ns=program,
        execution_index=number[operator],
        duration_ns=duration[operator].astype(np.float64),
        name_id=label[operator],
        delegate_int_id=profile.delegate_debug_id_int[operator],
        instruction_id=profile.instruction_id[operator],
        is_delegated=delegated[operator],
        delegates=delegates,
        unknown_name_ids=tuple(
            int(i) for i in np.unique(profile.name_id[inside & (roles == Role.OTHER)])
        ),
        first_execute_ns=float(first[0]) if first.size else None,
        load_ns=_load_times(dump, events),
        left_out=left_out,
        events=events,
    )


def _overheads(
    events: Events, number: NDArray[np.int64], whole: NDArray[np.bool_], count: int
) -> tuple[NDArray[np.float64], ...]:
    """Time of each execution's delegate calls, operator calls and itself beyond their contents."""
    roles, place = events.roles[events.containers], number[events.containers]
    is_operator = whole[events.containers]

    def rest(container: Role) -> NDArray[np.float64]:
        chosen = (roles == container) & (place >= 0) & ~is_operator
        sums = np.bincount(place[chosen], events.beyond[chosen], minlength=count)
        return sums.astype(np.float64)

    return rest(Role.DELEGATE_CALL), rest(Role.OPERATOR_CALL), rest(Role.EXECUTE)


def _load_times(dump: ETDump, events: Events) -> dict[str, float]:
    """Sums the load-time events by name; a name of which one is impossible is not known."""
    loads = np.flatnonzero(events.roles == Role.LOAD)
    wrong = set(dump.profile.name_id[loads[events.impossible[loads]]].tolist())
    sums: dict[int, float] = {}
    for row in loads.tolist():
        name_id = int(dump.profile.name_id[row])
        sums[name_id] = sums.get(name_id, 0.0) + float(events.duration[row])
    found = {dump.names[i]: total for i, total in sums.items() if i not in wrong}
    return {name: found[name] for name in LOAD_EVENTS if name in found}
