"""Tables on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.records import sme_label
from etprof.base.text import as_ascii
from etprof.base.units import count_of
from etprof.tables.brief import UnbrokenLine
from etprof.tables.findings import SEVERITY_STYLES, gain_text
from etprof.tables.report import comparison_headline, comparison_sections, report_of
from etprof.views.cells import shown_columns, shown_rows
from etprof.views.fitting import GOES_ON, HELD, fit, fold, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.tables.findings import FindingGroup
    from etprof.tables.table import Section, Table, Value
    from etprof.views.cells import Cell, ShownColumn

_BORDER: Final = 3
_LONGEST_BAR: Final = 10


def render_report(assessment: Assessment, *, top: int, cuts_all: bool = False) -> RenderableType:
    """Returns the report of a run or an ETDump; tables of times are cut to `top` rows.

    Those that no figure orders stay whole, unless `cuts_all` asks for their first rows alone.
    """
    report = report_of(assessment, "terminal")
    head = report.head
    renderables: list[RenderableType] = []
    if report.alarm:
        renderables.append(folded_text(f"WRONG OUTPUTS. {report.alarm}", style="bold red"))
    renderables.append(folded_text(head.sentence, style="bold"))
    if head.caution:
        renderables.append(folded_text(head.caution, style="yellow"))
    elif head.detail:
        renderables.append(folded_text(head.detail_sentence))
    if report.warning:
        renderables.append(folded_text(f"Not representative. {report.warning}", style="yellow"))
    if report.doubt:
        renderables.append(folded_text(report.doubt, style="yellow"))
    if report.findings:
        are_named = len(assessment.run.experiments) > 1
        renderables.append(_findings_heading(report.findings))
        renderables += [_finding(group, are_named=are_named) for group in report.findings]
    elif not report.doubt:
        checks = "; ".join(report.silent) or "none"
        renderables.append(folded_text(f"No findings. Checks: {checks}"))
    renderables += [folded_text(_describe(experiment)) for experiment in assessment.run.experiments]
    renderables += terminal_sections(report.sections, top=top, cuts_all=cuts_all)
    notes = (folded_text(f"Note: {note}", style="yellow") for note in report.notes)
    return Group(*renderables, *notes)


def render_comparison(comparison: Comparison, *, top: int) -> RenderableType:
    """Returns headline, tables and notes; without times where those mean nothing."""
    headline, style = comparison_headline(comparison)
    renderables: list[RenderableType] = [folded_text(headline, style=style)]
    if comparison.times is not None:
        badge = comparison.times.validity.badge
        heading = "Conditions" if badge.startswith("not ") else "Conditions:"
        renderables.append(folded_text(f"{heading} {badge}", style="dim"))
    renderables += terminal_sections(comparison_sections(comparison), top=top)
    return Group(
        *renderables, *(folded_text(f"Note: {note}", style="yellow") for note in comparison.notes)
    )


def terminal_sections(
    sections: Iterable[Section], *, top: int, cuts_all: bool = False
) -> Iterator[RenderableType]:
    """Yields the tables of all sections, and the facts beside them."""
    for section in sections:
        for table in section.tables:
            if table.rows:
                largest = table.sorted().largest(top)
                # One more: what is left of an ordered table is its last row.
                further = len(largest.rows) - top - 1
                if cuts_all and further > 0:
                    note = f"{count_of(further + 1, 'more row')}; leave --top out for all"
                    largest = replace(largest.first(top), note=note)
                yield terminal_table(largest)
        yield from (folded_text(line) for line in (section.lead, *section.lines) if line)


def _describe(experiment: ExperimentAnalysis) -> str:
    """Names the experiment and what was in force."""
    split, recorded = experiment.split, experiment.split.left_out.recorded
    facts = [sme_label(experiment.sme)] if experiment.sme is not None else []
    if experiment.threads is not None:
        facts.append(count_of(experiment.threads, "thread"))
    facts.append(f"{count_of(recorded, 'inference')} recorded")
    if split.executions < recorded:
        facts.append(f"{split.executions} of them in the per-operator breakdown")
    return f"{experiment.name}: {', '.join(facts)}"


def _findings_heading(groups: Sequence[FindingGroup]) -> FoldedText:
    return folded_text(
        ("Findings", "bold"),
        f", each explained by a command such as `{groups[0].lead.guide_command}`",
    )


def _finding(group: FindingGroup, *, are_named: bool) -> FoldedText:
    """Returns it with those of the same cause; `are_named` tells which experiment has it."""
    do = "Do: " if group.lead.action else ""
    action = f"\n   {do}{group.lead.advice}" if group.lead.advice else ""
    others = [
        part
        for finding in group.others
        for part in ("\n   Same cause: ", *_said(finding, are_named=are_named))
    ]
    return folded_text(*_said(group.lead, are_named=are_named), action, *others)


def _said(finding: Finding, *, are_named: bool) -> tuple[tuple[str, str], str, str]:
    where = f" ({finding.experiment})" if are_named else ""
    return (
        (f"{finding.rule} {finding.title}", SEVERITY_STYLES[finding.severity]),
        f" {gain_text(finding)}".rstrip(),
        f": {finding.summary}{where}",
    )


@dataclass(frozen=True)
class FoldedText:
    """A text in lines of whole words; parts with a style of their own stand beside it."""

    spans: tuple[str | tuple[str, str], ...]
    style: str = ""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A word that is wider than the terminal, such as a path, has a line of its own."""
        pairs = [(span, "") if isinstance(span, str) else span for span in self.spans]
        styled = Text(style=self.style, no_wrap=True, overflow="ignore")
        protected = ""
        for text, style in pairs:
            printable = as_ascii(text) if options.ascii_only else text
            protected += (
                printable.replace(" ", HELD) if isinstance(text, UnbrokenLine) else printable
            )
            styled.append(printable, style)
        yield from _lines_of(styled, fold(protected, options.max_width))


def folded_text(*spans: str | tuple[str, str], style: str = "") -> FoldedText:
    """Returns text for a terminal of any width; a part may be a pair of text and style."""
    return FoldedText(spans, style)


def _lines_of(text: Text, lines: Iterable[str]) -> Iterator[Text]:
    """Yields the styled text in these lines, which its words were put into."""
    start = 0
    for line in lines:
        content = line if line in text.plain[start:] else line.removesuffix(GOES_ON)
        start = text.plain.index(content, start)
        yield text[start : start + len(content)].append(line[len(content) :])
        start += len(content)


@dataclass(frozen=True)
class TerminalTable:
    """A table as rich shows it; columns that do not fit are left out by priority, and named."""

    table: Table

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Figures stand on the right and are never cut; texts are folded at words."""
        columns, rows = cells_of(self.table, in_ascii=options.ascii_only)
        texts = [[cell.text for cell in row] for row in rows]
        room = options.max_width - _BORDER - 1
        widths = fit(columns, texts, room, gap=_BORDER, may_drop=False)
        paths: list[int] = []
        if widths is None:
            # A path is copied, so it stands whole: below the table, where a column is too narrow.
            longest = [
                max((cell_len(row[i]) for row in texts), default=0) for i in range(len(columns))
            ]
            wide = fit(columns, texts, room, gap=_BORDER, may_drop=True) or {}
            paths = [
                index
                for index, shown_column in enumerate(columns)
                if shown_column.column.is_whole and longest[index] > wide.get(index, 0)
            ]
            shown = [index for index in range(len(columns)) if index not in paths]
            narrow = [[row[index] for index in shown] for row in texts]
            fitted = fit([columns[i] for i in shown], narrow, room, gap=_BORDER, may_drop=True)
            widths = {shown[index]: width for index, width in (fitted or {}).items()}
        dropped = [
            shown_column.heading
            for index, shown_column in enumerate(columns)
            if index not in widths and index not in paths
        ]
        if self.table.title:
            yield folded_text(self.table.title)
        spare = room - sum(widths.values()) - _BORDER * (len(widths) - 1)
        yield _bordered(columns, rows, widths, has_bar=spare >= _LONGEST_BAR + _BORDER)
        for row in rows:
            yield from (
                folded_text(
                    f"{row[0].text}, {columns[index].heading}\n", UnbrokenLine(row[index].text)
                )
                for index in paths
            )
        if dropped:
            yield folded_text(f"Left out at this width: {', '.join(dropped)}")
        if self.table.note:
            yield folded_text(self.table.note)


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
    table = PlainTable(header_style="bold")
    for index, width in widths.items():
        shown_column = columns[index]
        heading = "\n".join(folded(shown_column.heading, width))
        alignment: Any = {"justify": "right"} if shown_column.column.is_number else {}
        table.add_column(heading, width=width, no_wrap=True, overflow="crop", **alignment)
    bars = next((i for i, c in enumerate(columns) if c.column.has_bar and _is_share(c)), None)
    bars = bars if has_bar else None
    if bars is not None:
        # Beside its figures the bar needs no head; where they had no room, it says what it shows.
        table.add_column("" if bars in widths else columns[bars].heading)
    for row in rows:
        cells = [_fitted(row[index], columns[index], width) for index, width in widths.items()]
        table.add_row(*cells, *([] if bars is None else [Text(_bar(row[bars].value))]))
    return table


def _fitted(cell: Cell, shown_column: ShownColumn, width: int) -> Text:
    is_unbroken = shown_column.column.is_number or cell_len(cell.text) <= width
    return Text(cell.text if is_unbroken else "\n".join(folded(cell.text, width)), style=cell.style)


def _is_share(shown_column: ShownColumn) -> bool:
    return shown_column.column.unit == "share"


def _bar(share: Value) -> str:
    length = float(share or 0) if isinstance(share, int | float) else 0.0
    return "█" * round(min(max(length, 0.0), 1.0) * _LONGEST_BAR)


def terminal_table(table: Table) -> TerminalTable:
    """Returns the table for a terminal of any width."""
    return TerminalTable(table)
