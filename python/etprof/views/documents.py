"""The analysis as JSON data for other programs: tables as records, and what is no table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.split.operators import category_totals_ns
from etprof.analysis.split.thread_map import build_thread_map
from etprof.base.text import clean, with_raw_names
from etprof.tables import comparisons, findings, measurement, operators
from etprof.views.files import json_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.analysis.insight import ExperimentInsight
    from etprof.analysis.run_analysis import ExperimentAnalysis, Latency
    from etprof.statistics.effect import Effect
    from etprof.statistics.summary import BlockedMedian
    from etprof.tables.table import Table

    Document = dict[str, Any]

SUMMARY_VERSION: Final = 1
COMPARISON_VERSION: Final = 1
_NS_PER_MS: Final = 1e6


def assessment_document(assessment: Assessment) -> Document:
    """Returns everything that is known of a run; times in ns or, where named so, in ms."""
    run = assessment.run
    timed = run.is_timed
    return with_raw_names({
        "schema_version": SUMMARY_VERSION,
        "run_id": run.manifest.run_id if run.manifest else None,
        "model": run.manifest.model.name if run.manifest else None,
        "platform": run.manifest.platform if run.manifest else None,
        "times_are_meaningful": timed,
        "category_totals_ms": {e.name: _categories_ms(e) for e in run.experiments} if timed else {},
        "experiments": {
            entry.experiment.name: _experiment(entry, is_timed=timed)
            for entry in assessment.insight.experiments
        },
        "comparisons": [comparison_document(entry) for entry in assessment.comparisons],
        "thread_map": _thread_map(run.experiments) if timed else None,
        "tracer_costs": json_records(
            measurement.tracer_table(assessment.tracer_costs, is_timed=timed)
        ),
        "findings": [_findings(entry, is_timed=timed) for entry in assessment.findings],
        "reference": clean(str(assessment.reference.source)) if assessment.reference else None,
        "notes": list(assessment.notes),
    })  # fmt: skip


def comparison_document(comparison: Comparison) -> Document:
    """Returns a comparison as JSON data; times that mean nothing are left out."""
    timed = comparison.times_are_meaningful
    document: Document = {
        "schema_version": COMPARISON_VERSION,
        "name": comparison.name,
        "baseline": _side(comparison.baseline),
        "candidate": _side(comparison.candidate),
        "times_are_meaningful": timed,
        "differences": [dataclasses.asdict(entry) for entry in comparison.differences],
        "notes": list(comparison.notes),
        "validity": {
            "badge": comparison.validity.badge,
            "checks": [dataclasses.asdict(check) for check in comparison.validity.checks],
        },
        "operators": [
            record | {"speed_up_interval_over_calls": _pair(record)}
            for record in _records(comparisons.operator_changes([comparison], is_timed=timed))
        ],
    }
    if comparison.tokens is not None:
        document["tokens"] = {
            "first_difference": comparison.tokens.first_difference,
            "text": str(comparison.tokens),
        }
    return with_raw_names(document | (_comparison_times(comparison) if timed else {}))


def _comparison_times(comparison: Comparison) -> Document:
    waterfall, panel = comparison.waterfall, comparison.amdahl
    categories = _records(comparisons.category_changes([comparison]))
    steps = _records(comparisons.waterfall_table([comparison]))
    return {
        "latency": effect_document(comparison.latency),
        "cold_start": [
            {
                "label": entry.label,
                "unit": entry.unit,
                "baseline": entry.baseline,
                "candidate": entry.candidate,
                "effect": effect_document(entry.effect),
            }
            for entry in comparison.ledger
        ],
        "categories": {str(record.pop("category")): record for record in categories},
        "classes": _records(comparisons.class_changes([comparison])),
        "waterfall": {
            "baseline_ns": waterfall.baseline_ns,
            "candidate_ns": waterfall.candidate_ns,
            "residual_ns": waterfall.residual_ns,
            "steps": steps,
        },
        "amdahl": {
            **{
                field.name: getattr(panel, field.name)
                for field in dataclasses.fields(panel)
                if field.name != "bottlenecks"
            },
            "bottlenecks": [
                {"category": entry.operator_class.category, **record}
                for entry, record in zip(
                    panel.bottlenecks,
                    _records(comparisons.bottleneck_table([comparison])),
                    strict=True,
                )
            ],
        },
    }


def effect_document(effect: Effect | None) -> Document | None:
    """Returns a speed-up with its interval, test and verdict."""
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
    found = build_thread_map(experiments)
    if found is None:
        return None
    return {
        "cells": [
            {"sme": cell.sme, "threads": cell.threads, "median_ns": cell.median_ns}
            for cell in found.cells
        ],
        "best": {"sme": found.best.sme, "threads": found.best.threads},
        "crossover_threads": found.crossover_threads,
    }


def _findings(found: ExperimentFindings, *, is_timed: bool) -> Document:
    reasons = _records(findings.why_not_table([found], is_timed=is_timed))
    return {
        "experiment": found.experiment,
        "checked": list(found.checked),
        "findings": [dataclasses.asdict(finding) for finding in found.findings],
        "reference_answers": [dataclasses.asdict(answer) for answer in found.reference_answers],
        "why_not_sme2": [
            {
                "code": record["code"],
                "reason": record["reason"],
                "source": record["known_from"],
                "operators": [detail.row.label for detail in group.operators],
                "mean_ns": record["mean_ns"],
                "gain_ns": record["gain_ns"],
            }
            for group, record in zip(found.why_not_sme2, reasons, strict=True)
        ],
    }


def _categories_ms(experiment: ExperimentAnalysis) -> dict[str, float]:
    totals = category_totals_ns(experiment.split)
    return {name: total / _NS_PER_MS for name, total in totals.items()}


def _experiment(insight: ExperimentInsight, *, is_timed: bool) -> Document:
    """One experiment; where times mean nothing, without any."""
    experiment = insight.experiment
    generated = experiment.metrics.generated if experiment.metrics else None
    speed = experiment.generation if is_timed else None
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
        "operators": _records(operators.operator_table([insight], is_timed=is_timed)),
        "unknown_names": list(experiment.split.unknown_names),
        **(_experiment_times(experiment) if is_timed else {}),
    }


def _experiment_times(experiment: ExperimentAnalysis) -> Document:
    split = experiment.split
    return {
        "latency": _latency(experiment.latency) if experiment.latency else None,
        "execute_total_ms": split.execute_total_ns / _NS_PER_MS,
        "execute_median_ns": split.execute_median_ns,
        "first_execute_ns": split.first_execute_ns,
        "load_events_ns": split.load_ns,
        "category_totals_ms": _categories_ms(experiment),
        "categories": _records(operators.category_table([experiment], is_timed=True)),
        "overheads": [
            {"label": row.label, "class": row.operator_class.finer, "mean_ns": row.mean_ns,
             "share": row.share}
            for row in split.overheads
        ],
    }  # fmt: skip


def _latency(latency: Latency) -> Document:
    return {
        "load_ns": _blocked(latency.load),
        "first_inference_ns": _blocked(latency.first_inference),
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
