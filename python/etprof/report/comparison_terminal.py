"""A comparison as terminal tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from etprof.base.units import (
    MISSING,
    format_delta,
    format_duration,
    format_ratio,
    format_share,
    format_value,
)
from etprof.report.tables import bordered_table
from etprof.report.verdicts import badge_of, describe_comparison, format_speed_up

if TYPE_CHECKING:
    from rich.console import RenderableType

    from etprof.analysis.compare.comparison import Change, Comparison
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.base.plain_table import PlainTable

_STYLES = {"faster": "bold green", "slower": "bold red"}


def render_comparison(comparison: Comparison, *, top: int) -> RenderableType:
    """Returns headline, notes and tables; without times where those mean nothing."""
    style = _STYLES.get(badge_of(comparison), "yellow") if comparison.validity.is_valid else ""
    parts: list[RenderableType] = [Text(describe_comparison(comparison), style=style)]
    parts.append(Text(f"Measurement {comparison.validity.badge}", style="dim"))
    if comparison.times_are_meaningful:
        if comparison.ledger:
            parts.append(_ledger_table(comparison))
        parts += [_class_table(comparison), _waterfall_table(comparison, top)]
        parts.append(Text(_amdahl_sentence(comparison)))
    else:
        parts.append(_structure_table(comparison))
    if comparison.tokens is not None:
        parts.append(Text(f"Generated: {comparison.tokens}."))
    parts += [Text(f"Note: {note}", style="yellow") for note in comparison.notes]
    return Group(*parts)


def _sides(comparison: Comparison) -> tuple[str, str]:
    return comparison.baseline.experiment.name, comparison.candidate.experiment.name


def _ledger_table(comparison: Comparison) -> PlainTable:
    table = bordered_table("From start to steady state", "", *_sides(comparison), "speed-up")
    for entry in comparison.ledger:
        speed_up = format_speed_up(entry.effect) if entry.effect else MISSING
        table.add_row(entry.label, *ledger_texts(entry), speed_up)
    return table


def ledger_texts(entry: LedgerEntry) -> tuple[str, str]:
    """Formats both sides of a ledger entry in its unit."""
    return format_value(entry.unit, entry.baseline), format_value(entry.unit, entry.candidate)


def _class_table(comparison: Comparison) -> PlainTable:
    """Classes by time, with shares: a share may grow while its time shrinks."""
    table = bordered_table(
        "Where the time went (means per inference, with tracer)",
        "category", "class", *_sides(comparison), "speed-up", "share",
    )  # fmt: skip
    for entry, change in comparison.classes.items():
        if change.baseline_ns or change.candidate_ns:
            table.add_row(entry.category, entry.finer, *_cells(change))
    return table


def _cells(change: Change) -> tuple[str, str, str, str]:
    shares = f"{format_share(change.baseline_share)} → {format_share(change.candidate_share)}"
    return (
        format_duration(change.baseline_ns),
        format_duration(change.candidate_ns),
        format_ratio(change.speed_up),
        shares,
    )


def _waterfall_table(comparison: Comparison, top: int) -> PlainTable:
    waterfall = comparison.waterfall
    table = bordered_table("From one total to the other", "step", *_sides(comparison), "difference")
    table.add_row("Method::execute", format_duration(waterfall.baseline_ns), "", "")
    for step in waterfall.largest(top):
        table.add_row(
            Text(step.label),
            format_duration(step.baseline_ns),
            format_duration(step.candidate_ns),
            format_delta(step.delta_ns),
        )
    table.add_section()
    total = waterfall.candidate_ns - waterfall.baseline_ns
    table.add_row(
        "Method::execute", "", format_duration(waterfall.candidate_ns), format_delta(total)
    )
    return table


def _amdahl_sentence(comparison: Comparison) -> str:
    """Says how far this acceleration could go, and what is next."""
    panel = comparison.amdahl
    if panel.accelerated_operators == 0:
        first = "No operator is known to have changed to SME."
    else:
        first = (
            f"{panel.accelerated_operators} operators with {format_share(panel.accelerated_share)} "
            f"of the time changed to SME: {format_ratio(panel.accelerated_speed_up)} for "
            f"them, {format_ratio(panel.achieved)} in all, at most {format_ratio(panel.ceiling)} "
            "if they took no time."
        )
    following = [
        f"{entry.operator_class.finer} {format_share(entry.share)} "
        f"(without it {format_ratio(entry.speed_up_if_removed)})"
        for entry in panel.bottlenecks[:3]
    ]
    return f"{first} Next: {', '.join(following)}." if following else first


def _structure_table(comparison: Comparison) -> PlainTable:
    table = bordered_table("Operators side by side", "#", *_sides(comparison), "match")
    for column in table.columns:
        column.justify = "left"
    for number, entry in enumerate(comparison.operators, start=1):
        pair = entry.aligned
        before = pair.baseline.label if pair.baseline else MISSING
        after = pair.candidate.label if pair.candidate else MISSING
        table.add_row(str(number), Text(before), Text(after), pair.match)
    return table
