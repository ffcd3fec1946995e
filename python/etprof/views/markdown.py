"""Tables as Markdown, for pull requests and terminals without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etprof.base.units import first_texts
from etprof.tables.alternatives import side_by_side
from etprof.tables.findings import gain_text
from etprof.tables.report import report_of
from etprof.tables.verdicts import NO_COMPARISON
from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.findings.finding import Finding
    from etprof.tables.alternatives import RunsSideBySide
    from etprof.tables.report import Report
    from etprof.tables.table import Section, Table, Visibility

_MOST_ROWS: Final = 20

_SPECIAL: Final = re.compile(
    r"(?P<entity>[&<>])|(?P<linked>@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.))"
    r"|(?P<mark>[\\`*_\[\]|#~$]|^=|^[-+](?=[ -]|$)|(?<=^\d)[.)](?= |$)|(?<=^\d\d)[.)](?= |$))",
    re.IGNORECASE,
)
"""What Markdown reads: HTML; what GitHub links unasked, so that a name would call people or lead
somewhere (`@name`, `#12`, `GH-12`, addresses); markup, some of it at the start of a line only."""
_CODE: Final = re.compile(r"(?<!`)(`[^`|<]+`)(?!`)")
"""A pair of backticks with what is between them: no bar, which would end a cell, and no HTML."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_FILES: Final = "files."
_MOST_FILES: Final = 20
_DIVIDER: Final = "&#8203;"
"""A space of no width, as Renovate and Dependabot use it: GitHub looks for links in the text that a
page shows, where backslashes and other entities are gone."""


def render_markdown(assessments: Sequence[Assessment]) -> str:
    """Returns the report of one or several runs."""
    reports = ["\n".join(_run_lines(assessment)).strip() for assessment in assessments]
    together = side_by_side(assessments)
    if together is not None:
        reports.insert(0, "\n".join(_together(together)).strip())
    return "\n\n---\n\n".join(reports) + "\n"


def _together(comparison: RunsSideBySide) -> Iterator[str]:
    yield from (f"# {escape(comparison.title)}", "", escape(comparison.lead), "")
    yield from markdown_table(comparison.runs, "page")
    yield from (f"{escape(comparison.runs.note)}.", "")
    for section in comparison.sections:
        if not any(table.is_drawn for table in section.tables):
            yield from _section(section)


def _run_lines(assessment: Assessment) -> Iterator[str]:
    report = report_of(assessment)
    head = report.head
    yield from (f"# {escape(report.title)}", escape(report.subject), "")
    if report.alarm:
        yield from (f"> **Wrong outputs.** {escape(report.alarm)}", "")
    if report.warning:
        yield from (f"> **Not representative.** {escape(report.warning)}", "")
    yield from (escape(head.sentence), "")
    # The sentence above says that there is none.
    badge = "" if head.badge == NO_COMPARISON else f"**{escape(head.badge)}** "
    yield from (f"{badge}{escape(head.detail_sentence)}".rstrip(), "")
    yield from markdown_rows(("figure", "value", "basis"), report.tiles)
    yield from _findings(report)
    for section in report.sections:
        if not any(table.is_drawn for table in section.tables):
            yield from _section(section)
    yield from ("## Provenance", "", *(f"- {escape(note)}" for note in report.notes), "")
    files = {str(row[0])[len(_FILES) :].rpartition(".")[0] for row in report.facts.rows
             if str(row[0]).startswith(_FILES)}  # fmt: skip
    short = tuple(row for row in report.facts.rows if not str(row[0]).startswith(_FILES))
    yield from markdown_table(replace(report.facts, rows=short))
    if files:
        yield from ("", f"Files of the run, with hashes in manifest.json: {_listed(files)}.", "")


def _listed(names: Collection[str]) -> str:
    """A run has a dozen files for each launch; the first ones tell how they are called."""
    return ", ".join(first_texts([escape(name) for name in sorted(names)], _MOST_FILES))


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {escape(section.title)}", "")
    for text in filter(None, (section.lead, section.says)):
        yield from (escape(text), "")
    for table in section.tables:
        if table.title != section.title and table.rows:
            yield from (f"### {escape(table.title)}", "")
        if table.rows:
            yield from markdown_table(table.largest(_MOST_ROWS), "page")
        if table.note:
            yield from (f"{escape(table.note)}.", "")
    for line in section.lines:
        yield from (escape(line), "")


def _findings(report: Report) -> Iterator[str]:
    yield from ("## Findings: what to do next", "")
    if report.doubt:
        yield from (escape(report.doubt), "")
    for group in report.findings:
        yield f"- {_said(group.lead)}"
        if group.lead.advice:
            do = "Do: " if group.lead.action else ""
            yield f"  {do}{escape(group.lead.advice)}."
        yield f"  Explained in {group.lead.guide} (`{group.lead.guide_command}`)."
        yield from (f"  - {_said(finding)}" for finding in group.others)
    if not report.findings and not report.doubt:
        yield "No findings."
    if report.answers.rows:
        reference_heading = f"Beside the reference model, {escape(report.reference)}:"
        yield from ("", reference_heading, "", *markdown_table(report.answers))
    silent = "; ".join(report.silent) or "none"
    yield from ("", f"Checks that found nothing: {silent}.", "")


def _said(finding: Finding) -> str:
    title = f"**{finding.rule} {escape(finding.title)}** {escape(gain_text(finding))}"
    return f"{title.rstrip()}: {escape(finding.summary)}"


def markdown_table(table: Table, visibility: Visibility = "everywhere") -> list[str]:
    """Returns the lines of a table, an empty one behind them."""
    headings = [column.heading for column in shown_columns(table, visibility)]
    rows = ((cell.text for cell in row) for row in shown_rows(table, visibility))
    return markdown_rows(headings, rows)


def markdown_rows(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Returns the lines of a table of texts."""
    names = [escape(name) for name in headings]
    body = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *body, ""]


def escape(text: object) -> str:
    """Makes text from a file harmless: no markup, no HTML, no link, no second line.

    What stands in a pair of backticks stays code, inside of which nothing is read.
    """
    parts = _CODE.split(str(text).replace("\n", " "))
    return "".join(
        part if number % 2 else _SPECIAL.sub(_defuse, part) for number, part in enumerate(parts)
    )


def _defuse(match: re.Match[str]) -> str:
    if match["entity"]:
        return _ENTITIES[match[0]]
    return f"{match[0]}{_DIVIDER}" if match["linked"] else f"\\{match[0]}"
