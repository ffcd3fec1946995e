"""Turns executions into rows: one per operator, and the overheads that close the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
from etprof.statistics.order_statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Executions, LeftOut

_EXACT_CALLS: Final = 100
OVERHEAD: Final = "Overhead"
GROUPS: Final = (*CATEGORIES, OVERHEAD)


@dataclass(frozen=True)
class OperatorRow:
    """One operator of the program over the executions of a split; times in ns per inference."""

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
    total_ns: float
    mean_ns: float
    """Mean over the executions of the split, so that the rows add up."""
    median_ns: float
    """Median over calls."""
    median_interval: tuple[float, float] | None
    """95 % interval of the median over calls of this one process; None below six calls."""
    minimum_ns: float
    maximum_ns: float
    standard_deviation_ns: float
    share: float
    """Fraction of all `Method::execute` time."""

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.backend is not PORTABLE


@dataclass(frozen=True)
class OverheadRow:
    """Time inside `Method::execute` that belongs to no operator."""

    label: str
    operator_class: OperatorClass
    total_ns: float
    mean_ns: float
    share: float


@dataclass(frozen=True)
class OperatorSplit:
    """Where the time of an inference goes; rows and overheads add up to `execute_total_ns`."""

    rows: tuple[OperatorRow, ...]
    """In program order."""
    overheads: tuple[OverheadRow, ...]
    executions: int
    execute_total_ns: float
    execute_median_ns: float
    first_execute_ns: float | None
    load_ns: dict[str, float]
    unknown_names: tuple[str, ...]
    """Operators that the category table does not have, and events that are no operators."""
    left_out: LeftOut
    """Executions of the file that are not in here."""

    @property
    def entries(self) -> tuple[OperatorRow | OverheadRow, ...]:
        """Everything that adds up to `execute_total_ns`."""
        return (*self.rows, *self.overheads)


def split_operators(executions: Executions, names: Sequence[str]) -> OperatorSplit:
    """Adds up each operator over the executions, and what is left as overhead.

    Raises ImplausibleETDumpError when a part is below zero or above the whole.
    """
    rows, overheads = _operator_rows(executions, names), _overheads(executions)
    whole = float(executions.execute_ns.sum())
    _refuse_impossible((*rows, *overheads), whole)
    unknown = {row.label for row in rows if not row.is_known}
    unknown |= {_name(names, i) for i in executions.unknown_name_ids}
    return OperatorSplit(
        rows=rows,
        overheads=overheads,
        executions=executions.count,
        execute_total_ns=whole,
        execute_median_ns=float(np.median(executions.execute_ns)),
        first_execute_ns=executions.first_execute_ns,
        load_ns=executions.load_ns,
        unknown_names=tuple(sorted(unknown)),
        left_out=executions.left_out,
    )


def category_totals_ns(split: OperatorSplit) -> dict[str, float]:
    """Sums all steady executions by headline category; every category is present."""
    totals = dict.fromkeys(CATEGORIES, 0.0)
    for row in split.entries:
        totals[row.operator_class.category] += row.total_ns
    return totals


def group_of(entry: OperatorClass) -> str:
    """Returns the headline category, with overheads as a group of their own."""
    return OVERHEAD if entry in {DELEGATE_OVERHEAD, FRAMEWORK_OVERHEAD} else entry.category


def class_totals_ns(split: OperatorSplit) -> dict[OperatorClass, float]:
    """Sums all steady executions by finer class, largest first."""
    totals: dict[OperatorClass, float] = {}
    for row in split.entries:
        totals[row.operator_class] = totals.get(row.operator_class, 0.0) + row.total_ns
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index >= 0 else "(event without a name)"


def _operator_rows(executions: Executions, names: Sequence[str]) -> tuple[OperatorRow, ...]:
    """Groups operator events by instruction and name, in program order."""
    if executions.duration_ns.size == 0:
        return ()
    _, first, group = np.unique(_keys(executions), return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(first.size + 1))
    return tuple(
        _operator_row(executions, names, order[bounds[key] : bounds[key + 1]])
        for key in np.argsort(first)
    )


def _keys(executions: Executions) -> NDArray[np.int64]:
    """Numbers the operators: events of the same instruction, name and delegate id are one."""
    key = np.zeros(executions.duration_ns.size, dtype=np.int64)
    for column in (executions.instruction_id, executions.name_id, executions.delegate_int_id):
        values, codes = np.unique(column, return_inverse=True)
        key = key * values.size + codes
    return key


def _operator_row(
    executions: Executions, names: Sequence[str], events: NDArray[np.int64]
) -> OperatorRow:
    """Describes one operator from the positions of its events."""
    first = events[0]
    delegated = bool(executions.is_delegated[first])
    instruction = int(executions.instruction_id[first])
    label = _label(executions, names, int(first))
    backend = executions.delegates.backend(instruction) if delegated else PORTABLE
    name = backend.read_label(label)
    durations = executions.duration_ns[events]
    total = float(durations.sum())
    return OperatorRow(
        label=label,
        backend=backend,
        base=name.base,
        operator_class=name.operator_class,
        is_known=name.is_known,
        instruction_id=instruction if instruction >= 0 else None,
        data_types=name.data_types,
        microkernel_type=name.microkernel_type,
        executions=int(np.unique(executions.execution_index[events]).size),
        calls=int(durations.size),
        total_ns=total,
        mean_ns=total / executions.count,
        median_ns=float(np.median(durations)),
        median_interval=_median_interval(durations),
        minimum_ns=float(durations.min()),
        maximum_ns=float(durations.max()),
        standard_deviation_ns=float(durations.std(ddof=1)) if durations.size > 1 else 0.0,
        share=_share(total, executions),
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


def _label(executions: Executions, names: Sequence[str], event: int) -> str:
    name_id = int(executions.name_id[event])
    number = int(executions.delegate_int_id[event])
    if executions.is_delegated[event]:
        instruction = int(executions.instruction_id[event])
        return executions.delegates.label(names, instruction, name_id, number)
    return _name(names, name_id)


def _share(total_ns: float, executions: Executions) -> float:
    whole = float(executions.execute_ns.sum())
    return total_ns / whole if whole > 0 else 0.0


def _overheads(executions: Executions) -> tuple[OverheadRow, ...]:
    """What containers have beyond their contents; with it the rows add up to the whole.

    Where a delegate rounds its operators' times down, the rest is part of its overhead.
    """
    parts = (
        ("Delegate overhead", DELEGATE_OVERHEAD, executions.delegate_overhead_ns),
        ("Operator dispatch", FRAMEWORK_OVERHEAD, executions.dispatch_ns),
        ("Program execution", FRAMEWORK_OVERHEAD, executions.program_ns),
    )
    return tuple(
        OverheadRow(
            label, entry, total := float(each.sum()), total / executions.count,
            _share(total, executions),
        )
        for label, entry, each in parts
    )  # fmt: skip


def _refuse_impossible(entries: Sequence[OperatorRow | OverheadRow], whole_ns: float) -> None:
    """The last guard: nothing is less than nothing, or more than the whole.

    Delegates' times may be off by a step of their clock, which is more than some calls take.
    """
    for entry in entries:
        if not 0 <= entry.total_ns <= whole_ns:
            msg = (
                f"{entry.label} takes {entry.total_ns:.0f} of {whole_ns:.0f} ticks of all "
                "executions, which cannot be; pull the ETDump again, or run the model again"
            )
            raise ImplausibleETDumpError(msg)
