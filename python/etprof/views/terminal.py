"""Tables on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.text import as_ascii
from etprof.base.units import count_of
from etprof.tables.brief import UnbrokenLine
from etprof.tables.findings import SEVERITY_STYLES, gain_text
from etprof.tables.report import comparison_sections, comparison_words, report_of
from etprof.views.cells import shown_columns, shown_rows
from etprof.views.fitting import GOES_ON, HELD, fit, fold, folded

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


def render_report(assessment: Assessment, *, top: int) -> RenderableType:
    """Returns the report of a run or an ETDump; tables are cut to `top` rows."""
    report = report_of(assessment, "terminal")
    head = report.head
    parts: list[RenderableType] = [
        words(_describe(experiment), style="bold") for experiment in assessment.run.experiments
    ]
    if report.alarm:
        parts.insert(0, words(f"WRONG OUTPUTS. {report.alarm}", style="bold red"))
    parts.append(words(f"{head.text}. {head.plain}".rstrip()))
    if head.caution:
        parts.append(words(f"Measurement {head.caution}", style="yellow"))
    if report.warning:
        parts.append(words(f"Not representative. {report.warning}", style="yellow"))
    parts += terminal_sections(report.sections, top=top)
    parts += [words(f"Note: {note}", style="yellow") for note in report.notes]
    if not report.findings:
        checks = "; ".join(report.silent) or "none"
        return Group(*parts, words(f"No finding. Checks: {checks}"))
    return Group(
        *parts,
        _findings_heading(report.findings),
        *map(_finding, report.findings),
    )


def render_comparison(comparison: Comparison, *, top: int) -> RenderableType:
    """Returns headline, tables and notes; without times where those mean nothing."""
    headline, style = comparison_words(comparison)
    parts: list[RenderableType] = [words(headline, style=style)]
    if comparison.times is not None:
        parts.append(words(f"Measurement {comparison.times.validity.badge}", style="dim"))
    parts += terminal_sections(comparison_sections(comparison), top=top)
    return Group(*parts, *(words(f"Note: {note}", style="yellow") for note in comparison.notes))


def terminal_sections(sections: Iterable[Section], *, top: int) -> Iterator[RenderableType]:
    """Yields the tables of all sections, and the facts beside them."""
    for section in sections:
        for table in section.tables:
            if table.rows:
                yield terminal_table(table.sorted().largest(top))
        yield from (words(line) for line in (section.lead, *section.lines) if line)


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


def _findings_heading(findings: Sequence[Finding]) -> Words:
    page, _, _ = findings[0].guide.partition("#")
    return words(("Findings", "bold"), f", explained in {page}")


def _finding(finding: Finding) -> Words:
    return words(
        (f"{finding.rule} {finding.title}", SEVERITY_STYLES[finding.severity]),
        f" {gain_text(finding)}".rstrip(),
        f": {finding.summary} ({finding.experiment})\n   Do: {finding.action}",
    )


@dataclass(frozen=True)
class Words:
    """A text in lines of whole words; parts with a style of their own stand beside it."""

    parts: tuple[str | tuple[str, str], ...]
    style: str = ""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A word that is wider than the terminal, such as a path, has a line of its own."""
        pairs = [(part, "") if isinstance(part, str) else part for part in self.parts]
        whole = Text(style=self.style, no_wrap=True, overflow="ignore")
        held = ""
        for text, style in pairs:
            shown = as_ascii(text) if options.ascii_only else text
            held += shown.replace(" ", HELD) if isinstance(text, UnbrokenLine) else shown
            whole.append(shown, style)
        yield from _lines_of(whole, fold(held, options.max_width))


def words(*parts: str | tuple[str, str], style: str = "") -> Words:
    """Returns text for a terminal of any width; a part may be a pair of text and style."""
    return Words(parts, style)


def _lines_of(text: Text, lines: Iterable[str]) -> Iterator[Text]:
    """Yields the styled text in these lines, which its words were put into."""
    start = 0
    for line in lines:
        own = line if line in text.plain[start:] else line.removesuffix(GOES_ON)
        start = text.plain.index(own, start)
        yield text[start : start + len(own)].append(line[len(own) :])
        start += len(own)


@dataclass(frozen=True)
class TerminalTable:
    """A table as rich shows it: in columns where they fit, else a paragraph for each row."""

    table: Table

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Figures stand on the right and are never cut; texts are folded at words."""
        columns, rows = cells_of(self.table, in_ascii=options.ascii_only)
        texts = [[cell.text for cell in row] for row in rows]
        room = options.max_width - _BORDER - 1
        widths = fit(columns, texts, room, gap=_BORDER, may_drop=False)
        if self.table.title:
            yield words(self.table.title, style="" if widths else "bold")
        if widths is None:
            yield from self._paragraphs(columns, rows)
        else:
            spare = room - sum(widths.values()) - _BORDER * (len(widths) - 1)
            yield _bordered(columns, rows, widths, has_bar=spare >= _LONGEST_BAR + _BORDER)
        if self.table.note:
            yield words(self.table.note)

    def _paragraphs(self, columns: list[ShownColumn], rows: list[list[Cell]]) -> Iterator[Words]:
        for row in rows:
            known = [(c, cell) for c, cell in zip(columns, row, strict=True) if cell.text]
            parts: list[str | tuple[str, str]] = ["  "]
            for number, (shown, cell) in enumerate(known):
                text = UnbrokenLine(cell.text) if shown.column.is_whole else cell.text
                parts += [", " if number else "", f"{shown.heading} ", (text, cell.style)]
            yield words(*parts)


def cells_of(table: Table, *, in_ascii: bool) -> tuple[list[ShownColumn], list[list[Cell]]]:
    """Returns what terminals show of a table, its signs in ASCII where only that can be shown."""
    columns, rows = shown_columns(table, "everywhere"), shown_rows(table, "everywhere")
    if in_ascii:
        columns = [replace(column, heading=as_ascii(column.heading)) for column in columns]
        rows = [[replace(cell, text=as_ascii(cell.text)) for cell in row] for row in rows]
    return columns, rows


def _bordered(
    columns: list[ShownColumn], rows: list[list[Cell]], widths: dict[int, int], *, has_bar: bool
) -> PlainTable:
    found = PlainTable(header_style="bold")
    for index, width in widths.items():
        shown = columns[index]
        heading = "\n".join(folded(shown.heading, width))
        how: Any = {"justify": "right"} if shown.column.is_number else {}
        found.add_column(heading, width=width, no_wrap=True, overflow="crop", **how)
    bars = next((i for i, c in enumerate(columns) if c.column.has_bar and _is_share(c)), None)
    bars = bars if has_bar else None
    if bars is not None:
        found.add_column()
    for row in rows:
        cells = [_fitted(row[index], columns[index], width) for index, width in widths.items()]
        found.add_row(*cells, *([] if bars is None else [Text(_bar(row[bars].value))]))
    return found


def _fitted(cell: Cell, shown: ShownColumn, width: int) -> Text:
    whole = shown.column.is_whole or shown.column.is_number
    return Text(cell.text if whole else "\n".join(folded(cell.text, width)), style=cell.style)


def _is_share(shown: ShownColumn) -> bool:
    return shown.column.unit == "share"


def _bar(share: Value) -> str:
    length = float(share or 0) if isinstance(share, int | float) else 0.0
    return "█" * round(min(max(length, 0.0), 1.0) * _LONGEST_BAR)


def terminal_table(table: Table) -> TerminalTable:
    """Returns the table for a terminal of any width."""
    return TerminalTable(table)
