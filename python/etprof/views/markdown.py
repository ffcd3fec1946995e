"""Tables as Markdown, for pull requests and terminals without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etprof.base.units import format_duration
from etprof.tables.findings import reference_table, shown_findings
from etprof.tables.report import report_sections
from etprof.tables.verdicts import (
    describe_subject,
    head_of,
    notes_of,
    platform_warning,
    provenance_table,
    reference_name,
    silent_rules,
    tiles_of,
)
from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.tables.table import Place, Section, Table

_MOST_ROWS: Final = 20

_SPECIAL: Final = re.compile(
    r"(?P<entity>[&<>])|(?P<linked>@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.))"
    r"|(?P<mark>[\\`*_\[\]|#~$]|^=|^[-+](?=[ -]|$)|(?<=^\d)[.)](?= |$)|(?<=^\d\d)[.)](?= |$))",
    re.IGNORECASE,
)
"""What Markdown reads: HTML; what GitHub links unasked, so that a name would call people or lead
somewhere (`@name`, `#12`, `GH-12`, addresses); markup, some of it at the start of a line only."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_DIVIDER: Final = "&#8203;"
"""A space of no width, as Renovate and Dependabot use it: GitHub looks for links in the text that a
page shows, where backslashes and other entities are gone."""


def render_markdown(assessments: Sequence[Assessment]) -> str:
    """Returns the report of one or several runs."""
    parts = ["\n".join(_run_lines(entry)).strip() for entry in assessments]
    return "\n\n---\n\n".join(parts) + "\n"


def _run_lines(assessment: Assessment) -> Iterator[str]:
    head, warning = head_of(assessment), platform_warning(assessment)
    yield from (f"# {escape(assessment.run.name)}", escape(describe_subject(assessment)), "")
    if warning:
        yield from (f"> **Not representative.** {escape(warning)}", "")
    if head.plain:
        yield from (escape(head.plain), "")
    yield from (f"**{escape(head.badge)}**: {escape(head.text)}. {escape(head.detail)}", "")
    yield from markdown_rows(("", "", ""), tiles_of(assessment))
    yield from _findings(assessment)
    for section in report_sections(assessment):
        yield from _section(section)
    yield from ("## Provenance", "", *(f"- {escape(note)}" for note in notes_of(assessment)), "")
    facts = provenance_table(assessment)
    short = tuple(row for row in facts.rows if not str(row[0]).startswith("files."))
    yield from markdown_table(replace(facts, rows=short))


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


def _findings(assessment: Assessment) -> Iterator[str]:
    found = shown_findings(assessment)
    yield from ("## Findings: what to do next", "")
    for finding in found:
        gain = f" (up to {format_duration(finding.gain_ns)} to gain)" if finding.gain_ns else ""
        title = f"**{finding.rule} {escape(finding.title)}**{escape(gain)}"
        yield from (f"- {title}: {escape(finding.summary)}", f"  Do: {escape(finding.action)}.")
    if not found:
        yield "No rule fired."
    primary = assessment.findings_of(assessment.primary.experiment.name)
    table = reference_table([primary], is_timed=assessment.run.is_timed)
    if table.rows:
        beside = f"Beside the reference model, {escape(reference_name(assessment.reference))}:"
        yield from ("", beside, "", *markdown_table(table))
    silent = "; ".join(silent_rules(assessment)) or "none"
    yield from ("", f"Asked and found nothing: {silent}.", "")


def markdown_table(table: Table, place: Place = "everywhere") -> list[str]:
    """Returns the lines of a table, an empty one behind them."""
    headings = [shown.heading for shown in shown_columns(table, place)]
    rows = ((cell.text for cell in row) for row in shown_rows(table, place))
    return markdown_rows(headings, rows)


def markdown_rows(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Returns the lines of a table of texts."""
    names = [escape(name) for name in headings]
    body = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *body, ""]


def escape(text: object) -> str:
    """Makes text from a file harmless: no markup, no HTML, no link, no second line."""
    return _SPECIAL.sub(_defuse, str(text).replace("\n", " "))


def _defuse(found: re.Match[str]) -> str:
    if found["entity"]:
        return _ENTITIES[found[0]]
    return f"{found[0]}{_DIVIDER}" if found["linked"] else f"\\{found[0]}"
