"""Which microkernels each operator ran, how sure that is, and how the SME modes differ.

Grades: A executed, the calls were counted in this run; B named, the operator's type in the ETDump
is a packed one and the mode in force has SME; C selected, from XNNPACK's log.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, Literal

from etprof.backends.categories import parse_delegated_name, parse_kernel_name
from etprof.backends.xnnpack.kernel_names import parse_kernel_name as parse_microkernel_name
from etprof.backends.xnnpack.no_sme2 import OperatorFacts, Reason, why_not_sme2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.run.kernel_trace import KernelTrace, TracedOperator

Grade = Literal["A", "B", "C"]
MODES: Final = ("sme2", "sme1", "auto", "off")
_PACKED_TYPES: Final = frozenset({"PF32", "PF16", "PQS8"})
_SME_CAPABLE: Final = frozenset({"GEMM", "IGEMM"})
_LEVELS: Final = ("sme2", "sme", "i8mm", "dotprod", "neon")
_SELECTED: Final = re.compile(r"Using (?P<kind>[\w ]+?) microkernel '(?P<name>\w+)'")


@dataclass(frozen=True)
class KernelUse:
    """Calls of one microkernel by one operator in one inference."""

    name: str
    level: str | None
    is_packing: bool
    calls: int


@dataclass(frozen=True)
class OperatorEvidence:
    """One operator in one SME mode."""

    name: str
    base: str
    category: str
    data_types: tuple[str, ...]
    microkernel_type: str | None
    is_delegated: bool
    kernels: tuple[KernelUse, ...]
    grade: Grade | None

    @property
    def type_text(self) -> str:
        """The name without its running number: what the evidence of grade B reads."""
        return re.sub(r" #\d+$", "", self.name)

    @property
    def compute_kernels(self) -> tuple[KernelUse, ...]:
        """The microkernels that compute the result; the others only rearrange data for them."""
        return tuple(kernel for kernel in self.kernels if not kernel.is_packing)

    @property
    def level(self) -> str | None:
        """Level of the best microkernel that computes; None when none is KleidiAI's."""
        found = {kernel.level for kernel in self.compute_kernels}
        return next((level for level in _LEVELS if level in found), None)

    @property
    def could_use_sme2(self) -> bool:
        """Whether it is a convolution or matrix product, where SME2 can matter."""
        return self.category in {"Convolution", "GEMM"}

    def why_not_sme2(self, mode_in_force: str) -> Reason | None:
        """Returns why no SME2 microkernel ran; None when one did or none could."""
        if not self.could_use_sme2 or self.level == "sme2":
            return None
        facts = OperatorFacts(
            base=self.base,
            data_types=self.data_types,
            microkernel_type=self.microkernel_type,
            is_delegated=self.is_delegated,
            mode_in_force=mode_in_force,
            level=self.level,
        )
        return why_not_sme2(facts)


@dataclass(frozen=True)
class ModeEvidence:
    """All operators of a program in one SME mode, in order of execution."""

    mode_in_force: str
    operators: tuple[OperatorEvidence, ...]
    kernel_calls: Mapping[str, int]
    """Calls of each microkernel in one inference, inside and outside operators."""
    load_calls: Mapping[str, int]
    """Calls while the program was loaded: weights that are packed once."""
    steady: bool
    """Whether every execution after the first made the same calls."""

    def count_level(self, level: str) -> int:
        """Calls of computing microkernels of `level` in one inference."""
        return sum(
            kernel.calls
            for operator in self.operators
            for kernel in operator.compute_kernels
            if kernel.level == level
        )


@dataclass(frozen=True)
class AlignedOperator:
    """The same operator in every mode; None where a mode does not have it."""

    by_mode: Mapping[str, OperatorEvidence | None]

    def best(self) -> OperatorEvidence:
        """The operator in the fastest mode that has it."""
        return next(found for mode in MODES if (found := self.by_mode.get(mode)) is not None)


def read_evidence(trace: KernelTrace) -> ModeEvidence:
    """Takes the last inference of a kernel trace apart; every grade is A."""
    last = trace.last_execution()
    by_execution = [
        {k.name: k.execution_calls[i] for k in trace.kernels if k.execution_calls[i]}
        for i in range(len(trace.executions))
    ]
    return ModeEvidence(
        mode_in_force=trace.sme.in_force,
        operators=tuple(_operator(trace, operator, last) for operator in trace.operators),
        kernel_calls=by_execution[last],
        load_calls={k.name: k.load_calls for k in trace.kernels if k.load_calls},
        steady=all(calls == by_execution[last] for calls in by_execution[1:]),
    )


def _operator(trace: KernelTrace, operator: TracedOperator, execution: int) -> OperatorEvidence:
    uses = tuple(
        KernelUse(
            name=kernel.name,
            level=trace.kernel_level(kernel.name),
            is_packing=parse_microkernel_name(kernel.name).is_packing,
            calls=kernel.execution_calls[execution],
        )
        for kernel in operator.kernels
        if kernel.execution_calls[execution]
    )
    return _describe(operator.name, operator.delegate is not None, uses, "A")


def _describe(
    name: str, is_delegated: bool, kernels: tuple[KernelUse, ...], grade: Grade | None
) -> OperatorEvidence:
    parsed = parse_delegated_name(name) if is_delegated else parse_kernel_name(name)
    return OperatorEvidence(
        name=name,
        base=parsed.base,
        category=parsed.operator_class.category,
        data_types=parsed.data_types,
        microkernel_type=parsed.microkernel_type,
        is_delegated=is_delegated,
        kernels=kernels,
        grade=grade,
    )


def name_evidence(name: str, *, is_delegated: bool, mode_in_force: str) -> OperatorEvidence:
    """Returns what an ETDump's label alone proves: grade B for a packed GEMM or IGEMM.

    A packed type on a depthwise convolution proves nothing, and `QP8` proves KleidiAI, not SME.
    """
    evidence = _describe(name, is_delegated, (), None)
    packed = bool(_PACKED_TYPES & set(evidence.data_types))
    capable = evidence.microkernel_type in _SME_CAPABLE
    grade: Grade | None = "B" if packed and capable and mode_in_force != "off" else None
    return _describe(name, is_delegated, (), grade)


def read_selected_kernels(log: str) -> tuple[tuple[str, str], ...]:
    """Returns (kind, microkernel) of XNNPACK's log lines: grade C, selected but not executed."""
    found = {(match["kind"], match["name"]): None for match in _SELECTED.finditer(log)}
    return tuple(found)


def align_modes(evidence: Mapping[str, ModeEvidence]) -> tuple[AlignedOperator, ...]:
    """Pairs the operators of all modes by order and kind; types may differ, `Convert`s may lack."""
    modes = [mode for mode in MODES if mode in evidence]
    rows = [{modes[0]: operator} for operator in evidence[modes[0]].operators]
    for mode in modes[1:]:
        _merge(rows, mode, evidence[mode].operators)
    return tuple(AlignedOperator({mode: row.get(mode) for mode in modes}) for row in rows)


def _merge(
    rows: list[dict[str, OperatorEvidence]], mode: str, operators: Sequence[OperatorEvidence]
) -> None:
    """Puts the operators of one more mode beside their like; the rest get rows of their own."""
    known = [_kind(next(iter(row.values()))) for row in rows]
    matcher = SequenceMatcher(None, known, [_kind(o) for o in operators], autojunk=False)
    merged: list[dict[str, OperatorEvidence]] = []
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(rows[first:last], operators[begin:end], strict=True)
            merged += [{**row, mode: operator} for row, operator in pairs]
        else:
            merged += rows[first:last] + [{mode: operator} for operator in operators[begin:end]]
    rows[:] = merged


def _kind(operator: OperatorEvidence) -> tuple[str, bool]:
    return operator.base, operator.is_delegated


def count_reasons(evidence: ModeEvidence) -> list[tuple[Reason, list[OperatorEvidence]]]:
    """Groups the operators without SME2 by reason, the commonest first."""
    found: dict[Reason, list[OperatorEvidence]] = {}
    for operator in evidence.operators:
        reason = operator.why_not_sme2(evidence.mode_in_force)
        if reason is not None:
            found.setdefault(reason, []).append(operator)
    order = Counter({reason: len(operators) for reason, operators in found.items()})
    return [(reason, found[reason]) for reason, _ in order.most_common()]
