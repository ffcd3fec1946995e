"""Findings as terminal text: the worst first, each with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from etprof.base.units import format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.rules import ExperimentFindings

_STYLES = {"high": "red", "medium": "yellow", "note": "cyan", "good": "green"}


def render_findings(found: ExperimentFindings) -> RenderableType:
    """Returns one experiment's findings; one line when no rule fired."""
    if not found.findings:
        return Text(f"{found.experiment}: no finding; asked were {', '.join(found.checked)}")
    parts: list[RenderableType] = [Text(f"Findings for {found.experiment}", style="bold")]
    parts += [_finding(finding) for finding in found.findings]
    return Group(*parts)


def _finding(finding: Finding) -> Text:
    gain = f" (up to {format_duration(finding.gain_ns)})" if finding.gain_ns else ""
    return Text.assemble(
        (f"{finding.rule} {finding.title}", _STYLES[finding.severity]),
        gain,
        f": {finding.summary}\n   Do: {finding.action}",
    )
