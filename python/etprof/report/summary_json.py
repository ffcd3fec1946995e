"""analysis_summary.json: every number of the analysis for other programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from etprof.analysis.assessment import assess_run
from etprof.analysis.split.operators import category_totals_ns, class_totals_ns
from etprof.analysis.split.thread_map import build_thread_map
from etprof.base.text import clean, with_raw_names
from etprof.report.comparison_json import comparison_document
from etprof.report.generation import generation_document
from etprof.report.records import operator_record, tracer_table, without_times
from etprof.report.thread_table import thread_map_document

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.analysis.insight import ExperimentInsight
    from etprof.analysis.run_analysis import ExperimentAnalysis, Latency, RunAnalysis
    from etprof.analysis.split.operators import OperatorSplit
    from etprof.statistics.summary import BlockedMedian

SCHEMA_VERSION = 1
_NS_PER_MS = 1e6


def summary_document(analysis: RunAnalysis) -> dict[str, object]:
    """Returns the analysis as JSON data; `*_ms` totals are over all steady executions."""
    return assessment_document(assess_run(analysis))


def assessment_document(assessment: Assessment) -> dict[str, object]:
    """Returns everything that the reports show of a run as JSON data."""
    analysis = assessment.run
    thread_map = build_thread_map(analysis.experiments) if analysis.times_are_meaningful else None
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "model": analysis.manifest.model.name if analysis.manifest else None,
        "platform": analysis.manifest.platform if analysis.manifest else None,
        "times_are_meaningful": analysis.times_are_meaningful,
        "category_totals_ms": {e.name: _categories_ms(e.split) for e in analysis.experiments}
        if analysis.times_are_meaningful
        else {},
        "experiments": {
            e.experiment.name: _experiment(e, meaningful=analysis.times_are_meaningful)
            for e in assessment.insight.experiments
        },
        "comparisons": [comparison_document(entry) for entry in assessment.comparisons],
        "thread_map": thread_map_document(thread_map) if thread_map else None,
        "tracer_costs": tracer_table(assessment),
        "findings": [
            _findings(entry, meaningful=analysis.times_are_meaningful)
            for entry in assessment.findings
        ],
        "reference": clean(str(assessment.reference.source)) if assessment.reference else None,
        "notes": list(assessment.notes),
    }
    return with_raw_names(document)


def _findings(found: ExperimentFindings, *, meaningful: bool) -> dict[str, object]:
    return {
        "experiment": found.experiment,
        "checked": list(found.checked),
        "findings": [dataclasses.asdict(finding) for finding in found.findings],
        "reference_answers": [dataclasses.asdict(answer) for answer in found.reference_answers],
        "why_not_sme2": [
            {
                "code": group.code,
                "reason": group.reason,
                "source": group.source,
                "operators": [detail.row.label for detail in group.operators],
                "mean_ns": group.mean_ns if meaningful else None,
                "gain_ns": group.gain_ns if meaningful else None,
            }
            for group in found.why_not_sme2
        ],
    }


def _categories_ms(split: OperatorSplit) -> dict[str, float]:
    return {name: total / _NS_PER_MS for name, total in category_totals_ns(split).items()}


def _experiment(insight: ExperimentInsight, *, meaningful: bool) -> dict[str, object]:
    """One experiment; where times mean nothing, without any."""
    experiment = insight.experiment
    operators = [operator_record(detail) for detail in insight.details]
    return {
        "etdump": clean(experiment.etdump.name),
        "sme": experiment.sme,
        "threads": experiment.threads,
        "generation": generation_document(experiment, times_are_meaningful=meaningful),
        "executions": experiment.split.executions,
        "left_out": dataclasses.asdict(experiment.split.left_out),
        "operators": operators if meaningful else without_times(operators),
        "unknown_names": list(experiment.split.unknown_names),
        **(_times(experiment) if meaningful else {}),
    }


def _times(experiment: ExperimentAnalysis) -> dict[str, object]:
    split = experiment.split
    return {
        "latency": _latency(experiment.latency) if experiment.latency else None,
        "execute_total_ms": split.execute_total_ns / _NS_PER_MS,
        "execute_median_ns": split.execute_median_ns,
        "first_execute_ns": split.first_execute_ns,
        "load_events_ns": split.load_ns,
        "category_totals_ms": _categories_ms(split),
        "categories": [
            {
                "category": entry.category,
                "class": entry.finer,
                "mean_ns": total / split.executions,
                "share": total / split.execute_total_ns if split.execute_total_ns else 0.0,
            }
            for entry, total in class_totals_ns(split).items()
        ],
        "overheads": [
            {"label": row.label, "class": row.operator_class.finer, "mean_ns": row.mean_ns,
             "share": row.share}
            for row in split.overheads
        ],
    }  # fmt: skip


def _latency(latency: Latency) -> dict[str, object]:
    return {
        "load_ns": _blocked(latency.load),
        "first_inference_ns": _blocked(latency.first_inference),
        "steady_ns": _blocked(latency.steady),
        "samples": dataclasses.asdict(latency.samples),
        "peak_rss_bytes": latency.peak_rss_bytes,
        "rss_after_load_bytes": latency.rss_after_load_bytes,
        "planned_buffers_bytes": latency.planned_buffers_bytes,
    }


def _blocked(summary: BlockedMedian) -> dict[str, object]:
    interval = dataclasses.asdict(summary.interval) if summary.interval else None
    return {
        "median": summary.median,
        "interval": interval,
        "block_medians": list(summary.block_medians),
    }
