"""What the HTML report shows, as plain data for its template: text is formatted here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.outlook import predict_sme2
from etprof.analysis.provenance import load_manifest_document
from etprof.analysis.thread_map import build_thread_map
from etprof.report.charts import category_stacks, latency_chart, timeline, waterfall_bars
from etprof.report.operator_table import operator_table
from etprof.report.platforms import platform_warning
from etprof.report.verdicts import badge_of, describe_comparison, format_speed_up
from etprof.units import (
    MISSING,
    count_of,
    format_duration,
    format_interval,
    format_ratio,
    format_share,
    format_size,
)

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.cold_start import LedgerEntry
    from etprof.analysis.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.analysis.findings.why_not import WhyNotGroup
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.thread_map import Cell

View = dict[str, Any]
_TILE_LABELS = ("Load method (with weight packing)", "First inference", "Peak memory")


def run_view(assessment: Assessment, key: str) -> View:
    """Returns everything that the template shows of one run; `key` makes its ids unique."""
    comparison = assessment.primary_comparison
    meaningful = assessment.run.times_are_meaningful
    found = assessment.findings_of(assessment.primary.experiment.name)
    return {
        "key": key,
        "title": _title(assessment),
        "subtitle": _subtitle(assessment),
        "warning": platform_warning(assessment),
        "headline": _headline(assessment),
        **(_timed_parts(assessment) if meaningful else _TIMELESS),
        "tiles": _tiles(assessment),
        **_findings(assessment, found),
        "operators": operator_table(assessment),
        "comparisons": [_comparison_row(entry) for entry in assessment.comparisons],
        "why_not": [_why_not(group) for group in found.why_not_sme2],
        "validity": comparison.validity.checks if comparison and meaningful else (),
        "notes": [*assessment.notes, *(comparison.notes if comparison else ())],
        "unknown_names": sorted(
            {name for e in assessment.run.experiments for name in e.split.unknown_names}
        ),
        "provenance": _provenance(assessment),
    }


def _timed_parts(assessment: Assessment) -> View:
    """What rests on times, and is left out where those mean nothing."""
    comparison = assessment.primary_comparison
    return {
        "stacks": category_stacks(assessment.run.experiments),
        "waterfall": waterfall_bars(comparison) if comparison else None,
        "amdahl": _amdahl(comparison) if comparison else None,
        "outlook": None if _has_sme(assessment) else _outlook(assessment),
        "timelines": [timeline(entry) for entry in _shown(assessment)],
        "latency": latency_chart(assessment.run.experiments),
        "threads": _thread_map(assessment),
        "ledger": _ledger(comparison) if comparison else None,
    }


_TIMELESS: Final = dict.fromkeys(
    ("stacks", "waterfall", "amdahl", "outlook", "timelines", "latency", "threads", "ledger")
)


def _findings(assessment: Assessment, found: ExperimentFindings) -> View:
    """All findings, the rules that stayed silent, and the reference's answers."""
    fired = {finding.rule for finding in found.findings}
    return {
        "findings": [_finding(entry) for entry in _all_findings(assessment)],
        "silent": ", ".join(name for name in found.checked if name not in fired),
        "answers": [
            {
                "question": entry.question,
                "share": format_share(entry.share),
                "reference": format_share(entry.reference_share),
                "answer": entry.answer,
            }
            for entry in found.reference_answers
        ],
    }


def _title(assessment: Assessment) -> str:
    manifest = assessment.run.manifest
    return manifest.model.name if manifest else assessment.run.source.stem


def _subtitle(assessment: Assessment) -> str:
    """Precision, platform, CPU and date, as far as they are known."""
    facts = assessment.provenance
    if facts is None:
        return str(assessment.run.source)
    model, cpu = facts.model, facts.cpu
    words = [
        model.precision if model else None,
        model.backend if model else None,
        facts.platform,
        (cpu.model_name or cpu.architecture) if cpu else None,
        (facts.created_at or "")[:10],
    ]
    return " · ".join(word for word in words if word)


def _headline(assessment: Assessment) -> View:
    """The verdict; without a comparison the latency alone."""
    comparison = assessment.primary_comparison
    primary = assessment.primary.experiment
    if comparison is not None:
        return _comparison_headline(assessment, comparison)
    latency = primary.latency
    meaningful = assessment.run.times_are_meaningful
    interval = latency.steady.interval if latency else None
    return {
        "figure": format_duration(latency.steady.median) if latency and meaningful else MISSING,
        "badge": "no comparison" if meaningful else "not representative",
        "caution": "",
        "text": f"{primary.name}: one experiment, nothing to compare it with",
        "detail": f"95 % interval of the median {format_interval(interval.low, interval.high)}"
        if interval and meaningful
        else "",
    }


def _comparison_headline(assessment: Assessment, comparison: Comparison) -> View:
    """Speed-up with verdict; for emulated runs how many operators ran on SME2."""
    effect = comparison.latency
    figure = format_ratio(effect.speed_up) if effect else MISSING
    detail = [str(check) for check in comparison.outputs]
    if effect is not None:
        detail.insert(
            0,
            f"{effect.pairs} pairs of process launches, sign-flip p = {effect.p_value:.2g}; "
            "speed-up is baseline ÷ candidate",
        )
    if not comparison.times_are_meaningful:
        figure = _emulated_tiles(assessment)[0]["value"]
        detail.insert(0, "convolutions and matrix products on SME2")
    return {
        "figure": figure,
        "badge": badge_of(comparison),
        "caution": "" if comparison.validity.is_valid else comparison.validity.badge,
        "text": describe_comparison(comparison),
        "detail": f"{'; '.join(detail)}." if detail else "",
    }


def _tiles(assessment: Assessment) -> list[View]:
    """A few figures of the primary experiment, beside its baseline's."""
    if not assessment.run.times_are_meaningful:
        return _emulated_tiles(assessment)
    comparison = assessment.primary_comparison
    if comparison is not None and comparison.ledger:
        chosen = {entry.label: entry for entry in comparison.ledger}
        labels = ("Steady inference", *_TILE_LABELS)
        return [_ledger_tile(chosen[label]) for label in labels]
    latency = assessment.primary.experiment.latency
    if latency is None:
        split = assessment.primary.experiment.split
        return [{"label": "Median inference, with tracer",
                 "value": format_duration(split.execute_median_ns), "beside": ""}]  # fmt: skip
    return [
        {"label": "Median inference", "value": format_duration(latency.steady.median),
         "beside": f"{latency.samples.count:,} samples"},
        {"label": "99th percentile", "value": format_duration(latency.samples.p99),
         "beside": f"minimum {format_duration(latency.samples.minimum)}"},
        {"label": "First inference", "value": format_duration(latency.first_inference.median),
         "beside": f"load {format_duration(latency.load.median)}"},
        {"label": "Peak memory", "value": format_size(latency.peak_rss_bytes),
         "beside": f"planned {format_size(latency.planned_buffers_bytes)}"},
    ]  # fmt: skip


def _ledger_tile(entry: LedgerEntry) -> View:
    show = format_duration if entry.unit == "ns" else format_size
    return {
        "label": entry.label,
        "value": show(entry.candidate),
        "beside": f"baseline {show(entry.baseline)}",
    }


def _emulated_tiles(assessment: Assessment) -> list[View]:
    """Counts instead of times."""
    details = assessment.primary.details
    compute = [d for d in details if d.evidence.could_use_sme2]
    with_sme2 = [d for d in compute if d.evidence.level == "sme2"]
    calls = sum(kernel.calls for detail in details for kernel in detail.kernels)
    return [
        {"label": "Convolutions and products on SME2", "value": f"{len(with_sme2)} of {len(compute)}",
         "beside": "counted calls" if assessment.primary.has_kernel_trace else "no kernel trace"},
        {"label": "Operators", "value": f"{len(details)}",
         "beside": f"{sum(d.row.is_delegated for d in details)} delegated"},
        {"label": "KleidiAI calls an inference", "value": f"{calls:,}", "beside": ""},
    ]  # fmt: skip


def _all_findings(assessment: Assessment) -> list[Finding]:
    """The primary experiment's findings, then what only others have."""
    primary = assessment.findings_of(assessment.primary.experiment.name)
    found = list(primary.findings)
    known = {finding.rule for finding in found}
    for entry in assessment.findings:
        for finding in entry.findings:
            if finding.rule not in known:
                known.add(finding.rule)
                found.append(finding)
    return found


def _finding(finding: Finding) -> View:
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": finding.severity,
        "experiment": finding.experiment,
        "summary": finding.summary,
        "gain": f"up to {format_duration(finding.gain_ns)}" if finding.gain_ns else "",
        "action": finding.action,
        "evidence": finding.evidence,
        "ruled_out": finding.ruled_out,
    }


def _amdahl(comparison: Comparison) -> View:
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


def _has_sme(assessment: Assessment) -> bool:
    return any(entry.sme not in {None, "off"} for entry in assessment.run.experiments)


def _outlook(assessment: Assessment) -> View | None:
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


def _shown(assessment: Assessment) -> list[ExperimentAnalysis]:
    """Both sides of the primary comparison, or the one experiment."""
    comparison = assessment.primary_comparison
    if comparison is None:
        return [assessment.primary.experiment]
    return [comparison.baseline.experiment, comparison.candidate.experiment]


def _comparison_row(comparison: Comparison) -> View:
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


def _thread_map(assessment: Assessment) -> View | None:
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


def _ledger(comparison: Comparison) -> list[View]:
    return [
        {
            "label": entry.label,
            "baseline": (show := format_duration if entry.unit == "ns" else format_size)(
                entry.baseline
            ),
            "candidate": show(entry.candidate),
            "speed_up": format_speed_up(entry.effect) if entry.effect else MISSING,
            "verdict": entry.effect.verdict if entry.effect else "",
        }
        for entry in comparison.ledger
    ]


def _why_not(group: WhyNotGroup) -> View:
    return {
        "reason": group.reason,
        "source": group.source,
        "count": len(group.operators),
        "operators": ", ".join(detail.row.label for detail in group.operators[:4])
        + (f" and {len(group.operators) - 4} others" if len(group.operators) > 4 else ""),
        "time": format_duration(group.mean_ns),
        "gain": format_duration(group.gain_ns),
    }


def _provenance(assessment: Assessment) -> list[tuple[str, str]]:
    """Every field of the manifest as one line, nested names joined by dots."""
    document = load_manifest_document(assessment.run.source) if assessment.provenance else None
    if document is None:
        return [("source", str(assessment.run.source))]
    lines: list[tuple[str, str]] = []
    for name, value in document.items():
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
