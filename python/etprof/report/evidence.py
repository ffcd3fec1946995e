"""The kernel evidence as terminal tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from etprof.analysis.split.evidence import count_reasons
from etprof.base.plain_table import PlainTable
from etprof.base.units import MISSING, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from etprof.analysis.split.evidence import AlignedOperator, ModeEvidence, OperatorEvidence
    from etprof.analysis.split.kernels import KernelEvidence, OutputParity

_SHOWN_NAMES = 4
GRADES = "Grades: A executed (calls counted), B named (type in the ETDump), C selected (log)"


def render_evidence(evidence: KernelEvidence) -> RenderableType:
    """Returns all tables: operators, calls by mode, operators without SME2, outputs."""
    fastest = next(iter(evidence.modes))
    parts: list[RenderableType] = [
        _operator_table(evidence, fastest),
        Text(f"{GRADES}. Calls per inference; packing kernels are in the JSON.", style="dim"),
        _mode_table(evidence),
    ]
    if fastest == "sme2":
        parts.append(_reasons(evidence.modes[fastest]))
    if evidence.parities:
        parts.append(_parity_table(evidence))
    return Group(*parts)


def _table(title: str, *columns: str) -> PlainTable:
    table = PlainTable(title=title, title_justify="left", title_style="", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _operator_table(evidence: KernelEvidence, fastest: str) -> PlainTable:
    """Convolutions and matrix products one by one; the rest as one row."""
    chosen = [row for row in evidence.operators if _is_interesting(row)]
    table = _table(
        "Microkernels by operator, with its data types in two modes",
        *("operator", fastest, "off", "microkernel", "", "calls"),
    )
    table.columns[-1].justify = "right"
    for row in chosen:
        best, off = row.by_mode.get(fastest), row.by_mode.get("off")
        kernels = best.compute_kernels if best else ()
        table.add_row(
            _label(row.best()),
            _types(best),
            _types(off),
            Text("\n".join(_short(k.name) for k in kernels) or "no KleidiAI microkernel"),
            (best.grade if best else None) or MISSING,
            "\n".join(format_count(k.calls) for k in kernels) or "0",
        )
    if others := len(evidence.operators) - len(chosen):
        table.add_section()
        table.add_row(f"{others} others", "", "", "no convolution or matrix product", "", "")
    return table


def _label(operator: OperatorEvidence) -> Text:
    """The operator without its types, which have columns of their own."""
    return Text(re.sub(r" \([^()]*\)", "", operator.name))


def _types(operator: OperatorEvidence | None) -> Text:
    return Text(", ".join(operator.parts.data_types if operator else ()) or MISSING)


def _is_interesting(row: AlignedOperator) -> bool:
    found = row.best()
    return found.could_use_sme2 or bool(found.kernels)


def _short(name: str) -> str:
    return name.removeprefix("kai_run_")


def _mode_table(evidence: KernelEvidence) -> PlainTable:
    """How often microkernels of each level computed something, by mode."""
    table = _table("Calls of computing microkernels per inference", "mode", "sme2", "sme", "i8mm")
    for name in ("dotprod", "neon"):
        table.add_column(name)
    table.add_column("same in every inference")
    for column in table.columns[1:6]:
        column.justify = "right"
    for mode, found in evidence.modes.items():
        counts = [
            format_count(found.count_level(level))
            for level in ("sme2", "sme", "i8mm", "dotprod", "neon")
        ]
        table.add_row(mode, *counts, "yes" if found.steady else "no")
    return table


def _reasons(mode: ModeEvidence) -> Text:
    """Convolutions and matrix products that did not take SME2, by reason."""
    reasons = count_reasons(mode)
    if not reasons:
        return Text("Every convolution and matrix product took an SME2 microkernel.")
    text = Text("Convolutions and matrix products without SME2\n")
    for reason, operators in reasons:
        text.append(f"  {reason.code}: {_names(operators)}\n", style="bold")
        text.append(f"    {reason.text}\n")
        text.append(f"    known from: {reason.source}\n", style="dim")
    return text


def _names(operators: list[OperatorEvidence]) -> str:
    shown = [operator.name for operator in operators[:_SHOWN_NAMES]]
    if len(operators) > _SHOWN_NAMES:
        shown.append(f"and {len(operators) - _SHOWN_NAMES} more")
    return "; ".join(shown)


def _parity_table(evidence: KernelEvidence) -> PlainTable:
    """How far the outputs of the modes are from each other and from eager."""
    table = _table(
        f"Outputs ({evidence.arithmetic})",
        *("output", "mode", "against", "max abs", "max rel", "SNR", "top-1", "tolerance", ""),
    )
    for found in evidence.parities:
        table.add_row(*_parity_cells(found))
    return table


def _parity_cells(found: OutputParity) -> list[str | Text]:
    parity = found.parity
    snr = "no error" if parity.snr_db is None else f"{parity.snr_db:.1f} dB"
    top1 = MISSING if parity.top1 is None else f"{parity.top1 * 100:.1f} %"
    verdict = Text("ok", "green") if found.is_within else Text("differs", "red")
    return [
        str(parity.index),
        found.mode,
        found.against,
        f"{parity.max_abs:.3g}",
        f"{parity.max_rel:.3g}",
        snr,
        top1,
        f"≥ {found.minimum_snr_db:g} dB",
        verdict,
    ]
