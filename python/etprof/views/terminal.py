"""Tables on a terminal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.units import count_of
from etprof.tables.findings import SEVERITY_STYLES, gain_text
from etprof.tables.report import comparison_sections, comparison_words, report_of
from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.tables.table import Section, Table, Value
    from etprof.views.cells import Cell, ShownColumn

_BORDER: Final = 3
_LONGEST_BAR: Final = 10
_LEAST_TEXT: Final = 16
"""Columns of text are folded to this, not further: shorter pieces are no words."""


def render_report(assessment: Assessment, *, top: int) -> RenderableType:
    """Returns the report of a run or an ETDump; tables are cut to `top` rows."""
    report = report_of(assessment, "terminal")
    head = report.head
    parts: list[RenderableType] = [
        Text(_describe(experiment), style="bold") for experiment in assessment.run.experiments
    ]
    if report.alarm:
        parts.insert(0, Text(f"WRONG OUTPUTS. {report.alarm}", style="bold red"))
    parts.append(Text(f"{head.text}. {head.plain}".rstrip()))
    if head.caution:
        parts.append(Text(f"Measurement {head.caution}", style="yellow"))
    if report.warning:
        parts.append(Text(f"Not representative. {report.warning}", style="yellow"))
    parts += terminal_sections(report.sections, top=top)
    parts += [Text(f"Note: {note}", style="yellow") for note in report.notes]
    if not report.findings:
        checks = "; ".join(report.silent) or "none"
        return Group(*parts, Text(f"No finding. Checks: {checks}"))
    return Group(
        *parts,
        _findings_heading(report.findings),
        *map(_finding, report.findings),
    )


def render_comparison(comparison: Comparison, *, top: int) -> RenderableType:
    """Returns headline, tables and notes; without times where those mean nothing."""
    words, style = comparison_words(comparison)
    parts: list[RenderableType] = [Text(words, style=style)]
    if comparison.times is not None:
        parts.append(Text(f"Measurement {comparison.times.validity.badge}", style="dim"))
    parts += terminal_sections(comparison_sections(comparison), top=top)
    return Group(*parts, *(Text(f"Note: {note}", style="yellow") for note in comparison.notes))


def terminal_sections(sections: Iterable[Section], *, top: int) -> Iterator[RenderableType]:
    """Yields the tables of all sections, and the facts beside them."""
    for section in sections:
        for table in section.tables:
            if table.rows:
                yield terminal_table(table.sorted().largest(top))
        yield from (Text(line) for line in (section.lead, *section.lines) if line)


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


def _findings_heading(findings: Sequence[Finding]) -> Text:
    page, _, _ = findings[0].guide.partition("#")
    return Text.assemble(("Findings", "bold"), f", explained in {page}")


def _finding(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.rule} {finding.title}", SEVERITY_STYLES[finding.severity]),
        f" {gain_text(finding)}".rstrip(),
        f": {finding.summary} ({finding.experiment})\n   Do: {finding.action}",
    )


@dataclass(frozen=True)
class TerminalTable:
    """A table as rich shows it: in columns where they fit, else a paragraph for each row."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Figures stand on the right and are never cut; long names are folded."""
        columns = shown_columns(self.table, "everywhere")
        rows = shown_rows(self.table, "everywhere")
        widths = [
            _least_width(shown, [row[index].text for row in rows])
            for index, shown in enumerate(columns)
        ]
        if sum(widths) + _BORDER * len(widths) + 1 > options.max_width:
            yield from self._paragraphs(columns, rows)
        else:
            yield self._bordered(columns, rows, widths)

    def _bordered(
        self, columns: list[ShownColumn], rows: list[list[Cell]], widths: list[int]
    ) -> PlainTable:
        found = PlainTable(
            title=self.table.title or None,
            title_justify="left",
            title_style="",
            header_style="bold",
            caption=Text(self.table.note) if self.table.note else None,
            caption_justify="left",
        )
        for shown, width in zip(columns, widths, strict=True):
            if shown.column.is_number:
                heading = "\n".join(textwrap.wrap(shown.heading, width))
                found.add_column(heading, justify="right", no_wrap=True)
            else:
                found.add_column(shown.heading, overflow="fold", min_width=width)
        bars = next((i for i, c in enumerate(columns) if c.column.has_bar and _is_share(c)), None)
        if bars is not None:
            found.add_column()
        for row in rows:
            cells = [Text(cell.text, style=cell.style) for cell in row]
            found.add_row(*cells, *([] if bars is None else [Text(_bar(row[bars].value))]))
        return found

    def _paragraphs(self, columns: list[ShownColumn], rows: list[list[Cell]]) -> Iterator[Text]:
        yield Text(self.table.title, style="bold")
        for row in rows:
            known = [(c.heading, cell) for c, cell in zip(columns, row, strict=True) if cell.text]
            parts = [Text(f"{heading} ").append(cell.text, cell.style) for heading, cell in known]
            line = Text("  ") + Text(", ").join(parts)
            if any(shown.column.is_whole for shown in columns):
                # The terminal goes on in the next row: no end of line is within a path.
                line.no_wrap, line.overflow = True, "ignore"
            yield line
        if self.table.note:
            yield Text(self.table.note)


def _is_share(shown: ShownColumn) -> bool:
    return shown.column.unit == "share"


def _bar(share: Value) -> str:
    length = float(share or 0) if isinstance(share, int | float) else 0.0
    return "█" * round(min(max(length, 0.0), 1.0) * _LONGEST_BAR)


def _least_width(shown: ShownColumn, texts: list[str]) -> int:
    """Figures stand on one line; texts are folded to what words need."""
    longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
    words = max(map(len, shown.heading.split()), default=0)
    is_whole = shown.column.is_number or shown.column.is_whole
    return max(words, longest if is_whole else min(longest, _LEAST_TEXT))


def terminal_table(table: Table) -> TerminalTable:
    """Returns the table for a terminal of any width."""
    return TerminalTable(table)
