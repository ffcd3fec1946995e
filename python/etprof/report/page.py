"""What the HTML report shows, as plain data for its template: text is formatted here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.findings.rules import describe_rule
from etprof.base.text import clean
from etprof.base.units import (
    MISSING,
    format_duration,
    format_interval,
    format_ratio,
    format_share,
    format_size,
    format_value,
)
from etprof.report.charts import category_stacks, latency_chart, timelines, waterfall_bars
from etprof.report.generation import generation_views
from etprof.report.operator_table import operator_table
from etprof.report.page_parts import (
    amdahl_view,
    comparison_row,
    finding_view,
    ledger_view,
    outlook_view,
    provenance_lines,
    rollup_views,
    thread_map_view,
    why_not_view,
)
from etprof.report.platforms import platform_warning
from etprof.report.tracer_table import tracer_view
from etprof.report.verdicts import badge_of, describe_comparison, describe_plainly

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.analysis.split.cold_start import LedgerEntry

View = dict[str, Any]
_TILE_LABELS = ("Load method (with weight packing)", "First inference", "Peak memory")


def run_view(assessment: Assessment, key: str) -> View:
    """Returns everything that the template shows of one run; `key` makes its ids unique."""
    comparison = assessment.primary_comparison
    meaningful = assessment.run.times_are_meaningful
    found = assessment.findings_of(assessment.primary.experiment.name)
    return {
        "key": key,
        "title": assessment.run.name,
        "subtitle": _subtitle(assessment),
        "warning": platform_warning(assessment),
        "headline": _headline(assessment),
        **(_timed_parts(assessment) if meaningful else _TIMELESS),
        "tiles": _tiles(assessment),
        **_findings(assessment, found),
        "generation": generation_views(assessment.run.experiments, times_are_meaningful=meaningful),
        "operators": operator_table(assessment),
        "comparisons": [comparison_row(entry) for entry in assessment.comparisons],
        "why_not": [why_not_view(group) for group in found.why_not_sme2],
        "validity": comparison.validity.checks if comparison and meaningful else (),
        "notes": list(
            dict.fromkeys([*assessment.notes, *(comparison.notes if comparison else ())])
        ),
        "unknown_names": sorted(
            {name for e in assessment.run.experiments for name in e.split.unknown_names}
        ),
        "provenance": provenance_lines(assessment),
    }


def _timed_parts(assessment: Assessment) -> View:
    """What rests on times, and is left out where those mean nothing."""
    comparison = assessment.primary_comparison
    return {
        "stacks": category_stacks(assessment.run.experiments),
        "waterfall": waterfall_bars(comparison) if comparison else None,
        "amdahl": amdahl_view(comparison) if comparison else None,
        "outlook": None if _has_sme(assessment) else outlook_view(assessment),
        "rollups": rollup_views(assessment),
        "timelines": timelines(_shown(assessment)),
        "latency": latency_chart(assessment.run.experiments),
        "threads": thread_map_view(assessment),
        "ledger": ledger_view(comparison) if comparison else None,
        "tracer": tracer_view(assessment.tracer_costs),
    }


_TIMELESS: Final = dict.fromkeys(
    (
        "stacks",
        "waterfall",
        "amdahl",
        "outlook",
        "rollups",
        "timelines",
        "latency",
        "threads",
        "ledger",
        "tracer",
    )
)


def _findings(assessment: Assessment, found: ExperimentFindings) -> View:
    """All findings, the rules that stayed silent, and the reference's answers."""
    fired = {finding.rule for finding in found.findings}
    return {
        "findings": [finding_view(entry) for entry in _all_findings(assessment)],
        "silent": [f"{describe_rule(n)} ({n})" for n in found.checked if n not in fired],
        "reference": _reference_name(assessment.reference),
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


def _reference_name(reference: RunAnalysis | None) -> str:
    """Names the reference model and its run."""
    if reference is None:
        return ""
    return f"{reference.name}, {clean(str(reference.source))}"


def _subtitle(assessment: Assessment) -> str:
    """Precision, platform, CPU and date, as far as they are known."""
    facts = assessment.run.manifest
    if facts is None:
        return clean(str(assessment.run.source))
    model, cpu = facts.model, facts.cpu
    words = [
        model.precision,
        model.backend,
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
    figure = format_duration(latency.steady.median) if latency and meaningful else MISSING
    return {
        "figure": figure,
        "badge": "no comparison" if meaningful else "not representative",
        "caution": "",
        "plain": (f"An inference takes {figure}. " if figure != MISSING else "")
        + "There is one experiment, and nothing to compare it with.",
        "text": primary.name,
        "detail": f"95 % interval of the median {format_interval(interval.low, interval.high)}"
        if interval and meaningful
        else "",
    }


def _comparison_headline(assessment: Assessment, comparison: Comparison) -> View:
    """Speed-up with verdict; for emulated runs how many operators ran on SME2."""
    effect = comparison.latency
    figure, plain = format_ratio(effect.speed_up if effect else None), describe_plainly(comparison)
    detail = [str(check) for check in comparison.outputs]
    detail += [f"generated: {comparison.tokens}"] if comparison.tokens else []
    if effect is not None:
        detail.insert(
            0,
            f"{effect.pairs} pairs of process launches, sign-flip p = {effect.p_value:.2g}; "
            "speed-up is baseline ÷ candidate",
        )
    if not comparison.times_are_meaningful:
        figure = _count_on_sme2(assessment)
        plain = f"{figure} convolutions and matrix products ran on SME2."
    return {
        "figure": figure,
        "badge": badge_of(comparison),
        "caution": "" if comparison.validity.is_valid else comparison.validity.badge,
        "plain": plain,
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
    return {
        "label": entry.label,
        "value": format_value(entry.unit, entry.candidate),
        "beside": f"baseline {format_value(entry.unit, entry.baseline)}",
    }


def _emulated_tiles(assessment: Assessment) -> list[View]:
    """Counts instead of times."""
    details = assessment.primary.details
    calls = sum(kernel.calls for detail in details for kernel in detail.kernels)
    return [
        {"label": "Convolutions and products on SME2", "value": _count_on_sme2(assessment),
         "beside": "counted calls" if assessment.primary.has_kernel_trace else "no kernel trace"},
        {"label": "Operators", "value": f"{len(details)}",
         "beside": f"{sum(d.row.is_delegated for d in details)} delegated"},
        {"label": "KleidiAI calls an inference", "value": f"{calls:,}", "beside": ""},
    ]  # fmt: skip


def _count_on_sme2(assessment: Assessment) -> str:
    """How many of those that could ran on SME2, such as `36 of 53`."""
    compute = [d for d in assessment.primary.details if d.evidence.could_use_sme2]
    return f"{sum(d.evidence.level == 'sme2' for d in compute)} of {len(compute)}"


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


def _has_sme(assessment: Assessment) -> bool:
    return any(entry.sme not in {None, "off"} for entry in assessment.run.experiments)


def _shown(assessment: Assessment) -> list[ExperimentAnalysis]:
    """Both sides of the primary comparison, or the one experiment."""
    comparison = assessment.primary_comparison
    if comparison is None:
        return [assessment.primary.experiment]
    return [comparison.baseline.experiment, comparison.candidate.experiment]
