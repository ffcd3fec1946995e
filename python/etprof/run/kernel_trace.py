"""Reads what the runner's kernel trace wrote, checked field by field: it may come from a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from etprof.base.records import Count, Name, Record, read_record
from etprof.run.runner_result import SmeState, Threads


class Clock(Record):
    """How often the operator clock was read in all executions, and what each time cost."""

    mark_cost_ns: Annotated[float, Field(ge=0)]
    marks: Count


class Kernel(Record):
    """One microkernel: its level, and its calls at load and in each execution."""

    name: Name
    level: Name | None = None
    load_calls: Count
    execution_calls: tuple[Count, ...]


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


class OperatorKernel(Record):
    """Calls of one microkernel by one operator, in each execution."""

    name: Name
    execution_calls: tuple[Count, ...]


class TracedOperator(Record):
    """One operator in each execution; times in ns, starts from the start of the execution."""

    name: Name
    delegate: Count | None
    """Number of the delegate call it belongs to; None for ExecuTorch's own kernels."""
    start_ns: tuple[Count | None, ...]
    duration_ns: tuple[Count | None, ...]
    kernels: tuple[OperatorKernel, ...] = ()


class KernelTrace(Record):
    """One traced run of one program in one SME mode."""

    schema_version: Literal[1]
    method: Name
    threads: Threads | None = None
    sme: SmeState
    clock: Clock
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
            series += [(operator.name, k.execution_calls) for k in operator.kernels]
        for name, values in series:
            if len(values) != count:
                msg = f"{name} has {len(values)} values for {count} executions"
                raise ValueError(msg)
        return self

    def kernel_level(self, name: str) -> str | None:
        """Returns the level of a microkernel: sme2, sme, i8mm, dotprod or neon."""
        return next((kernel.level for kernel in self.kernels if kernel.name == name), None)

    @property
    def clock_share(self) -> float:
        """How much of the executions went into reading the operator clock."""
        total_ns = sum(each.duration_ns for each in self.executions)
        return self.clock.marks * self.clock.mark_cost_ns / total_ns if total_ns else 0.0


def read_kernel_trace(path: Path) -> KernelTrace:
    """Reads the file; raises InputFileError that names the file and the field."""
    return read_record(KernelTrace, path, way_out="count the kernels again")
