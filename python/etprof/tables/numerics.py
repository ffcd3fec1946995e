"""The tables of `etprof numerics`: how far each operator is from eager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.base.records import sme_label
from etprof.base.units import format_number
from etprof.tables.brief import AnswerLine, Brief
from etprof.tables.table import Column, Section, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from etprof.analysis.numeric_gap import Gap, NumericGaps, OperatorGap
    from etprof.tables.table import Value, Visibility

SAME: Final = "identical"


def _gap(
    name: str,
    title: str,
    of: Callable[[Any], Gap | None],
    *,
    says: str,
    visibility: Visibility = "everywhere",
) -> Column:
    """A signal-to-noise ratio; missing where there is no error, or nothing to compare with."""

    def value(row: OperatorGap) -> Value:
        gap = of(row)
        return None if gap is None else gap.snr_db

    return Column(
        name, "float64", unit="dB", title=title, of=value, says=says, visibility=visibility
    )


OPERATORS: Final = Table(
    "numerics",
    (
        Column("order", "Int64", unit="count", basis="position", title="#", of=lambda r: r.order,
               says="Its place among the compared operators of the graph"),
        Column("operator", "string", of=lambda r: r.operator,
               says="ATen's name; operators that the delegate makes one of are joined"),
        Column("node", "string", of=lambda r: r.node, says="Its name in the exported graph"),
        Column("module", "string", of=lambda r: r.module, visibility="page", says="Of the model"),
        Column("mode", "string", title="SME", of=lambda r: r.mode, visibility="several",
               says="The SME mode that ran"),
        Column("own_error", "float64", unit="scientific", of=lambda r: r.own_gap.relative, visibility="page",
               says="Root mean square of what the operator itself adds, as part of its result: the "
               "program's value from eager's of the values that the program had"),
        _gap("own_snr", "own SNR", lambda r: r.own_gap,
             says="The same as a signal-to-noise ratio; missing where there is no error"),
        Column("least_snr", "float64", unit="dB", of=lambda r: r.explained.least_db,
               visibility="page", title="least expected",
               says="Own SNR that the precision explains, with as many products as the operator sums"),
        Column("own_gain_error", "float64", unit="scientific", title="own gain - 1", visibility="page",
               of=lambda r: None if r.own_gap.gain is None else r.own_gap.gain - 1,
               says="Of the factor of eager's value that is nearest to the program's: nearly 0 where "
               "errors are roundings, 0.01 where a weight is off by 1 %"),
        Column("most_gain_error", "float64", unit="scientific", title="most expected", visibility="data",
               of=lambda r: r.explained.most_gain,
               says="Gain error that the precision explains"),
        Column("excess", "float64", unit="ratio", of=lambda r: r.excess, visibility="page",
               title="error ÷ explained", says="Own error ÷ the largest that is expected, or the "
               "gain's, if that is more; above 1 the operator parts from eager"),
        _gap("eager_snr", "SNR to eager", lambda r: r.eager,
             says="From the eager model in the program's precision, with all that was inherited"),
        _gap("float32_snr", "SNR to float32", lambda r: r.float32,
             says="From the eager model in float32; missing where it has no such operator"),
        _gap("off_snr", "SNR to SME off", lambda r: r.off, visibility="page",
             says="From the same program, SME off"),
        Column("cosine", "float64", unit="1", of=lambda r: r.eager.cosine, visibility="page",
               says="Of the angle to eager's value"),
        Column("max_abs", "float64", unit="scientific", of=lambda r: r.eager.max_abs, visibility="page",
               title="largest difference", says="From eager's value"),
        Column("mse", "float64", unit="scientific", of=lambda r: r.eager.mse, visibility="page",
               title="MSE", says="Mean squared difference from eager's value"),
        Column("own_mse", "float64", unit="scientific", of=lambda r: r.own_gap.mse, visibility="data",
               says="Mean squared difference that the operator itself adds"),
        Column("own_max_abs", "float64", unit="scientific", of=lambda r: r.own_gap.max_abs,
               visibility="data", says="Largest difference that the operator itself adds"),
        Column("nonfinite", "Int64", unit="count", of=lambda r: r.own_gap.nonfinite or None,
               says="Values that are infinite or NaN on one side only"),
        Column("delegate", "Int64", unit="count", basis="position", of=lambda r: r.delegate, visibility="page",
               says="Number of the delegate call that computes it; missing outside"),
        Column("shape", "string", of=lambda r: "x".join(map(str, r.shape)), visibility="page",
               says="Of its result"),
        Column("dtype", "string", of=lambda r: r.dtype, visibility="data", says="Of its result"),
        Column("source", "string", of=lambda r: r.source, visibility="page",
               says="The line of the model's own code"),
    ),
    says="An operator in one SME mode beside eager.",
    by="excess",
    basis="per output",
)  # fmt: skip
CHECKS: Final = Table(
    "numerics_modes",
    (
        Column("mode", "string", title="SME", of=lambda r: r[0], says="The SME mode that ran"),
        Column("first", "string", title="first to part", of=lambda r: r[1],
               says="The first operator whose own error is more than its precision explains"),
        Column("module", "string", of=lambda r: r[2], says="Where it is in the model"),
        Column("outputs", "string", title="outputs with taps", of=lambda r: r[3],
               says="From those of the program without taps"),
    ),
    says="One SME mode: where it parts from eager, and whether taps changed what it computes.",
)  # fmt: skip


def mode_table(gaps: NumericGaps) -> Table:
    """Returns a row per SME mode."""
    rows = []
    for mode, check in gaps.checks.items():
        first = gaps.first_parted(mode)
        named = (
            (None, None) if first is None else (f"{first.operator} ({first.node})", first.module)
        )
        same = SAME if check.snr_db is None else f"{format_number(check.snr_db)} dB"
        rows.append((mode, *named, same))
    return CHECKS.of(rows)


def headline(gaps: NumericGaps) -> str:
    """Says at which operator the program first differs from eager."""
    subject = f"{gaps.model} {gaps.precision} ({gaps.method}) on {gaps.platform}"
    firsts = {mode: gaps.first_parted(mode) for mode in gaps.modes}
    clauses = [
        f"{row.operator}{'' if row.node == row.operator else f' {row.node}'} in {row.module or 'the model itself'} ({sme_label(mode)}, "
        f"{_excess(row)})"
        for mode, row in firsts.items()
        if row is not None
    ]
    if not clauses:
        return f"{subject}: no operator adds more error than its precision explains"
    return f"{subject} first differs from eager at {'; '.join(clauses)}"


def _excess(row: OperatorGap) -> str:
    """Says which bound it is above."""
    gap, explained = row.own_gap, row.explained
    if gap.is_below(explained.least_db):
        snr_text = format_number(gap.snr_db)
        return f"{snr_text} dB where {format_number(explained.least_db)} are expected"
    gain = None if gap.gain is None else gap.gain - 1
    return (
        f"gain error {format_number(gain)} where {format_number(explained.most_gain)} is expected"
    )


def notes(gaps: NumericGaps) -> tuple[str, ...]:
    """Says what taps changed."""
    lines = [
        f"Taps kept the delegate from making one operator of {group}" for group in gaps.prevented
    ]
    lines += [
        f"{sme_label(mode)}: taps changed the outputs ({format_number(check.snr_db)} dB), so values inside "
        "may differ from those of the program without taps too"
        for mode, check in gaps.checks.items()
        if check.snr_db is not None
    ]
    if gaps.passes > 1:
        lines.append(
            f"The taps are spread over {gaps.passes} programs, each within the memory asked for"
        )
    return tuple(lines)


def brief_gaps(gaps: NumericGaps, *, ends: Iterable[str] = ()) -> Brief:
    """Returns where it parts, and the operators that add most error."""
    ranked = (row for mode in gaps.modes for row in gaps.ranked(mode))
    verdict = AnswerLine(headline(gaps))
    table = OPERATORS.of(ranked, title="By own error").sorted()
    lines = notes(gaps)
    return Brief((verdict, *map(AnswerLine, lines)), table=table, ends=tuple(ends))


def sections(gaps: NumericGaps) -> tuple[Section, ...]:
    """Returns the report: where it parts, the operators that add most error, and all in order."""
    ranked = tuple(row for mode in gaps.modes for row in gaps.ranked(mode))
    return (
        Section("first", "Where it parts", (mode_table(gaps),), lead=headline(gaps),
                lines=notes(gaps)),
        Section("ranked", "By own error", (OPERATORS.of(ranked, title="By own error").sorted(),),
                says="What an operator itself adds stands first; what it inherits is in the ratios "
                "to eager."),
        Section("graph", "In the graph's order",
                (OPERATORS.of(gaps.rows, title="In the graph's order"),), visibility="page",
                says="Ratios to eager fall where an operator adds error, and hold where the next "
                "ones only pass it on."),
    )  # fmt: skip
