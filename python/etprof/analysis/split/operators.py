"""Turns executions into rows: one per operator, and the overheads that close the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from etprof.analysis.split.executions import ImplausibleETDumpError
from etprof.backends.backend import (
    CATEGORIES,
    DELEGATE_OVERHEAD,
    FRAMEWORK_OVERHEAD,
    Backend,
    OperatorClass,
)
from etprof.backends.registry import PORTABLE
from etprof.etdump.plausibility import LOAD_EVENTS, Role
from etprof.statistics.order_statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Executions, LeftOut
    from etprof.etdump.plausibility import Events, EventTimes
    from etprof.etdump.reader import ETDump

Key = TypeVar("Key")
_EXACT_CALLS: Final = 100
OVERHEAD: Final = "Overhead"
GROUPS: Final = (*CATEGORIES, OVERHEAD)
_INTERRUPTION_NS: Final = 1000
"""Less than this above the median is no interruption."""


@dataclass(frozen=True)
class PartTimes:
    """How long a part of an inference takes, in ns."""

    total_ns: float
    """Over the executions of the split."""
    mean_ns: float
    """Mean over the executions of the split, so that the parts add up."""
    share: float
    """Fraction of all `Method::execute` time."""


def add_parts(parts: Sequence[PartTimes | None]) -> PartTimes | None:
    """Returns the times of several parts together; None for none, or where one is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    if len(known) == 1:
        return known[0]
    return PartTimes(
        total_ns=sum(part.total_ns for part in known),
        mean_ns=sum(part.mean_ns for part in known),
        share=sum(part.share for part in known),
    )


@dataclass(frozen=True)
class OperatorTimes(PartTimes):
    """How long an operator takes, and how its calls spread."""

    median_ns: float
    """Median over calls."""
    median_interval: tuple[float, float] | None
    """95 % interval of the median over calls of this one process; None below six calls."""
    minimum_ns: float
    maximum_ns: float
    standard_deviation_ns: float
    typical_ns: float
    """Mean per inference; for an interrupted operator, what its median call makes of it."""

    @property
    def is_interrupted(self) -> bool:
        """Whether a few very long calls make up most of its time, as when the system steps in."""
        return self.typical_ns != self.mean_ns


@dataclass(frozen=True)
class OperatorRow:
    """One operator of the program over the executions of a split."""

    label: str
    """Name in the ETDump, with the delegate's running number."""
    backend: Backend
    """Whose operator it is."""
    base: str
    operator_class: OperatorClass
    is_known: bool
    instruction_id: int | None
    data_types: tuple[str, ...]
    microkernel_type: str | None
    executions: int
    """Executions in which the operator ran."""
    calls: int
    """Calls over all executions."""
    times: OperatorTimes | None
    """None where the target proves no times."""

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.backend is not PORTABLE


@dataclass(frozen=True)
class OverheadRow:
    """Time inside `Method::execute` that belongs to no operator."""

    label: str
    operator_class: OperatorClass
    times: PartTimes


@dataclass(frozen=True)
class SplitTimes:
    """Of whole executions, in ns."""

    execute_total_ns: float
    """What rows and overheads add up to."""
    execute_mean_ns: float
    execute_median_ns: float
    first_execute_ns: float | None
    load_ns: dict[str, float]
    """Load-time events by name; no part of any execution."""


@dataclass(frozen=True)
class OperatorSplit:
    """The operators of an inference and, where that is known, where its time goes."""

    rows: tuple[OperatorRow, ...]
    """In program order."""
    overheads: tuple[OverheadRow, ...]
    """None without times."""
    executions: int
    times: SplitTimes | None
    """None where the target proves no times."""
    unknown_names: tuple[str, ...]
    """Operators that the category table does not have, and events that are no operators."""
    left_out: LeftOut
    """Executions of the file that are not in here."""

    @property
    def entries(self) -> tuple[OperatorRow | OverheadRow, ...]:
        """Everything that an inference is made of; without times no overhead is known."""
        return (*self.rows, *self.overheads)

    @property
    def parts(self) -> tuple[tuple[OperatorRow | OverheadRow, PartTimes], ...]:
        """Everything that adds up to `execute_total_ns`; nothing without times."""
        return tuple((each, each.times) for each in self.entries if each.times)


class _Calls(NamedTuple):
    """The operators' events of all executions that are split, one entry each."""

    execution: NDArray[np.int64]
    duration: NDArray[np.float64] | None
    name_id: NDArray[np.int32]
    """Index into the ETDump's names: the delegate's label or the kernel's name."""
    delegate_number: NDArray[np.int32]
    """The delegate's integer id, for delegates that give no label; else -1."""
    instruction_id: NDArray[np.int32]
    is_delegated: NDArray[np.bool_]
    """Whether the event is inside a delegate, or a whole call of an opaque one."""


def split_operators(dump: ETDump, executions: Executions) -> OperatorSplit:
    """Adds up each operator over the executions, and what is left as overhead.

    Raises ImplausibleETDumpError when a part is below zero or above the whole.
    """
    events, names = executions.events, dump.names
    profile, roles = dump.profile, events.roles
    inside = executions.number >= 0
    opaque = np.isin(profile.instruction_id, executions.delegates.opaque)
    whole = (roles == Role.DELEGATE_CALL) & opaque
    delegated = (roles == Role.DELEGATED) | whole
    chosen = inside & (delegated | (roles == Role.KERNEL))
    calls = _Calls(
        executions.number[chosen],
        events.times.duration[chosen].astype(np.float64) if events.times else None,
        np.where(delegated, profile.delegate_debug_id_str_id, profile.name_id)[chosen],
        profile.delegate_debug_id_int[chosen],
        profile.instruction_id[chosen],
        delegated[chosen],
    )
    times = _split_times(dump, executions, events.times) if events.times else None
    rows = _operator_rows(calls, executions, names, times)
    overheads = _overheads(executions, events.times, whole, times) if events.times and times else ()
    others = np.unique(profile.name_id[inside & (roles == Role.OTHER)])
    unknown = {row.label for row in rows if not row.is_known}
    split = OperatorSplit(
        rows=rows,
        overheads=overheads,
        executions=executions.count,
        times=times,
        unknown_names=tuple(sorted(unknown | {_name(names, int(i)) for i in others})),
        left_out=executions.left_out,
    )
    _refuse_impossible(split)
    return split


def category_times(split: OperatorSplit) -> dict[str, PartTimes]:
    """Adds up by headline category, every one of them; nothing without times."""
    return _add_up(split, lambda entry: entry.category, CATEGORIES)


def group_of(entry: OperatorClass) -> str:
    """Returns the headline category, with overheads as a group of their own."""
    return OVERHEAD if entry in {DELEGATE_OVERHEAD, FRAMEWORK_OVERHEAD} else entry.category


def class_times(split: OperatorSplit) -> dict[OperatorClass, PartTimes]:
    """Adds up by finer class, the largest first; nothing without times."""
    found = _add_up(split, lambda entry: entry)
    return dict(sorted(found.items(), key=lambda item: -item[1].total_ns))


def _add_up(
    split: OperatorSplit, key_of: Callable[[OperatorClass], Key], keys: Sequence[Key] = ()
) -> dict[Key, PartTimes]:
    if split.times is None:
        return {}
    totals = dict.fromkeys(keys, 0.0)
    for part, times in split.parts:
        key = key_of(part.operator_class)
        totals[key] = totals.get(key, 0.0) + times.total_ns
    return {
        key: PartTimes(*_part(total, split.executions, split.times))
        for key, total in totals.items()
    }


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index >= 0 else "(event without a name)"


def _split_times(dump: ETDump, executions: Executions, times: EventTimes) -> SplitTimes:
    executes = (executions.number >= 0) & (executions.events.roles == Role.EXECUTE)
    durations = times.duration[executes].astype(np.float64)
    first, whole = executions.first, float(durations.sum())
    return SplitTimes(
        execute_total_ns=whole,
        execute_mean_ns=whole / executions.count,
        execute_median_ns=float(np.median(durations)),
        first_execute_ns=None if first is None else float(times.duration[first]),
        load_ns=_load_times(dump, executions.events, times),
    )


def _load_times(dump: ETDump, events: Events, times: EventTimes) -> dict[str, float]:
    """Sums the load-time events by name; a name of which one is impossible is not known."""
    loads = np.flatnonzero(events.roles == Role.LOAD)
    wrong = set(dump.profile.name_id[loads[events.impossible[loads]]].tolist())
    sums: dict[int, float] = {}
    for row in loads.tolist():
        name_id = int(dump.profile.name_id[row])
        sums[name_id] = sums.get(name_id, 0.0) + float(times.duration[row])
    found = {dump.names[i]: total for i, total in sums.items() if i not in wrong}
    return {name: found[name] for name in LOAD_EVENTS if name in found}


def _operator_rows(
    calls: _Calls, executions: Executions, names: Sequence[str], times: SplitTimes | None
) -> tuple[OperatorRow, ...]:
    """Groups operator events by instruction and name, in program order."""
    if calls.execution.size == 0:
        return ()
    _, first, group = np.unique(_keys(calls), return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(first.size + 1))
    return tuple(
        _operator_row(calls, order[bounds[key] : bounds[key + 1]], executions, names, times)
        for key in np.argsort(first)
    )


def _keys(calls: _Calls) -> NDArray[np.int64]:
    """Numbers the operators: events of the same instruction, name and delegate id are one."""
    key = np.zeros(calls.execution.size, dtype=np.int64)
    for column in (calls.instruction_id, calls.name_id, calls.delegate_number):
        values, codes = np.unique(column, return_inverse=True)
        key = key * values.size + codes
    return key


def _operator_row(
    calls: _Calls,
    events: NDArray[np.int64],
    executions: Executions,
    names: Sequence[str],
    times: SplitTimes | None,
) -> OperatorRow:
    """Describes one operator from the positions of its events."""
    first, delegates = events[0], executions.delegates
    instruction, name_id = int(calls.instruction_id[first]), int(calls.name_id[first])
    backend, label = PORTABLE, _name(names, name_id)
    if calls.is_delegated[first]:
        number = int(calls.delegate_number[first])
        backend = delegates.backend(instruction)
        label = delegates.label(names, instruction, name_id, number)
    name = backend.read_label(label)
    return OperatorRow(
        label=label,
        backend=backend,
        base=name.base,
        operator_class=name.operator_class,
        is_known=name.is_known,
        instruction_id=instruction if instruction >= 0 else None,
        data_types=name.data_types,
        microkernel_type=name.microkernel_type,
        executions=int(np.unique(calls.execution[events]).size),
        calls=events.size,
        times=None
        if times is None or calls.duration is None
        else _operator_times(calls.duration[events], executions.count, times),
    )


def _part(total_ns: float, executions: int, whole: SplitTimes) -> tuple[float, float, float]:
    """Total, mean and share."""
    share = total_ns / whole.execute_total_ns if whole.execute_total_ns > 0 else 0.0
    return total_ns, total_ns / executions, share


def _operator_times(
    durations: NDArray[np.float64], executions: int, whole: SplitTimes
) -> OperatorTimes:
    part = _part(float(durations.sum()), executions, whole)
    median, mean = float(np.median(durations)), float(durations.mean())
    is_interrupted = mean > 2 * median + _INTERRUPTION_NS
    return OperatorTimes(
        *part,
        median_ns=median,
        median_interval=_median_interval(durations),
        minimum_ns=float(durations.min()),
        maximum_ns=float(durations.max()),
        standard_deviation_ns=float(durations.std(ddof=1)) if durations.size > 1 else 0.0,
        typical_ns=median * durations.size / executions if is_interrupted else part[1],
    )


def _median_interval(durations: NDArray[np.float64]) -> tuple[float, float] | None:
    """Order statistics around the median: exact for few calls, by the normal law for many."""
    count = durations.size
    if count <= _EXACT_CALLS:
        interval = median_interval(durations.tolist())
        return (interval.low, interval.high) if interval else None
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial(count, 1/2)
    low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + reach)
    ordered = np.partition(durations, (low, high))
    return float(ordered[low]), float(ordered[high])


def _overheads(
    executions: Executions, times: EventTimes, whole: NDArray[np.bool_], split: SplitTimes
) -> tuple[OverheadRow, ...]:
    """What containers have beyond their contents; with it the rows add up to the whole.

    Where a delegate rounds its operators' times down, the rest is part of its overhead; a `whole`
    call of an opaque one is an operator, and has none.
    """
    containers = executions.events.containers
    roles, is_split = executions.events.roles[containers], executions.number[containers] >= 0
    is_split &= ~whole[containers]
    return tuple(
        OverheadRow(
            label,
            entry,
            PartTimes(
                *_part(
                    float(times.beyond[is_split & (roles == role)].sum()), executions.count, split
                )
            ),
        )
        for label, entry, role in (
            ("Delegate overhead", DELEGATE_OVERHEAD, Role.DELEGATE_CALL),
            ("Operator dispatch", FRAMEWORK_OVERHEAD, Role.OPERATOR_CALL),
            ("Program execution", FRAMEWORK_OVERHEAD, Role.EXECUTE),
        )
    )


def _refuse_impossible(split: OperatorSplit) -> None:
    """The last guard: nothing is less than nothing, or more than the whole.

    Delegates' times may be off by a step of their clock, which is more than some calls take.
    """
    whole_ns = split.times.execute_total_ns if split.times else 0.0
    for part, times in split.parts:
        if not 0 <= times.total_ns <= whole_ns:
            msg = (
                f"{part.label} takes {times.total_ns:.0f} of {whole_ns:.0f} ticks of all "
                "executions, which cannot be; pull the ETDump again, or run the model again"
            )
            raise ImplausibleETDumpError(msg)
