"""Turns executions into rows: one per operator, and the overheads that close the sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from etprof.analysis.split.executions import ImplausibleETDumpError, count_left_out
from etprof.backends.backend import (
    CATEGORIES,
    DELEGATE_OVERHEAD,
    FRAMEWORK_OVERHEAD,
    ROUNDING,
    Backend,
    OperatorClass,
)
from etprof.backends.registry import PORTABLE
from etprof.etdump.plausibility import LOAD_EVENTS, Role
from etprof.statistics.two_samples import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Delegates, Executions, LeftOut
    from etprof.etdump.plausibility import Events, EventTimes
    from etprof.etdump.reader import ETDump
    from etprof.statistics.order_statistics import Interval

Key = TypeVar("Key")
OVERHEAD: Final = "Overhead"
GROUPS: Final = (*CATEGORIES, OVERHEAD)


@dataclass(frozen=True)
class PartTimes:
    """How long a part of an inference takes, in ns."""

    total_ns: float
    """Over the executions of the split."""
    launches_ns: tuple[float, ...]
    """Mean per inference in each operator launch."""
    mean_ns: float
    """Mean of these, so that the parts add up: a launch is what was repeated."""
    share: float
    """Fraction of `Method::execute`, of the means of both."""

    @cached_property
    def interval(self) -> Interval | None:
        """95 % interval of the mean between launches; None with a single launch."""
        return mean_interval(self.launches_ns)


def add_parts(parts: Sequence[PartTimes | None]) -> PartTimes | None:
    """Returns the times of several parts together; None for none, or where one is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    if len(known) == 1:
        return known[0]
    return PartTimes(
        total_ns=sum(part.total_ns for part in known),
        launches_ns=tuple(map(sum, zip(*(part.launches_ns for part in known), strict=True))),
        mean_ns=sum(part.mean_ns for part in known),
        share=sum(part.share for part in known),
    )


@dataclass(frozen=True)
class OperatorTimes(PartTimes):
    """How long an operator takes, and how its calls spread."""

    median_ns: float
    """Median over calls."""
    minimum_ns: float
    maximum_ns: float
    standard_deviation_ns: float


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
    step_ns: float
    """What its times are rounded down to; 0 where they are not, as on the operator clock."""
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

    execute: PartTimes
    """What rows and overheads add up to, in every launch."""
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
    launches: tuple[int, ...]
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
        """Everything that adds up to `execute`; nothing without times."""
        return tuple((each, each.times) for each in self.entries if each.times)


@dataclass(frozen=True)
class Whole:
    """What parts are parts of."""

    counts: tuple[int, ...]
    """Executions of the split, by launch."""
    execute: PartTimes | None

    @classmethod
    def of(cls, launches: Sequence[Executions]) -> Whole:
        """Adds up the executions of each launch."""
        counts = tuple(each.count for each in launches)
        chosen = [each.duration[each.chosen] for each in launches if each.duration is not None]
        if not chosen:
            return cls(counts, None)
        part = cls(counts, None).part([float(each.sum()) for each in chosen])
        return cls(counts, replace(part, share=1.0))

    def part(self, totals_ns: Sequence[float]) -> PartTimes:
        """Describes a part by its time in all executions of each launch."""
        means = [t / n for t, n in zip(totals_ns, self.counts, strict=True)]
        mean = sum(means) / len(means)
        share = mean / self.execute.mean_ns if self.execute and self.execute.mean_ns > 0 else 0.0
        return PartTimes(sum(totals_ns), tuple(means), mean, share)


class _Calls(NamedTuple):
    """The operators' events of all executions that are split, one entry each."""

    execution: NDArray[np.int64]
    launch: NDArray[np.int64]
    duration: NDArray[np.float64]
    """In ns; empty without times."""
    name_id: NDArray[np.int64]
    """Index into the names: the delegate's label or the kernel's name."""
    delegate_number: NDArray[np.int32]
    """The delegate's integer id, for delegates that give no label; else -1."""
    instruction_id: NDArray[np.int32]
    is_delegated: NDArray[np.bool_]
    """Whether the event is inside a delegate, or a whole call of an opaque one."""


def split_operators(launches: Sequence[Executions]) -> OperatorSplit:
    """Adds up each operator over the executions of all launches, and what is left as overhead.

    Launches of which no execution is split do not count. Raises ImplausibleETDumpError when a part
    is below zero or above the whole.
    """
    used = [each for each in launches if each.count]
    whole = Whole.of(used)
    names: dict[str, int] = {}
    rows = _operator_rows(_gather_calls(used, names), used[0].delegates, [*names], whole)
    others = {
        _name(each.dump.names, index)
        for each in used
        for index in np.unique(
            each.dump.profile.name_id[(each.number >= 0) & (each.events.roles == Role.OTHER)]
        ).tolist()
    }
    split = OperatorSplit(
        rows=rows,
        overheads=_overheads(used, whole),
        executions=sum(whole.counts),
        launches=tuple(each.launch for each in used),
        times=_split_times(used, whole),
        unknown_names=tuple(sorted(others | {row.label for row in rows if not row.is_known})),
        left_out=count_left_out(launches),
    )
    _refuse_impossible(split)
    return split


def _gather_calls(launches: Sequence[Executions], names: dict[str, int]) -> _Calls:
    """Joins the operators' events of all launches; fills `names`, for each file has its own."""
    found, before = list[_Calls](), 0
    for position, each in enumerate(launches):
        profile, roles = each.dump.profile, each.events.roles
        delegated = (roles == Role.DELEGATED) | _whole_calls(each)
        chosen = (each.number >= 0) & (delegated | (roles == Role.KERNEL))
        codes = np.array([*(names.setdefault(n, len(names)) for n in each.dump.names), -1])
        name_id = np.where(delegated, profile.delegate_debug_id_str_id, profile.name_id)
        times = each.events.times
        found.append(
            _Calls(
                each.number[chosen] + before,
                np.full(np.count_nonzero(chosen), position),
                (times.duration[chosen] if times else np.empty(0)).astype(np.float64),
                codes[name_id[chosen]],
                profile.delegate_debug_id_int[chosen],
                profile.instruction_id[chosen],
                delegated[chosen],
            )
        )
        before += each.count
    columns: list[NDArray[Any]] = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return _Calls(*columns)


def _whole_calls(launch: Executions) -> NDArray[np.bool_]:
    """Says which events are calls of an opaque delegate, each one operator."""
    opaque = np.isin(launch.dump.profile.instruction_id, launch.delegates.opaque)
    found: NDArray[np.bool_] = (launch.events.roles == Role.DELEGATE_CALL) & opaque
    return found


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
    nothing = PartTimes(0.0, (0.0,) * len(split.launches), 0.0, 0.0)
    groups: dict[Key, list[PartTimes]] = {key: [nothing] for key in keys}
    for part, times in split.parts:
        groups.setdefault(key_of(part.operator_class), []).append(times)
    sums = {key: add_parts(parts) for key, parts in groups.items()}
    return {key: times for key, times in sums.items() if times is not None}


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index >= 0 else "(event without a name)"


def _split_times(launches: Sequence[Executions], whole: Whole) -> SplitTimes | None:
    chosen = [each.duration[each.chosen] for each in launches if each.duration is not None]
    if whole.execute is None or not chosen:
        return None
    first, times = launches[0], launches[0].events.times
    return SplitTimes(
        execute=whole.execute,
        execute_median_ns=float(np.median(np.concatenate(chosen))),
        first_execute_ns=None
        if first.first is None or times is None
        else float(times.duration[first.first]),
        load_ns=_load_times(first.dump, first.events, times) if times else {},
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
    calls: _Calls, delegates: Delegates, names: Sequence[str], whole: Whole
) -> tuple[OperatorRow, ...]:
    """Groups operator events by instruction and name, in program order."""
    if calls.execution.size == 0:
        return ()
    _, first, group = np.unique(_keys(calls), return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(first.size + 1))
    return tuple(
        _operator_row(calls, order[bounds[key] : bounds[key + 1]], delegates, names, whole)
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
    delegates: Delegates,
    names: Sequence[str],
    whole: Whole,
) -> OperatorRow:
    """Describes one operator from the positions of its events."""
    first = events[0]
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
        step_ns=delegates.step_ns(instruction) if calls.is_delegated[first] else 0.0,
        times=None
        if whole.execute is None
        else _operator_times(calls.duration[events], calls.launch[events], whole),
    )


def _operator_times(
    durations: NDArray[np.float64], launch: NDArray[np.int64], whole: Whole
) -> OperatorTimes:
    totals = np.bincount(launch, durations, len(whole.counts)).tolist()
    return OperatorTimes(
        **vars(whole.part(totals)),
        median_ns=float(np.median(durations)),
        minimum_ns=float(durations.min()),
        maximum_ns=float(durations.max()),
        standard_deviation_ns=float(durations.std(ddof=1)) if durations.size > 1 else 0.0,
    )


def _overheads(launches: Sequence[Executions], whole: Whole) -> tuple[OverheadRow, ...]:
    """What containers have beyond their contents; with it the rows add up to the whole.

    Where a delegate rounds its operators' times down, as much of the rest as that can be is a row of
    its own; a whole call of an opaque one is an operator, and has none.
    """
    if whole.execute is None:
        return ()
    calls = [_beyond(each, Role.DELEGATE_CALL) for each in launches]
    rounded = [min(max(b, 0.0), _most_rounded(e)) for b, e in zip(calls, launches, strict=True)]
    certain = [total - part for total, part in zip(calls, rounded, strict=True)]
    found = [("Delegate overhead", DELEGATE_OVERHEAD, certain)]
    if any(rounded):
        found.append(("Rounding of operators' times", ROUNDING, rounded))
    found += [
        (label, FRAMEWORK_OVERHEAD, [_beyond(each, role) for each in launches])
        for label, role in (
            ("Operator dispatch", Role.OPERATOR_CALL),
            ("Program execution", Role.EXECUTE),
        )
    ]
    return tuple(OverheadRow(label, entry, whole.part(totals)) for label, entry, totals in found)


def _most_rounded(launch: Executions) -> float:
    """The most that delegates rounded off their operators, in all executions; ns."""
    chosen = (launch.number >= 0) & (launch.events.roles == Role.DELEGATED)
    instructions, counts = np.unique(launch.dump.profile.instruction_id[chosen], return_counts=True)
    steps = map(launch.delegates.step_ns, instructions.tolist())
    return float(sum(s * n for s, n in zip(steps, counts.tolist(), strict=True)))


def _beyond(launch: Executions, role: Role) -> float:
    """What the containers of this role have beyond their contents, in all executions; ns."""
    containers, times = launch.events.containers, launch.events.times
    chosen = (launch.number[containers] >= 0) & (launch.events.roles[containers] == role)
    chosen &= ~_whole_calls(launch)[containers]
    return float(times.beyond[chosen].sum()) if times else 0.0


def _refuse_impossible(split: OperatorSplit) -> None:
    """The last guard: nothing is less than nothing, or more than the whole.

    Delegates' times may be off by a step of their clock, which is more than some calls take.
    """
    whole_ns = split.times.execute.total_ns if split.times else 0.0
    for part, times in split.parts:
        if not 0 <= times.total_ns <= whole_ns:
            msg = (
                f"{part.label} takes {times.total_ns:.0f} of {whole_ns:.0f} ticks of all "
                "executions, which cannot be; pull the ETDump again, or run the model again"
            )
            raise ImplausibleETDumpError(msg)
