"""Tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.units import count_of, format_duration
from etprof.tables.findings import SEVERITY_STYLES
from etprof.tables.report import comparison_sections, comparison_words, report_sections
from etprof.tables.verdicts import head_of, notes_of
from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.tables.table import Section, Table

_SAID: Final = frozenset({"amdahl", "outlook"})
"""Sections of which a terminal says what pages say above their tables."""
_LEFT_OUT: Final = frozenset({"rollups", "validity"})
"""Sections that pages have and a terminal has no room for."""


def render_report(assessment: Assessment, *, top: int) -> RenderableType:
    """Returns the report of a run or an ETDump; tables are cut to `top` rows."""
    head = head_of(assessment)
    parts: list[RenderableType] = [
        Text(_describe(experiment), style="bold") for experiment in assessment.run.experiments
    ]
    parts.append(Text(f"{head.text}. {head.plain}".rstrip()))
    if head.caution:
        parts.append(Text(f"Measurement {head.caution}", style="yellow"))
    parts += terminal_sections(report_sections(assessment), top=top)
    parts += [Text(f"Note: {note}", style="yellow") for note in notes_of(assessment)]
    return Group(*parts, *_findings(assessment))


def render_comparison(comparison: Comparison, *, top: int) -> RenderableType:
    """Returns headline, tables and notes; without times where those mean nothing."""
    words, style = comparison_words(comparison)
    parts: list[RenderableType] = [Text(words, style=style)]
    parts.append(Text(f"Measurement {comparison.validity.badge}", style="dim"))
    parts += terminal_sections(comparison_sections(comparison), top=top)
    return Group(*parts, *(Text(f"Note: {note}", style="yellow") for note in comparison.notes))


def terminal_sections(sections: Iterable[Section], *, top: int) -> Iterator[RenderableType]:
    """Yields the tables of all sections that a terminal has room for, and what is said of them."""
    for section in sections:
        if section.anchor in _LEFT_OUT:
            continue
        for table in section.tables:
            if table.rows:
                yield terminal_table(table.sorted().largest(top))
        says = (
            section.says
            if section.anchor in _SAID or section.anchor.startswith("generation")
            else ""
        )
        yield from (Text(line) for line in (says, *section.lines) if line)


def _describe(experiment: ExperimentAnalysis) -> str:
    """Names the experiment and what was in force."""
    split, recorded = experiment.split, experiment.split.left_out.recorded
    facts = [f"SME {experiment.sme}"] if experiment.sme is not None else []
    if experiment.threads is not None:
        facts.append(count_of(experiment.threads, "thread"))
    facts.append(f"{recorded} executions in the ETDump")
    if split.executions < recorded:
        facts.append(f"{split.executions} in the split")
    return f"{experiment.name}: {', '.join(facts)}"


def _findings(assessment: Assessment) -> Iterator[Text]:
    """The primary experiment's findings, the worst first; one line when no rule fired."""
    found = assessment.findings_of(assessment.primary.experiment.name)
    if not found.findings:
        yield Text(f"{found.experiment}: no finding; asked were {', '.join(found.checked)}")
        return
    yield Text(f"Findings for {found.experiment}", style="bold")
    yield from map(_finding, found.findings)


def _finding(finding: Finding) -> Text:
    gain = f" (up to {format_duration(finding.gain_ns)})" if finding.gain_ns else ""
    return Text.assemble(
        (f"{finding.rule} {finding.title}", SEVERITY_STYLES[finding.severity]),
        gain,
        f": {finding.summary}\n   Do: {finding.action}",
    )


def terminal_table(table: Table) -> PlainTable:
    """Returns the table as rich shows it: figures on the right, long names folded."""
    found = PlainTable(
        title=table.title or None,
        title_justify="left",
        title_style="",
        header_style="bold",
        caption=Text(table.note) if table.note else None,
        caption_justify="left",
    )
    for shown in shown_columns(table, "everywhere"):
        if shown.column.is_number:
            found.add_column(shown.heading, justify="right")
        else:
            found.add_column(shown.heading, overflow="fold")
    for row in shown_rows(table, "everywhere"):
        found.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return found
