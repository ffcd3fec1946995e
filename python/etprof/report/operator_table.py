"""The operator table: one row per operator with everything known of it, formatted and sortable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etprof.base.units import (
    MISSING,
    format_count,
    format_delta,
    format_duration,
    format_ratio,
    format_share,
)
from etprof.report.charts import colour_of, group_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.alignment import AlignedOperator
    from etprof.analysis.compare.comparison import Change, Comparison
    from etprof.analysis.insight import OperatorDetail

View = dict[str, Any]
Cell = tuple[str, float | None]
"""Text and the number it is sorted by; None sorts last."""


def operator_table(assessment: Assessment) -> View:
    """Operators of the primary comparison side by side, or of the one experiment."""
    comparison = assessment.primary_comparison
    meaningful = assessment.run.times_are_meaningful
    details = {id(d.row): d for e in assessment.insight.experiments for d in e.details}
    if comparison is None:
        rows = [
            _row(number, detail, _single_cells(detail) if meaningful else [])
            for number, detail in enumerate(assessment.primary.details, start=1)
        ]
        columns = ["median", "mean", "deviation", "share"]
    else:
        rows = list(_compared_rows(comparison, details))
        names = comparison.baseline.experiment.name, comparison.candidate.experiment.name
        columns = [*names, "difference", "speed-up", "share"]
    return {
        "columns": columns if meaningful else [],
        "rows": rows,
        "has_kernels": any(row["kernels"] for row in rows),
        "has_origin": any(row["module"] for row in rows),
        "has_macs": any(row["macs"][1] is not None for row in rows),
        "has_shape": any(row["shape"] for row in rows),
        "show_rates": meaningful,
        "experiment": assessment.primary.experiment.name,
    }


def _compared_rows(comparison: Comparison, details: dict[int, OperatorDetail]) -> Iterator[View]:
    before, after = comparison.baseline.experiment, comparison.candidate.experiment
    for number, entry in enumerate(comparison.operators, start=1):
        pair = entry.aligned
        detail = details[id(pair.row)]
        cells = _compared_cells(entry.change, pair) if comparison.times_are_meaningful else []
        row = _row(number, detail, cells)
        if pair.baseline and pair.candidate and pair.baseline.label != pair.candidate.label:
            row["was"] = f"before: {pair.baseline.label}"
        elif pair.candidate is None or pair.baseline is None:
            row["was"] = f"only in {(after if pair.baseline is None else before).name}"
        yield row


def _compared_cells(change: Change, pair: AlignedOperator) -> list[Cell]:
    before = change.baseline_ns if pair.baseline else None
    after = change.candidate_ns if pair.candidate else None
    return [
        (format_duration(before), before),
        (format_duration(after), after),
        (format_delta(change.delta_ns), change.delta_ns),
        (format_ratio(change.speed_up), change.speed_up),
        (format_share(change.candidate_share), change.candidate_share),
    ]


def _single_cells(detail: OperatorDetail) -> list[Cell]:
    row = detail.row
    return [
        (format_duration(row.median_ns), row.median_ns),
        (format_duration(row.mean_ns), row.mean_ns),
        (format_duration(row.standard_deviation_ns), row.standard_deviation_ns),
        (format_share(row.share), row.share),
    ]


def _row(number: int, detail: OperatorDetail, cells: list[Cell]) -> View:
    row, found = detail.row, detail.attribution
    macs = found.macs if found else None
    origin = found.origin if found else None
    return {
        "number": number,
        "label": row.label,
        "was": "",
        "category": row.operator_class.category,
        "finer": row.operator_class.finer,
        "colour": colour_of(group_of(row.operator_class)),
        "place": "delegate" if row.is_delegated else "portable",
        "cells": cells,
        "kernels": _kernels(detail),
        "grade": detail.evidence.grade if detail.kernels or detail.evidence.could_use_sme2 else "",
        "why_not": detail.why_not_sme2.text if detail.why_not_sme2 else "",
        "macs": (format_count(macs) if macs else MISSING, macs),
        "gflops": _rate_cell(detail, detail.gflops),
        "gigabytes": _rate_cell(detail, detail.gigabytes_per_s),
        "shape": "×".join(map(str, found.shape)) if found and found.shape else "",
        "module": (origin.module_path or origin.module_type) if origin else "",
        "source": detail.source or "",
        "code": origin.source.code if origin and origin.source else "",
    }


def _rate_cell(detail: OperatorDetail, value: float | None) -> Cell:
    limit = "≤ " if detail.rates_are_limits else ""
    return (f"{limit}{value:.1f}" if value else MISSING, value)


def _kernels(detail: OperatorDetail) -> list[str]:
    """Counted microkernels with their calls, else what the name says."""
    if detail.kernels:
        return [
            f"{kernel.name.removeprefix('kai_run_')} ×{kernel.calls:,}" for kernel in detail.kernels
        ]
    return [detail.kernel_hint] if detail.kernel_hint else []
