"""One HTML file with everything in it: works offline, asks nothing of any server."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from etprof._version import __version__
from etprof.base.html_template import hash_script, read_package_file, template_environment
from etprof.run.manifest import MANIFEST
from etprof.tables.alternatives import side_by_side
from etprof.tables.findings import gain_text
from etprof.tables.report import report_of
from etprof.views.cells import shown_columns, shown_rows
from etprof.views.charts import (
    bars_of,
    category_stacks,
    dots_of,
    front_of,
    icicle_of,
    latency_chart,
    roofline_of,
    row_colours,
    shades_of,
    steps_of,
    timelines,
)
from etprof.views.formats import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import jinja2

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.tables.findings import FindingGroup
    from etprof.tables.table import Section, Table, Value
    from etprof.views.cells import ShownColumn
    from etprof.views.charts import Bar

View = dict[str, Any]
_SORTABLE: Final = "operators"
_TOTAL: Final = "Method::execute"


def render_html(assessments: Sequence[Assessment]) -> str:
    """Returns the report of one or several runs as a self-contained page."""
    style, script = _asset("report.css"), _asset("report.js")
    runs = [_run_view(assessment, f"r{i}") for i, assessment in enumerate(assessments)]
    names = dict.fromkeys(run["title"] for run in runs)
    return _template("report.html.j2").render(
        title=", ".join(names),
        identities=_identities(assessments),
        runs=runs,
        together=_together_view(assessments),
        gain_text=gain_text,
        style=style,
        script=script,
        # Only this very script may run, whatever a name from a file may contain.
        script_hash=hash_script(script),
        version=__version__,
    )


def _identities(assessments: Sequence[Assessment]) -> list[str]:
    """Returns the hashes of the manifests: a report that is put elsewhere says whose it is."""
    manifests = [assessment.run.loaded.contents.get(MANIFEST) for assessment in assessments]
    return [hashlib.sha256(content).hexdigest() for content in manifests if content is not None]


def render_sections(title: str, sections: Sequence[Section]) -> str:
    """Returns tables and what is said of them as a self-contained page without a script."""
    return _template("sections.html.j2").render(
        title=title,
        sections=[_section_view(section) for section in sections],
        style=_asset("report.css"),
        version=__version__,
    )


@cache
def _template(name: str) -> jinja2.Template:
    return template_environment(_asset).get_template(name)


def _asset(name: str) -> str:
    """Reads a file that stands beside the templates."""
    return read_package_file("etprof.views", "templates", name)


def _together_view(assessments: Sequence[Assessment]) -> View | None:
    """Returns what the template shows of several runs together; None of a single one."""
    runs = side_by_side(assessments)
    if runs is None:
        return None
    return {
        "title": runs.title,
        "lead": runs.lead,
        "runs": _table_view(runs.runs, runs.runs.title),
        "sections": [_section_view(section) for section in runs.sections],
    }


def _run_view(assessment: Assessment, key: str) -> View:
    """Returns everything that the template shows of one run; `key` makes its ids unique."""
    run, report = assessment.run, report_of(assessment)
    return {
        **vars(report),
        "key": key,
        "links": report.links,
        "findings": _findings_view(report.findings),
        "answers": _table_view(report.answers, "") if report.answers.rows else None,
        "sections": [_section_view(section) for section in report.sections],
        "facts": shown_rows(report.facts, "page"),
        # Charts stand in the section of their name, or have one of their own.
        "stacks": category_stacks(run.experiments),
        "timelines": timelines(_shown(assessment)),
        "samples": latency_chart(run.experiments),
    }


_CHARTS: Final[dict[str, Callable[[Table], View | None]]] = {
    "dots": dots_of, "front": front_of, "icicle": icicle_of, "steps": steps_of, "roofline": roofline_of,
}  # fmt: skip
_LONG_WORD: Final = 20
"""Characters above which a word may be broken, so that a table fits its page."""
_SMALLEST: Final = frozenset({"mean_ns", "candidate_ns", "speed_up"})
"""Beside its name, what a phone shows of an operator; the rest is in its drawer."""
_PROVEN: Final = frozenset({"class", "kernels", "kernel_grade", "why_not_sme2", "macs"})
"""What is seen of an operator that was not timed."""


def _levels(columns: Sequence[ShownColumn], header: int) -> list[int]:
    """Where columns are seen at first: 0 everywhere, 1 not on a phone, 2 when asked for.

    Where that were the header alone, as without times, what was proven of it is seen too.
    """
    levels = [_level(column, is_header=at == header) for at, column in enumerate(columns)]
    if any(level < 2 for at, level in enumerate(levels) if at != header):
        return levels
    names = (column.column.name for column in columns)
    return [1 if name in _PROVEN else level for name, level in zip(names, levels, strict=True)]


def _level(shown_column: ShownColumn, *, is_header: bool) -> int:
    """Where a column is seen at first, for itself."""
    if is_header or (shown_column.column.name in _SMALLEST and not shown_column.is_interval):
        return 0
    is_usual = (
        shown_column.column.visibility == "everywhere" and shown_column.column.dtype != "boolean"
    )
    return 1 if is_usual and not shown_column.is_interval else 2


def _section_view(section: Section) -> View:
    charts = {name: next(filter(None, map(draw, section.tables)), None)
              for name, draw in _CHARTS.items()}  # fmt: skip
    visible_tables = [table for table in section.tables if table.rows and not table.is_drawn]
    tables = [_table_view(table, section.title) for table in visible_tables]
    return {
        **charts,
        "anchor": section.anchor,
        "title": section.title,
        "lead": section.lead,
        "says": section.says,
        "tables": tables,
        "lines": section.lines,
        "is_folded": section.is_folded,
        "is_sortable": section.anchor == _SORTABLE and bool(tables),
    }


def _table_view(table: Table, heading: str) -> View:
    """Returns the cells of a table with its bars and colours."""
    rows = shown_rows(table, "page")
    bars = bars_of(table)
    shown_bars: list[Bar | None] = [*bars] if bars else [None] * len(rows)
    columns = shown_columns(table, "page")
    first_text = next((i for i, c in enumerate(columns) if not c.column.is_number), 0)
    return {
        "title": "" if table.title == heading else table.title,
        "name": table.title or heading,
        "note": table.note,
        "columns": columns,
        "levels": _levels(columns, first_text),
        "row_header": first_text,
        "long_columns": [
            any(len(text) > _LONG_WORD for cells in rows for text in cells[index].text.split())
            for index in range(len(columns))
        ],
        "has_bars": bars is not None,
        "is_shaded": table.is_shaded,
        "rows": [
            {
                "cells": cells,
                "bar": bar,
                "colour": colour,
                "shades": shades,
                "is_total": _TOTAL in row,
                **_operator_of(table, row),
            }
            for row, cells, bar, colour, shades in zip(
                table.rows, rows, shown_bars, row_colours(table), shades_of(table), strict=True
            )
        ],
    }


def _findings_view(groups: Sequence[FindingGroup]) -> list[View]:
    """Returns each group's findings with their anchors, the worst first."""
    found = [finding for group in groups for finding in (group.lead, *group.others)]
    anchored = iter(zip(found, _anchors([finding.rule for finding in found]), strict=True))
    return [
        {"lead": next(anchored), "others": [next(anchored) for _ in group.others]}
        for group in groups
    ]


def _anchors(rules: Sequence[str]) -> list[str]:
    """A name for each finding: its rule, with a number from the second of that rule on."""
    counts = [rules[:index].count(rule) for index, rule in enumerate(rules)]
    return [f"{rule}-{n + 1}" if n else rule for rule, n in zip(rules, counts, strict=True)]


def _operator_of(table: Table, row: Sequence[Value]) -> View:
    """The number that a row's anchor has, and its class; None where rows are no operators."""
    is_operator = table.name == _SORTABLE and "number" in table.names
    record = dict(zip(table.names, row, strict=True)) if is_operator else {}
    run_record = dict(zip(table.names, row, strict=True)) if table.name == "runs" else {}
    run = f"#r{int(run_record['number'] or 1) - 1}" if run_record else None
    return {"number": record.get("number"), "class": record.get("class"), "href": run}


def _shown(assessment: Assessment) -> list[ExperimentAnalysis]:
    """Both sides of the primary comparison, or the one experiment."""
    comparison = assessment.primary_comparison
    if comparison is None:
        return [assessment.primary.experiment] if assessment.is_split else []
    return [comparison.baseline.experiment, comparison.candidate.experiment]


FORMAT = Format(of_all=lambda runs: {"report.html": render_html(runs)})
