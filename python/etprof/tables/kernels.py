"""What a program ran and computed in each SME mode, counted under a kernel trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.analysis.split.evidence import GRADES, count_reasons
from etprof.backends.kernel_names import LEVELS
from etprof.base.units import format_count
from etprof.tables.comparisons import OUTPUTS
from etprof.tables.table import Column, Section, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from etprof.analysis.split.evidence import AlignedOperator, ModeEvidence, OperatorEvidence
    from etprof.analysis.split.kernels import KernelEvidence

_SHOWN_NAMES: Final = 4


class _Row(NamedTuple):
    """One row: an operator in its fastest mode and with SME off."""

    name: str
    best: OperatorEvidence | None
    off: OperatorEvidence | None
    kernels: str
    calls: str


def _count(level: str) -> Callable[[Any], int]:
    """Reads how often microkernels of a level computed something in a mode."""

    def read(subject: tuple[str, ModeEvidence]) -> int:
        return subject[1].count_level(level)

    return read


KERNELS: Final = Table(
    "kernels",
    (
        # Without the types, which have columns of their own.
        Column("operator", "string", of=lambda r: re.sub(r" \([^()]*\)", "", r.name),
               says="name without its data types"),
        Column("types", "string", of=lambda r: _types(r.best), says="in the fastest mode"),
        Column("types_off", "string", title="off", of=lambda r: _types(r.off),
               says="with SME off"),
        Column("kernels", "string", title="microkernel", of=lambda r: r.kernels,
               says="those that compute, by line"),
        Column("grade", "string", title="", of=lambda r: r.best.grade if r.best else None,
               says=" or ".join(GRADES)),
        Column("calls", "string", of=lambda r: r.calls, says="per inference, by line"),
    ),
    title="Microkernels by operator, with its data types in two modes",
    says="one row per convolution or matrix product",
)  # fmt: skip
MODES: Final = Table(
    "kernel_calls",
    (
        Column("mode", "string", of=lambda s: s[0], says="SME mode"),
        *(Column(level, "Int64", "count", of=_count(level),
                 says=f"calls of {level} microkernels") for level in LEVELS),
        Column("outside", "Int64", "count", title="outside operators",
               of=lambda s: s[1].calls_outside, says="calls that belong to no operator"),
        Column("complete", "boolean", title="all operators named", of=lambda s: s[1].is_complete,
               says="whether every piece of work could be told to be an operator's"),
        Column("steady", "boolean", title="same in every inference", of=lambda s: s[1].steady,
               says="whether every inference made the same calls"),
    ),
    title="Calls of computing microkernels per inference",
    says="one row per SME mode",
)  # fmt: skip


def evidence_sections(evidence: KernelEvidence) -> list[Section]:
    """Returns operators, calls by mode, operators without SME2 and outputs."""
    fastest = next(iter(evidence.modes))
    chosen = [row for row in evidence.operators if _is_interesting(row)]
    rows = [_row(row.best(), row.by_mode.get(fastest), row.by_mode.get("off")) for row in chosen]
    if others := len(evidence.operators) - len(chosen):
        nothing = "no convolution or matrix product"
        rows.append(_Row(f"{others} others", None, None, nothing, ""))
    tables = [KERNELS.of(rows).titled(types=fastest), MODES.of(evidence.modes.items())]
    grades = ", ".join(f"{grade} {says}" for grade, says in GRADES.items())
    note = f"Grades: {grades}. Calls per inference; packing kernels are in the JSON."
    sections = [Section("kernels", "", tuple(tables), lines=(note,))]
    if fastest == "sme2":
        sections.append(_reasons(evidence.modes[fastest]))
    if evidence.parities:
        table = OUTPUTS.of(evidence.parities, title=f"Outputs ({evidence.arithmetic})")
        sections.append(Section("outputs", "", (table,)))
    return sections


def _row(named: OperatorEvidence, best: OperatorEvidence | None, off: Any) -> _Row:  # noqa: ANN401
    kernels = best.compute_kernels if best else ()
    names = "\n".join(k.name.removeprefix("kai_run_") for k in kernels)
    calls = "\n".join(format_count(k.calls) for k in kernels)
    return _Row(named.name, best, off, names or "no KleidiAI microkernel", calls or "0")


def _types(operator: OperatorEvidence | None) -> str | None:
    return (", ".join(operator.parts.data_types) or None) if operator else None


def _is_interesting(row: AlignedOperator) -> bool:
    found = row.best()
    return found.could_use_sme2 or bool(found.kernels)


def _reasons(mode: ModeEvidence) -> Section:
    """Convolutions and matrix products that did not take SME2, by reason."""
    lines = [
        line
        for reason, operators in count_reasons(mode)
        for line in (
            f"{reason.code}: {_names(operators)}",
            f"  {reason.text}",
            f"  known from: {reason.source}",
        )
    ]
    if not lines:
        every = "Every convolution and matrix product took an SME2 microkernel."
        return Section("why-not", "", lines=(every,))
    return Section("why-not", "", lines=("Convolutions and matrix products without SME2", *lines))


def _names(operators: list[OperatorEvidence]) -> str:
    shown = [operator.name for operator in operators[:_SHOWN_NAMES]]
    if len(operators) > _SHOWN_NAMES:
        shown.append(f"and {len(operators) - _SHOWN_NAMES} more")
    return "; ".join(shown)
