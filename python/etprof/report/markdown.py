"""The report as Markdown, for pull requests and terminals without a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.report.page import run_view
from etprof.views.markdown import escape
from etprof.views.markdown import markdown_rows as _table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.report.page import View

_TOP_OPERATORS: Final = 20


def render_markdown(assessments: Sequence[Assessment]) -> str:
    """Returns the report of one or several runs."""
    parts = [_render_run(run_view(entry, f"r{i}")) for i, entry in enumerate(assessments)]
    return "\n\n---\n\n".join(parts) + "\n"


def _generation(run: View) -> list[str]:
    """The speed of a language model, and what it said."""
    lines: list[str] = []
    for entry in run["generation"]:
        lines += [f"## Generation: {escape(entry['name'])}", "", f"{escape(entry['what'])}.", ""]
        lines += (
            _table(("speed", "median", "95 % interval"), entry["rows"]) if entry["rows"] else []
        )
        lines += [f"Generated: {escape(entry['generated'])}", escape(entry["unsteady"]), ""]
    return lines


def _render_run(run: View) -> str:
    head = run["headline"]
    lines = [f"# {escape(run['title'])}", escape(run["subtitle"]), ""]
    if run["warning"]:
        lines += [f"> **Not representative.** {escape(run['warning'])}", ""]
    lines += [escape(head["plain"]), ""] if head["plain"] else []
    lines += [f"**{escape(head['badge'])}**: {escape(head['text'])}. {escape(head['detail'])}", ""]
    lines += _table(
        ("", "", ""), ((tile["label"], tile["value"], tile["beside"]) for tile in run["tiles"])
    )
    lines += _findings(run)
    lines += _time(run)
    lines += _waterfall(run)
    lines += _operators(run)
    for part in run["rollups"] or ():
        rows = (
            [row[name] for name in ("key", "operators", "time", "share")] for row in part["rows"]
        )
        lines += [f"## {escape(part['title'])}", ""]
        lines += _table((part["what"], "operators", "time", "share"), rows)
    if run["why_not"]:
        lines += ["## Why not SME2?", ""]
        facts = ["reason", "count", *(["time"] if run["stacks"] else []), "operators"]
        lines += _table(facts, ([row[name] for name in facts] for row in run["why_not"]))
    lines += _generation(run)
    if run["ledger"]:
        lines += ["## From start to steady state", ""]
        columns = ("label", "baseline", "candidate", "speed_up", "verdict")
        lines += _table(columns, ([row[name] for name in columns] for row in run["ledger"]))
    if run["validity"]:
        lines += ["## May this be believed?", ""]
        checks = ((check.name, check.state, check.detail) for check in run["validity"])
        lines += _table(("condition", "state", "detail"), checks)
    lines += ["## Provenance", "", *(f"- {escape(note)}" for note in run["notes"]), ""]
    short = [line for line in run["provenance"] if not line[0].startswith("files.")]
    lines += _table(("fact", "value"), short)
    return "\n".join(lines).strip()


def _findings(run: View) -> list[str]:
    lines = ["## Findings: what to do next", ""]
    for finding in run["findings"]:
        gain = f" ({finding['gain']})" if finding["gain"] else ""
        lines.append(
            f"- **{finding['rule']} {escape(finding['title'])}**{escape(gain)}: {escape(finding['summary'])}"
        )
        lines.append(f"  Do: {escape(finding['action'])}.")
    lines += [] if run["findings"] else ["No rule fired."]
    if run["answers"]:
        lines += ["", f"Beside the reference model, {escape(run['reference'])}:", ""]
    for answer in run["answers"]:
        lines.append(
            f"- {escape(answer['question'])} {escape(answer['answer'])} ({answer['share']} here, "
            f"{answer['reference']} in the reference)"
        )
    return [*lines, "", f"Asked and found nothing: {'; '.join(run['silent']) or 'none'}.", ""]


def _time(run: View) -> list[str]:
    if run["stacks"] is None:
        return []
    names = [bar["name"] for bar in run["stacks"]["bars"]]
    rows = [(row["name"], *row["cells"]) for row in run["stacks"]["rows"]]
    rows.append(("Method::execute", *(bar["total"] for bar in run["stacks"]["bars"])))
    lines = ["## Where an inference's time goes", "", *_table(("category", *names), rows)]
    if run["tracer"]:
        lines += ["### What the event tracer costs", ""]
        lines += _table(run["tracer"]["columns"], run["tracer"]["rows"])
    return lines


def _waterfall(run: View) -> list[str]:
    if run["waterfall"] is None:
        return []
    rows = ((row["label"], row["value"], row["sides"]) for row in run["waterfall"]["rows"])
    return [
        "## From one total to the other",
        "",
        *_table(("step", "difference", "before → after"), rows),
    ]


def _operators(run: View) -> list[str]:
    table = run["operators"]
    columns = ("#", "operator", *table["columns"], "class", "microkernel", "module")
    rows = [
        (
            row["number"], row["label"], *(cell[0] for cell in row["cells"]), row["finer"],
            ", ".join(row["kernels"]), row["module"],
        )
        for row in table["rows"]
    ]  # fmt: skip
    shown = rows
    rest = []
    if len(rows) > _TOP_OPERATORS and table["columns"]:
        by_time = sorted(table["rows"], key=lambda row: -(row["cells"][-1][1] or 0))
        numbers = {row["number"] for row in by_time[:_TOP_OPERATORS]}
        shown = [row for row in rows if row[0] in numbers]
        rest = [f"The {_TOP_OPERATORS} operators with the largest share of {len(rows)}.", ""]
    return ["## Operators", "", *rest, *_table(columns, shown)]
