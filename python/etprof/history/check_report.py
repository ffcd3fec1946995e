"""A check's result for people and programs: terminal, Markdown for a pull request, JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from etprof.base.units import MISSING, count_of, format_duration, format_size
from etprof.history.metric_names import METRICS
from etprof.report.tables import bordered_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from etprof.history.check import Checked, CheckResult, Subject

SCHEMA_VERSION: Final = 1
_STYLES: Final = {
    "failed": "bold red",
    "regression": "bold red",
    "improvement": "green",
    "inconclusive": "",
    "unchanged": "",
}
_MARKS: Final = {
    "failed": "❌ failed",
    "regression": "🔴 regression",
    "improvement": "🟢 improvement",
    "inconclusive": "⚪ inconclusive",
    "unchanged": "⚪ unchanged",
}
_WHOLE_RATES: Final = 100.0
"""Rates per second from here on are shown without digits behind the point."""
_URGENT: Final = ("failed", "regression", "improvement")
_COLUMNS: Final = ("run", "metric", "baseline", "now", "change", "95 % interval", "why")


def format_value(value: float | None, unit: str | None) -> str:
    """Formats a metric's value in its unit."""
    if value is None:
        return MISSING
    if unit == "bytes":
        return format_size(value)
    if unit == "ns":
        return format_duration(value)
    return f"{value:,.0f}/s" if value >= _WHOLE_RATES else f"{value:.3g}/s"


def format_change(change: float | None) -> str:
    """Formats a relative change with its sign, such as `+5.3 %`."""
    return MISSING if change is None else f"{change * 100:+.1f} %".replace("-", "−")


def metric_label(name: str | None) -> str:
    """Names a metric in words; one of a newer etprof keeps its own name."""
    if name is None:
        return ""
    return METRICS[name].label if name in METRICS else name


def headline(result: CheckResult) -> str:
    """Says in one line what came out."""
    told = [f"{count} {outcome}" for outcome, count in result.counts.items() if count]
    verdict = "worse than" if result.exit_code else "no regression against"
    text = f"{verdict} {result.request.baseline}: {', '.join(told) or 'nothing was compared'}"
    if result.without_baseline:
        text += f"; {count_of(len(result.without_baseline), 'run')} without a baseline"
    return text[0].upper() + text[1:]


def render_terminal(result: CheckResult) -> RenderableType:
    """Returns the table with every comparison and the headline below."""
    parts: list[RenderableType] = []
    if result.entries:
        table = bordered_table("", "verdict", *_COLUMNS)
        for column in (1, 2, 7):
            table.columns[column].justify = "left"
            table.columns[column].overflow = "fold"
        for entry in result.entries:
            style = _STYLES[entry.outcome]
            cells = (Text(cell) for cell in _cells(entry))
            table.add_row(Text(entry.outcome, style=style), *cells)
        parts.append(table)
    parts += [Text(f"Nothing to compare with: {_name(s)}") for s in result.without_baseline]
    return Group(*parts, Text(headline(result), style="bold"))


def render_markdown(result: CheckResult) -> str:
    """Returns a comment: what needs eyes first, the rest folded away."""
    urgent = [entry for entry in result.entries if entry.outcome in _URGENT]
    calm = [entry for entry in result.entries if entry.outcome not in _URGENT]
    lines = [f"### etprof: {_escape(headline(result))}", ""]
    lines += _markdown_table(urgent) if urgent else []
    if calm:
        summary = f"{count_of(len(calm), 'comparison')} without a significant change"
        lines += [f"<details><summary>{summary}</summary>", "", *_markdown_table(calm)]
        lines += ["</details>", ""]
    lines += [f"- Nothing to compare with: {_escape(_name(s))}" for s in result.without_baseline]
    rule = (
        f"A change counts beyond {result.request.threshold * 100:g} % (or its metric's own "
        "threshold) and only where its whole 95 % interval lies there; inconclusive is neither "
        "good nor bad."
    )
    return "\n".join([*lines, "", rule]).strip() + "\n"


def check_document(result: CheckResult) -> dict[str, Any]:
    """Returns the same data for programs; times in ns, changes as fractions."""
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": result.request.baseline,
        "threshold": result.request.threshold,
        "thresholds": dict(result.request.thresholds),
        "exit_code": result.exit_code,
        "counts": result.counts,
        "entries": [asdict(entry) for entry in result.entries],
        "without_baseline": [asdict(subject) for subject in result.without_baseline],
    }


def _markdown_table(entries: Iterable[Checked]) -> list[str]:
    rows = ((_MARKS[entry.outcome], *_cells(entry)) for entry in entries)
    body = [f"| {' | '.join(_escape(cell) for cell in row)} |" for row in rows]
    columns = ("verdict", *_COLUMNS)
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body, ""]


def _cells(entry: Checked) -> tuple[str, ...]:
    judgement = entry.judgement
    interval = MISSING
    if judgement is not None and judgement.low is not None:
        interval = f"{format_change(judgement.low)} … {format_change(judgement.high)}"
    return (
        _name(entry.subject),
        metric_label(entry.metric),
        format_value(entry.before, entry.unit),
        format_value(entry.after, entry.unit),
        format_change(judgement.change if judgement else None),
        interval,
        entry.reason,
    )


def _escape(text: str) -> str:
    """Makes a text harmless in Markdown; the reports behind it are loaded only where needed."""
    from etprof.views.markdown import escape

    return escape(text)


def _name(subject: Subject) -> str:
    return f"#{subject.run_id} {subject.title} on {subject.device}"
