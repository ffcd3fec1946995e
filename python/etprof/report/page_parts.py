"""Parts of the HTML report's data, each for one section of the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from etprof.analysis.outlook import predict_sme2
from etprof.analysis.split.rollup import roll_up
from etprof.analysis.split.thread_map import build_thread_map
from etprof.base.text import clean
from etprof.base.units import (
    MISSING,
    count_of,
    format_duration,
    format_ratio,
    format_share,
    format_value,
)
from etprof.report.verdicts import badge_of, format_speed_up

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.why_not import WhyNotGroup
    from etprof.analysis.split.rollup import Key
    from etprof.analysis.split.thread_map import Cell

View = dict[str, Any]
_ROLLUP_ROWS = 8


def amdahl_view(comparison: Comparison) -> View:
    """How far acceleration can go, and the next bottlenecks."""
    panel = comparison.amdahl
    return {
        "operators": panel.accelerated_operators,
        "share": format_share(panel.accelerated_share),
        "speed_up": format_ratio(panel.accelerated_speed_up),
        "achieved": format_ratio(panel.achieved),
        "ceiling": format_ratio(panel.ceiling),
        "bottlenecks": [
            {
                "name": entry.operator_class.finer,
                "category": entry.operator_class.category,
                "time": format_duration(entry.mean_ns),
                "share": format_share(entry.share),
                "percent": f"{entry.share * 100:.2f}",
                "worth": format_ratio(entry.speed_up_if_removed),
            }
            for entry in panel.bottlenecks
        ],
    }


def outlook_view(assessment: Assessment) -> View | None:
    """What SME2 could do for this model, where no experiment had it."""
    found = predict_sme2(assessment.primary)
    if found is None:
        return None
    return {
        "operators": count_of(found.operators, "operator"),
        "share": format_share(found.share),
        "types": " and ".join(found.packed_types),
        "ceiling": format_ratio(found.ceiling),
    }


def rollup_views(assessment: Assessment) -> list[View]:
    """What takes most by line, module and microkernel; each only where something is known of it."""
    titles: tuple[tuple[Key, str, str], ...] = (
        ("source", "Line", "Hot lines of the model"),
        ("module", "Module", "Modules"),
        ("microkernel", "Microkernel", "Microkernels"),
    )
    found = [
        {"what": what, "title": title, "rows": _rollup_rows(assessment, by)}
        for by, what, title in titles
    ]
    return [view for view in found if view["rows"]]


def _rollup_rows(assessment: Assessment, by: Key) -> list[View]:
    origins = [d.attribution.origin for d in assessment.primary.details if d.attribution]
    code = {str(o.source): o.source.code for o in origins if o and o.source}
    return [
        {
            "key": row.key or "(the model itself)",
            "code": code.get(row.key, "") if by == "source" else "",
            "operators": row.operators,
            "time": format_duration(row.mean_ns),
            "share": format_share(row.share),
            "percent": f"{row.share * 100:.2f}",
        }
        for row in roll_up(assessment.primary, by)
        if row.key is not None
    ][:_ROLLUP_ROWS]


def comparison_row(comparison: Comparison) -> View:
    """One line of the table of all comparisons."""
    before, after = comparison.baseline.experiment, comparison.candidate.experiment
    times = [e.latency.steady.median if e.latency else None for e in (before, after)]
    effect = comparison.latency
    return {
        "name": comparison.name,
        "badge": badge_of(comparison),
        "baseline": format_duration(times[0]) if comparison.times_are_meaningful else MISSING,
        "candidate": format_duration(times[1]) if comparison.times_are_meaningful else MISSING,
        "speed_up": format_speed_up(effect) if effect else MISSING,
        "p": f"{effect.p_value:.2g}" if effect else MISSING,
    }


def thread_map_view(assessment: Assessment) -> View | None:
    """Median latency by SME mode and thread count; None for a single thread count."""
    found = build_thread_map(assessment.run.experiments)
    if found is None:
        return None
    slowest = max(cell.median_ns for cell in found.cells)
    return {
        "threads": found.threads,
        "crossover": found.crossover_threads,
        "rows": [
            {
                "mode": f"SME {mode}",
                "cells": [
                    _thread_cell(found.cell(mode, count), found.best, slowest)
                    for count in found.threads
                ],
            }
            for mode in found.modes
        ],
    }


def _thread_cell(cell: Cell | None, best: Cell, slowest: float) -> View:
    if cell is None:
        return {"text": MISSING, "strength": 0, "best": False}
    reach = slowest - best.median_ns
    strength = round(80 * (slowest - cell.median_ns) / reach) if reach else 80
    return {
        "text": format_duration(cell.median_ns),
        "strength": strength,
        "best": cell == best,
    }


def ledger_view(comparison: Comparison) -> list[View]:
    """The ledger from start to steady state."""
    return [
        {
            "label": entry.label,
            "baseline": format_value(entry.unit, entry.baseline),
            "candidate": format_value(entry.unit, entry.candidate),
            "speed_up": format_speed_up(entry.effect) if entry.effect else MISSING,
            "verdict": entry.effect.verdict if entry.effect else "",
        }
        for entry in comparison.ledger
        if entry.baseline is not None or entry.candidate is not None
    ]


def why_not_view(group: WhyNotGroup) -> View:
    """Operators that missed SME2 for one reason."""
    return {
        "reason": group.reason,
        "source": group.source,
        "count": len(group.operators),
        "operators": ", ".join(detail.row.label for detail in group.operators[:4])
        + (f" and {len(group.operators) - 4} others" if len(group.operators) > 4 else ""),
        "time": format_duration(group.mean_ns),
        "gain": format_duration(group.gain_ns),
    }


def finding_view(finding: Finding) -> View:
    """One finding with its evidence."""
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": finding.severity,
        "experiment": finding.experiment,
        "summary": finding.summary,
        "gain": f"up to {format_duration(finding.gain_ns)} to gain" if finding.gain_ns else "",
        "action": finding.action,
        "evidence": finding.evidence,
        "ruled_out": finding.ruled_out,
    }


def provenance_lines(assessment: Assessment) -> list[tuple[str, str]]:
    """Every field of the manifest as one line, nested names joined by dots."""
    manifest = assessment.run.manifest
    if manifest is None:
        return [("source", clean(str(assessment.run.source)))]
    lines: list[tuple[str, str]] = []
    for name, value in manifest.model_dump(mode="json").items():
        if name == "launches":
            lines.append((name, f"{len(value)} process launches, listed in manifest.json"))
        else:
            lines += _flatten(name, value)
    return lines


def _flatten(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [line for key, entry in value.items() for line in _flatten(f"{name}.{key}", entry)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [line for i, entry in enumerate(value) for line in _flatten(f"{name}[{i}]", entry)]
    return [(name, value if isinstance(value, str) else json.dumps(value))]
