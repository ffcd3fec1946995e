"""The report as terminal tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from etprof.analysis.split.operators import OperatorRow, class_totals_ns
from etprof.base.units import (
    MISSING,
    count_of,
    format_count,
    format_duration,
    format_interval,
    format_share,
    format_size,
)
from etprof.report.generation import render_generation
from etprof.report.tables import bordered_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from etprof.analysis.run_analysis import ExperimentAnalysis, Latency, RunAnalysis
    from etprof.analysis.split.operators import OperatorSplit, OverheadRow
    from etprof.base.plain_table import PlainTable
    from etprof.statistics.summary import BlockedMedian

TOP_OPERATORS: Final = 12
_BAR_WIDTH: Final = 20


def render_analysis(analysis: RunAnalysis, *, top: int = TOP_OPERATORS) -> RenderableType:
    """Returns the whole report of a run directory or an ETDump."""
    parts: list[RenderableType] = []
    for experiment in analysis.experiments:
        parts.append(Text(_headline(experiment), style="bold"))
        if analysis.times_are_meaningful:
            if experiment.latency:
                parts.append(_latency_table(experiment.latency))
            parts += render_generation(experiment, times_are_meaningful=True)
            parts += [_class_table(experiment.split), _operator_table(experiment.split, top)]
        else:
            parts.append(_call_table(experiment.split))
            parts += render_generation(experiment, times_are_meaningful=False)
        if experiment.split.unknown_names:
            names = ", ".join(experiment.split.unknown_names)
            parts.append(Text(f"Not in the category table: {names}", style="yellow"))
    parts += [Text(f"Note: {note}", style="yellow") for note in analysis.notes]
    return Group(*parts)


def _headline(experiment: ExperimentAnalysis) -> str:
    """Names the experiment and what was in force."""
    split, recorded = experiment.split, experiment.split.left_out.recorded
    facts = [f"{recorded} executions in the ETDump"]
    if split.executions < recorded:
        facts.append(f"{split.executions} in the split")
    if experiment.threads is not None:
        facts.insert(0, f"{experiment.threads} thread{'s' if experiment.threads > 1 else ''}")
    if experiment.sme is not None:
        facts.insert(0, f"SME {experiment.sme}")
    return f"{experiment.name}: {', '.join(facts)}"


def _latency_table(latency: Latency) -> PlainTable:
    launches = count_of(len(latency.steady.block_medians), "process launch", "process launches")
    table = bordered_table(
        f"Latency without event tracer, {launches}", "", "median", "95 % interval"
    )

    def add(label: str, summary: BlockedMedian) -> None:
        interval = summary.interval
        text = format_interval(interval.low, interval.high) if interval else MISSING
        table.add_row(label, format_duration(summary.median), text)

    add("Load", latency.load)
    add("First inference", latency.first_inference)
    add(f"Inference ({latency.samples.count} samples)", latency.steady)
    table.add_row("Peak memory", format_size(latency.peak_rss_bytes), "")
    return table


def _class_table(split: OperatorSplit) -> PlainTable:
    """Categories with finer classes; the shares add up to 100 %."""
    table = bordered_table(
        "Where an inference's time goes", "category", "class", "mean", "share", ""
    )
    table.columns[1].justify = "left"
    table.columns[4].justify = "left"
    for entry, total in class_totals_ns(split).items():
        if total == 0:
            continue
        share = total / split.execute_total_ns if split.execute_total_ns else 0.0
        bar = "█" * round(min(max(share, 0.0), 1.0) * _BAR_WIDTH)
        mean = format_duration(total / split.executions)
        table.add_row(entry.category, entry.finer, mean, format_share(share), bar)
    mean = format_duration(split.execute_total_ns / split.executions)
    table.add_section()
    table.add_row("Method::execute", "", mean, format_share(1.0), "")
    return table


def _operator_table(split: OperatorSplit, top: int) -> PlainTable:
    """The operators and overheads that take most, the rest as one row."""
    entries = sorted(split.entries, key=lambda entry: -entry.total_ns)
    shown, rest = entries[:top], entries[top:]
    table = bordered_table("Operators", "operator", "where", "median", "mean", "share")
    for entry in shown:
        median = format_duration(entry.median_ns) if isinstance(entry, OperatorRow) else MISSING
        mean, share = format_duration(entry.mean_ns), format_share(entry.share)
        table.add_row(Text(entry.label), _place(entry), median, mean, share)
    if rest:
        mean = format_duration(sum(entry.mean_ns for entry in rest))
        share = format_share(sum(entry.share for entry in rest))
        table.add_row(f"{len(rest)} others", "", MISSING, mean, share)
    return table


def _place(entry: OperatorRow | OverheadRow) -> str:
    """Says where an entry runs."""
    if not isinstance(entry, OperatorRow):
        return "overhead"
    return "delegate" if entry.is_delegated else "portable"


def _call_table(split: OperatorSplit) -> PlainTable:
    """Operators with their calls: all that an emulator can say."""
    table = bordered_table(
        "Operators (times under emulation mean nothing)", "operator", "where", "calls"
    )
    for row in split.rows:
        table.add_row(Text(row.label), _place(row), format_count(row.calls / split.executions))
    return table
