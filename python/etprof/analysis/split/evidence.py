"""Which microkernels each operator ran, how sure that is, and how the SME modes differ."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from etprof.backends.backend import OperatorFacts
from etprof.backends.kernel_names import LEVELS, is_product, parse_kernel_name
from etprof.backends.registry import PORTABLE, backend_of_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.analysis.split.operators import OperatorRow
    from etprof.backends.backend import Backend, OperatorName, Reason, SmeRoute
    from etprof.run.kernel_trace import InstructionCounts, KernelTrace, TracedOperator

Grade = Literal["A", "B"]
GRADES: Final[dict[Grade, str]] = {
    "A": "calls of the microkernel were counted in this run",
    "B": "the operator's type stands for SME in the mode in force",
}
"""Every grade, the surest first, and what it rests on."""


@dataclass(frozen=True)
class KernelUse:
    """Calls of one microkernel: by one operator in one inference, or while a program is loaded."""

    name: str
    level: str | None
    is_packing: bool
    calls: int
    by_sizes: tuple[tuple[tuple[int, ...], int], ...] = ()
    """The sizes that it was given, and in how many of the calls."""

    @property
    def macs(self) -> int | None:
        """Multiply-adds that its calls were given, padding included; None where not known."""
        if not self.by_sizes or not is_product(self.name):
            return None
        return sum(calls * prod(sizes) for sizes, calls in self.by_sizes)


@dataclass(frozen=True)
class OperatorEvidence:
    """One operator in one SME mode."""

    name: str
    parsed_name: OperatorName
    backend: Backend
    kernels: tuple[KernelUse, ...]
    is_counted: bool
    """Whether its microkernels were counted; else none is known."""
    route: SmeRoute
    """Whether it ran on SME."""
    location: str | None = None
    """The model's module and line, where that was looked up."""

    @property
    def unnumbered(self) -> str:
        """Its name without the number that tells it from its like."""
        return re.sub(r" #\d+$", "", self.name)

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.backend is not PORTABLE

    @property
    def grade(self) -> Grade | None:
        """How sure it is; None when nothing is known."""
        if self.is_counted:
            return "A"
        return "B" if self.route.answer == "named" else None

    @property
    def compute_kernels(self) -> tuple[KernelUse, ...]:
        """The microkernels that compute the result; the others only rearrange data for them."""
        return tuple(kernel for kernel in self.kernels if not kernel.is_packing)

    @property
    def level(self) -> str | None:
        """Level of the best microkernel that computes; None when none is KleidiAI's."""
        levels = {kernel.level for kernel in self.compute_kernels}
        return next((level for level in LEVELS if level in levels), None)

    @property
    def could_use_sme2(self) -> bool:
        """Whether it is a convolution or matrix product, where SME2 can matter."""
        return self.parsed_name.is_product

    @property
    def why_not_sme2(self) -> Reason | None:
        """Why no SME microkernel ran; None when one did, none could, or nobody knows."""
        return self.route.reason if self.could_use_sme2 else None


@dataclass(frozen=True)
class ModeEvidence:
    """All operators of a program in one SME mode, in order of execution."""

    mode_in_force: str
    operators: tuple[OperatorEvidence, ...]
    kernel_calls: Mapping[str, int]
    """Calls of each microkernel in one inference, inside and outside operators."""
    load: tuple[KernelUse, ...]
    """Calls while the program was loaded: weights that are packed once."""
    steady: bool
    """Whether every execution after the first made the same calls."""
    calls_outside: int = 0
    """Calls in one inference that belong to no operator."""
    is_complete: bool = True
    """Whether all work has a name; operators whose work could not be told apart are left out."""
    counted_by: str = "runner"
    """`runner`: wrappers linked with it; `debugger`: breakpoints."""
    svl_bits: int | None = None
    """Streaming vector length, on which the number of calls depends; None where nobody says."""

    def count_level(self, level: str) -> int:
        """Calls of computing microkernels of `level` in one inference."""
        return sum(
            kernel.calls
            for operator in self.operators
            for kernel in operator.compute_kernels
            if kernel.level == level
        )


@dataclass(frozen=True)
class OperatorModes:
    """The same operator in every mode; None where a mode does not have it."""

    by_mode: Mapping[str, OperatorEvidence | None]

    def best(self) -> OperatorEvidence:
        """The operator in the fastest mode that has it."""
        return next(operator for operator in self.by_mode.values() if operator is not None)


def read_evidence(trace: KernelTrace) -> ModeEvidence:
    """Takes the last inference of a kernel trace apart; every grade is A."""
    last = len(trace.executions) - 1
    by_execution = [
        {k.name: k.execution_calls[i] for k in trace.kernels if k.execution_calls[i]}
        for i in range(len(trace.executions))
    ]
    delegate = backend_of_labels({o.name for o in trace.operators if o.delegate is not None})
    return ModeEvidence(
        mode_in_force=trace.sme.in_force,
        operators=tuple(
            describe_operator(
                operator.name,
                PORTABLE if operator.delegate is None else delegate,
                trace.sme.in_force,
                _kernel_uses(operator, last),
            )
            for operator in trace.operators
        ),
        kernel_calls=by_execution[last],
        load=tuple(_load_uses(trace)),
        steady=all(calls == by_execution[last] for calls in by_execution[1:]),
        calls_outside=sum(k.calls for k in trace.executions[last].kernels_outside_operators),
        is_complete=trace.all_operators_named,
        counted_by=trace.counted_by,
        svl_bits=trace.sme.svl_bits,
    )


def _kernel_uses(operator: TracedOperator, execution: int) -> tuple[KernelUse, ...]:
    return tuple(
        _use(
            kernel.name,
            kernel.execution_calls[execution],
            [(by_size.sizes, by_size.execution_calls[execution]) for by_size in kernel.by_sizes],
        )
        for kernel in operator.kernels
        if kernel.execution_calls[execution]
    )


def _load_uses(trace: KernelTrace) -> Iterator[KernelUse]:
    for kernel in trace.kernels:
        if kernel.load_calls:
            sized = [
                (load_by_size.sizes, load_by_size.calls) for load_by_size in kernel.load_by_sizes
            ]
            yield _use(kernel.name, kernel.load_calls, sized)


def _use(name: str, calls: int, sized: Sequence[tuple[tuple[int, ...], int]]) -> KernelUse:
    parsed = parse_kernel_name(name)
    by_sizes = tuple((sizes, count) for sizes, count in sized if count)
    return KernelUse(name, parsed.level, parsed.is_packing, calls, by_sizes)


def describe_operator(
    name: str, backend: Backend, mode: str | None, kernels: tuple[KernelUse, ...] | None = None
) -> OperatorEvidence:
    """Returns what counted calls, or else an ETDump's label alone, prove in an SME mode."""
    parsed_name = backend.read_label(name)
    counted = None
    if kernels is not None:
        counted = frozenset(kernel.level for kernel in kernels if not kernel.is_packing)
    route = backend.sme_route(OperatorFacts(parsed_name, mode, counted))
    return OperatorEvidence(name, parsed_name, backend, kernels or (), counted is not None, route)


def join_evidence(
    rows: Sequence[OperatorRow], traced: ModeEvidence | None, mode: str | None
) -> tuple[OperatorEvidence, ...]:
    """Gives each row the counted evidence of its own operator, else what its name proves.

    Both files list operators in the order of their execution, and both number names per delegate
    call, so the n-th row of a name is the n-th traced operator of that name.
    """
    counted: dict[tuple[str, bool], list[OperatorEvidence]] = {}
    for operator in traced.operators if traced else ():
        counted.setdefault((operator.name, operator.is_delegated), []).append(operator)
    evidence = []
    for row in rows:
        traced_operators = counted.get((row.label, row.is_delegated))
        named = describe_operator(row.label, row.backend, mode)
        evidence.append(traced_operators.pop(0) if traced_operators else named)
    return tuple(evidence)


def locate_operators(traced: ModeEvidence, rows: Sequence[OperatorRow]) -> ModeEvidence:
    """Gives each operator the location of its row; the n-th of a name is the n-th row of it."""
    names = [(operator.name, operator.is_delegated) for operator in traced.operators]
    operators = zip(traced.operators, find_locations(names, rows), strict=True)
    return replace(
        traced,
        operators=tuple(replace(operator, location=location) for operator, location in operators),
    )


def find_locations(
    names: Iterable[tuple[str, bool]], rows: Sequence[OperatorRow]
) -> tuple[str | None, ...]:
    """Returns the layer of each operator, given its name and whether a delegate ran it.

    The n-th of a name is the n-th row of that name; None where there is none, or it has no layer.
    """
    locations: dict[tuple[str, bool], list[str | None]] = {}
    for row in rows:
        locations.setdefault((row.label, row.is_delegated), []).append(row.location)
    return tuple(locations[name].pop(0) if locations.get(name) else None for name in names)


class InstructionEvidence(NamedTuple):
    """Counted instructions, and the layers of the operators that they ran for."""

    counts: InstructionCounts
    locations: tuple[str | None, ...]
    """Of `counts.operators`, one by one; None where the layer is not known."""


def align_modes(evidence: Mapping[str, ModeEvidence]) -> tuple[OperatorModes, ...]:
    """Pairs the operators of all modes by order and kind; types may differ, `Convert`s may lack.

    The modes come and stay in the order of `evidence`, the fastest first.
    """
    modes = list(evidence)
    if not modes:
        return ()
    rows = [{modes[0]: operator} for operator in evidence[modes[0]].operators]
    for mode in modes[1:]:
        _merge(rows, mode, evidence[mode].operators)
    return tuple(OperatorModes({mode: row.get(mode) for mode in modes}) for row in rows)


@dataclass(frozen=True)
class PhaseProducts:
    """Convolutions and matrix products of a language model that run alike in one SME mode."""

    mode: str
    count: int
    prefill: OperatorEvidence | None
    """One of them while a prompt is read; None where only a step has it."""
    decode: OperatorEvidence | None
    """The same while one token is added."""


def pair_phases(
    prefill: Mapping[str, ModeEvidence], decode: Mapping[str, ModeEvidence]
) -> Iterator[PhaseProducts]:
    """Yields what ran in reading a prompt beside what ran in a step, modes counted in both."""
    for mode in decode:
        if mode not in prefill:
            continue
        alike: dict[object, list[OperatorModes]] = {}
        for row in align_modes({"prefill": prefill[mode], "decode": decode[mode]}):
            if row.best().could_use_sme2:
                kernels = [_kernel_names(row.by_mode[phase]) for phase in ("prefill", "decode")]
                alike.setdefault((row.best().unnumbered, *kernels), []).append(row)
        for rows in alike.values():
            first = rows[0].by_mode
            yield PhaseProducts(mode, len(rows), first["prefill"], first["decode"])


def _kernel_names(operator: OperatorEvidence | None) -> tuple[str, ...] | None:
    return tuple(kernel.name for kernel in operator.compute_kernels) if operator else None


def _merge(
    rows: list[dict[str, OperatorEvidence]], mode: str, operators: Sequence[OperatorEvidence]
) -> None:
    """Puts the operators of one more mode beside their like; the rest get rows of their own."""
    row_kinds = [_kind(next(iter(row.values()))) for row in rows]
    matcher = SequenceMatcher(None, row_kinds, [_kind(o) for o in operators], autojunk=False)
    merged: list[dict[str, OperatorEvidence]] = []
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(rows[first:last], operators[begin:end], strict=True)
            merged += [{**row, mode: operator} for row, operator in pairs]
        else:
            merged += rows[first:last] + [{mode: operator} for operator in operators[begin:end]]
    rows[:] = merged


def _kind(operator: OperatorEvidence) -> tuple[str, bool]:
    return operator.parsed_name.base, operator.is_delegated
