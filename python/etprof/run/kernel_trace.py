"""What the runner's kernel trace counted and timed, operator by operator.

The runner writes marks and calls as they came; here they become operators with their names, times
and microkernels. Everything is checked field by field: it may come from a device.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from etprof.base.atomic import write_json
from etprof.base.errors import InputFileError
from etprof.base.json_input import read_json
from etprof.base.records import Count, Name, Named, Record, check_record, first_problem, read_record
from etprof.run.runner_result import SmeState, Threads

_COUNT_AGAIN: Final = "count the kernels again"
Numbers = npt.NDArray[np.float64]
_ByKernel = dict[int, dict[tuple[int, ...], list[int]]]
"""Calls in each execution, by microkernel and the sizes it was given."""
_STEP: Final = re.compile(r"D(?P<delegate>[BPp]*)d(?P<names>[PpN]*)|(?P<kernel>E[Pp]*e)")
_MOST_PARTS: Final = 5
"""XNN_MAX_OPERATOR_OBJECTS of XNNPACK's src/xnnpack/subgraph.h."""
_MOST_SPLITS: Final = 10**7
"""Beside one another; a real program has thousands of operators at most."""
_COPY: Final = "Copy "
"""XNNPACK makes several operators of one graph node only for concatenation and splitting
(src/subgraph/{concatenate,even-split}.c), and those are copies."""


class LoadCalls(Record):
    """Calls with the same sizes while the program was loaded."""

    sizes: tuple[Count, ...]
    calls: Count


class Kernel(Record):
    """One microkernel: its calls at load and in each execution."""

    name: Name
    load_calls: Count
    execution_calls: tuple[Count, ...]
    load_by_sizes: tuple[LoadCalls, ...] = ()
    """Of `load_calls`; none in files of schema 1, or where a microkernel is given no sizes."""


class KernelCalls(Record):
    """Calls of a microkernel that belong to no operator of an execution."""

    name: Name
    calls: Count


class Execution(Record):
    """One inference; `aligned` when it ran the same operators as the last one."""

    phase: Name
    start_ns: Count
    duration_ns: Count
    aligned: bool
    kernels_outside_operators: tuple[KernelCalls, ...] = ()


class SizedCalls(Record):
    """Calls with the same sizes, such as m, n and k (backends/kernel_names.py names them)."""

    sizes: tuple[Count, ...]
    execution_calls: tuple[Count, ...]


class OperatorKernel(Record):
    """Calls of one microkernel by one operator, in each execution."""

    name: Name
    execution_calls: tuple[Count, ...]
    by_sizes: tuple[SizedCalls, ...] = ()
    """The same calls; none in files of schema 1, or where a microkernel is given no sizes."""


class TracedOperator(Record):
    """One operator in each execution; times in ns, starts from the start of the execution."""

    name: Name
    delegate: Count | None
    """Number of the delegate call it belongs to; None for ExecuTorch's own kernels."""
    start_ns: tuple[Count | None, ...]
    duration_ns: tuple[Count | None, ...]
    kernels: tuple[OperatorKernel, ...] = ()


class _Head(Record):
    counted_by: Literal["runner", "debugger"] = "runner"
    """What counted: wrappers that are linked with the runner, or a debugger's breakpoints."""
    method: Name
    threads: Threads | None = None
    sme: SmeState


class KernelTrace(_Head):
    """One traced run of one program in one SME mode."""

    schema_version: Literal[1, 2]
    """Files of schema 1 are of this very form; what they say of the clock's cost is left out."""
    kernels: tuple[Kernel, ...]
    executions: tuple[Execution, ...] = Field(min_length=1)
    all_operators_named: bool
    """Whether each piece of work was matched with a name; operators without one are not here."""
    operators: tuple[TracedOperator, ...]

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        """Makes sure that every series has one value per execution."""
        count = len(self.executions)
        series: list[tuple[str, tuple[int | None, ...]]]
        series = [(k.name, k.execution_calls) for k in self.kernels]
        for operator in self.operators:
            series += [(operator.name, operator.start_ns), (operator.name, operator.duration_ns)]
            for kernel in operator.kernels:
                series.append((kernel.name, kernel.execution_calls))
                series += [
                    (kernel.name, sized_calls.execution_calls) for sized_calls in kernel.by_sizes
                ]
        for name, values in series:
            if len(values) != count:
                msg = f"{name} has {len(values)} values for {count} executions"
                raise ValueError(msg)
        return self


class RawCalls(Record):
    """Each entry: marks before the calls, microkernel, number of calls, sizes they were given."""

    calls: tuple[Annotated[tuple[Count, ...], Field(min_length=3, max_length=7)], ...]


class RawExecution(RawCalls):
    """The marks of one inference: a letter each (see cpp/kernel_trace/operator_clock.h), a time."""

    phase: Name
    start_ns: Count
    marks: Annotated[str, Field(pattern=r"^(?:E[PpN]*(?:(?:D[BPp]*d|E[Pp]*e)[PpN]*)*e)?$")]
    times_ns: tuple[Count, ...]
    """From `start_ns`; of the names (N) the duration that XNNPACK reports, in whole µs."""
    labels: tuple[Count, ...]
    """Of each event (E) and name (N), in their order."""

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        """Makes sure that every mark has what belongs to it."""
        named = sum(map(self.marks.count, "EN"))
        if (len(self.times_ns), len(self.labels)) != (len(self.marks), named):
            msg = f"{len(self.times_ns)} times and {len(self.labels)} labels for {self.marks}"
            raise ValueError(msg)
        return self


class RawTrace(_Head):
    """What the runner writes."""

    schema_version: Literal[2]
    kernels: tuple[Name, ...]
    labels: tuple[Name, ...]
    load: RawCalls
    executions: Annotated[tuple[RawExecution, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def check_references(self) -> Self:
        """Makes sure that every microkernel and label is there."""
        labels = max(
            (max(execution.labels, default=-1) for execution in self.executions), default=-1
        )
        kernels = max(
            (c[1] for raw_calls in (self.load, *self.executions) for c in raw_calls.calls),
            default=-1,
        )
        if labels >= len(self.labels) or kernels >= len(self.kernels):
            msg = f"label {labels} of {len(self.labels)}, microkernel {kernels} of {len(self.kernels)}"
            raise ValueError(msg)
        return self


@dataclass(frozen=True)
class TraceWork:
    """A piece of work by its marks: one XNNPACK operator, a part of one, or a kernel outside."""

    begin: int
    start: int
    """When the first of it was handed to the thread pool."""
    end: int
    border: int
    """XNNPACK's own time stamp after it."""
    is_parallel: bool


@dataclass(frozen=True)
class TraceStep:
    """A delegate's call, or a kernel outside delegates, which is one work."""

    label: int | None
    """The kernel's; None for a delegate."""
    works: tuple[TraceWork, ...]
    names: tuple[tuple[int, int], ...] = ()
    """A delegate's operators: label and mark."""


@lru_cache(maxsize=64)
def read_steps(marks: str, labels: tuple[int, ...]) -> tuple[TraceStep, ...]:
    """Says how the marks of an inference make steps and works."""
    label_of = dict(zip((i for i, kind in enumerate(marks) if kind in "EN"), labels, strict=True))
    steps = []
    for match in _STEP.finditer(marks, 1):
        first, last = match.span("kernel")
        if first >= 0:
            work = TraceWork(first, first, last - 1, last - 1, is_parallel=True)
            steps.append(TraceStep(label_of[first], (work,)))
            continue
        first, last = match.span("delegate")
        borders = [i for i in range(first, last) if marks[i] == "B"]
        names = (i for i in range(*match.span("names")) if marks[i] == "N")
        works = tuple(_read_work(marks, *pair) for pair in pairwise(borders))
        steps.append(TraceStep(None, works, tuple((label_of[i], i) for i in names)))
    return tuple(steps)


def _read_work(marks: str, begin: int, border: int) -> TraceWork:
    start, end = marks.find("P", begin, border), marks.rfind("p", begin, border)
    if start < 0 or end < 0:
        return TraceWork(begin, border, border, border, is_parallel=False)
    return TraceWork(begin, start, end, border, is_parallel=True)


def match_works(
    durations_us: Numbers, reported_us: Numbers, may_have_parts: Sequence[bool]
) -> list[int]:
    """Joins the works of a delegate into the operators that XNNPACK names.

    Most have one work, but a concatenation has one for each input. Both arrays have a row for each
    inference. Returns the number of works of each operator: the split whose durations add up to the
    reported ones in every inference. Empty when there is none.

    Args:
        durations_us: Of each work in each inference, shape (inferences, works).
        reported_us: Of each operator, shape (inferences, operators).
        may_have_parts: Of each operator, whether it may be several works.
    """
    works, operators = durations_us.shape[1], reported_us.shape[1]
    if works == operators:
        return [1] * operators
    if works * operators > _MOST_SPLITS:
        return []
    sums = np.pad(np.cumsum(durations_us, axis=1), ((0, 0), (1, 0)))
    # How many works an operator takes when it ends before a work; 0 when it cannot.
    last_work_count = np.zeros((operators + 1, works + 1), np.int8)
    last_work_count[0, 0] = 1
    for number in range(operators):
        maximum_works = _MOST_PARTS if may_have_parts[number] else 1
        for count in range(1, min(maximum_works, works) + 1):
            sums_up = sums[:, count:] - sums[:, :-count] == reported_us[:, number, None]
            fits = sums_up.all(axis=0) & (last_work_count[number, :-count] > 0)
            last_work_count[number + 1, count:][fits] = count
    counts, end = list[int](), works
    for ends in last_work_count[:0:-1]:
        counts.insert(0, int(ends[end]))
        end -= counts[0]
        if counts[0] == 0:
            return []
    return counts


@dataclass(frozen=True)
class _OperatorLocation:
    """The position of an operator in every execution."""

    name: str
    delegate: int | None
    step: int
    works: slice


class _Assembly:
    """Follows each operator through the executions that have the same steps as the last one."""

    def __init__(self, raw: RawTrace) -> None:
        self._raw = raw
        self._steps = [
            read_steps(execution.marks, execution.labels) for execution in raw.executions
        ]
        signatures = [
            [(step.label, len(step.works), len(step.names)) for step in steps]
            for steps in self._steps
        ]
        self._aligned = [signature == signatures[-1] for signature in signatures]
        self._all_named = True
        self._locations = list(self._find_locations())

    def _find_locations(self) -> Iterator[_OperatorLocation]:
        delegates, labels = 0, self._raw.labels
        for number, step in enumerate(self._steps[-1]):
            if step.label is not None:
                yield _OperatorLocation(labels[step.label], None, number, slice(0, 1))
                continue
            names = [labels[label] for label, _ in step.names]
            first = 0
            for name, count in zip(names, self._match(number, names), strict=False):
                yield _OperatorLocation(name, delegates, number, slice(first, first + count))
                first += count
            self._all_named = self._all_named and first == len(step.works)
            delegates += 1

    def _match(self, number: int, names: Sequence[str]) -> list[int]:
        durations_us, reported_us = [], []
        for execution, steps, aligned in zip(
            self._raw.executions, self._steps, self._aligned, strict=True
        ):
            if aligned:
                ns, step = execution.times_ns, steps[number]
                durations_us.append([(ns[w.border] - ns[w.begin]) // 1000 for w in step.works])
                reported_us.append([ns[mark] / 1000 for _, mark in step.names])
        copies = [name.startswith(_COPY) for name in names]
        durations, reported = (
            np.array(rows_us, np.float64) for rows_us in (durations_us, reported_us)
        )
        return match_works(durations, reported, copies)

    def trace(self) -> KernelTrace:
        """Returns all of it, operator by operator."""
        raw, count = self._raw, len(self._raw.executions)
        operator_of = {
            (location.step, work): number
            for number, location in enumerate(self._locations)
            for work in range(location.works.start, location.works.stop)
        }
        total = defaultdict[int, list[int]](lambda: [0] * count)
        of_operators: list[_ByKernel] = [
            defaultdict(lambda: defaultdict(lambda: [0] * count)) for _ in self._locations
        ]
        outside = [Counter[int]() for _ in raw.executions]
        for index, (execution, steps) in enumerate(zip(raw.executions, self._steps, strict=True)):
            works = [(w, (s, i)) for s, step in enumerate(steps) for i, w in enumerate(step.works)]
            borders = [work.border for work, _ in works]
            for mark, kernel, calls, *sizes in execution.calls:
                total[kernel][index] += calls
                after = bisect_left(borders, mark)
                if after == len(works) or mark <= works[after][0].begin:
                    outside[index][kernel] += calls
                elif self._aligned[index] and works[after][1] in operator_of:
                    uses = of_operators[operator_of[works[after][1]]]
                    uses[kernel][tuple(sizes)][index] += calls
        return KernelTrace(
            schema_version=2,
            counted_by=raw.counted_by,
            method=raw.method,
            threads=raw.threads,
            sme=raw.sme,
            kernels=tuple(self._kernels(total)),
            executions=tuple(map(self._execution, range(count), outside)),
            all_operators_named=self._all_named,
            operators=tuple(map(self._operator, self._locations, of_operators)),
        )

    def _kernels(self, total: dict[int, list[int]]) -> Iterator[Kernel]:
        at_load = defaultdict[int, Counter[tuple[int, ...]]](Counter)
        for _, kernel, calls, *sizes in self._raw.load.calls:
            at_load[kernel][tuple(sizes)] += calls
        for kernel in sorted({*total, *at_load}):
            yield Kernel(
                name=self._raw.kernels[kernel],
                load_calls=at_load[kernel].total(),
                execution_calls=tuple(total[kernel]),
                load_by_sizes=tuple(
                    LoadCalls(sizes=sizes, calls=calls)
                    for sizes, calls in sorted(at_load[kernel].items())
                    if sizes
                ),
            )

    def _execution(self, number: int, outside: Counter[int]) -> Execution:
        execution, names = self._raw.executions[number], self._raw.kernels
        return Execution(
            phase=execution.phase,
            start_ns=execution.start_ns,
            duration_ns=execution.times_ns[-1] if execution.times_ns else 0,
            aligned=self._aligned[number],
            kernels_outside_operators=tuple(
                KernelCalls(name=names[kernel], calls=calls) for kernel, calls in outside.items()
            ),
        )

    def _operator(self, location: _OperatorLocation, uses: _ByKernel) -> TracedOperator:
        starts, durations = list[int | None](), list[int | None]()
        for execution, steps, aligned in zip(
            self._raw.executions, self._steps, self._aligned, strict=True
        ):
            works = steps[location.step].works[location.works] if aligned else ()
            first = next((work for work in works if work.is_parallel), works[-1] if works else None)
            start_ns = execution.times_ns[first.start] if first else None
            starts.append(start_ns)
            durations.append(
                None if start_ns is None else execution.times_ns[works[-1].end] - start_ns
            )
        return TracedOperator(
            name=location.name, delegate=location.delegate,
            start_ns=tuple(starts), duration_ns=tuple(durations),
            kernels=tuple(self._use(kernel, uses[kernel]) for kernel in sorted(uses)),
        )  # fmt: skip

    def _use(self, kernel: int, by_sizes: dict[tuple[int, ...], list[int]]) -> OperatorKernel:
        return OperatorKernel(
            name=self._raw.kernels[kernel],
            execution_calls=tuple(map(sum, zip(*by_sizes.values(), strict=True))),
            by_sizes=tuple(
                SizedCalls(sizes=sizes, execution_calls=tuple(calls))
                for sizes, calls in sorted(by_sizes.items())
                if sizes
            ),
        )


def read_kernel_trace(path: Path) -> KernelTrace:
    """Reads the file; raises InputFileError that names the file and the field."""
    document = read_json(path, way_out=_COUNT_AGAIN)
    if isinstance(document, dict) and document.get("schema_version") == 2:
        raw = check_record(RawTrace, document, path, way_out=_COUNT_AGAIN)
        try:
            return _Assembly(raw).trace()
        except ValidationError as error:
            msg = f"{path} is damaged: {first_problem(error)}; {_COUNT_AGAIN}"
            raise InputFileError(msg) from None
    return check_record(KernelTrace, document, path, way_out=_COUNT_AGAIN)


BEFORE: Final = "before the first operator"
"""What a delegate call does to set its operators up."""


class OperatorInstructions(Record):
    """One operator of a delegate, in one inference."""

    name: Name
    place: Count
    """Among all operators of an inference, those outside delegates too, from 1."""
    functions: Named[Count]
    """Instructions of each function of the library that ran for it."""

    @property
    def total(self) -> int:
        """Instructions of all of them."""
        return sum(self.functions.values())


class InstructionCounts(Record):
    """What one inference took, in order of execution."""

    schema_version: Literal[1] = 1
    sme: SmeState
    library: Name
    """The file whose instructions were counted; those of no other were."""
    library_sha256: Name
    executions: Count
    """Inferences that were compared with each other."""
    is_steady: bool
    """Whether every operator took the same in each of them."""
    operators: tuple[OperatorInstructions, ...]
    setup: Named[Count]
    """What all delegate calls took before their first operator, by function."""

    @property
    def total(self) -> int:
        """Instructions of all operators, and of what comes before them."""
        return sum(operator.total for operator in self.operators) + sum(self.setup.values())


def read_instructions(path: Path) -> InstructionCounts:
    """Reads and checks the file; raises InputFileError."""
    return read_record(InstructionCounts, path, way_out="count the instructions again")


def write_instructions(counts: InstructionCounts, path: Path) -> None:
    """Writes the file at once."""
    write_json(path, counts.model_dump(mode="json"))
