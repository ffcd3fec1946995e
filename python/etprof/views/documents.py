"""The analysis as JSON data for other programs: tables as records, and what is no table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.split.operators import category_times
from etprof.analysis.split.thread_map import build_thread_map
from etprof.base.text import clean, with_raw_names
from etprof.tables import comparisons, findings, kernels, measurement, operators, quality
from etprof.tables.alternatives import side_by_side
from etprof.views.files import json_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.compare.comparison import ComparedTimes, Comparison
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.analysis.insight import ExperimentInsight
    from etprof.analysis.run_analysis import ExperimentAnalysis, Latency
    from etprof.analysis.split.operators import SplitTimes
    from etprof.statistics.effect import Effect
    from etprof.statistics.summary import BlockedMedian
    from etprof.tables.table import Table

    Document = dict[str, Any]

SUMMARY_VERSION: Final = 2
COMPARISON_VERSION: Final = 1
RUNS_VERSION: Final = 1
_NS_PER_MS: Final = 1e6


def assessment_document(assessment: Assessment) -> Document:
    """Returns everything that is known of a run; times in ns or, where named so, in ms."""
    run = assessment.run
    categories_ms = {e.name: _categories_ms(e) for e in run.experiments if e.split.times}
    return with_raw_names({
        "schema_version": SUMMARY_VERSION,
        "run_id": run.manifest.run_id if run.manifest else None,
        "model": run.manifest.model.name if run.manifest else None,
        "platform": run.manifest.platform if run.manifest else None,
        "times_are_meaningful": run.is_timed,
        "executions": {e.name: e.split.executions for e in run.experiments if e.split.times},
        "category_means_ms": categories_ms,
        "category_totals_ms": categories_ms,
        "experiments": {
            insight.experiment.name: _experiment(insight)
            for insight in assessment.insight.experiments
        },
        "comparisons": [comparison_document(comparison) for comparison in assessment.comparisons],
        "thread_map": _thread_map(run.experiments),
        "tracer_costs": json_records(
            measurement.TRACER_COSTS.of_each(assessment.tracer_costs)
        ),
        "kernel_evidence": _kernel_evidence(assessment),
        "outputs": json_records(comparisons.OUTPUTS.of(assessment.outputs)),
        "accuracy": json_records(comparisons.ACCURACY.of_each(assessment.run.verdicts)),
        "generation": json_records(quality.GENERATION.of_each(assessment.insight.experiments)),
        "findings": [_findings(experiment_findings) for experiment_findings in assessment.findings],
        "reference": clean(str(assessment.reference.source)) if assessment.reference else None,
        "notes": list(assessment.notes),
    })  # fmt: skip


def runs_document(assessments: Sequence[Assessment]) -> Document | None:
    """Returns several runs as one comparison; None of a single one."""
    runs = side_by_side(assessments)
    if runs is None:
        return None
    tables = {table.name: json_records(table) for table in runs.tables}
    return with_raw_names({"schema_version": RUNS_VERSION, "lead": runs.lead, **tables})


def _kernel_evidence(assessment: Assessment) -> Document | None:
    """What was counted in each SME mode; None where nothing was."""
    counted = assessment.run.counted
    if not counted:
        return None
    return {
        "modes": json_records(kernels.MODES.of_each([counted])),
        "operators": json_records(kernels.KERNELS.of_each([counted])),
        "calls": json_records(kernels.USES.of_each([counted])),
        "work": json_records(kernels.WORK.of_each([counted])),
        "phases": json_records(
            kernels.PHASES.of_each([(assessment.run.counted_in_prefill, counted)])
        ),
    }


def comparison_document(comparison: Comparison) -> Document:
    """Returns a comparison as JSON data; times that mean nothing are left out."""
    document: Document = {
        "schema_version": COMPARISON_VERSION,
        "name": comparison.name,
        "baseline": _side(comparison.baseline),
        "candidate": _side(comparison.candidate),
        "times_are_meaningful": comparison.times is not None,
        "wrong_outputs": [verdict.text for verdict in comparison.wrong],
        "differences": [dataclasses.asdict(difference) for difference in comparison.differences],
        "notes": list(comparison.notes),
        "structure": _records(comparisons.STRUCTURE.of_each([comparison])),
        "operators": [
            record | {"speed_up_interval_over_calls": _pair(record)}
            for record in _records(comparisons.OPERATOR_CHANGES.of_each([comparison]))
        ],
    }
    if comparison.tokens is not None:
        document["tokens"] = {
            "first_difference": comparison.tokens.first_difference,
            "text": str(comparison.tokens),
        }
    times = _comparison_times(comparison, comparison.times) if comparison.times else {}
    return with_raw_names(document | times)


def _comparison_times(comparison: Comparison, times: ComparedTimes) -> Document:
    waterfall, panel = times.waterfall, times.amdahl
    categories = _records(comparisons.CATEGORY_CHANGES.of_each([comparison]))
    return {
        "latency": effect_document(times.latency),
        "validity": {
            "badge": times.validity.badge,
            "checks": [dataclasses.asdict(check) for check in times.validity.checks],
        },
        "cold_start": [
            {
                "label": cost.label,
                "unit": cost.unit,
                "baseline": cost.baseline,
                "candidate": cost.candidate,
                "effect": effect_document(cost.effect),
            }
            for cost in times.ledger
        ],
        "categories": {str(record.pop("category")): record for record in categories},
        "classes": _records(comparisons.CLASS_CHANGES.of_each([comparison])),
        "waterfall": {
            "baseline_ns": waterfall.baseline_ns,
            "candidate_ns": waterfall.candidate_ns,
            "residual_ns": waterfall.residual_ns,
            "steps": _records(comparisons.WATERFALL.of_each([comparison])),
        }
        if waterfall
        else None,
        "amdahl": {
            **{
                field.name: getattr(panel, field.name)
                for field in dataclasses.fields(panel)
                if field.name != "bottlenecks"
            },
            "bottlenecks": [
                {"category": bottleneck.operator_class.category, **record}
                for bottleneck, record in zip(
                    panel.bottlenecks,
                    _records(comparisons.BOTTLENECKS.of_each([comparison])),
                    strict=True,
                )
            ],
        }
        if panel
        else None,
    }


def effect_document(effect: Effect | None) -> Document | None:
    """Returns a speedup with its interval, test and verdict."""
    return dataclasses.asdict(effect) | {"log_ratios": list(effect.log_ratios)} if effect else None


def _side(side: Side) -> Document:
    experiment = side.experiment
    return {
        "run": str(side.run.source),
        "experiment": experiment.name,
        "sme": experiment.sme,
        "threads": experiment.threads,
    }


def _records(table: Table) -> list[Document]:
    """A table's records without the name of what they stand under."""
    owners = {"experiment", "comparison"}
    return [{k: v for k, v in record.items() if k not in owners} for record in json_records(table)]


def _pair(record: Document) -> list[float] | None:
    low, high = record["speed_up_low"], record["speed_up_high"]
    return None if low is None or high is None else [low, high]


def _thread_map(experiments: Sequence[ExperimentAnalysis]) -> Document | None:
    thread_map = build_thread_map(experiments)
    if thread_map is None:
        return None
    return {
        "cells": [
            {"sme": cell.sme, "threads": cell.threads, "median_ns": cell.median_ns}
            for cell in thread_map.cells
        ],
        "best": {"sme": thread_map.best.sme, "threads": thread_map.best.threads},
        "crossover_threads": thread_map.crossover_threads,
    }


def _findings(experiment_findings: ExperimentFindings) -> Document:
    reasons = _records(findings.WHY_NOT.of_each([experiment_findings]))
    return {
        "experiment": experiment_findings.experiment,
        "checked": list(experiment_findings.checked),
        "withheld": list(experiment_findings.withheld),
        "findings": [
            {name: value for name, value in dataclasses.asdict(finding).items() if name != "claims"}
            | {"action": finding.advice, "guide": finding.guide}
            for finding in experiment_findings.findings
        ],
        "reference_answers": [
            dataclasses.asdict(answer) for answer in experiment_findings.reference_answers
        ],
        "why_not_sme2": [
            {
                "code": record["code"],
                "reason": record["reason"],
                "source": record["known_from"],
                "operators": [detail.row.label for detail in group.operators],
                "mean_ns": record["mean_ns"],
                "gain_ns": record["gain_ns"],
            }
            for group, record in zip(experiment_findings.why_not_sme2, reasons, strict=True)
        ],
    }


def _categories_ms(experiment: ExperimentAnalysis) -> dict[str, float]:
    """Returns what an inference spends in each headline category."""
    times_by_category = category_times(experiment.split)
    return {name: times.mean_ns / _NS_PER_MS for name, times in times_by_category.items()}


def _experiment(insight: ExperimentInsight) -> Document:
    """One experiment; where nothing is timed, without any time."""
    experiment, times = insight.experiment, insight.experiment.split.times
    generated = experiment.metrics.generated if experiment.metrics else None
    speed = experiment.generation
    return {
        "etdump": clean(experiment.etdump.name),
        "sme": experiment.sme,
        "threads": experiment.threads,
        "generation": generated.model_dump()
        | {"speed": dataclasses.asdict(speed) if speed else None}
        if generated
        else None,
        "executions": experiment.split.executions,
        "left_out": dataclasses.asdict(experiment.split.left_out),
        "operators": _records(operators.OPERATORS.of_each([insight])),
        "unknown_names": list(experiment.split.unknown_names),
        **(_experiment_times(experiment, times) if times else {}),
    }


def _experiment_times(experiment: ExperimentAnalysis, times: SplitTimes) -> Document:
    return {
        "latency": _latency(experiment.latency) if experiment.latency else None,
        "execute_mean_ns": times.execute.mean_ns,
        "execute_total_ms": times.execute.mean_ns / _NS_PER_MS,
        "execute_median_ns": times.execute_median_ns,
        "first_execute_ns": times.first_execute_ns,
        "load_events_ns": times.load_ns,
        "category_means_ms": _categories_ms(experiment),
        "category_totals_ms": _categories_ms(experiment),
        "categories": _records(operators.CATEGORIES.of_each([experiment])),
        "overheads": [
            {"label": row.label, "class": row.operator_class.finer,
             "mean_ns": row.times.mean_ns, "share": row.times.share}
            for row in experiment.split.overheads
        ],
    }  # fmt: skip


def _latency(latency: Latency) -> Document:
    return {
        "load_ns": _blocked(latency.load) if latency.load else None,
        "first_inference_ns": _blocked(latency.first_inference)
        if latency.first_inference
        else None,
        "given_ns": _blocked(latency.input_setup) if latency.input_setup else None,
        "taken_ns": _blocked(latency.output_readback) if latency.output_readback else None,
        "inferences_per_sample": latency.inferences_per_sample,
        "steady_ns": _blocked(latency.steady),
        "samples": dataclasses.asdict(latency.samples),
        "peak_rss_bytes": latency.peak_rss_bytes,
        "rss_after_load_bytes": latency.rss_after_load_bytes,
        "planned_buffers_bytes": latency.planned_buffers_bytes,
    }


def _blocked(summary: BlockedMedian) -> Document:
    interval = dataclasses.asdict(summary.interval) if summary.interval else None
    return {
        "median": summary.median,
        "interval": interval,
        "block_medians": list(summary.block_medians),
    }
