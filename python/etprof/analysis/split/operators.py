"""Turns executions into rows: one per operator, and the overheads that close the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from etprof.analysis.split.duration_counts import (
    ALL_DIGITS,
    DurationCounts,
    begins_of_runs,
    duration_step,
    pack_rows,
)
from etprof.analysis.split.executions import ImplausibleETDumpError, begins_alike, count_excluded
from etprof.backends.backend import (
    CATEGORIES,
    DELEGATE_OVERHEAD,
    FRAMEWORK_OVERHEAD,
    ROUNDING,
    Backend,
    OperatorClass,
)
from etprof.backends.registry import PORTABLE
from etprof.base.text import layer_or_label
from etprof.etdump.plausibility import LOAD_EVENTS, Role
from etprof.statistics.two_samples import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Delegates, ExcludedExecutions, Executions, Piece
    from etprof.statistics.order_statistics import Interval

Key = TypeVar("Key")
OVERHEAD: Final = "Overhead"
NAMELESS: Final = "(event without a name)"
CALLS: Final = (Role.EXECUTE, Role.DELEGATE_CALL, Role.OPERATOR_CALL)
GROUPS: Final = (*CATEGORIES, OVERHEAD)
_MOST_DURATIONS: Final = 1 << 18
"""Different durations of all operators that are counted apart: 60 MB while they are added up. Where
there are more, steps are coarser: medians of 1000 operators that vary by half were off by 0.3 %."""
_LEAST_DURATIONS: Final = 256
"""For each operator, however many there are."""
_MOST_DIGITS: Final = 32
"""Binary digits to begin with where not all can be kept: those of 4 s in ns."""


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
        """95 % interval of the mean between launches, no time below 0; None with a single launch."""
        interval = mean_interval(self.launches_ns)
        least_ns = 0.0 if self.mean_ns >= 0 else -math.inf
        return interval and replace(interval, low=max(interval.low, least_ns))


def add_parts(part_times: Sequence[PartTimes | None]) -> PartTimes | None:
    """Returns the times of several parts together; None for none, or where one is not known."""
    timed = [times for times in part_times if times is not None]
    if len(timed) < len(part_times) or not timed:
        return None
    if len(timed) == 1:
        return timed[0]
    by_launch = zip(*(times.launches_ns for times in timed), strict=True)
    return PartTimes(
        total_ns=math.fsum(times.total_ns for times in timed),
        launches_ns=tuple(map(math.fsum, by_launch)),
        mean_ns=math.fsum(times.mean_ns for times in timed),
        share=math.fsum(times.share for times in timed),
    )


@dataclass(frozen=True)
class OperatorTimes(PartTimes):
    """How long an operator takes, and how its calls spread."""

    median_ns: float
    """Median over calls. Where different durations are too many to keep, within half a step of those
    that are told apart, as the deviation is: see `_MOST_DURATIONS`."""
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
    location: str | None = None
    """The model's module and line that it comes from; None where the export does not say."""

    @property
    def name(self) -> str:
        """What people look for: the layer, else the label."""
        return layer_or_label(self.location, self.label)

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.backend is not PORTABLE


@dataclass(frozen=True)
class OverheadRow:
    """Time inside `Method::execute` that belongs to no operator and no layer."""

    label: str
    operator_class: OperatorClass
    times: PartTimes

    @property
    def name(self) -> str:
        """As people read it."""
        return self.label


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
    left_out: ExcludedExecutions
    """Executions of the file that are not in here."""

    @property
    def entries(self) -> tuple[OperatorRow | OverheadRow, ...]:
        """Everything that an inference is made of; without times no overhead is known."""
        return (*self.rows, *self.overheads)

    @property
    def parts(self) -> tuple[tuple[OperatorRow | OverheadRow, PartTimes], ...]:
        """Everything that adds up to `execute`; nothing without times."""
        return tuple((row, row.times) for row in self.entries if row.times)


@dataclass(frozen=True)
class ExecutionTotals:
    """What parts are parts of."""

    counts: tuple[int, ...]
    """Executions of the split, by launch."""
    execute: PartTimes | None

    @classmethod
    def of(cls, launches: Sequence[Executions]) -> ExecutionTotals:
        """Adds up the executions of each launch."""
        counts = tuple(launch.count for launch in launches)
        durations = [
            launch.duration[launch.selected] for launch in launches if launch.duration is not None
        ]
        if not durations:
            return cls(counts, None)
        execute = cls(counts, None).part_times([float(duration.sum()) for duration in durations])
        return cls(counts, replace(execute, share=1.0))

    def part_times(self, totals_ns: Sequence[float]) -> PartTimes:
        """Describes a part by its time in all executions of each launch."""
        means = [t / n for t, n in zip(totals_ns, self.counts, strict=True)]
        mean = math.fsum(means) / len(means)
        share = mean / self.execute.mean_ns if self.execute and self.execute.mean_ns > 0 else 0.0
        return PartTimes(math.fsum(totals_ns), tuple(means), mean, share)


class _Kind(NamedTuple):
    """What makes events one operator, in every launch."""

    instruction: int
    name: str | None
    """The delegate's label or the kernel's name."""
    number: int
    """The delegate's integer id, for delegates that give no label; else -1."""


class _Tally:
    """Every operator's calls, added up piece by piece; with what else a split is made of."""

    def __init__(self, launches: int) -> None:
        self.kinds: dict[_Kind, int] = {}
        """Numbers of the operators, in the order in which they first ran."""
        self.is_delegated = list[bool]()
        """Of each operator, whether it is inside a delegate, or a whole call of an opaque one."""
        self.totals = np.zeros((0, launches))
        """In ns, shape (operators, launches), as `calls`."""
        self.calls = np.zeros((0, launches), np.int64)
        self.executions = np.zeros(0, np.int64)
        """In how many each operator ran."""
        self.beyond = {role: [0.0] * launches for role in CALLS}
        """What containers of a role have beyond their contents, by launch; ns."""
        self.unknown_names = set[str]()
        """Names of events that are nothing that is known."""
        self.shortest = np.zeros(0, np.int64)
        """Of each operator's calls, in ns, as `longest`."""
        self.longest = np.zeros(0, np.int64)
        self._spreads = list[DurationCounts]()
        self._digits = ALL_DIGITS
        self._numbered: tuple[tuple[NDArray[np.int32], ...], NDArray[np.int64]] | None = None
        """What the events of the last piece are told by, and their operators' numbers: the next piece
        is mostly of the same inferences over again."""

    @property
    def spread(self) -> DurationCounts:
        """How often each operator took how long, in the middle of the steps that are told apart."""
        counts = self._merge()
        middle = (duration_step(counts.duration, self._digits) - 1) // 2
        return counts._replace(duration=counts.duration + middle)

    def _merge(self) -> DurationCounts:
        """Adds up what there is so far; in coarser steps where it is too much.

        A file gives the same however it is cut: steps are those that all of it needs.
        """
        counts = DurationCounts.merged(self._spreads)
        while counts.calls.size > max(_MOST_DURATIONS, _LEAST_DURATIONS * len(self.kinds)):
            self._digits = min(self._digits, _MOST_DIGITS) - 1
            counts = counts.rounded(self._digits)
        self._spreads = [counts]
        return counts

    def add(self, launch: Executions, position: int) -> None:
        """Adds up the executions of a launch that are split."""
        for piece in launch.pieces():
            profile, roles, times = piece.dump.profile, piece.events.roles, piece.events.times
            opaque_calls = _opaque_calls(piece, launch.delegates)
            delegated = (roles == Role.DELEGATED) | opaque_calls
            inside = piece.number >= 0
            rows = np.flatnonzero(inside & (delegated | (roles == Role.KERNEL)))
            is_delegated = delegated[rows]
            name_id = np.where(
                is_delegated, profile.delegate_debug_id_str_id[rows], profile.name_id[rows]
            )
            keys = profile.instruction_id[rows], name_id, profile.delegate_debug_id_int[rows]
            operator = self._number(keys, is_delegated, launch.names)
            self._count(operator, piece.number[rows], position)
            if times:
                self._measure(operator, times.duration[rows], position)
                containers = piece.events.containers
                counted = inside[containers] & ~opaque_calls[containers]
                for role, sums in self.beyond.items():
                    selected = counted & (roles[containers] == role)
                    sums[position] += float(times.beyond[selected].sum())
            unknown = profile.name_id[inside & (roles == Role.OTHER)]
            self.unknown_names |= {_name(launch.names, index) for index in set(unknown.tolist())}

    def _number(
        self,
        keys: tuple[NDArray[np.int32], ...],
        is_delegated: NDArray[np.bool_],
        names: Sequence[str],
    ) -> NDArray[np.int64]:
        """Returns the number of each event's operator; gives the next ones to new operators.

        Args:
            keys: What tells operators apart: instruction, name and delegate's number, each shape (events,).
            is_delegated: Whether a delegate's event, bool, shape (events,).
            names: The file's names, which the second key numbers; -1 is none.

        Returns:
            Index into `kinds`, shape (events,).
        """
        if self._numbered and begins_alike(self._numbered[0], keys):
            return self._numbered[1][: keys[0].size]
        packed = pack_rows(*keys)
        distinct = np.sort(packed)
        distinct = distinct[begins_of_runs(distinct)]
        group = np.searchsorted(distinct, packed)
        first = np.zeros(distinct.size, np.intp)
        first[group[::-1]] = np.arange(packed.size)[::-1]
        numbers = np.zeros(distinct.size, np.int64)
        for index in np.argsort(first).tolist():
            instruction, name_id, number = (int(column[first[index]]) for column in keys)
            kind = _Kind(instruction, names[name_id] if name_id >= 0 else None, number)
            numbers[index] = self.kinds.setdefault(kind, len(self.kinds))
            if len(self.kinds) > len(self.is_delegated):
                self.is_delegated.append(bool(is_delegated[first[index]]))
        self._numbered = keys, numbers[group]
        return self._numbered[1]

    def _count(
        self, operator: NDArray[np.int64], execution: NDArray[np.int64], position: int
    ) -> None:
        """Adds the calls of a piece to those of a launch.

        Args:
            operator: Index into `kinds` of each call, shape (calls,).
            execution: Number of the execution that holds the call, shape (calls,).
            position: The launch's column.
        """
        new = len(self.kinds) - self.executions.size
        self.totals = np.pad(self.totals, ((0, new), (0, 0)))
        self.calls = np.pad(self.calls, ((0, new), (0, 0)))
        self.executions = np.pad(self.executions, (0, new))
        self.shortest = np.pad(self.shortest, (0, new), constant_values=np.iinfo(np.int64).max)
        self.longest = np.pad(self.longest, (0, new))
        self.calls[:, position] += np.bincount(operator, minlength=len(self.kinds))
        if operator.size:
            # Executions are whole in a piece, so that none is counted again in the next.
            runs = np.sort(operator * (int(execution.max()) + 1) + execution)
            ran = runs[begins_of_runs(runs)] // (int(execution.max()) + 1)
            self.executions += np.bincount(ran, minlength=len(self.kinds))

    def _measure(
        self, operator: NDArray[np.int64], duration: NDArray[np.int64], position: int
    ) -> None:
        """Adds the durations of a piece to those of a launch.

        Args:
            operator: Index into `kinds` of each call, shape (calls,).
            duration: How long each call took in ns, shape (calls,).
            position: The launch's column.
        """
        self.totals[:, position] += np.bincount(operator, duration, len(self.kinds))
        counts = DurationCounts.of_calls(operator, duration)
        begins = begins_of_runs(counts.operator)
        first, last = counts.operator[begins], counts.operator[np.roll(begins, -1)]
        self.shortest[first] = np.minimum(self.shortest[first], counts.duration[begins])
        self.longest[last] = np.maximum(self.longest[last], counts.duration[np.roll(begins, -1)])
        self._spreads.append(counts.rounded(self._digits))
        # Twice as much as there is: every addition goes through all of it.
        if sum(spread.calls.size for spread in self._spreads[1:]) > 2 * self._spreads[0].calls.size:
            self._merge()


def split_operators(launches: Sequence[Executions]) -> OperatorSplit:
    """Adds up each operator over the executions of all launches, and what is left as overhead.

    Launches of which no execution is split do not count. Raises ImplausibleETDumpError when a part
    is below zero or above the whole.
    """
    used = [launch for launch in launches if launch.count]
    execution_totals = ExecutionTotals.of(used)
    tally = _Tally(len(used))
    for position, launch in enumerate(used):
        tally.add(launch, position)
    rows = _operator_rows(tally, used[0].delegates, execution_totals)
    split = OperatorSplit(
        rows=rows,
        overheads=_overheads(tally, used[0].delegates, execution_totals),
        executions=sum(execution_totals.counts),
        launches=tuple(launch.launch for launch in used),
        times=_split_times(used, execution_totals),
        unknown_names=tuple(
            sorted(tally.unknown_names | {r.label for r in rows if not r.is_known})
        ),
        left_out=count_excluded(launches),
    )
    _refuse_impossible(split)
    return split


def _opaque_calls(piece: Piece, delegates: Delegates) -> NDArray[np.bool_]:
    """Says which events are calls of an opaque delegate, each one operator.

    Returns:
        One value an event of the piece, shape (events,).
    """
    if not delegates.opaque:
        return np.zeros(piece.events.roles.size, np.bool_)
    opaque = np.isin(piece.dump.profile.instruction_id, delegates.opaque)
    is_opaque_call: NDArray[np.bool_] = (piece.events.roles == Role.DELEGATE_CALL) & opaque
    return is_opaque_call


def category_times(split: OperatorSplit) -> dict[str, PartTimes]:
    """Adds up by headline category, every one of them; nothing without times."""
    return _add_up(split, lambda operator_class: operator_class.category, CATEGORIES)


def group_of(operator_class: OperatorClass) -> str:
    """Returns the headline category, with overheads as a group of their own."""
    return (
        OVERHEAD
        if operator_class in {DELEGATE_OVERHEAD, FRAMEWORK_OVERHEAD}
        else operator_class.category
    )


def class_times(split: OperatorSplit) -> dict[OperatorClass, PartTimes]:
    """Adds up by finer class, the largest first; nothing without times."""
    sums = _add_up(split, lambda operator_class: operator_class)
    return dict(sorted(sums.items(), key=lambda item: -item[1].total_ns))


def _add_up(
    split: OperatorSplit, key_of: Callable[[OperatorClass], Key], keys: Sequence[Key] = ()
) -> dict[Key, PartTimes]:
    if split.times is None:
        return {}
    nothing = PartTimes(0.0, (0.0,) * len(split.launches), 0.0, 0.0)
    groups: dict[Key, list[PartTimes]] = {key: [nothing] for key in keys}
    for row, times in split.parts:
        groups.setdefault(key_of(row.operator_class), []).append(times)
    sums = {key: add_parts(group) for key, group in groups.items()}
    return {key: times for key, times in sums.items() if times is not None}


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index >= 0 else NAMELESS


def _split_times(
    launches: Sequence[Executions], execution_totals: ExecutionTotals
) -> SplitTimes | None:
    durations = [
        launch.duration[launch.selected] for launch in launches if launch.duration is not None
    ]
    if execution_totals.execute is None or not durations:
        return None
    first, duration = launches[0], launches[0].duration
    loads = {first.names[i]: ns for i, ns in first.load_ns.items() if i >= 0}
    return SplitTimes(
        execute=execution_totals.execute,
        execute_median_ns=float(np.median(np.concatenate(durations))),
        first_execute_ns=None
        if first.first is None or duration is None
        else float(duration[first.first]),
        load_ns={name: loads[name] for name in LOAD_EVENTS if name in loads},
    )


def _operator_rows(
    tally: _Tally, delegates: Delegates, execution_totals: ExecutionTotals
) -> tuple[OperatorRow, ...]:
    """Describes the operators, in program order."""
    bounds, spread = np.zeros(0, np.int64), None
    if execution_totals.execute is not None and tally.kinds:
        spread = tally.spread
        bounds = np.searchsorted(spread.operator, np.arange(len(tally.kinds) + 1))
    rows = []
    for index, kind in enumerate(tally.kinds):
        backend, label = PORTABLE, kind.name or NAMELESS
        if tally.is_delegated[index]:
            backend = delegates.backend(kind.instruction)
            label = delegates.label(kind.instruction, kind.name, kind.number)
        name = backend.read_label(label)
        times = None
        if spread is not None:
            span = slice(bounds[index], bounds[index + 1])
            part_times = execution_totals.part_times(tally.totals[index].tolist())
            median, deviation = _median_and_deviation(
                part_times, spread.duration[span], spread.calls[span]
            )
            times = OperatorTimes(
                **vars(part_times),
                median_ns=median,
                standard_deviation_ns=deviation,
                minimum_ns=float(tally.shortest[index]),
                maximum_ns=float(tally.longest[index]),
            )
        rows.append(
            OperatorRow(
                label=label,
                backend=backend,
                base=name.base,
                operator_class=name.operator_class,
                is_known=name.is_known,
                instruction_id=kind.instruction if kind.instruction >= 0 else None,
                data_types=name.data_types,
                microkernel_type=name.microkernel_type,
                executions=int(tally.executions[index]),
                calls=int(tally.calls[index].sum()),
                step_ns=delegates.step_ns(kind.instruction) if tally.is_delegated[index] else 0.0,
                times=times,
            )
        )
    return tuple(rows)


def _median_and_deviation(
    times: PartTimes, durations: NDArray[np.int64], calls: NDArray[np.int64]
) -> tuple[float, float]:
    """Returns median and standard deviation of calls, by how often they took how long; in order.

    Args:
        times: The operator's times; its total is in ns.
        durations: Distinct durations in ns, ascending, shape (n,).
        calls: How many calls took each, shape (n,).

    Returns:
        Median and sample standard deviation of the calls, in ns.
    """
    count, until = int(calls.sum()), np.cumsum(calls)
    middle = np.searchsorted(until, [(count - 1) // 2, count // 2], side="right")
    from_mean = durations - times.total_ns / count
    squares = float(calls @ (from_mean * from_mean))
    deviation = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return float(durations[middle].mean()), deviation


def _overheads(
    tally: _Tally, delegates: Delegates, execution_totals: ExecutionTotals
) -> tuple[OverheadRow, ...]:
    """What containers have beyond their contents; with it the rows add up to the whole.

    Where a delegate rounds its operators' times down, as much of the rest as that can be is a row of
    its own; a whole call of an opaque one is an operator, and has none.
    """
    if execution_totals.execute is None:
        return ()
    calls = tally.beyond[Role.DELEGATE_CALL]
    limits_ns = _rounding_limits(tally, delegates, len(execution_totals.counts))
    rounded = [min(max(b, 0.0), limit_ns) for b, limit_ns in zip(calls, limits_ns, strict=True)]
    certain = [total - rounded_ns for total, rounded_ns in zip(calls, rounded, strict=True)]
    overheads = [("Delegate overhead", DELEGATE_OVERHEAD, certain)]
    if any(rounded):
        overheads.append(("Rounding of operators' times", ROUNDING, rounded))
    overheads += [
        (label, FRAMEWORK_OVERHEAD, tally.beyond[role])
        for label, role in (
            ("Operator dispatch", Role.OPERATOR_CALL),
            ("Program execution", Role.EXECUTE),
        )
    ]
    return tuple(
        OverheadRow(label, operator_class, execution_totals.part_times(totals))
        for label, operator_class, totals in overheads
    )


def _rounding_limits(tally: _Tally, delegates: Delegates, launches: int) -> list[float]:
    """The most that delegates rounded off their operators in all executions of a launch; ns."""
    steps = [
        delegates.step_ns(kind.instruction)
        if is_delegated and kind.instruction not in delegates.opaque
        else 0.0
        for kind, is_delegated in zip(tally.kinds, tally.is_delegated, strict=True)
    ]
    return [float(np.dot(steps, tally.calls[:, launch])) for launch in range(launches)]


def _refuse_impossible(split: OperatorSplit) -> None:
    """The last guard: nothing is less than nothing, or more than the whole.

    Delegates' times may be off by a step of their clock, which is more than some calls take.
    """
    whole_ns = split.times.execute.total_ns if split.times else 0.0
    for row, times in split.parts:
        if not 0 <= times.total_ns <= whole_ns:
            msg = (
                f"{row.label} takes {times.total_ns:.0f} of {whole_ns:.0f} ticks of all "
                "executions, which cannot be; pull the ETDump again, or run the model again"
            )
            raise ImplausibleETDumpError(msg)
